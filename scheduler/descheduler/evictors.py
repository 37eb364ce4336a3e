"""MigrationEvictor: the evictor that creates migration jobs."""

from seatrial.scheduler.descheduler.framework import Evictor
from seatrial.scheduler.descheduler.migration.controller import MigrationController
from seatrial.scheduler.descheduler.objects import Pod


class MigrationEvictor(Evictor):
    """Creates a PodMigrationJob for each pod (RSV-R80)."""

    name = "MigrationController"

    def __init__(self, controller: MigrationController) -> None:
        self._controller = controller

    def may_evict(self, pod: Pod) -> bool:
        return self._controller.may_evict(pod)

    def evict(self, pod: Pod, trigger: str, reason: str) -> bool:
        return self._controller.migrate(pod, trigger, reason)
