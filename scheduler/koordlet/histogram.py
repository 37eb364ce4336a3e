"""A histogram of usage whose samples lose half of their weight in a given time (PR-2 to PR-6).

Follows Koordinator's pkg/util/histogram. Buckets grow exponentially.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from seatrial.scheduler.api.integers import integer

_SHIFT_AFTER = 100  # half-lives: then all weights are scaled, or they would overflow
_LARGEST = 10000  # weight of the heaviest bucket in a checkpoint
_NOTHING = 1e-4  # a total below it is empty


@dataclass(frozen=True, slots=True)
class Buckets:
    """The first bucket ends at `first`, each is larger than the last by `growth`, and the last begins below `limit`."""

    first: float
    growth: float
    limit: float
    half_life: float  # seconds

    @property
    def count(self) -> int:
        return math.ceil(self._place(self.limit)) + 1

    def of(self, value: float) -> int:
        """The bucket of a value."""
        return 0 if value < self.first else min(int(self._place(value)), self.count - 1)

    def start(self, bucket: int) -> float:
        return self.first * (self.growth**bucket - 1) / (self.growth - 1)

    def _place(self, value: float) -> float:
        return math.log(value * (self.growth - 1) / self.first + 1, self.growth)


CPU_BUCKETS = Buckets(0.025, 1.05, 1024.0, 12 * 3600.0)  # cores
MEMORY_BUCKETS = Buckets(5 << 20, 1.05, float(1 << 41), 24 * 3600.0)  # bytes


class Histogram:
    """Weights by bucket. Times are seconds since 1970: checkpoints outlive the process."""

    def __init__(self, buckets: Buckets) -> None:
        self.buckets = buckets
        self._weights: dict[int, float] = {}
        self._reference: float | None = None

    @property
    def total(self) -> float:
        return sum(self._weights.values())

    def add(self, value: float, at: float) -> None:
        """Take in a sample; a negative value counts as 0."""
        half_life = self.buckets.half_life
        if self._reference is None:
            self._reference = at
        if at > self._reference + _SHIFT_AFTER * half_life:
            reference = math.floor(at / half_life + 0.5) * half_life
            factor = 2.0 ** ((self._reference - reference) / half_life)
            self._weights = {bucket: weight * factor for bucket, weight in self._weights.items()}
            self._reference = reference
        bucket = self.buckets.of(max(value, 0.0))
        weight = 2.0 ** max((at - self._reference) / half_life, -float(_SHIFT_AFTER))
        self._weights[bucket] = self._weights.get(bucket, 0.0) + weight

    def percentile(self, part: float) -> float:
        """The end of the first bucket up to which this part of the weight is; 0 of an empty histogram (PR-5)."""
        total = self.total
        if total < _NOTHING:
            return 0.0
        reached, bucket = 0.0, 0
        for bucket in sorted(self._weights):
            reached += self._weights[bucket]
            if reached >= part * total:
                break
        last = bucket >= self.buckets.count - 1
        return self.buckets.start(bucket if last else bucket + 1)

    def checkpoint(self) -> dict[str, object]:
        """What `restored` reads: weights as small whole numbers (PR-6)."""
        largest = max(self._weights.values(), default=0.0)
        scaled = {
            str(bucket): int(weight * _LARGEST / largest + 0.5) for bucket, weight in self._weights.items() if largest
        }
        kept = {bucket: weight for bucket, weight in scaled.items() if weight}
        return {"referenceTimestamp": self._reference or 0.0, "bucketWeights": kept, "totalWeight": self.total}


def restored(buckets: Buckets, saved: Mapping[str, object]) -> Histogram:
    """A histogram from a checkpoint.

    Raises:
        ValueError: it is none.
    """
    histogram = Histogram(buckets)
    weights, total, reference = (saved.get(name) for name in ("bucketWeights", "totalWeight", "referenceTimestamp"))
    if not isinstance(weights, Mapping) or not isinstance(total, int | float) or not isinstance(reference, int | float):
        raise ValueError("expected bucketWeights, totalWeight and referenceTimestamp")
    numbers: dict[int, int] = {}
    for bucket, weight in weights.items():
        number = integer(str(bucket), 0, buckets.count - 1)
        if number is None or not isinstance(weight, int) or weight <= 0:
            raise ValueError(f"bucketWeights: expected numbers, found {bucket!s:.20}: {weight!s:.20}")
        numbers[number] = weight
    whole = sum(numbers.values())
    if not math.isfinite(total) or not math.isfinite(reference) or total < 0:
        raise ValueError("expected a totalWeight and a referenceTimestamp that are finite")
    histogram._weights = {bucket: weight * total / whole for bucket, weight in numbers.items()}  # noqa: SLF001 its own kind
    histogram._reference = float(reference) if numbers else None  # noqa: SLF001
    return histogram
