"""Options of a node from its labels and NodeResourceTopology: CPUs, NUMA nodes, policies (NUMA-R12 to NUMA-R17).

Equal nodes share one `Options` object, and the results computed for it.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import msgspec

from seatrial.scheduler.api.numa import (
    AMPLIFICATION_RATIO,
    BEST_EFFORT,
    CPU_BIND_POLICY_LABEL,
    CPU_TOPOLOGY,
    FULL_PCPUS,
    KUBELET_CPU_MANAGER,
    MAX_NUMA_NODES,
    NODE_RESERVATION,
    NUMA_ALLOCATE_STRATEGY_LABEL,
    NUMA_POLICIES,
    NUMA_TOPOLOGY_POLICY_LABEL,
    POD_CPU_ALLOCS,
    RESTRICTED,
    SINGLE_NUMA_NODE,
    SPREAD_BY_PCPUS,
    SYSTEM_QOS,
    CpuManagerPolicy,
    CpusetError,
    CpuTopology,
    NodeReservation,
    NodeResourceTopology,
    PodCpuAlloc,
    SystemQos,
    parse_cpuset,
)
from seatrial.scheduler.api.quantity import CPU, MAX_AMOUNT, Amounts, QuantityError, amount
from seatrial.scheduler.api.wire import decode_as
from seatrial.scheduler.plugins.nodenuma.topology import Cpu, Topology

KUBELET_POLICIES = {
    f"{policy}{level}": policy
    for policy in (BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE)
    for level in ("", "ContainerLevel", "PodLevel")
}
_BIND_LABELS = {"FullPCPUsOnly": FULL_PCPUS, "SpreadByPCPUs": SPREAD_BY_PCPUS}
_STRATEGIES = frozenset({"", "MostAllocated", "LeastAllocated", "DistributeEvenly"})
_ZONE_NAME = re.compile(r"node-(\d{1,9})$", re.ASCII)

T = TypeVar("T")
Ratios = tuple[tuple[str, float], ...]
ZoneAmounts = tuple[tuple[int, tuple[tuple[str, int], ...]], ...]  # by NUMA node, ascending


@dataclass(frozen=True, slots=True)
class Options:
    """A node's options; `zones` are the amounts of NUMA nodes for pods, amplified like the node."""

    topology: tuple[Cpu, ...] = ()
    reserved: frozenset[int] = frozenset()
    zones: ZoneAmounts = ()
    bind_policy: str = ""
    label_policy: str = ""
    kubelet_policy: str = ""
    strategy: str = ""
    ratios: Ratios = ()
    cpu_ratio: float | None = 1.0  # from the Node object, for the whole node; None: invalid

    @property
    def affects_plain_pods(self) -> bool:
        """Whether pods without CPU or NUMA requests are affected by this node's policies or amplification."""
        return bool(self.bind_policy or self.label_policy or self.kubelet_policy) or self.cpu_ratio != 1.0

    def policy(self, *, label_first: bool = False) -> str:
        """The node's NUMA policy; where label and kubelet differ, the kubelet would refuse the pod."""
        if label_first:
            return self.label_policy or self.kubelet_policy
        return self.kubelet_policy or self.label_policy

    def ratio(self, resource: str) -> float:
        return next((ratio for name, ratio in self.ratios if name == resource), 1.0)


NO_OPTIONS = Options()


def amplify(value: int, ratio: float) -> int:
    """The amplified value (NUMA-R47); binary floating point, as upstream."""
    return value if ratio <= 1 else math.ceil(min(value * ratio, MAX_AMOUNT))


@lru_cache(maxsize=1024)
def _topology(written: str) -> Topology:
    """The CPUs in an annotation; cached, as the text is long and equal for all nodes of a model."""
    detail = decode_as(written, CpuTopology).detail
    return Topology(Cpu(cpu.id, (cpu.socket, cpu.core), cpu.socket, cpu.node) for cpu in detail)


