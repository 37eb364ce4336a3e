"""The metric cache: samples of each metric over the last time, and what is computed from them (MC-1, MC-2)."""

from collections import deque
from collections.abc import Hashable
from itertools import takewhile
from typing import NamedTuple

KEPT = 1800.0  # seconds


class Sample(NamedTuple):
    """A value at a moment, in seconds of a clock that is never set back."""

    at: float
    value: float


class Samples:
    """Samples by metric."""

    def __init__(self) -> None:
        self._series: dict[Hashable, deque[Sample]] = {}

    def add(self, metric: Hashable, at: float, value: float, kept: float = KEPT) -> None:
        """Add a sample, and drop those that are older than `kept` seconds."""
        series = self._series.setdefault(metric, deque())
        series.append(Sample(at, value))
        while series[0].at < at - kept:
            series.popleft()

    def drop(self, metric: Hashable) -> None:
        self._series.pop(metric, None)

    def between(self, metric: Hashable, start: float, end: float) -> list[Sample]:
        recent = takewhile(lambda sample: sample.at >= start, reversed(self._series.get(metric, ())))
        return [sample for sample in recent if sample.at <= end][::-1]

    def last(self, metric: Hashable, since: float = 0.0) -> float | None:
        """The newest value, if it is not older than `since`."""
        series = self._series.get(metric)
        return series[-1].value if series and series[-1].at >= since else None


def average(samples: list[Sample]) -> float | None:
    """The arithmetic mean; None without samples."""
    return sum(sample.value for sample in samples) / len(samples) if samples else None


def percentile(samples: list[Sample], part: float) -> float | None:
    """The value at place ⌊n · part⌋ of the sorted values, counted from 1, and the first at least."""
    if not samples:
        return None
    ordered = sorted(sample.value for sample in samples)
    return ordered[max(int(len(ordered) * part + 1e-9) - 1, 0)]
