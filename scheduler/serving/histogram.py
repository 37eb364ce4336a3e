"""A Prometheus histogram: counts of values up to each bound."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class Histogram:
    """`bounds` are ascending and inclusive."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.sum = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def up_to(self) -> list[int]:
        """Cumulative counts, one for each bound; the last one is the count of all values."""
        return list(accumulate(self._counts))
