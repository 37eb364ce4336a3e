"""NodeName, NodeUnschedulable, TaintToleration and NodeAffinity: filters on the node object alone.

Follows kubernetes pkg/scheduler/framework/plugins/<name>. Results depend only on the two objects.
"""

import operator
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from seatrial.scheduler.api import core
from seatrial.scheduler.api.core import (
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    UNSCHEDULABLE_TAINT,
    Affinity,
    Pod,
    PodSpec,
    Taint,
    Toleration,
)
from seatrial.scheduler.cache.columns import Batch, Bools, Ints
from seatrial.scheduler.cache.node_facts import NodeFact
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.framework.accelerations import FilterBatch, ScoreBatch
from seatrial.scheduler.framework.extension_points import Args, ByMaximum, PreFilter, Scope
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.framework.status import SUCCESS, Code, Status
from seatrial.scheduler.plugins.node_selection import LabelFacts, Selection, admits, tolerated

UNSCHEDULABLE = Status(Code.UNRESOLVABLE, ("node(s) were unschedulable",), of_taints=True)
WRONG_NAME = Status.unresolvable("node(s) didn't match the requested node name")
UNTOLERATED = Status(Code.UNRESOLVABLE, ("node(s) had untolerated taint(s)",), of_taints=True)
NO_MATCH = Status.unresolvable("node(s) didn't match Pod's node affinity/selector")
NOT_ENFORCED = Status.unresolvable("node(s) didn't match scheduler-enforced node affinity")
CONFLICT = Status.unresolvable("pod affinity terms conflict")

Rejections = tuple[Ints, Callable[[int], Status]]

_CORDON = Taint(key=UNSCHEDULABLE_TAINT, effect=NO_SCHEDULE)


def _all_alike(passing: Bools | None, batch: Batch, status: Status) -> Rejections:
    """One status for every rejected node."""
    codes = np.zeros(batch.size, np.int64) if passing is None else (~passing[0]).astype(np.int64)
    return codes, lambda _: status


class NodeName(PreFilter, FilterBatch):
    """The extension points of NodeName."""

    name = "NodeName"
    scope = Scope.NODE

    def __init__(self, handle: Handle) -> None:
        self._names: NodeFact[str] = NodeFact(handle.cache, lambda node: node.name)

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        return SUCCESS if pod.spec.node_name else Status.skip()

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS if pod.spec.node_name in {"", node.name} else WRONG_NAME

    def filter_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Bools | None:
        return None  # only a pod that is bound has a node name, and such a pod is in no queue

    def reasons_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Rejections:
        return _all_alike(self.filter_batch(stacked, batch), batch, WRONG_NAME)


class NodeUnschedulable(PreFilter, FilterBatch):
    """The extension points of NodeUnschedulable."""

    name = "NodeUnschedulable"
    scope = Scope.NODE

    def __init__(self, handle: Handle) -> None:
        self._cordoned: NodeFact[bool] = NodeFact(handle.cache, lambda node: node.spec.unschedulable)

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        return Status.skip() if tolerated(_CORDON, pod.spec.tolerations) else SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        if not node.known.spec.unschedulable or tolerated(_CORDON, pod.spec.tolerations):
            return SUCCESS
        return UNSCHEDULABLE

    def filter_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Bools | None:
        return self._cordoned.judge(batch, [operator.not_] * len(stacked))

    def reasons_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Rejections:
        return _all_alike(self.filter_batch(stacked, batch), batch, UNSCHEDULABLE)


TOLERATIONS: StateKey[tuple[Toleration, ...]] = StateKey("TaintToleration/tolerations")


