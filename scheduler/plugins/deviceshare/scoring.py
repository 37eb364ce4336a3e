"""Scores of a card, or of a node's cards together, for a request (Koordinator deviceshare/scoring.go)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seatrial.scheduler.api.device import FPGA, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA
from seatrial.scheduler.api.quantity import Amounts
from seatrial.scheduler.cache.columns import Ints
from seatrial.scheduler.framework.extension_points import MAX_NODE_SCORE

StrategyType = Literal["LeastAllocated", "MostAllocated"]

DEFAULT_WEIGHTS: Mapping[str, int] = {GPU_MEMORY_RATIO: 1, GPU_MEMORY: 1, RDMA: 1, FPGA: 1}


@dataclass(frozen=True, slots=True)
class Scorer:
    """LeastAllocated prefers empty devices, MostAllocated full ones; each resource has a weight."""

    strategy: StrategyType = "LeastAllocated"
    weights: tuple[tuple[str, int], ...] = tuple(DEFAULT_WEIGHTS.items())

    def score(self, total: Amounts, free: Amounts, amounts: Amounts) -> int:
        """Weighted mean over the weighted resources that `total` has, 0 to 100 (DEV-R59)."""
        score = weights = 0
        for name, weight in self.weights:
            capacity = total.get(name, 0)
            if capacity <= 0:
                continue
            left = free.get(name, 0)
            used = capacity - left + amounts.get(name, 0) if left <= capacity else capacity
            if self.strategy == "LeastAllocated":
                part = 0 if used > capacity else (capacity - used) * MAX_NODE_SCORE // capacity
            else:
                part = min(used, capacity) * MAX_NODE_SCORE // capacity
            score += part * weight
            weights += weight
        return score // weights if weights else 0

    def max_score_delta(self, total: Amounts, taken: Amounts) -> int:
        """The maximum increase of `score` when `taken` more of `total` is used and the request still fits."""
        change = weights = 0
        for name, weight in self.weights:
            capacity = total.get(name, 0)
            if capacity > 0:
                weights += weight
                moved = taken.get(name, 0) * MAX_NODE_SCORE
                change += weight * (
                    -(moved // capacity) if self.strategy == "LeastAllocated" else -(-moved // capacity)
                )
        return -(-change // weights) if weights else 0

    def over(self, names: tuple[str, ...]) -> "ColumnScorer":
        """The same for many nodes, with columns for these resources."""
        weights = dict(self.weights)
        return ColumnScorer(self.strategy, tuple(weights.get(name, 0) for name in names))


class ColumnScorer:
    """`Scorer.score` over columns [resource, node] of sums; a resource that a node does not have has weight 0 there."""

    def __init__(self, strategy: StrategyType, weights: tuple[int, ...]) -> None:
        self._all_weights = weights
        self._least = strategy == "LeastAllocated"
        used = [index for index, weight in enumerate(weights) if weight]
        low, high = (used[0], used[-1] + 1) if used else (0, 0)
        self._rows = slice(low, high)
        self._weights = np.array(weights[low:high], np.int64).reshape(-1, 1, 1)
        self._plain = bool((self._weights == 1).all())

    def weight_of(self, total: Sequence[int]) -> int:
        """Sum of the weights of the resources that exist, at least 1; the argument `weights` of `score_batch`."""
        return max(sum(weight for item, weight in zip(total, self._all_weights, strict=True) if item > 0), 1)

    def scores(self, total: Ints, divisor: Ints, free: Ints, weights: Ints, target: Ints) -> Ints:
        """Scores of every class on every node, [class, node].

        `divisor` is `total` [resource, node], at least 1; `target` is [resource, class, 1].
        """
        left = free[self._rows, None] - target[self._rows]
        np.maximum(left, 0, out=left)
        if not self._least:
            np.subtract(total[self._rows, None], left, out=left)
        left *= MAX_NODE_SCORE
        left //= divisor[self._rows, None]
        if not self._plain:
            left *= self._weights
        score: Ints = np.add.reduce(left) if len(left) != 2 else left[0] + left[1]
        score //= weights
        return score
