"""Coscheduling: holds members of incomplete gangs back, marks pods that are bound together, and preempts whole jobs.

It also scores nodes for pods with `network-topology-selector`, so that pods with one value come close to each other.
The group engine (`core/groups/engine.py`) places a gang group as one decision. With `enablePreemption` a gang group or
pod that fits nowhere may evict whole jobs of lower priority (`preemption`). Follows Koordinator
`pkg/scheduler/plugins/coscheduling`; deviations are in scheduler/DESIGN.md.
"""

from collections.abc import Sequence

import numpy as np

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.networktopology import TOPOLOGY_SELECTOR
from seatrial.scheduler.api.podgroup import (
    BIND_GANG_GROUP,
    BIND_MEMBER_COUNT,
    OLD_BIND_GANG_GROUP,
    OLD_BIND_MEMBER_COUNT,
    gang_name,
)
from seatrial.scheduler.api.reservation import is_reserve_pod
from seatrial.scheduler.cache.columns import Batch, Ints, Rows
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.accelerations import ScoreBatch
from seatrial.scheduler.framework.extension_points import (
    NO_METADATA_CHANGES,
    ByMaximum,
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
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.framework.status import SUCCESS, PostFilterResult, Status
from seatrial.scheduler.plugins.coscheduling.args import CoschedulingArgs
from seatrial.scheduler.plugins.coscheduling.cache import GangCache
from seatrial.scheduler.plugins.coscheduling.jobs import JobIndex, Units
from seatrial.scheduler.plugins.coscheduling.preemption import JobPreemption
from seatrial.scheduler.plugins.coscheduling.topology.selector import SelectorPeers, positions

SELECTED: StateKey[str] = StateKey("Coscheduling/selector")
POSITIONS: StateKey[dict[str, int]] = StateKey("Coscheduling/positions")
_MARKS = (BIND_GANG_GROUP, BIND_MEMBER_COUNT, OLD_BIND_GANG_GROUP, OLD_BIND_MEMBER_COUNT)


class Coscheduling(PreEnqueue, PostFilter, ScoreBatch, PreBind, GroupScheduling):
    """Gangs. All profiles share one `GangCache`; the arguments of the first profile count."""

    name = "Coscheduling"
    scope = Scope.CLUSTER
    normalizer = ByMaximum(reverse=True)

    def __init__(self, handle: Handle, args: CoschedulingArgs | None = None) -> None:
        args = args or CoschedulingArgs()
        self.cache = handle.shared(GangCache, lambda: GangCache(handle, args))
        self.groups = self.cache
        handle.place_groups(self.cache)
        self._handle = handle
        self._jobs: JobIndex | None = None
        if args.enable_preemption:
            self._jobs = handle.shared(JobIndex, lambda: JobIndex(handle.cache, self.cache))
        self._topology = self.cache.topology
        if self._topology is not None:
            SelectorPeers.of(handle)  # counts from the start

    # -- pods that attract each other -------------------------------------------------------------------------------

    def concerns(self, pod: Pod) -> bool:
        """Pods with a selector, but not members that gather: their nodes are planned."""
        annotations = pod.metadata.annotations
        if not annotations or TOPOLOGY_SELECTOR not in annotations:
            return False
        topology = self._topology
        if topology is None or not topology.ready or not annotations[TOPOLOGY_SELECTOR]:
            return False
        return not self.cache.gathers(pod.metadata.uid)

    def label_keys(self, pod: Pod) -> frozenset[str]:
        return frozenset()

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        state[SELECTED] = pod.metadata.annotations.get(TOPOLOGY_SELECTOR, "")
        return self.concerns(pod)

    def survey(self, state: CycleState, pod: Pod, nodes: Sequence[NodeInfo]) -> None:
        current_positions = self._positions(state, np.array([node.row for node in nodes], np.intp))
        state[POSITIONS] = {node.name: int(position) for node, position in zip(nodes, current_positions, strict=True)}

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return state[POSITIONS][node.name]

    def score_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Ints:
        (state,) = stacked
        return self._positions(state, batch.rows)[None]

    def _positions(self, state: CycleState, rows: Rows) -> Ints:
        assert self._topology is not None
        return positions(self._topology.view(), rows, SelectorPeers.of(self._handle).rows(state[SELECTED]))

    # -- gangs --------------------------------------------------------------------------------------------------------

    def pre_enqueue(self, pod: Pod) -> Status:
        return self.cache.pre_enqueue(pod) if gang_name(pod) else SUCCESS

    def serves_group(self, pod: Pod) -> bool:
        """Native groups preempt as in kube-scheduler, others with `enablePreemption`."""
        return self._jobs is not None or pod.spec.scheduling_group is not None

    def post_filter_group(self, group: GroupFailure) -> PostFilterResult:
        began = self._handle.clock.monotonic()
        process = JobPreemption(self._handle, self._jobs or Units(self.cache), group).run()
        seconds = self._handle.clock.monotonic() - began
        self.cache.measures.preemption(group.name, success=process.status.ok, seconds=seconds)
        return process

    def post_filter(self, state: CycleState, info: PodInfo, failure: FitError) -> PostFilterResult:
        """A pod without a gang preempts whole jobs too; DefaultPreemption, which may evict parts, does not follow."""
        if self._jobs is None or failure.pre_filter is not None or is_reserve_pod(info.pod):
            return PostFilterResult(Status.unschedulable())
        group = GroupFailure(info.key, info, (Unplaced(info, failure, state),))
        result = self.post_filter_group(group)
        if result.status.ok:
            return result
        return PostFilterResult(Status.unresolvable(*result.status.reasons), clear_nomination=result.clear_nomination)

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> MetadataChanges:
        """How many pods are bound together with this one (GANG-R40). A pod that is bound alone loses such marks, which
        it has if its manifest is a copy of a bound pod."""
        gang = self.cache.gang_of(pod.metadata.uid)
        if gang is None:
            return _without_marks(pod)
        group = gang.group
        if len(group.binding) < 2 or pod.metadata.uid not in group.binding:
            return _without_marks(pod)
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


def _without_marks(pod: Pod) -> MetadataChanges:
    annotations = pod.metadata.annotations
    stale = tuple(key for key in _MARKS if key in annotations) if annotations else ()
    return MetadataChanges({}, {}, stale=stale) if stale else NO_METADATA_CHANGES