class TaintToleration(PreFilter, FilterBatch, ScoreBatch):
    """The extension points of TaintToleration."""

    name = "TaintToleration"
    scope = Scope.NODE
    normalizer = ByMaximum(reverse=True)

    def __init__(self, handle: Handle) -> None:
        self._taints: NodeFact[tuple[Taint, ...]] = NodeFact(handle.cache, lambda node: node.spec.taints)

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        state[TOLERATIONS] = pod.spec.tolerations
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return SUCCESS if admits(node.known.spec.taints, pod.spec.tolerations) else UNTOLERATED

    def filter_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Bools | None:
        return self._taints.judge(batch, [partial(admits, tolerations=state[TOLERATIONS]) for state in stacked])

    def reasons_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Rejections:
        return _all_alike(self.filter_batch(stacked, batch), batch, UNTOLERATED)

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        """The number of PreferNoSchedule taints that the pod does not tolerate; fewer is better."""
        return _disliked(node.known.spec.taints, pod.spec.tolerations)

    def score_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Ints | None:
        return self._taints.measure(batch, [partial(_disliked, tolerations=state[TOLERATIONS]) for state in stacked])


def _disliked(taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]) -> int:
    counted = [toleration for toleration in tolerations if toleration.effect in {"", PREFER_NO_SCHEDULE}]
    return sum(taint.effect == PREFER_NO_SCHEDULE and not tolerated(taint, counted) for taint in taints)


SELECTION: StateKey[Selection] = StateKey("NodeAffinity/selection")


class NodeAffinityArgs(Args, frozen=True):
    """`added_affinity`: required of every pod of the profile, besides the pod's own affinity."""

    added_affinity: core.NodeAffinity | None = None


class NodeAffinity(PreFilter, FilterBatch, ScoreBatch):
    """The extension points of NodeAffinity."""

    name = "NodeAffinity"
    scope = Scope.NODE
    honours_pins = True
    normalizer = ByMaximum()

    def __init__(self, handle: Handle, args: NodeAffinityArgs | None = None) -> None:
        self._facts = handle.shared(LabelFacts)
        added = args.added_affinity if args is not None else None
        self._added = Selection(Pod(spec=PodSpec(affinity=Affinity(added)))) if added is not None else None

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        selection = state[SELECTION] = Selection(pod)
        if not selection.asks and not (self._added is not None and self._added.asks):
            return Status.skip()
        names = selection.only_names()
        if names is None:
            return SUCCESS
        return Status.only(names) if names else CONFLICT

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        name, labels = node.name, node.known.metadata.labels
        if self._added is not None and not self._added.admits(name, labels):
            return NOT_ENFORCED
        return SUCCESS if state[SELECTION].admits(name, labels) else NO_MATCH

    def filter_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Bools | None:
        lines = np.concatenate([self._admitted(state[SELECTION], batch) for state in stacked])
        if self._added is not None:
            lines &= self._admitted(self._added, batch)
        return lines

    def reasons_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Rejections:
        """1: the pod's own affinity fails; 2: the profile's."""
        codes = (~self._admitted(stacked[0][SELECTION], batch)[0]).astype(np.int64)
        if self._added is not None:
            codes[~self._admitted(self._added, batch)[0]] = 2
        return codes, lambda code: NOT_ENFORCED if code == 2 else NO_MATCH

    def _admitted(self, selection: Selection, batch: Batch) -> Bools:
        """Whether each row passes, [1, node]; each selection may read other labels."""
        line = self._facts.of(selection).judge(batch, [selection.admits_value])
        return np.ones((1, batch.size), np.bool_) if line is None else line

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        selection = state.get(SELECTION)
        if selection is None:
            selection = state[SELECTION] = Selection(pod)
        return bool(selection.preferred or (self._added is not None and self._added.preferred))

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        name, labels = node.name, node.known.metadata.labels
        liked = self._added.liking(name, labels) if self._added is not None else 0
        return liked + state[SELECTION].liking(name, labels)

    def score_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Ints | None:
        lines = np.concatenate([self._term_matches(state[SELECTION], batch) for state in stacked])
        if self._added is not None:
            lines += self._term_matches(self._added, batch)
        return lines

    def _term_matches(self, selection: Selection, batch: Batch) -> Ints:
        line = self._facts.of(selection).measure(batch, [selection.liking_of_value])
        return np.zeros((1, batch.size), np.int64) if line is None else line
