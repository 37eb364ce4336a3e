"""Arrival processes: the times at which pods are due, as data. The caller waits and submits.

The load is open: a pod is due at its time, whether or not earlier requests were answered, as in a real cluster. So a
slow scheduler does not reduce the offered load.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from seatrial.harness.errors import UsageError

BURST_EVERY = 2.0  # seconds from one burst to the next


@dataclass(frozen=True, slots=True)
class Arrivals:
    """An arrival process of `seconds` with a mean of `rate` pods per second (`ramp`: half of it)."""

    kind: str
    rate: float  # pods per second; for a ramp: at its end
    seconds: float
    burst_every: float = BURST_EVERY

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"arrivals: expected one of {', '.join(KINDS)}, found {self.kind!r}")
        for name, value in (("rate", self.rate), ("seconds", self.seconds), ("burst-every", self.burst_every)):
            if not 0 < value < float("inf"):
                raise UsageError(f"{name}: expected a number above 0, found {value:g}")

    def times(self, seed: int) -> Iterator[float]:
        """The due times in seconds from the start: ascending, below `seconds`, equal for equal seeds."""
        return KINDS[self.kind](self, random.Random(seed))  # noqa: S311 not a secret


def _constant(plan: Arrivals, _: random.Random) -> Iterator[float]:
    return (number / plan.rate for number in range(_below(plan.rate * plan.seconds)))


def _poisson(plan: Arrivals, rng: random.Random) -> Iterator[float]:
    """Independent arrivals: exponential gaps with mean 1/rate."""
    now = rng.expovariate(plan.rate)
    while now < plan.seconds:
        yield now
        now += rng.expovariate(plan.rate)


def _burst(plan: Arrivals, _: random.Random) -> Iterator[float]:
    """All pods of an interval at its beginning, as when a job's replicas are created; the mean rate is `rate`."""
    value = number = 0
    while number * plan.burst_every < plan.seconds:
        start = number * plan.burst_every
        until = min(start + plan.burst_every, plan.seconds)
        amount = round(plan.rate * until)
        yield from [start] * (amount - value)
        value = amount
        number += 1


def _ramp(plan: Arrivals, _: random.Random) -> Iterator[float]:
    """The rate rises linearly from 0 to `rate`: the n-th pod is due when rate * t^2 / (2 * seconds) reaches n."""
    scale = 2 * plan.seconds / plan.rate
    return ((number * scale) ** 0.5 for number in range(_below(plan.rate * plan.seconds / 2)))


def _below(count: float) -> int:
    """How many whole numbers from 0 on are less than `count`."""
    whole = int(count)
    return whole if whole == count else whole + 1


KINDS: dict[str, Callable[[Arrivals, random.Random], Iterator[float]]] = {
    "poisson": _poisson,
    "constant": _constant,
    "burst": _burst,
    "ramp": _ramp,
}
