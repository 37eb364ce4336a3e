"""PodGroup controller: writes the status of PodGroups. `phases.py` and `conditions.py` decide what to write."""

import logging
from functools import partial
from urllib.parse import quote

from seatrial.scheduler.api.podgroup import NATIVE_API
from seatrial.scheduler.api.transport import Response
from seatrial.scheduler.client.rest import refusal
from seatrial.scheduler.framework.controllers import Controller, ControllerContext
from seatrial.scheduler.plugins.coscheduling.cache import GangCache
from seatrial.scheduler.plugins.coscheduling.conditions import next_conditions
from seatrial.scheduler.plugins.coscheduling.phases import next_status

log = logging.getLogger(__name__)

RETRY_PAUSE = 1.0  # seconds before a status that was refused is written again
GROUP = "/apis/scheduling.sigs.k8s.io/v1alpha1"


class PodGroupController(Controller):
    """One write at a time for each PodGroup: the next one is decided when the last was answered and delivered."""

    def __init__(self, cache: GangCache, context: ControllerContext) -> None:
        self._cache, self._rest, self._clock = cache, context.rest, context.clock
        self._writing: set[str] = set()

    def work(self) -> None:
        """Write the status of all PodGroups whose gangs changed."""
        cache = self._cache
        if not cache.changed:
            return
        changed, cache.changed = cache.changed, set()
        for key in sorted(changed):
            self._clock.attempt("PodGroupController._write", key, partial(self._write, cache, key))

    def _write(self, cache: GangCache, key: str) -> None:
        if key in self._writing:
            cache.changed.add(key)
            return
        pod_group, native, gang = cache.objects.get(key), cache.native.get(key), cache.gangs.get(key)
        if gang is None:
            return
        if native is not None:
            metadata, status = native.metadata, next_conditions(native, gang, self._clock.timestamp())
        elif pod_group is not None:
            metadata = pod_group.metadata
            status = next_status(pod_group, gang, cache.ended.get(key, {}), self._clock.timestamp())
        else:
            return
        if status is None:
            return
        self._writing.add(key)

        def written(response: Response) -> None:
            self._writing.discard(key)
            if not response.ok and response.code != 404:
                log.info("status not written podgroup=%s why=%s", key, refusal(response))
                self._clock.call_later(RETRY_PAUSE, lambda: self._again(cache, key))
            elif key in cache.changed:
                self.work()  # a watch may deliver a write before its answer comes, and nothing else may follow

        path = f"namespaces/{quote(metadata.namespace)}/podgroups/{quote(metadata.name)}"
        path = f"{GROUP}/{path}" if native is None else f"{NATIVE_API}/{path}/status"
        self._rest.merge(path, {"status": status}, written, uid=metadata.uid)

    def _again(self, cache: GangCache, key: str) -> None:
        cache.changed.add(key)
        self.work()
