"""What counts on a node for batch and mid resources: capacity, reservations, usage of the system, pods, reports.

Amounts are pairs: thousandths of a core, bytes.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.api.numa import (
    LSE,
    NODE_RESERVATION,
    QOS_LABEL,
    RESOURCE_STATUS,
    CpusetError,
    NodeReservation,
    ResourceStatus,
    parse_cpuset,
)
from seatrial.scheduler.api.quantity import CPU, MEMORY, Quantity, QuantityError, amount
from seatrial.scheduler.api.wire import decode_as
from seatrial.scheduler.manager.usage_report import Usage, UsageReport, Used
from seatrial.scheduler.pods.priority import BATCH, FREE, MID, class_with_default
from seatrial.scheduler.pods.requests import pod_requests


class Pair(NamedTuple):
    """CPU in thousandths of a core and memory in bytes; operations work on both."""

    cpu: int = 0
    memory: int = 0

    def plus(self, other: "Pair") -> "Pair":
        return Pair(self.cpu + other.cpu, self.memory + other.memory)

    def minus(self, other: "Pair") -> "Pair":
        return Pair(self.cpu - other.cpu, self.memory - other.memory)

    def larger(self, other: "Pair") -> "Pair":
        return Pair(max(self.cpu, other.cpu), max(self.memory, other.memory))

    def smaller(self, other: "Pair") -> "Pair":
        return Pair(min(self.cpu, other.cpu), min(self.memory, other.memory))

    def percent(self, cpu: int, memory: int) -> "Pair":
        """Truncated toward zero, in floating point as Koordinator's MultiplyMilliQuant and MultiplyQuant."""
        return Pair(int(self.cpu * (cpu / 100)), int(self.memory * (memory / 100)))

    def divided(self, parts: int) -> "Pair":
        """An equal part, rounded up (E5)."""
        return Pair(-(-self.cpu // parts), -(-self.memory // parts)) if parts > 1 else self


ZERO = Pair()
_LOW = {BATCH, FREE}  # classes whose pods do not count


def pair(resources: Mapping[str, Quantity]) -> Pair:
    """CPU and memory of a resource list.

    Raises:
        QuantityError: one of them is not a quantity.
    """
    return Pair(amount(CPU, resources.get(CPU, 0)), amount(MEMORY, resources.get(MEMORY, 0)))


@dataclass(frozen=True, slots=True)
class PodLoad:
    """A pod of a node as the formulas see it."""

    key: str  # namespace/name
    priority_class: str  # with default
    exclusive: bool  # QoS class LSE
    request: Pair
    zones: tuple[int, ...] = ()  # NUMA nodes that it is bound to


def pod_load(pod: Pod) -> PodLoad | None:
    """None: the pod is neither Running nor Pending and does not count (NR-7).

    Raises:
        QuantityError: a request is not a quantity.
    """
    if pod.status.phase not in {"Running", "Pending", ""}:
        return None
    labels = pod.metadata.labels
    requests = pod_requests(pod.spec)
    return PodLoad(
        pod.key,
        class_with_default(labels, pod.spec),
        labels.get(QOS_LABEL, "") == LSE,
        Pair(requests.get(CPU, 0), requests.get(MEMORY, 0)),
        _zones(pod.metadata.annotations.get(RESOURCE_STATUS, "")),
    )


def _zones(text: str) -> tuple[int, ...]:
    if not text:
        return ()
    try:
        status = decode_as(text, ResourceStatus)
    except msgspec.MsgspecError:
        return ()  # the scheduler reports it
    return tuple(each.node for each in status.numa_node_resources if CPU in each.resources or MEMORY in each.resources)


class PodReport(NamedTuple):
    """What a NodeMetric says about one pod."""

    priority_class: str
    usage: Pair


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A NodeMetric in amounts. `node`, `reclaimable` None: not reported."""

    system: Pair
    node: Pair | None
    pods: Mapping[str, PodReport]
    applications: tuple[PodReport, ...] = ()
    reclaimable: Pair | None = None


def node_report(metric: UsageReport) -> NodeReport:
    """The status of a NodeMetric in amounts.

    Raises:
        QuantityError: one of its amounts is not a quantity.
    """
    status = metric.status
    info = status.node_metric
    reclaimable = status.prod_reclaimable_metric
    used = info.node_usage if info is not None else None
    return NodeReport(
        _usage(info.system_usage) if info is not None else ZERO,
        _usage(used) if used is not None and None not in {used.resources.cpu, used.resources.memory} else None,
        {f"{pod.namespace}/{pod.name}": PodReport(pod.priority, _usage(pod.pod_usage)) for pod in status.pods_metric},
        tuple(PodReport(app.priority, _usage(app.usage)) for app in status.host_application_metric),
        _usage(reclaimable.resource) if reclaimable is not None and reclaimable.resource.resources != Used() else None,
    )


def _usage(usage: Usage) -> Pair:
    used = usage.resources
    return Pair(amount(CPU, used.cpu or 0), amount(MEMORY, used.memory or 0))


@dataclass(frozen=True, slots=True)
class NodeAmounts:
    """Capacity of a node, and what is reserved on it."""

    capacity: Pair
    reserved: Pair


def node_amounts(node: Node) -> NodeAmounts:
    """Capacity, and per resource the larger of what kubelet and the node's annotation reserve (NR-5).

    Raises:
        QuantityError: an amount of the node is not a quantity.
    """
    capacity, allocatable = pair(node.status.capacity), pair(node.status.allocatable)
    kubelet = capacity.minus(allocatable).larger(ZERO)
    return NodeAmounts(capacity, kubelet.larger(_reservation(node.metadata.annotations.get(NODE_RESERVATION, ""))))


def _reservation(text: str) -> Pair:
    """What the annotation reserves: a readable CPU set replaces its amount of cpu; unreadable text reserves nothing."""
    if not text:
        return ZERO
    try:
        reservation = decode_as(text, NodeReservation)
        amounts = pair(reservation.resources)
    except (msgspec.MsgspecError, QuantityError):
        return ZERO
    try:
        cpus = len(parse_cpuset(reservation.reserved_cpus))
    except CpusetError:
        return amounts
    return Pair(1000 * cpus, amounts.memory) if cpus else amounts


def system_usage(report: NodeReport, *, above: str) -> Pair:
    """Usage of the system, with that of host applications of a class above batch or mid (NR-6, NR-16)."""
    classes = {BATCH: {"koord-prod", MID}, MID: {"koord-prod"}}[above]
    total = report.system
    for application in report.applications:
        if application.priority_class in classes:
            total = total.plus(application.usage)
    return total


@dataclass(frozen=True, slots=True)
class HighPriority:
    """Sums over pods that are neither batch nor free (NR-7, NR-8)."""

    request: Pair = ZERO
    used: Pair = ZERO
    larger: Pair = ZERO  # Σ max(request, usage)
    prod_request: Pair = ZERO  # of those that are not mid either


def high_priority(pods: Collection[PodLoad], report: NodeReport) -> HighPriority:
    """The sums for the node. A pod without a report counts with its request, and not at all in `larger` (quirk)."""
    # In plain integers: this is most of the work for a report.
    request_cpu = request_memory = used_cpu = used_memory = larger_cpu = larger_memory = prod_cpu = prod_memory = 0
    reports, known = report.pods, {pod.key for pod in pods}
    for pod in pods:
        if pod.priority_class in _LOW:
            continue
        cpu, memory = pod.request
        request_cpu += cpu
        request_memory += memory
        if pod.priority_class != MID:
            prod_cpu += cpu
            prod_memory += memory
        reported = reports.get(pod.key)
        if reported is None:
            used_cpu += cpu
            used_memory += memory
            continue
        own_cpu, own_memory = reported.usage
        used_cpu += cpu if pod.exclusive else own_cpu
        used_memory += own_memory
        larger_cpu += max(cpu, own_cpu)
        larger_memory += max(memory, own_memory)
    outside = ZERO
    for usage in dangling(report, known):
        outside = outside.plus(usage)
    return HighPriority(
        Pair(request_cpu, request_memory),
        Pair(used_cpu, used_memory).plus(outside),
        Pair(larger_cpu, larger_memory).plus(outside),
        Pair(prod_cpu, prod_memory),
    )


def _counted(pod: PodLoad, reported: PodReport) -> Pair:
    """The usage that counts: CPUs of an LSE pod are its own whether it uses them or not."""
    return Pair(pod.request.cpu, reported.usage.memory) if pod.exclusive else reported.usage


def dangling(report: NodeReport, known: set[str]) -> list[Pair]:
    """The usage of reported pods that are not among the node's Running and Pending pods, batch and free left out."""
    outside = report.pods.keys() - known
    return [reported.usage for key in outside if (reported := report.pods[key]).priority_class not in _LOW]


def high_priority_of_zones(pods: Iterable[PodLoad], report: NodeReport, zones: int) -> list[HighPriority]:
    """The sums for each NUMA node: a pod counts in equal parts where it is bound to, else on all (NR-14)."""
    sums = [[ZERO, ZERO, ZERO] for _ in range(zones)]
    everywhere = tuple(range(zones))
    known: set[str] = set()

    def add(share: tuple[int, ...], *values: Pair) -> None:
        for zone in share:
            for place, value in enumerate(values):
                sums[zone][place] = sums[zone][place].plus(value.divided(len(share)))

    for pod in pods:
        known.add(pod.key)
        if pod.priority_class in _LOW:
            continue
        reported = report.pods.get(pod.key)
        used = pod.request if reported is None else _counted(pod, reported)
        larger = pod.request if reported is None else pod.request.larger(reported.usage)
        share = tuple(zone for zone in pod.zones if zone < zones) or everywhere
        add(share, pod.request, used, larger)
    for usage in dangling(report, known):
        add(everywhere, ZERO, usage, usage)
    return [HighPriority(*each) for each in sums]
