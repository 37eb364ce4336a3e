"""Statistics of samples: medians with their spread, percentiles. Units are in the names of the printed fields."""

import math
from collections.abc import Sequence
from random import Random
from statistics import median
from typing import Any


def spread(samples: Sequence[float]) -> dict[str, float]:
    """Median, lowest and highest of the samples, which must not be empty."""
    return {"median": median(samples), "low": min(samples), "high": max(samples)}


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The percentile of sorted samples by the nearest-rank method; `percent` is from 0 to 100."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def percentiles(samples: Sequence[float], *, digits: int = 1) -> dict[str, float]:
    """The fields p50 and p99, rounded to `digits`."""
    ordered = sorted(samples)
    return {"p50": round(percentile(ordered, 50), digits), "p99": round(percentile(ordered, 99), digits)}


def rounded(figures: dict[str, Any], digits: int = 0) -> dict[str, Any]:
    """The same figures with floats rounded to `digits`."""
    return {key: round(value, digits) if isinstance(value, float) else value for key, value in figures.items()}


def median_interval(samples: Sequence[float], *, seed: int, draws: int = 2000) -> tuple[float, float, float]:
    """Low end, median and high end of the 95 % bootstrap interval of the median; `samples` must not be empty."""
    dice = Random(seed)  # noqa: S311 no secret
    medians = sorted(median(dice.choices(samples, k=len(samples))) for _ in range(draws))
    return percentile(medians, 2.5), median(samples), percentile(medians, 97.5)
