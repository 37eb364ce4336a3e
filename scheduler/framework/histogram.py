"""Counts of values up to each of some bounds, as Prometheus' histograms have them."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class Histogram:
    """`bounds` ascend; a value that equals one counts as up to it."""

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
        """How many values were up to each bound; the last is for all of them."""
        return list(accumulate(self._counts))
