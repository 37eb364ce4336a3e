"""DynamicResources: keeps pods with resource claims (dynamic resource allocation) waiting: none is allocated here.

kube-scheduler's plugin of this name allocates the claims. Without it a pod would run without its devices.
"""

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.framework.extension_points import PreFilter, Scope
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import Status


class DynamicResources(PreFilter):
    """A pod with resource claims fits no node, and no eviction can help."""

    name = "DynamicResources"
    scope = Scope.NODE

    def __init__(self, handle: Handle) -> None:
        del handle

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        names = ", ".join(claim.name for claim in pod.spec.resource_claims)
        if not names:
            return Status.skip()
        return Status.unresolvable(
            f"resource claims are not supported by this scheduler, found {names}; request extended resources"
        )
