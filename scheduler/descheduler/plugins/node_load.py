"""Usage of nodes against thresholds: completion of thresholds, usage, classes (RSV-R84 to RSV-R87)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from seatrial.scheduler.api.clock import read_time
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.quantity import MEMORY, PODS, Amounts, amounts
from seatrial.scheduler.api.slo import RAW_ALLOCATABLE
from seatrial.scheduler.api.wire import decode_as
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.pod_order import is_prod
from seatrial.scheduler.descheduler.state import ClusterState, Usage

_ENDED = frozenset({"Succeeded", "Failed"})

Percents = Mapping[str, float]

LOW, PROD_LOW, BOTH_LOW, NORMAL, HIGH, PROD_HIGH = "low", "prodLow", "bothLow", "normal", "high", "prodHigh"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Percentages per resource; all four maps have the same names as `low`, in which a resource takes part."""

    low: Percents
    high: Percents
    prod_low: Percents
    prod_high: Percents
    deviation: bool = False


def complete(
    low: Percents, high: Percents, prod_low: Percents, prod_high: Percents, *, deviation: bool = False
) -> Thresholds:
    """Fill the maps up. A resource without a low threshold is not limited (RSV-R84).

    A resource with a low and without a high threshold is not limited above; upstream would count any usage as over.
    """
    names = sorted({*low, *high, *prod_low, *prod_high, MEMORY})
    absent = 0.0 if deviation else 100.0

    def pair(lows: Percents, highs: Percents) -> tuple[Percents, Percents]:
        if deviation:
            return (
                {name: lows.get(name, 0.0) if name in highs else 0.0 for name in names},
                {name: highs.get(name, 0.0) if name in lows else 0.0 for name in names},
            )
        return (
            {name: lows.get(name, absent) for name in names},
            {name: highs.get(name, absent) if name in lows else absent for name in names},
        )

    return Thresholds(*pair(low, high), *pair(prod_low, prod_high), deviation=deviation)


@dataclass(slots=True)
class NodeLoad:
    """One node in one round. `usage` and `prod_usage` shrink and grow as evictions are planned."""

    node: Node
    capacity: Amounts
    usage: Amounts
    prod_usage: Amounts
    metrics: dict[str, Amounts]  # usage of the pods that are on the node, by namespace/name
    pods: list[Pod]
    low: Amounts = field(default_factory=dict)
    high: Amounts = field(default_factory=dict)
    prod_low: Amounts = field(default_factory=dict)
    prod_high: Amounts = field(default_factory=dict)

    def over(self, *, prod: bool = False) -> list[str]:
        """Resources above the high threshold."""
        usage, bound = (self.prod_usage, self.prod_high) if prod else (self.usage, self.high)
        return [name for name, value in bound.items() if usage.get(name, 0) > value]

    def within(self, usage: Amounts, bound: Amounts) -> bool:
        return all(usage.get(name, 0) <= value for name, value in bound.items())

    @property
    def kind(self) -> str:
        """The class of the node (RSV-R87)."""
        if not self.node.spec.unschedulable and self.within(self.usage, self.low):
            if self.over(prod=True):
                return PROD_HIGH
            return BOTH_LOW if self.within(self.prod_usage, self.prod_low) else LOW
        if self.over():
            return HIGH
        if self.over(prod=True):
            return PROD_HIGH
        return PROD_LOW if self.within(self.prod_usage, self.prod_low) else NORMAL

    def score(self, weights: Mapping[str, int]) -> float:
        """Weighted usage in relation to the capacity."""
        total = sum(weights.values())
        return sum(
            weight * self.usage.get(name, 0) / self.capacity[name]
            for name, weight in weights.items()
            if self.capacity.get(name)
        ) / (total or 1)


