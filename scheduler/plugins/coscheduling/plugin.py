"""Coscheduling: holds members of incomplete gangs back, and marks the pods that are bound together.

The engine (`seatrial.scheduler.groups`) places a gang group as one decision. Follows Koordinator
`pkg/scheduler/plugins/coscheduling`; deviations are in scheduler/DESIGN.md.
"""

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.podgroup import (
    BIND_GANG_GROUP,
    BIND_MEMBER_COUNT,
    OLD_BIND_GANG_GROUP,
    OLD_BIND_MEMBER_COUNT,
    gang_name,
)
from seatrial.scheduler.framework.extension_points import (
    NO_METADATA_CHANGES,
    MetadataChanges,
    PreBind,
    PreEnqueue,
    Scope,
)
from seatrial.scheduler.framework.groups import GroupScheduling
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.plugins.coscheduling.args import CoschedulingArgs
from seatrial.scheduler.plugins.coscheduling.cache import GangCache


class Coscheduling(PreEnqueue, PreBind, GroupScheduling):
    """Gangs. All profiles share one `GangCache`; the arguments of the first profile count."""

    name = "Coscheduling"
    scope = Scope.NODE

    def __init__(self, handle: Handle, args: CoschedulingArgs | None = None) -> None:
        args = args or CoschedulingArgs()
        for name in args.unsupported:
            handle.complaints.append(f"Coscheduling args {name}: true has no effect: it is not supported")
        self.cache = handle.shared(GangCache, lambda: GangCache(handle, args))
        self.groups = handle.groups = self.cache

    def pre_enqueue(self, pod: Pod) -> Status:
        return self.cache.pre_enqueue(pod) if gang_name(pod) else SUCCESS

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> MetadataChanges:
        """How many pods are bound together with this one (GANG-R40)."""
        gang = self.cache.gang_of(pod.metadata.uid)
        if gang is None:
            return NO_METADATA_CHANGES
        group = gang.group
        if len(group.binding) < 2 or pod.metadata.uid not in group.binding:
            return NO_METADATA_CHANGES
        count = str(len(group.binding))
        return MetadataChanges(
            {
                BIND_GANG_GROUP: group.id,
                BIND_MEMBER_COUNT: count,
                OLD_BIND_GANG_GROUP: group.id,
                OLD_BIND_MEMBER_COUNT: count,
            },
            {},
        )
