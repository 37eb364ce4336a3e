"""Statistics of measured shares: rates from ticks, means with confidence intervals, ratios, fairness.

A tick has the number of kernels that a tenant had finished at a point in time. Neighbouring rates depend on each other
(the limiter swings), so an interval is computed over means of batches (Law, Simulation Modeling and Analysis, on batch
means), with Student's t. Times are seconds of one monotonic clock, rates kernels a second.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev

BATCHES = 10
_T_95 = (  # two-sided 95 % points of Student's t for 1 to 30 degrees of freedom
    12.706,
    4.303,
    3.182,
    2.776,
    2.571,
    2.447,
    2.365,
    2.306,
    2.262,
    2.228,
    2.201,
    2.179,
    2.160,
    2.145,
    2.131,
    2.120,
    2.110,
    2.101,
    2.093,
    2.086,
    2.080,
    2.074,
    2.069,
    2.064,
    2.060,
    2.056,
    2.052,
    2.048,
    2.045,
    2.042,
)
_NORMAL_95 = 1.960


@dataclass(frozen=True, slots=True)
class Tick:
    """A tenant had finished `done` kernels at `at` seconds."""

    at: float
    done: int


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % confidence interval; `spread` is the standard deviation of single values."""

    mean: float
    low: float
    high: float
    spread: float
    count: int

    def within(self, low: float, high: float) -> bool:
        """Whether the mean is in the range."""
        return low <= self.mean <= high

    def scaled(self, factor: float) -> "Interval":
        """The interval multiplied by a factor above 0."""
        return Interval(self.mean * factor, self.low * factor, self.high * factor, self.spread * factor, self.count)


def between(ticks: Sequence[Tick], start: float, end: float) -> list[Tick]:
    """The ticks from `start` to `end` (seconds), both included."""
    return [tick for tick in ticks if start <= tick.at <= end]


def common(tenants: Sequence[Sequence[Tick]], *, warm_up: float = 0.0) -> list[list[Tick]]:
    """The ticks of the time in which all tenants ran, without its first `warm_up` seconds.

    Raises:
        ValueError: a tenant has no ticks, or they never ran together.
    """
    if any(len(tenant) < 2 for tenant in tenants):
        raise ValueError("expected two ticks and more of each tenant")
    start = max(tenant[0].at for tenant in tenants) + warm_up
    end = min(tenant[-1].at for tenant in tenants)
    ticks = [between(tenant, start, end) for tenant in tenants]
    if any(len(entry) < 2 for entry in ticks):
        raise ValueError(f"expected tenants that run together, found {end - start:.1f} s of it after the warm-up")
    return ticks


def rates(ticks: Sequence[Tick]) -> list[float]:
    """Kernels a second from each tick to the next; ticks at one moment count as one."""
    return [
        (after.done - before.done) / (after.at - before.at) for before, after in pairwise(ticks) if after.at > before.at
    ]


def mean_interval(values: Sequence[float], *, batches: int = BATCHES) -> Interval:
    """The mean of consecutive values, with an interval over batch means.

    Raises:
        ValueError: fewer than two values.
    """
    if len(values) < 2:
        raise ValueError(f"expected two values and more, found {len(values)}")
    means = batch_means(values, batches)
    middle = fmean(means)
    half = t_95(len(means) - 1) * stdev(means) / math.sqrt(len(means))
    return Interval(middle, middle - half, middle + half, stdev(values), len(values))


def batch_means(values: Sequence[float], batches: int) -> list[float]:
    """Means of equal, neighbouring batches; the remainder at the beginning is dropped.
    Fewer than twice `batches` values are returned as they are.
    """
    if len(values) < 2 * batches:
        return list(values)
    size = len(values) // batches
    kept = values[len(values) - size * batches :]
    return [fmean(kept[at : at + size]) for at in range(0, len(kept), size)]


def ratio(part: Interval, whole: Interval) -> Interval:
    """The quotient of two independent means; the interval to first order.

    Raises:
        ValueError: the whole is 0.
    """
    if whole.mean == 0:
        raise ValueError("expected a whole above 0")
    value = part.mean / whole.mean
    own = (part.high - part.low) / 2 / part.mean if part.mean else 0.0
    other = (whole.high - whole.low) / 2 / whole.mean
    half = abs(value) * math.hypot(own, other) if part.mean else (part.high - part.low) / 2 / whole.mean
    return Interval(value, value - half, value + half, part.spread / whole.mean, part.count)


def jain(amounts: Sequence[float], limits: Sequence[float]) -> float:
    """Jain's index of amounts relative to limits: 1 is proportional, 1/n means that one tenant has everything.

    R. Jain, D. Chiu, W. Hawe: A quantitative measure of fairness, DEC-TR-301, 1984.

    Raises:
        ValueError: all amounts are 0, or the lists have different lengths.
    """
    parts = [amount / limit for amount, limit in zip(amounts, limits, strict=True)]
    squares = sum(part * part for part in parts)
    if squares == 0:
        raise ValueError("expected tenants that got something")
    return sum(parts) ** 2 / (len(parts) * squares)


def t_95(freedom: int) -> float:
    """The two-sided 95 % point of Student's t; above 30 degrees of freedom that of the normal distribution."""
    return _T_95[freedom - 1] if freedom <= len(_T_95) else _NORMAL_95
