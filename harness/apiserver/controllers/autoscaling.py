"""The arithmetic of horizontal autoscaling: from the usage of pods to the number of replicas.

Pure functions. Follow `pkg/controller/podautoscaler/{replica_calculator,horizontal}.go`. Amounts are thousandths.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

TOLERANCE = 0.1  # relative deviation from the target below which nothing changes; upstream's default
PERIOD = 15.0  # seconds between two evaluations; upstream's --horizontal-pod-autoscaler-sync-period
_UP: dict[str, object] = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_DOWN: dict[str, object] = {
    "stabilizationWindowSeconds": 300,
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}


@dataclass(frozen=True, slots=True)
class Reading:
    """The request and usage of one pod, in thousandths; `usage` is None when the pod has no metrics."""

    request: int
    usage: int | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """The replica count that one metric proposes, and the metric's current values for the status."""

    replicas: int
    average: int  # thousandths per pod
    utilization: int | None = None  # percent of the requests


def by_utilization(readings: Sequence[Reading], target: int, current: int) -> Proposal:
    """Replicas that bring the pods' usage to `target` percent of their requests. At least one reading has a usage."""
    measured = [(reading.usage, reading.request) for reading in readings if reading.usage is not None]
    used, requested = sum(usage for usage, _ in measured), sum(request for _, request in measured)
    utilization = used * 100 // requested if requested else 0
    ratio = utilization / target
    missing = [reading.request for reading in readings if reading.usage is None]
    if missing and ratio != 1:
        # upstream's conservative value for missing pods: it dampens the change
        assumed = sum(missing) * target // 100 if ratio < 1 else 0
        rebuilt = (used + assumed) * 100 / (requested + sum(missing)) / target
    else:
        rebuilt = ratio
    replicas = _replicas(ratio, rebuilt, len(readings) if missing else len(measured), current)
    return Proposal(replicas, used // len(measured), utilization)


def by_average(readings: Sequence[Reading], target: int, current: int) -> Proposal:
    """Replicas that bring the pods' average usage to `target` thousandths. At least one reading has a usage."""
    measured = [reading.usage for reading in readings if reading.usage is not None]
    used = sum(measured)
    ratio = used / (target * len(measured))
    missing = len(readings) - len(measured)
    rebuilt = ratio
    if missing and ratio != 1:
        rebuilt = (used + (missing * target if ratio < 1 else 0)) / (target * len(readings))
    replicas = _replicas(ratio, rebuilt, len(readings) if missing else len(measured), current)
    return Proposal(replicas, used // len(measured))


def _replicas(ratio: float, rebuilt: float, count: int, current: int) -> int:
    """`current` within the tolerance, or when counting pods without metrics reverses the direction of the change."""
    if abs(1 - rebuilt) <= TOLERANCE or (ratio < 1 < rebuilt) or (rebuilt < 1 < ratio):
        return current
    replicas = math.ceil(rebuilt * count)
    if (rebuilt < 1 and replicas > current) or (rebuilt > 1 and replicas < current):
        return current
    return replicas


# -- scaling rate ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """One scaling that was done: its time (monotonic seconds) and the number of pods added (negative: removed)."""

    at: float
    by: int


def rules_of(behavior: dict[str, object] | None, direction: str) -> dict[str, object]:
    """`scaleUp` or `scaleDown` (`direction`) of a spec's behavior, with defaults filled in."""
    entry = (behavior or {}).get(direction) or {}
    assert isinstance(entry, dict)
    own = {name: value for name, value in entry.items() if value is not None}
    return {**(_UP if direction == "scaleUp" else _DOWN), **own}


def max_replicas_now(rules: dict[str, object], current: int, changes: Sequence[ScaleEvent], now: float) -> int:
    """The maximum replicas that the `scaleUp` policies allow at `now` (monotonic seconds)."""
    return _limit(rules, current, [change for change in changes if change.by > 0], now, up=True)


def min_replicas_now(rules: dict[str, object], current: int, changes: Sequence[ScaleEvent], now: float) -> int:
    """The minimum replicas that the `scaleDown` policies allow at `now` (monotonic seconds)."""
    return _limit(rules, current, [change for change in changes if change.by < 0], now, up=False)


def _limit(rules: dict[str, object], current: int, changes: Sequence[ScaleEvent], now: float, *, up: bool) -> int:
    if rules["selectPolicy"] == "Disabled":
        return current
    policies = rules["policies"]
    assert isinstance(policies, list)
    results = []
    for policy in policies:
        before = current - sum(change.by for change in changes if change.at > now - policy["periodSeconds"])
        if policy["type"] == "Pods":
            results.append(before + policy["value"] if up else before - policy["value"])
        elif up:
            results.append(math.ceil(before * (1 + policy["value"] / 100)))
        else:
            results.append(int(before * (1 - policy["value"] / 100)))
    largest_step = (rules["selectPolicy"] == "Max") is up  # scaling down, the largest step is the smallest number
    chosen = max(results) if largest_step else min(results)
    return max(chosen, current) if up else min(max(chosen, 0), current)