def node_loads(
    state: ClusterState, nodes: Sequence[Node], thresholds: Thresholds, *, expires: float, now: float
) -> list[NodeLoad]:
    """The nodes with a current metric. A node whose metric is missing, empty or older than `expires` is left out.

    Deviations from upstream, which sums all of the metric: pods that have left the node, or that are being migrated,
    are not counted, and a pod that came after the report counts with its requests. Without this a round that comes
    before the next report would evict a second time for the same usage.
    """
    loads = []
    moving = {(job.pod_key, job.spec.pod_ref.uid): job for job in state.open_jobs() if job.running or job.passed}
    names = list(thresholds.low)
    with_prod = any(value < 100 for value in thresholds.prod_low.values()) or thresholds.deviation
    for node in nodes:
        usage = state.usage.get(node.name)
        if usage is None or usage.updated is None or now - usage.updated >= expires:
            continue
        loads.append(_load(state, node, usage, names, moving, with_prod=with_prod))
    incoming: dict[str, list[str]] = {}
    for job in moving.values():
        if job.status.node_name:
            incoming.setdefault(job.status.node_name, []).append(job.pod_key)
    for load in loads:
        for key in incoming.get(load.node.name, ()):
            pod = state.pod_named(key)
            if pod is not None and pod.spec.node_name != load.node.name:
                source = state.usage.get(pod.spec.node_name)
                _add(load.usage, source.pods.get(key) if source and key in source.pods else state.requests(pod), names)
    _set_bounds(loads, thresholds)
    return loads


def _load(
    state: ClusterState,
    node: Node,
    usage: Usage,
    names: Sequence[str],
    moving: Mapping[tuple[str, str], object],
    *,
    with_prod: bool,
) -> NodeLoad:
    total = {name: usage.system.get(name, 0) for name in names if name != PODS}
    prod = dict.fromkeys(names, 0)
    metrics: dict[str, Amounts] = {}
    pods = []
    count = prod_count = 0
    measured = [name for name in names if name != PODS]
    for pod in state.pods_on(node.name):  # the inner loop of a round: 100,000 pods; properties are read in place
        metadata = pod.metadata
        key = f"{metadata.namespace}/{metadata.name}"
        if pod.status.phase in _ENDED or (moving and (key, metadata.uid) in moving):
            continue
        pods.append(pod)
        count += 1
        used = usage.pods.get(key)
        if used is not None:
            metrics[key] = used
        elif _came_after(pod, usage.updated or 0.0):
            used = state.requests(pod)
        else:
            used = {}
        for name in measured:
            value = used.get(name)
            if value:
                total[name] += value
        if with_prod and is_prod(pod):
            prod_count += 1
            _add(prod, used, names)
    if PODS in names:
        total[PODS], prod[PODS] = count, prod_count
    raw = node.metadata.annotations.get(RAW_ALLOCATABLE)
    return NodeLoad(node, capacity_of(node, raw), total, prod, metrics, pods)


def _came_after(pod: Pod, moment: float) -> bool:
    started = read_time(pod.status.start_time or pod.metadata.creation_timestamp)
    return started is None or started >= moment


def _add(total: Amounts, more: Amounts | None, names: Sequence[str]) -> None:
    if more:
        for name in names:
            if name in more and name != PODS:
                total[name] = total.get(name, 0) + more[name]


def capacity_of(node: Node, raw: str | None) -> Amounts:
    """What 100 % is: the allocatable before amplification, if the annotation gives it."""
    capacity = amounts(node.status.allocatable)
    if raw:
        try:
            capacity |= amounts(decode_as(raw, dict[str, str | int]))
        except (msgspec.DecodeError, ValueError):
            return capacity
    return capacity


def _set_bounds(loads: Sequence[NodeLoad], thresholds: Thresholds) -> None:
    pairs = (
        ("low", "high", thresholds.low, thresholds.high, False),
        ("prod_low", "prod_high", thresholds.prod_low, thresholds.prod_high, True),
    )
    for low_field, high_field, lows, highs, prod in pairs:
        if thresholds.deviation:
            average = {name: _average(loads, name, prod=prod) for name in lows}
            bounds = {
                name: (100.0, 100.0)
                if not lows[name]
                else (_clamp(average[name] - lows[name]), _clamp(average[name] + highs[name]))
                for name in lows
            }
        else:
            bounds = {name: (lows[name], highs[name]) for name in lows}
        for load in loads:
            capacity = load.capacity
            setattr(load, low_field, {name: _part(low, capacity.get(name, 0)) for name, (low, _) in bounds.items()})
            setattr(load, high_field, {name: _part(high, capacity.get(name, 0)) for name, (_, high) in bounds.items()})


def _part(percent: float, capacity: int) -> int:
    return int(percent * 0.01 * capacity)


def _average(loads: Sequence[NodeLoad], name: str, *, prod: bool) -> float:
    shares = [
        100.0 * (load.prod_usage if prod else load.usage).get(name, 0) / load.capacity[name]
        for load in loads
        if load.capacity.get(name)
    ]
    return sum(shares) / len(shares) if shares else 0.0


def _clamp(percent: float) -> float:
    return min(100.0, max(0.0, percent))
