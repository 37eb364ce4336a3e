"""How well a request suits a card or a node's cards together (Koordinator deviceshare/scoring.go)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from scheduler.api.device import FPGA, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA
from scheduler.api.requests import Amounts
from scheduler.cache.columns import Ints
from scheduler.framework.points import MAX_NODE_SCORE

StrategyType = Literal["LeastAllocated", "MostAllocated"]

DEFAULT_WEIGHTS: Mapping[str, int] = {GPU_MEMORY_RATIO: 1, GPU_MEMORY: 1, RDMA: 1, FPGA: 1}


@dataclass(frozen=True, slots=True)
class Scorer:
    """LeastAllocated prefers what is empty, MostAllocated what is nearly full; a weight for each resource."""

    strategy: StrategyType = "LeastAllocated"
    weights: tuple[tuple[str, int], ...] = tuple(DEFAULT_WEIGHTS.items())

    def score(self, total: Amounts, free: Amounts, wanted: Amounts) -> int:
        """0 to 100: the weighted mean over the weighted resources that `total` has (R59)."""
        score = weights = 0
        for name, weight in self.weights:
            capacity = total.get(name, 0)
            if capacity <= 0:
                continue
            left = free.get(name, 0)
            used = capacity - left + wanted.get(name, 0) if left <= capacity else capacity
            if self.strategy == "LeastAllocated":
                one = 0 if used > capacity else (capacity - used) * MAX_NODE_SCORE // capacity
            else:
                one = min(used, capacity) * MAX_NODE_SCORE // capacity
            score += one * weight
            weights += weight
        return score // weights if weights else 0

    def score_many(self, totals: Mapping[str, Ints], frees: Mapping[str, Ints], wanted: Amounts, size: int) -> Ints:
        """The same for `size` nodes at once; `totals` and `frees` are columns by resource."""
        score: Ints = np.zeros(size, np.int64)
        weights: Ints = np.zeros(size, np.int64)
        for name, weight in self.weights:
            if name not in totals:
                continue
            capacity = totals[name]
            present = capacity > 0
            if not present.any():
                continue
            left = np.minimum(frees[name], capacity) - wanted.get(name, 0)
            divisor = capacity if present.all() else np.maximum(capacity, 1)
            if self.strategy == "LeastAllocated":
                one = np.maximum(left, 0) * MAX_NODE_SCORE // divisor
            else:
                one = (capacity - np.maximum(left, 0)) * MAX_NODE_SCORE // divisor
            score += one * weight * present
            weights += present * weight
        return score // np.maximum(weights, 1)
