"""The load of one node: the report of its NodeMetric and the estimates of pods that the report does not cover.

Rules FWK-R55 and FWK-R56. Vectors are in the order of `LoadAwareSchedulingArgs.names`. A report replaces the sums; a
pod that comes or goes changes them by its own part.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seatrial.scheduler.api.clock import from_rfc3339
from seatrial.scheduler.api.durations import go_duration
from seatrial.scheduler.api.numa import PROD
from seatrial.scheduler.api.quantity import amount
from seatrial.scheduler.api.slo import REPORT_SECONDS, NodeMetric
from seatrial.scheduler.api.wire import ResourceList
from seatrial.scheduler.plugins.loadaware.estimator import Vector
from seatrial.scheduler.plugins.loadaware.thresholds import Aggregation

NEVER = float("-inf")  # the update time of a NodeMetric without a report


@dataclass(frozen=True, slots=True)
class Report:
    """A NodeMetric in integers. `usage` None: the status has no usage of the node."""

    updated: float  # seconds since 1970
    interval: float  # seconds between two reports
    usage: Vector | None
    system: Vector
    aggregates: dict[str, dict[float, Vector]]  # by type and seconds
    pods: dict[str, tuple[Vector, bool]]  # by namespace/name: usage, and whether it is reported as prod

    def aggregate(self, aggregation: Aggregation) -> Vector | None:
        """The aggregate; None if it is not in the report. Without any duration recorded, 0 s is the usage itself."""
        by_duration = self.aggregates.get(aggregation.kind, {})
        if aggregation.seconds:
            return by_duration.get(aggregation.seconds)
        return by_duration[max(by_duration)] if by_duration else self.usage


def read_report(metric: NodeMetric, names: Sequence[str], kinds: frozenset[str]) -> Report:
    """The report of a NodeMetric; of aggregates only the types `kinds`.

    Raises:
        ValueError: a time, duration or quantity cannot be parsed, or a usage is negative.
    """
    status = metric.status
    policy = metric.spec.metric_collect_policy
    interval = policy.report_interval_seconds if policy is not None else None
    info = status.node_metric
    aggregates: dict[str, dict[float, Vector]] = {}
    if info is not None and kinds:
        for aggregated in info.aggregated_node_usages:
            seconds = go_duration(aggregated.duration)
            if seconds is None:
                raise ValueError(f"expected a duration as 5m0s, found {aggregated.duration!r}")
            for kind in kinds:
                usage = aggregated.usage.get(kind)
                if usage is not None and usage.resources:
                    aggregates.setdefault(kind, {})[seconds] = _vector(usage.resources, names)
    return Report(
        from_rfc3339(status.update_time) if status.update_time else NEVER,
        float(interval if interval is not None else REPORT_SECONDS),
        _vector(info.node_usage.resources, names) if info is not None else None,
        _vector(info.system_usage.resources, names) if info is not None else (0,) * len(names),
        aggregates,
        {
            f"{pod.namespace}/{pod.name}": (_vector(pod.pod_usage.resources, names), pod.priority == PROD)
            for pod in status.pods_metric
            if pod.pod_usage.resources
        },
    )


def _vector(resources: ResourceList, names: Sequence[str]) -> Vector:
    vector = tuple([amount(name, resources[name]) if name in resources else 0 for name in names])
    if min(vector) < 0:
        raise ValueError(f"expected usage of 0 and more, found {dict(resources)}")
    return vector


@dataclass(slots=True)
class AssignedPod:
    """A pod on the node, with what it adds to the sums of the present report."""

    key: str  # namespace/name
    prod: bool
    estimate: Vector
    assigned: float  # seconds since 1970
    deadline: float  # until then the estimate counts, 0: no deadline
    delta: Vector | None = None
    prod_delta: Vector | None = None
    prod_usage: Vector | None = None


class NodeLoad:
    """Sums over one node. `report` None: no NodeMetric is known."""

    __slots__ = ("_zero", "delta", "estimated", "include_system", "pods", "prod_delta", "prod_usage", "report")

    def __init__(self, width: int, *, include_system: bool) -> None:
        self._zero: Vector = (0,) * width
        self.include_system = include_system
        self.report: Report | None = None
        self.pods: dict[str, AssignedPod] = {}  # by uid
        self.delta = self.prod_delta = self.prod_usage = self.estimated = self._zero

    def set_report(self, report: Report | None) -> None:
        """Take in a NodeMetric, or (None) its deletion, and count all pods again."""
        self.report = report
        zero = self._zero
        self.delta = self.prod_delta = self.estimated = zero
        self.prod_usage = report.system if report is not None and self.include_system else zero
        if report is None:
            return
        pods = list(self.pods.values())
        for pod in pods:
            _judge(pod, report)
        self.estimated = _total(zero, [pod.estimate for pod in pods])
        self.delta = _total(zero, [pod.delta for pod in pods if pod.delta is not None])
        self.prod_delta = _total(zero, [pod.prod_delta for pod in pods if pod.prod_delta is not None])
        self.prod_usage = _total(self.prod_usage, [pod.prod_usage for pod in pods if pod.prod_usage is not None])

    def add(self, uid: str, pod: AssignedPod) -> None:
        """Add a pod, or replace it."""
        self.remove(uid)
        self.pods[uid] = pod
        if self.report is not None:
            self._count(pod, self.report)

    def remove(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        if pod is not None and self.report is not None:
            self.estimated = _minus(self.estimated, pod.estimate)
            if pod.delta is not None:
                self.delta = _minus(self.delta, pod.delta)
            if pod.prod_delta is not None:
                self.prod_delta = _minus(self.prod_delta, pod.prod_delta)
            if pod.prod_usage is not None:
                self.prod_usage = _minus(self.prod_usage, pod.prod_usage)

    def _count(self, pod: AssignedPod, report: Report) -> None:
        _judge(pod, report)
        self.estimated = _plus(self.estimated, pod.estimate)
        if pod.delta is not None:
            self.delta = _plus(self.delta, pod.delta)
        if pod.prod_usage is not None:
            self.prod_usage = _plus(self.prod_usage, pod.prod_usage)
        if pod.prod_delta is not None:
            self.prod_delta = _plus(self.prod_delta, pod.prod_delta)

    def usage(self, aggregation: Aggregation | None) -> Vector:
        """Usage of the node, or an aggregate of it, with the estimates of pods that it does not cover.

        Without the wanted aggregate all pods count with their estimates, and nothing else.
        """
        report = self.report
        if report is None or report.usage is None:
            return self._zero
        usage = report.usage if aggregation is None else report.aggregate(aggregation)
        return self.estimated if usage is None else _plus(usage, self.delta)

    def usage_of_prod(self) -> Vector:
        """Usage of prod pods, with the estimates of those that the report does not cover."""
        return _plus(self.prod_usage, self.prod_delta)

    def uncovered(self, *, prod: bool = False) -> list[str]:
        """Keys `namespace/name` of the pods whose estimate counts, wholly or in part; sorted."""
        return sorted(pod.key for pod in self.pods.values() if (pod.prod_delta if prod else pod.delta) is not None)


def _judge(pod: AssignedPod, report: Report) -> None:
    """Find out what a pod adds to the sums of a report."""
    reported, as_prod = report.pods.get(pod.key, _UNREPORTED)
    estimate = pod.estimate
    # A report covers a pod that was there during its whole interval and whose deadline is over.
    counts = reported is None or pod.assigned > report.updated - report.interval or pod.deadline > report.updated
    pod.delta = _rest(estimate, reported) if counts else None
    if not pod.prod:
        pod.prod_delta = pod.prod_usage = None
    elif reported is not None and as_prod:
        pod.prod_usage, pod.prod_delta = reported, pod.delta
    else:  # the full estimate, also for a pod that is reported with another priority class
        pod.prod_usage, pod.prod_delta = None, estimate


_UNREPORTED: tuple[Vector | None, bool] = (None, False)


def _total(first: Vector, others: list[Vector]) -> Vector:
    """The sum of vectors."""
    return tuple(map(sum, zip(first, *others, strict=True)))


def _pairwise(combine: Callable[[int, int], int]) -> Callable[[Vector, Vector], Vector]:
    def apply(vector: Vector, other: Vector) -> Vector:
        return tuple([combine(a, b) for a, b in zip(vector, other, strict=True)])

    return apply


_plus = _pairwise(int.__add__)
_minus = _pairwise(int.__sub__)


def _rest(estimate: Vector, reported: Vector | None) -> Vector:
    """What an estimate adds to the usage that is reported."""
    if reported is None:
        return estimate
    return tuple([max(guess - value, 0) for guess, value in zip(estimate, reported, strict=True)])
