"""ScarceResourceAvoidance: avoid nodes with scarce resources that the pod does not request (Koordinator; FWK-R65)."""

from collections.abc import Sequence

import numpy as np

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.cache.columns import Batch, Bools, Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.cache.resources import BY_CLAIM, PODS_COLUMN
from seatrial.scheduler.framework.accelerations import ScoreBatch
from seatrial.scheduler.framework.extension_points import MAX_NODE_SCORE, Args, Scope
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState, StateKey


class ScarceResourceAvoidanceArgs(Args, frozen=True):
    """Koordinator's arguments."""

    resources: tuple[str, ...] = ()


REQUESTED_COLUMNS: StateKey[frozenset[int]] = StateKey("ScarceResourceAvoidance/asked")


class ScarceResourceAvoidance(ScoreBatch):
    """Scores the percentage of non-scarce resources among those that the node has and the pod does not request."""

    name = "ScarceResourceAvoidance"
    scope = Scope.NODE

    def __init__(self, handle: Handle, args: ScarceResourceAvoidanceArgs | None = None) -> None:
        self._handle = handle
        index = handle.columns.resources
        self._scarce = frozenset(index.column(name) for name in (args or ScarceResourceAvoidanceArgs()).resources)

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        shape = self._handle.cache.classes.of(pod)
        state[REQUESTED_COLUMNS] = frozenset(column for column, _ in shape.vector)  # the pod itself uses one of "pods"
        return bool(self._scarce)

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        unasked = {
            column
            for column, amount in enumerate(node.allocatable)
            if 0 < amount != BY_CLAIM and column != PODS_COLUMN and column not in state[REQUESTED_COLUMNS]
        }
        scarce = unasked & self._scarce
        return (len(unasked) - len(scarce)) * MAX_NODE_SCORE // len(unasked) if scarce else MAX_NODE_SCORE

    def score_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Ints | None:
        batch.columns.ensure_width()
        has = (batch.allocatable > 0) & (batch.allocatable != BY_CLAIM)
        return np.stack([self._scores(state[REQUESTED_COLUMNS] | {PODS_COLUMN}, has) for state in stacked])

    def _scores(self, requests: frozenset[int], has: Bools) -> Ints:
        unasked = np.array([column not in requests for column in range(len(has))])
        scarce = np.array([column in self._scarce for column in range(len(has))]) & unasked
        kinds, blocked = has[unasked].sum(axis=0), has[scarce].sum(axis=0)
        return np.where(blocked > 0, (kinds - blocked) * MAX_NODE_SCORE // np.maximum(kinds, 1), MAX_NODE_SCORE)
