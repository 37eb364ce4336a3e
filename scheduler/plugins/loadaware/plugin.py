"""LoadAwareScheduling: keep pods off nodes with high real usage, and prefer nodes with low real usage.

Follows Koordinator `pkg/scheduler/plugins/loadaware` (FWK-R49 to FWK-R63). Usage comes from NodeMetric objects; pods
that a report does not cover yet count with estimates.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import numpy as np

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL, QOS_LABEL
from seatrial.scheduler.api.slo import ESTIMATED_AFTER_INITIALIZED, ESTIMATED_AFTER_SCHEDULED, ESTIMATED_FACTORS
from seatrial.scheduler.cache.classes import of_daemon_set
from seatrial.scheduler.cache.columns import Batch, Bools, Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.framework.accelerations import FilterBatch, ScoreBatch
from seatrial.scheduler.framework.extension_points import MAX_NODE_SCORE, PreFilter, Reserve, Scope
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.plugins.loadaware.args import LoadAwareSchedulingArgs
from seatrial.scheduler.plugins.loadaware.cache import (
    EXPIRED,
    FILTER,
    FILTER_PROD,
    JUDGE,
    PASS,
    PLUGIN,
    SCORE,
    LoadCache,
    LoadRow,
)
from seatrial.scheduler.plugins.loadaware.estimator import Vector

METRIC_EXPIRED = Status.unschedulable("node(s) nodeMetric expired")


class Incoming(NamedTuple):
    """The pod that is scheduled: its estimate and what decides by which usage it is judged."""

    estimate: Vector
    prod: bool
    of_daemon_set: bool


class _Stacked(NamedTuple):
    """Several equivalence classes."""

    estimates: Ints  # [class, resource, 1]
    prod: Bools  # [class, 1]
    of_daemon_set: Bools  # [class, 1]


INCOMING: StateKey[Incoming] = StateKey("LoadAwareScheduling/incoming")


class LoadAwareScheduling(PreFilter, FilterBatch, ScoreBatch, Reserve):
    """The extension points of LoadAwareScheduling."""

    name = PLUGIN
    scope = Scope.NODE_PODS
    reads_labels = (QOS_LABEL, PRIORITY_CLASS_LABEL)
    reads_annotations = (ESTIMATED_FACTORS, ESTIMATED_AFTER_SCHEDULED, ESTIMATED_AFTER_INITIALIZED)
    has_signature = True
    reserves = False

    def __init__(self, handle: Handle, args: LoadAwareSchedulingArgs | None = None) -> None:
        args = args or LoadAwareSchedulingArgs()
        self._handle = handle
        self.loads = LoadCache.of(handle, args)
        self._names = args.names
        self._columns = [handle.columns.resources.column(name) for name in args.names]
        self._by_prod = args.score_according_prod_usage
        self._weights = np.array([args.weights.get(name, 0) for name in args.names], np.int64)
        self._dominant = args.dominant_resource_weight
        self._divisor = int(self._weights.sum()) + self._dominant
        self._messages = {
            (name, aggregated): Status.unschedulable(
                f"node(s) {name} {'aggregated ' if aggregated else ''}usage exceed threshold"
            )
            for name in args.names
            for aggregated in (False, True)
        }

    # -- one pod and one node -----------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        """Estimate the pod once for all nodes."""
        self._incoming(state, pod)
        return SUCCESS

    def _incoming(self, state: CycleState, pod: Pod) -> Incoming:
        entry = state.get(INCOMING)
        if entry is None:
            prod, estimate = self.loads.facts(self._handle.cache.classes.of(pod))
            entry = state[INCOMING] = Incoming(estimate, prod, of_daemon_set(pod))
        return entry

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        incoming, row = self._incoming(state, pod), self.loads.row(node.name)
        if row.verdict == PASS or incoming.of_daemon_set:
            return SUCCESS
        as_prod = incoming.prod and row.limits.prod is not None
        limits = row.limits.prod if as_prod and row.limits.prod is not None else row.limits.usage
        if not any(limits):
            return SUCCESS
        if row.verdict == EXPIRED:
            return METRIC_EXPIRED
        used, capacity = row.used[FILTER_PROD if as_prod else FILTER], self._capacity(row, node)
        for index, limit in enumerate(limits):
            if limit and capacity[index]:
                percent = _percent(used[index] + incoming.estimate[index], capacity[index])
                if percent > limit:
                    aggregated = not as_prod and row.limits.aggregation is not None
                    return self._messages[self._names[index], aggregated]
        return SUCCESS

    def _capacity(self, row: LoadRow, node: NodeInfo) -> list[int]:
        """Allocatable amounts before amplification."""
        have = node.allocatable
        return [
            raw if raw >= 0 else have[column] if column < len(have) else 0
            for raw, column in zip(row.raw, self._columns, strict=True)
        ]

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        self._incoming(state, pod)
        return self._divisor > 0

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        incoming, row = self._incoming(state, pod), self.loads.row(node.name)
        if not row.scored:
            return 0
        used, capacity = row.used[self._view(incoming)], self._capacity(row, node)
        scores = [
            (have - taken - own) * MAX_NODE_SCORE // have if have and taken + own <= have else 0
            for have, taken, own in zip(capacity, used, incoming.estimate, strict=True)
        ]
        weighted = sum(score * weight for score, weight in zip(scores, self._weights.tolist(), strict=True))
        return (weighted + self._dominant * min(scores)) // self._divisor

    def _view(self, incoming: Incoming) -> int:
        return FILTER_PROD if self._by_prod and incoming.prod else SCORE

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """The cache counts the pod as soon as it is assumed on the node, and `LoadCache` with it."""
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """The cache forgets the pod."""

    # -- many at once -------------------------------------------------------------------------------------------------

    def stack(self, states: Sequence[CycleState]) -> _Stacked:
        incoming = [state[INCOMING] for state in states]
        return _Stacked(
            np.array([change.estimate for change in incoming], np.int64)[..., None],
            np.array([[change.prod] for change in incoming], np.bool_),
            np.array([[change.of_daemon_set] for change in incoming], np.bool_),
        )

    def stack_scores(self, states: Sequence[CycleState]) -> _Stacked:
        return self.stack(states)

    def filter_batch(self, stacked: _Stacked, batch: Batch) -> Bools | None:
        verdict = batch.own(self.loads.column("verdict"))
        if not verdict.any():
            return None
        limits, capacity = batch.own(self.loads.column("limits")), self._capacities(batch)
        return self._passing(stacked, batch.own(self.loads.column("used")), limits, capacity, verdict)

    def _passing(self, stacked: _Stacked, used: Ints, limits: Ints, capacity: Ints, verdict: Ints) -> Bools:
        """Results [class, node] for `used` [3, resource, node], `limits` [2, resource, node], `capacity`
        [resource, node] and `verdict` [node]."""
        passing = [self._within(stacked, used[view], limits[view], capacity, verdict) for view in (FILTER, FILTER_PROD)]
        as_prod = stacked.prod & limits[FILTER_PROD].any(0)
        return np.where(as_prod, passing[FILTER_PROD], passing[FILTER]) | stacked.of_daemon_set

    def _within(self, stacked: _Stacked, used: Ints, limits: Ints, capacity: Ints, verdict: Ints) -> Bools:
        total = used + stacked.estimates  # [class, resource, node]
        off = (limits == 0) | (capacity == 0)
        percent = (200 * total + capacity) // np.maximum(2 * capacity, 1)
        within: Bools = (off | (percent <= limits)).all(1)
        limited = limits.any(0)
        return np.where(verdict == JUDGE, within, (verdict == PASS) | ~limited)

    def _capacities(self, batch: Batch) -> Ints:
        batch.columns.ensure_width()
        raw = batch.own(self.loads.column("raw"))
        return np.where(raw >= 0, raw, batch.allocatable[self._columns])

    def score_batch(self, stacked: _Stacked, batch: Batch) -> Ints | None:
        scored = batch.own(self.loads.column("scored"))
        if not scored.any():
            return None
        return self._scores(stacked, batch.own(self.loads.column("used")), self._capacities(batch), scored)

    def _scores(self, stacked: _Stacked, used: Ints, capacity: Ints, scored: Bools) -> Ints:
        """Scores [class, node]; the arguments as in `_passing`, and `scored` [node]."""
        taken = used[SCORE]
        if self._by_prod:
            taken = np.where(stacked.prod[..., None], used[FILTER_PROD], taken)
        left = capacity - taken - stacked.estimates  # [class, resource, node]
        points = np.where((capacity > 0) & (left >= 0), left * MAX_NODE_SCORE // np.maximum(capacity, 1), 0)
        total = (points * self._weights[:, None]).sum(1)
        if self._dominant:
            total += self._dominant * points.min(1)
        total //= self._divisor
        total[:, ~scored] = 0
        return total

    # -- one node and many classes, when a pod was placed there -------------------------------------------------------

    def filter_signature(self, stacked: _Stacked, node: NodeInfo) -> Hashable:
        row = self.loads.row(node.name)
        return None if row.verdict == PASS else (row.token, tuple(self._capacity(row, node)))

    def filter_classes_batch(self, stacked: _Stacked, node: NodeInfo) -> Bools:
        row = self.loads.row(node.name)
        used, limits, capacity = self._arrays(row, node)
        return self._passing(stacked, used, limits, capacity, np.array([row.verdict]))[:, 0]

    def score_signature(self, stacked: _Stacked, node: NodeInfo) -> Hashable:
        row = self.loads.row(node.name)
        return (row.token, tuple(self._capacity(row, node))) if row.scored else None

    def score_classes_batch(self, stacked: _Stacked, node: NodeInfo) -> Ints:
        row = self.loads.row(node.name)
        used, _, capacity = self._arrays(row, node)
        return self._scores(stacked, used, capacity, np.array([row.scored]))[:, 0]

    def _arrays(self, row: LoadRow, node: NodeInfo) -> tuple[Ints, Ints, Ints]:
        zero = (0,) * len(self._names)
        return (
            np.array(row.used, np.int64)[..., None],
            np.array((row.limits.usage, row.limits.prod or zero), np.int64)[..., None],
            np.array(self._capacity(row, node), np.int64)[:, None],
        )

    def reasons_batch(self, stacked: _Stacked, batch: Batch) -> tuple[Ints, Callable[[int], Status]] | None:
        """Codes: 1 for an expired report; from 2 on, two for each resource, the second for aggregates."""
        codes = np.zeros(batch.size, np.int64)
        names, nodes = batch.columns.names, self._handle.cache.nodes
        passing = self.filter_batch(stacked, batch)
        listed = [METRIC_EXPIRED, *(self._messages[name, kind] for name in self._names for kind in (False, True))]
        if passing is not None:
            state = CycleState()
            estimate = tuple(stacked.estimates[0, :, 0].tolist())
            state[INCOMING] = Incoming(estimate, bool(stacked.prod[0, 0]), bool(stacked.of_daemon_set[0, 0]))
            for place in np.flatnonzero(~passing[0]).tolist():
                status = self.filter(state, _NOBODY, nodes[names[batch.rows[place]]])
                codes[place] = 1 + listed.index(status)
        return codes, lambda code: listed[code - 1]


def _percent(used: int, capacity: int) -> int:
    """Percent of the capacity, rounded half up."""
    return (200 * used + capacity) // (2 * capacity)


_NOBODY = Pod()  # the cycle state has all that is needed of the pod
