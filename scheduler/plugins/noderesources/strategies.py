"""Upstream's three utilisation scores (kubernetes noderesources, `scoringStrategy`).

All arithmetic is in integers and truncates like Go. `capacity` and `left` are the node's amounts, and what is left
with the pod on it. The forms for one node and for many give the same results.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from seatrial.scheduler.cache.columns import Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.cache.resources import CPU_COLUMN, MEMORY_COLUMN
from seatrial.scheduler.framework.extension_points import MAX_NODE_SCORE


def used_amount(node: NodeInfo, column: int) -> int:
    """What the pods of a node use of a resource, for scores: upstream counts a pod without a request of CPU or memory
    with a default one (`GetNonzeroRequests`)."""
    if column in {CPU_COLUMN, MEMORY_COLUMN}:
        return node.nonzero[column - CPU_COLUMN]
    return node.requested[column] if column < len(node.requested) else 0


class Strategy(ABC):
    """Scores single resources and takes the weighted mean."""

    @abstractmethod
    def one(self, capacity: int, left: int) -> int:
        """Score of one resource of one node, 0 to 100; capacity is not 0."""

    def max_score_delta(self, capacity: int, taken: int) -> int:
        """The maximum increase of `one` when `taken` more of `capacity` is used, while it is not exhausted."""
        raise AssertionError("no bound")

    @property
    def has_delta_bound(self) -> bool:
        """Whether `max_score_delta` has a value."""
        return True

    @abstractmethod
    def many(self, capacity: Ints, left: Ints) -> Ints:
        """`one` for arrays; capacities are at least 1; may overwrite `left`."""

    def mean(self, scored: Sequence[tuple[int, int]]) -> int:
        """The mean of (score, weight) pairs; 0 without weight."""
        weights = sum(weight for _, weight in scored)
        return sum(score * weight for score, weight in scored) // weights if weights else 0

    def mean_many(self, scores: Ints, weights: Ints) -> Ints:
        """`mean` down the first axis, the resource; `weights` has the shape of `scores`, or 1 for the other axes."""
        if len(weights) == weights.size == 2 and weights.flat[0] == weights.flat[1]:
            total = scores[0] + scores[1]
            total >>= 1
            return total
        return (scores * weights).sum(axis=0) // np.maximum(weights.sum(axis=0), 1)


class LeastAllocated(Strategy):
    """Higher scores for lower utilisation."""

    def one(self, capacity: int, left: int) -> int:
        return left * MAX_NODE_SCORE // capacity if left > 0 else 0

    def max_score_delta(self, capacity: int, taken: int) -> int:
        return -(taken * MAX_NODE_SCORE // capacity)

    def many(self, capacity: Ints, left: Ints) -> Ints:
        np.maximum(left, 0, out=left)
        left *= MAX_NODE_SCORE
        left //= capacity
        return left


class MostAllocated(Strategy):
    """Higher scores for higher utilisation."""

    def one(self, capacity: int, left: int) -> int:
        return (capacity - max(left, 0)) * MAX_NODE_SCORE // capacity

    def max_score_delta(self, capacity: int, taken: int) -> int:
        return -(-taken * MAX_NODE_SCORE // capacity)

    def many(self, capacity: Ints, left: Ints) -> Ints:
        np.maximum(left, 0, out=left)
        np.subtract(capacity, left, out=left)
        left *= MAX_NODE_SCORE
        left //= capacity
        return left


class RequestedToCapacityRatio(Strategy):
    """Piecewise linear through (utilisation %, score 0 to 10); the mean rounds, and zero scores have no weight."""

    def __init__(self, shape: Sequence[tuple[int, int]]) -> None:
        self._shape = [(utilization, score * 10) for utilization, score in shape]
        self._table = np.array([self._line(percent) for percent in range(101)], np.int64)

    def _line(self, percent: int) -> int:
        before = None
        for utilization, score in self._shape:
            if percent <= utilization:
                if before is None:
                    return score
                rise = (score - before[1]) * (percent - before[0])
                return before[1] + _truncate(rise, utilization - before[0])
            before = (utilization, score)
        return self._shape[-1][1]

    def one(self, capacity: int, left: int) -> int:
        return int(self._table[100 if left < 0 else (capacity - left) * 100 // capacity])

    @property
    def has_delta_bound(self) -> bool:
        return False

    def many(self, capacity: Ints, left: Ints) -> Ints:
        percent = np.clip((capacity - left) * 100 // capacity, 0, 100)
        return self._table[np.where(left < 0, 100, percent)]

    def mean(self, scored: Sequence[tuple[int, int]]) -> int:
        weights = sum(weight for score, weight in scored if score)
        total = sum(score * weight for score, weight in scored)
        return int(np.floor(total / weights + 0.5)) if weights else 0

    def mean_many(self, scores: Ints, weights: Ints) -> Ints:
        total = (scores * weights).sum(axis=0)
        counted = ((scores > 0) * weights).sum(axis=0)
        return np.floor(total / np.maximum(counted, 1) + 0.5).astype(np.int64)


def _truncate(numerator: int, denominator: int) -> int:
    """Division that truncates towards zero, like Go's."""
    quotient = abs(numerator) // abs(denominator)
    return quotient if (numerator >= 0) == (denominator >= 0) else -quotient
