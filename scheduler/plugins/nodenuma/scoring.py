"""Scores of nodes and NUMA nodes by utilisation (NUMA-R57)."""

from collections.abc import Mapping

import numpy as np

from seatrial.scheduler.cache.columns import Ints
from seatrial.scheduler.cache.resources import BY_CLAIM
from seatrial.scheduler.plugins.noderesources.strategies import LeastAllocated, MostAllocated, Strategy

NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})


class Scorer:
    """The weighted mean over the resources of a strategy."""

    def __init__(self, strategy: str, weights: Mapping[str, int]) -> None:
        self.strategy = strategy
        self.weights = dict(weights)
        self._arithmetic: Strategy = MostAllocated() if strategy == "MostAllocated" else LeastAllocated()

    def counts(self, name: str, requests: Mapping[str, int]) -> bool:
        """Whether a resource counts for such a pod: extended resources only if the pod requests them."""
        return name in NATIVE or bool(requests.get(name))

    def score(self, capacity: Mapping[str, int], used: Mapping[str, int], requests: Mapping[str, int]) -> int:
        """The score, 0 to 100; `used` excludes the pod; a resource without capacity does not count."""
        scored = []
        for name, weight in self.weights.items():
            total = capacity.get(name, 0)
            if 0 < total != BY_CLAIM and self.counts(name, requests):
                left = total - used.get(name, 0) - requests.get(name, 0)
                scored.append((self._arithmetic.one(total, left), weight))
        return self._arithmetic.mean(scored)

    def many(self, resources: Mapping[str, tuple[Ints, Ints]], total: Ints) -> Ints:
        """`score` for many nodes, from capacity and the amount left, by resource; adds to `total`, which is zeros."""
        weights = np.zeros(len(total), np.int64)
        for name, (capacity, left) in resources.items():
            there = (capacity > 0) & (capacity != BY_CLAIM)
            scored = self._arithmetic.many(np.maximum(capacity, 1), left.copy())
            total += np.where(there, scored, 0) * self.weights[name]
            weights += there * self.weights[name]
        return total // np.maximum(weights, 1)
