"""Figures from samples: medians with their spread, percentiles; units are in the names of what is printed."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Any


def spread(samples: Sequence[float]) -> dict[str, float]:
    """Median, lowest and highest of some samples."""
    return {"median": median(samples), "low": min(samples), "high": max(samples)}


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value that `percent` of sorted samples do not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def percentiles(samples: Sequence[float], *, digits: int = 1) -> dict[str, float]:
    """p50 and p99, rounded."""
    ordered = sorted(samples)
    return {"p50": round(percentile(ordered, 50), digits), "p99": round(percentile(ordered, 99), digits)}


def rounded(figures: dict[str, Any], digits: int = 0) -> dict[str, Any]:
    """The same figures with fewer digits."""
    return {key: round(value, digits) if isinstance(value, float) else value for key, value in figures.items()}
