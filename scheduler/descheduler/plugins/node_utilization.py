"""LowNodeUtilization and HighNodeUtilization: balance or compact nodes by requests (RSV-R97).

Follow descheduler: pkg/framework/plugins/nodeutilization. With `metricsUtilization` LowNodeUtilization goes by real
usage. It is read from NodeMetrics here, upstream from metrics.k8s.io; Prometheus is not read.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.quantity import PODS, Amounts, amounts
from seatrial.scheduler.descheduler.args import Args, ArgsError, Namespaces
from seatrial.scheduler.descheduler.framework import Balance, Handle
from seatrial.scheduler.descheduler.node_fit import misfits
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.pod_order import kubernetes_class

BASIC = ("cpu", "memory", PODS)
ONLY_THRESHOLDING = "OnlyThresholdingResources"
KUBERNETES_METRICS = "KubernetesMetrics"
REPORT_EXPIRES = 180.0  # seconds; a node with an older report takes no part
_QOS = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}


class EvictionLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many pods of one node are evicted in a round; None: no limit."""

    node: int | None = None


class UtilizationArgs(Args, frozen=True):
    """Arguments that both plugins have; thresholds are percentages by resource name."""

    thresholds: dict[str, float] = {}  # noqa: RUF012 msgspec copies it for each instance
    number_of_nodes: int = 0
    evictable_namespaces: Namespaces | None = None

    def check(self) -> None:
        if not self.thresholds:
            raise ArgsError("thresholds: expected at least one resource, found none")
        check_percents("thresholds", self.thresholds)
        if self.number_of_nodes < 0:
            raise ArgsError(f"numberOfNodes: expected 0 or more, found {self.number_of_nodes}")
        if self.evictable_namespaces is not None and self.evictable_namespaces.include:
            raise ArgsError("evictableNamespaces: only Exclude namespaces can be set")

    def allows(self, pod: Pod) -> bool:
        return self.evictable_namespaces is None or self.evictable_namespaces.allows(pod.metadata.namespace)


