"""Evictors: by a migration job, or at once by the Eviction API."""

import logging

from seatrial.scheduler.api.transport import Response
from seatrial.scheduler.client.rest import Rest, refusal
from seatrial.scheduler.descheduler.args import MigrationControllerArgs
from seatrial.scheduler.descheduler.evictability import why_not
from seatrial.scheduler.descheduler.framework import Evictor
from seatrial.scheduler.descheduler.migration.controller import MigrationController, evict
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.state import ClusterState

log = logging.getLogger(__name__)


class MigrationEvictor(Evictor):
    """Creates a PodMigrationJob for each pod (RSV-R80)."""

    name = "MigrationController"

    def __init__(self, controller: MigrationController) -> None:
        self._controller = controller

    def may_evict(self, pod: Pod) -> bool:
        return self._controller.may_evict(pod)

    def evict(self, pod: Pod, trigger: str, reason: str) -> bool:
        return self._controller.migrate(pod, trigger, reason)


class DefaultEvictor(Evictor):
    """Evicts at once; a disruption budget may still refuse it, which is logged."""

    name = "DefaultEvictor"

    def __init__(self, state: ClusterState, args: MigrationControllerArgs, rest: Rest) -> None:
        self._state, self._args, self._rest = state, args, rest

    def may_evict(self, pod: Pod) -> bool:
        return not why_not(self._state, self._args, pod, list(self._state.nodes.values()))

    def evict(self, pod: Pod, trigger: str, reason: str) -> bool:
        if not self.may_evict(pod):
            return False

        def answered(response: Response) -> None:
            if not response.ok:
                log.warning("evict refused pod=%s strategy=%s why=%s", pod.key, trigger, refusal(response))

        options = {**(self._args.default_delete_options or {}), "preconditions": {"uid": pod.metadata.uid}}
        log.info("evict pod=%s node=%s strategy=%s reason=%s", pod.key, pod.spec.node_name, trigger, reason)
        evict(self._rest, pod, options, answered)
        return True