class _Reader:
    """Decodes annotations and collects what is invalid."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    def read(self, annotations: Mapping[str, str], key: str, kind: type[T]) -> T | None:
        text = annotations.get(key)
        if not text:
            return None
        try:
            return decode_as(text, kind)
        except msgspec.DecodeError as error:
            self.wrong.append(f"{key}: {error}")
            return None

    def topology(self, written: str) -> Topology:
        try:
            return _topology(written)
        except msgspec.DecodeError as error:
            self.wrong.append(f"{CPU_TOPOLOGY}: {error}")
            return _topology("{}")

    def cpus(self, key: str, text: str) -> frozenset[int]:
        try:
            return parse_cpuset(text)
        except CpusetError as error:
            self.wrong.append(f"{key}: {error}")
            return frozenset()


def options_of(
    labels: Mapping[str, str], annotations: Mapping[str, str], nrt: NodeResourceTopology | None
) -> tuple[Options, list[str]]:
    """The options of a node with these labels and annotations, and what of them is invalid."""
    reader = _Reader()
    label_policy = labels.get(NUMA_TOPOLOGY_POLICY_LABEL, "")
    if label_policy not in NUMA_POLICIES:
        if label_policy not in {"", "None"}:
            reader.wrong.append(_unknown(NUMA_TOPOLOGY_POLICY_LABEL, ("None", *sorted(NUMA_POLICIES)), label_policy))
        label_policy = ""
    strategy = labels.get(NUMA_ALLOCATE_STRATEGY_LABEL, "")
    if strategy not in _STRATEGIES:
        reader.wrong.append(_unknown(NUMA_ALLOCATE_STRATEGY_LABEL, sorted(_STRATEGIES - {""}), strategy))
        strategy = ""
    ratios = reader.read(annotations, AMPLIFICATION_RATIO, dict[str, float])
    cpu_ratio = None if reader.wrong and AMPLIFICATION_RATIO in reader.wrong[-1] else (ratios or {}).get(CPU, 1.0)
    known = nrt.metadata.annotations if nrt is not None else {}
    manager = reader.read(known, KUBELET_CPU_MANAGER, CpuManagerPolicy) or CpuManagerPolicy()
    bind_policy = _BIND_LABELS.get(labels.get(CPU_BIND_POLICY_LABEL, ""), "")
    if manager.policy == "static" and manager.options.get("full-pcpus-only") == "true":
        bind_policy = FULL_PCPUS
    if nrt is None:
        return Options(
            bind_policy=bind_policy, label_policy=label_policy, strategy=strategy, cpu_ratio=_clamped(cpu_ratio)
        ), reader.wrong
    topology = reader.topology(known.get(CPU_TOPOLOGY) or "{}")
    reserved = _reserved(reader, known, manager) & topology.ids
    amplified = reader.read(known, AMPLIFICATION_RATIO, dict[str, float])
    factors = {} if amplified is not None else ratios or {}
    held = amplified if amplified is not None else factors
    return Options(
        tuple(topology.cpus.values()),
        reserved,
        _less(_zones(reader, nrt, factors), topology, reserved, held.get(CPU, 1.0)),
        bind_policy,
        label_policy,
        next((KUBELET_POLICIES[name] for name in nrt.topology_policies if name in KUBELET_POLICIES), ""),
        strategy,
        tuple(sorted((name, ratio) for name, ratio in held.items() if ratio > 1)),
        _clamped(cpu_ratio),
    ), reader.wrong


def _unknown(key: str, expected: object, strategy: str) -> str:
    return f"{key}: expected one of {', '.join(expected)}, found {strategy!r}"  # type: ignore[arg-type]


def _clamped(ratio: float | None) -> float | None:
    return ratio if ratio is None else max(ratio, 1.0)


def _reserved(reader: _Reader, annotations: Mapping[str, str], manager: CpuManagerPolicy) -> frozenset[int]:
    """CPUs that no pod may be bound to (NUMA-R17)."""
    cpus = reader.cpus(KUBELET_CPU_MANAGER, manager.reserved_cpus)
    for alloc in reader.read(annotations, POD_CPU_ALLOCS, list[PodCpuAlloc] | None) or ():  # type: ignore[arg-type]
        if alloc.managed_by_kubelet and alloc.uid and alloc.cpuset:
            cpus |= reader.cpus(POD_CPU_ALLOCS, alloc.cpuset)
    reservation = reader.read(annotations, NODE_RESERVATION, NodeReservation)
    if reservation is not None:
        cpus |= reader.cpus(NODE_RESERVATION, reservation.reserved_cpus)
    system = reader.read(annotations, SYSTEM_QOS, SystemQos)
    if system is not None and system.cpuset_exclusive is not False:
        cpus |= reader.cpus(SYSTEM_QOS, system.cpuset)
    return cpus


def _zones(reader: _Reader, nrt: NodeResourceTopology, factors: Mapping[str, float]) -> dict[int, Amounts]:
    """The amounts of each NUMA node in the object, amplified unless they are already."""
    totals: dict[int, Amounts] = {}
    for zone in nrt.zones:
        number = _ZONE_NAME.match(zone.name)
        if zone.type != "Node" or number is None:
            continue
        amounts = totals.setdefault(int(number[1]), {})
        for resource in zone.resources:
            try:
                value = amount(resource.name, resource.allocatable)
            except QuantityError as error:
                reader.wrong.append(f"zone {zone.name}: {resource.name}: {error}")
                continue
            amounts[resource.name] = amplify(value, factors.get(resource.name, 1.0))
    if len(totals) > MAX_NUMA_NODES:
        reader.wrong.append(f"zones: expected at most {MAX_NUMA_NODES} NUMA nodes, found {len(totals)}; none is used")
        return {}
    return totals


def _less(totals: dict[int, Amounts], topology: Topology, reserved: frozenset[int], ratio: float) -> ZoneAmounts:
    """The amounts without reserved CPUs."""
    for node, amounts in totals.items():
        if CPU in amounts:
            gone = sum(1 for cpu in reserved if topology.cpus[cpu].node == node)
            amounts[CPU] = max(amounts[CPU] - amplify(gone * 1000, ratio), 0)
    return tuple((node, tuple(sorted(amounts.items()))) for node, amounts in sorted(totals.items()))
