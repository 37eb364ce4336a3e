"""Coscheduling: holds members of incomplete gangs back, marks pods that are bound together, and preempts whole jobs.

The engine (`seatrial.scheduler.groups`) places a gang group as one decision. With `enablePreemption` a gang group or
pod that fits nowhere may evict whole jobs of lower priority (`preemption`). Follows Koordinator
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
from seatrial.scheduler.api.reservation import is_reserve_pod
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.extension_points import (
    NO_METADATA_CHANGES,
    MetadataChanges,
    PostFilter,
    PreBind,
    PreEnqueue,
    Scope,
)
from seatrial.scheduler.framework.fit_error import FitError
from seatrial.scheduler.framework.group_failure import GroupFailure, Unplaced
from seatrial.scheduler.framework.groups import GroupScheduling
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import SUCCESS, PostFilterResult, Status
from seatrial.scheduler.plugins.coscheduling.args import CoschedulingArgs
from seatrial.scheduler.plugins.coscheduling.cache import GangCache
from seatrial.scheduler.plugins.coscheduling.jobs import JobIndex
from seatrial.scheduler.plugins.coscheduling.preemption import JobPreemption


class Coscheduling(PreEnqueue, PostFilter, PreBind, GroupScheduling):
    """Gangs. All profiles share one `GangCache`; the arguments of the first profile count."""

    name = "Coscheduling"
    scope = Scope.NODE

    def __init__(self, handle: Handle, args: CoschedulingArgs | None = None) -> None:
        args = args or CoschedulingArgs()
        self.cache = handle.shared(GangCache, lambda: GangCache(handle, args))
        self.groups = handle.groups = self.cache
        self._handle = handle
        self._jobs: JobIndex | None = None
        if args.enable_preemption:
            self._jobs = handle.shared(JobIndex, lambda: JobIndex(handle.cache, self.cache))

    def pre_enqueue(self, pod: Pod) -> Status:
        return self.cache.pre_enqueue(pod) if gang_name(pod) else SUCCESS

    @property
    def serves_groups(self) -> bool:
        return self._jobs is not None

    def post_filter_group(self, group: GroupFailure) -> PostFilterResult:
        assert self._jobs is not None  # noqa: S101
        return JobPreemption(self._handle, self._jobs, group).run()

    def post_filter(self, state: CycleState, info: PodInfo, failure: FitError) -> PostFilterResult:
        """A pod without a gang preempts whole jobs too; DefaultPreemption, which may evict parts, does not follow."""
        if self._jobs is None or failure.pre_filter is not None or is_reserve_pod(info.pod):
            return PostFilterResult(Status.unschedulable())
        group = GroupFailure(info.key, info, (Unplaced(info, failure, state),))
        found = JobPreemption(self._handle, self._jobs, group).run()
        if found.status.ok:
            return found
        return PostFilterResult(Status.unresolvable(*found.status.reasons), clear_nomination=found.clear_nomination)

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