class MetricsUtilization(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Where usage comes from; `metrics_server` is the older spelling of the source KubernetesMetrics."""

    metrics_server: bool = False
    source: str = ""
    prometheus: Any = None

    def check(self) -> None:
        if self.source not in {"", KUBERNETES_METRICS}:
            raise ArgsError(f"metricsUtilization.source: expected {KUBERNETES_METRICS}, found {self.source!r}")
        for other, value in (("metricsServer", self.metrics_server), ("prometheus", self.prometheus)):
            if self.source and value:
                raise ArgsError(f"metricsUtilization: expected source {self.source} or {other}, found both")
        if not self.source and not self.metrics_server:
            raise ArgsError(f"metricsUtilization: expected source {KUBERNETES_METRICS}, found none")


class LowNodeUtilizationArgs(UtilizationArgs, frozen=True):
    """Arguments of LowNodeUtilization."""

    target_thresholds: dict[str, float] = {}  # noqa: RUF012 msgspec copies it for each instance
    use_deviation_thresholds: bool = False
    eviction_limits: EvictionLimits | None = None
    metrics_utilization: MetricsUtilization | None = None

    def check(self) -> None:
        super().check()
        if self.metrics_utilization is not None:
            self.metrics_utilization.check()
        check_percents("targetThresholds", self.target_thresholds)
        if self.thresholds.keys() != self.target_thresholds.keys():
            raise ArgsError(
                f"targetThresholds: expected the resources of thresholds ({', '.join(sorted(self.thresholds))}),"
                f" found {', '.join(sorted(self.target_thresholds)) or 'none'}"
            )
        for name, low in self.thresholds.items():
            if low > self.target_thresholds[name] and not self.use_deviation_thresholds:
                raise ArgsError(
                    f"thresholds.{name}: expected at most targetThresholds.{name}"
                    f" ({self.target_thresholds[name]:g}), found {low:g}"
                )


class HighNodeUtilizationArgs(UtilizationArgs, frozen=True):
    """Arguments of HighNodeUtilization."""

    eviction_modes: tuple[str, ...] = ()

    def check(self) -> None:
        super().check()
        for mode in self.eviction_modes:
            if mode != ONLY_THRESHOLDING:
                raise ArgsError(f"evictionModes: expected {ONLY_THRESHOLDING}, found {mode!r}")


def check_percents(field: str, percents: Mapping[str, float]) -> None:
    """Raise `ArgsError` if a value is not a percentage of 0 to 100."""
    for name, value in percents.items():
        if not 0 <= value <= 100:
            raise ArgsError(f"{field}.{name}: expected a percentage of 0 to 100, found {value:g}")


@dataclass(slots=True)
class _Load:
    """One node; `usage` and `planned` change as evictions are planned."""

    node: Node
    capacity: Amounts
    usage: Amounts  # requests, or real usage
    low: Amounts = field(default_factory=dict)
    high: Amounts = field(default_factory=dict)
    planned: Amounts = field(default_factory=dict)  # requests of pods that this round sends here

    @property
    def is_low(self) -> bool:
        return all(self.usage.get(name, 0) <= bound for name, bound in self.low.items())

    @property
    def is_high(self) -> bool:
        return any(self.usage.get(name, 0) > bound for name, bound in self.high.items())

    @property
    def weight(self) -> float:
        """The sum of the shares in use."""
        return sum(self.usage.get(name, 0) / self.capacity[name] for name in self.low if self.capacity.get(name))


def _by_requests(handle: Handle, nodes: Sequence[Node]) -> list[_Load]:
    return [_Load(node, amounts(node.status.allocatable), dict(handle.state.requested_on(node.name))) for node in nodes]


def _by_reports(handle: Handle, nodes: Sequence[Node]) -> list[_Load]:
    """Nodes with their real usage; those without a current report are left out."""
    reports, now = [], handle.clock.now()
    for node in nodes:
        report = handle.state.usage.get(node.name)
        if report is None or report.updated is None or now - report.updated >= REPORT_EXPIRES:
            continue
        pods = handle.pods_on(node.name)
        used = dict(report.system)
        for pod in pods:
            for name, value in report.pods.get(pod.key, {}).items():
                used[name] = used.get(name, 0) + value
        reports.append(_Load(node, amounts(node.status.allocatable), {**used, PODS: len(pods)}))
    return reports


def _set_bounds(
    results: Sequence[_Load], low: Mapping[str, float], high: Mapping[str, float], *, deviation: bool = False
) -> None:
    """Set the bounds of nodes; a basic resource without a threshold limits nothing."""
    for name in sorted({*low, *BASIC}):
        lower, upper = low.get(name), high.get(name)
        if lower is not None and upper is not None and deviation:
            shares = [
                100.0 * load.usage.get(name, 0) / load.capacity[name] for load in results if load.capacity.get(name)
            ]
            mean = sum(shares) / len(shares) if shares else 0.0
            lower, upper = max(0.0, mean - lower), min(100.0, mean + upper)
        for load in results:
            capacity_of = load.capacity.get(name, 0)
            load.low[name] = int((100.0 if lower is None else lower) * 0.01 * capacity_of)
            load.high[name] = int((100.0 if upper is None else upper) * 0.01 * capacity_of)


class LowNodeUtilization(Balance):
    """Moves pods from nodes above the target thresholds while nodes below the lower ones have room."""

    name = "LowNodeUtilization"
    args = LowNodeUtilizationArgs

    def __init__(self, args: LowNodeUtilizationArgs) -> None:
        self._args = args

    def run(self, handle: Handle, nodes: Sequence[Node]) -> None:
        args = self._args
        real = args.metrics_utilization is not None
        reports = _by_reports(handle, nodes) if real else _by_requests(handle, nodes)
        _set_bounds(reports, args.thresholds, args.target_thresholds, deviation=args.use_deviation_thresholds)
        targets = [load for load in reports if load.is_low and not load.node.spec.unschedulable]
        sources = [load for load in reports if load.is_high and not load.is_low]
        if not sources or not targets or len(targets) <= args.number_of_nodes or len(targets) == len(reports):
            return
        names = [name for name in reports[0].low if name in args.thresholds]
        room = {name: sum(load.high[name] - load.usage.get(name, 0) for load in targets) for name in names}
        limit = args.eviction_limits.node if args.eviction_limits is not None else None
        for source in sorted(sources, key=lambda load: (-load.weight, load.node.name)):
            _evict(self.name, handle, args, source, targets, room, lambda load: load.is_high, limit=limit, real=real)


class HighNodeUtilization(Balance):
    """Empties nodes below the thresholds into the others, so that an autoscaler can take them away."""

    name = "HighNodeUtilization"
    args = HighNodeUtilizationArgs

    def __init__(self, args: HighNodeUtilizationArgs) -> None:
        self._args = args

    def run(self, handle: Handle, nodes: Sequence[Node]) -> None:
        args = self._args
        requests = _by_requests(handle, nodes)
        _set_bounds(requests, args.thresholds, {})
        sources = [load for load in requests if load.is_low]
        targets = [load for load in requests if not load.is_low and not load.node.spec.unschedulable]
        if not sources or not targets or len(sources) <= args.number_of_nodes or len(sources) == len(requests):
            return
        names = list(requests[0].low)
        room = {name: sum(load.capacity.get(name, 0) - load.usage.get(name, 0) for load in targets) for name in names}
        only = args.thresholds.keys() if ONLY_THRESHOLDING in args.eviction_modes else None
        for source in sorted(sources, key=lambda load: (load.weight, load.node.name)):
            _evict(self.name, handle, args, source, targets, room, lambda _: True, only=only)


def _evict(  # noqa: PLR0917 the parts of one pass
    name: str,
    handle: Handle,
    args: UtilizationArgs,
    source: _Load,
    targets: Sequence[_Load],
    room: Amounts,
    goes_on: Callable[[_Load], bool],
    *,
    limit: int | None = None,
    only: Collection[str] | None = None,
    real: bool = False,
) -> None:
    """Evict from one node, pods of low priority first, while the source needs it and the targets have room.

    `real`: usage is counted, not requests; pods without a report stay then.
    """
    state, gone = handle.state, 0
    pods = sorted(
        handle.pods_on(source.node.name), key=lambda pod: (pod.spec.priority, _QOS[kubernetes_class(pod)], pod.key)
    )
    for pod in pods:
        with handle.clock.faults.guard(name, pod.key):
            if (
                not goes_on(source)
                or any(value <= 0 for value in room.values())
                or (limit is not None and gone >= limit)
            ):
                return
            requests = {**state.requests(pod), PODS: 1}
            if only is not None and not any(requests.get(text) for text in only if text != PODS):
                continue
            counted: Amounts | None = requests
            if real:
                report = state.usage[source.node.name].pods.get(pod.key)
                counted = None if report is None else {**report, PODS: 1}
            if counted is None:
                continue
            if not args.allows(pod) or not handle.may_evict(pod):
                continue
            target = next((load for load in targets if not misfits(state, pod, load.node, load.planned)), None)
            if target is None or not handle.evict(
                pod, name, f"node {source.node.name} by {'usage' if real else 'requests'}"
            ):
                continue
            gone += 1
            for resource, value in requests.items():
                target.planned[resource] = target.planned.get(resource, 0) + value
            for resource, value in counted.items():
                source.usage[resource] = source.usage.get(resource, 0) - value
                target.usage[resource] = target.usage.get(resource, 0) + value
                if resource in room:
                    room[resource] -= value
