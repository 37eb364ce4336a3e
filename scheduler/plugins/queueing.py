"""SchedulingGates and PrioritySort: admission to the queue and its order, as upstream."""

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.framework.extension_points import PreEnqueue, QueueSort, Scope
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.status import SUCCESS, Status


class SchedulingGates(PreEnqueue):
    """Keep pods with scheduling gates out of the queue."""

    name = "SchedulingGates"
    scope = Scope.NODE

    def __init__(self, handle: Handle) -> None:
        del handle

    def pre_enqueue(self, pod: Pod) -> Status:
        if not pod.spec.scheduling_gates:
            return SUCCESS
        gates = " ".join(gate.name for gate in pod.spec.scheduling_gates)
        return Status.unresolvable(f"waiting for scheduling gates: [{gates}]")


class PrioritySort(QueueSort):
    """Order of the active queue."""

    name = "PrioritySort"
    scope = Scope.NODE

    def __init__(self, handle: Handle) -> None:
        del handle

    def sort_key(self, pod: Pod, queued_at: float) -> tuple[float, ...]:
        """Higher priority first, then longer waiting time (FWK-R40)."""
        return (-pod.spec.priority, queued_at)
