"""Invariants of bound CPUs and NUMA nodes, by the pod's annotation resource-status and the NodeResourceTopology."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from seatrial.harness.apiserver.quantities import CPU, Amounts, amounts
from seatrial.harness.audit.device_rules import shares_of
from seatrial.harness.audit.invariants import Binding, BindingInvariant, Breach, Change, ChangeInvariant
from seatrial.harness.audit.state import PodRecord
from seatrial.harness.cpusets import CpusetError, parse_cpuset
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.numa import (
    AMPLIFICATION_RATIO,
    CPU_TOPOLOGY,
    FULL_PCPUS,
    KUBELET_CPU_MANAGER,
    LSE,
    LSR,
    NODE_RESERVATION,
    NUMA_TOPOLOGY_POLICY_LABEL,
    NUMA_TOPOLOGY_SPEC,
    QOS_LABEL,
    RESOURCE_SPEC,
    RESOURCE_STATUS,
    SINGLE_NUMA_NODE,
    SPREAD_BY_PCPUS,
    CpuDetail,
    CpuManagerPolicy,
    CpuTopology,
    NodeReservation,
    NumaTopologySpec,
    ResourceSpec,
)


def _cpus(record: PodRecord) -> frozenset[int]:
    try:
        return parse_cpuset(record.numa.cpuset)
    except (CpusetError, msgspec.DecodeError):
        return frozenset()


def _details(binding: Binding) -> dict[int, CpuDetail]:
    if binding.topology is None:
        return {}
    result = _read(binding.topology.metadata.annotations, CPU_TOPOLOGY, CpuTopology())
    return {cpu.id: cpu for cpu in result.detail}


def _read(annotations: Mapping[str, str], key: str, default: Any) -> Any:
    text = annotations.get(key)
    try:
        return msgspec.json.decode(text, type=type(default)) if text else default
    except msgspec.DecodeError:
        return default


def _readable(binding: Binding) -> Breach | None:
    try:
        parse_cpuset(binding.record.numa.cpuset)
    except (CpusetError, msgspec.DecodeError) as error:
        return Breach(f"has an annotation {RESOURCE_STATUS} that cannot be read: {error}")
    return None


def _stable(change: Change) -> Breach | None:
    before, after = (pod.metadata.annotations.get(RESOURCE_STATUS, "") for pod in (change.before, change.after))
    if not change.before.spec.node_name or not before or before == after:
        return None
    return Breach(f"had {before} and later {after or 'nothing'}")


def _cpus_once(binding: Binding) -> Breach | None:
    mine = _cpus(binding.record)
    for other in binding.use.with_numa.values() if mine else ():
        if other.uid == binding.record.uid:
            continue
        both = mine & _cpus(other)
        if both:
            return Breach(f"got CPU {min(both)} of {binding.record.node}, which {other.key} has", (other,))
    return None


def _cpu_count(binding: Binding) -> Breach | None:
    mine, cpu = _cpus(binding.record), binding.record.requests.get(CPU, 0)
    return Breach(f"requests {cpu} milli-CPU and got {len(mine)} CPUs") if mine and len(mine) * 1000 != cpu else None


def _cpus_exist(binding: Binding) -> Breach | None:
    details = _details(binding)
    unknown = _cpus(binding.record) - details.keys() if details else frozenset[int]()
    return Breach(f"got CPUs {sorted(unknown)}, which {binding.record.node} does not have") if unknown else None


def _reserved_cpus(binding: Binding) -> Breach | None:
    if binding.topology is None:
        return None
    annotations = binding.topology.metadata.annotations
    reserved: set[int] = set()
    for text in (
        _read(annotations, NODE_RESERVATION, NodeReservation()).reserved_cpus,
        _read(annotations, KUBELET_CPU_MANAGER, CpuManagerPolicy()).reserved_cpus,
    ):
        try:
            reserved |= parse_cpuset(text)
        except CpusetError:
            continue
    both = _cpus(binding.record) & reserved
    return Breach(f"got CPU {min(both)} of {binding.record.node}, which is reserved") if both else None


def _required_policy(binding: Binding) -> str:
    return str(_read(binding.pod.metadata.annotations, RESOURCE_SPEC, ResourceSpec()).required_cpu_bind_policy)


def _by_core(binding: Binding) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]]:
    """CPUs of each core: the pod's, and all."""
    mine = _cpus(binding.record)
    own: dict[tuple[int, int], int] = {}
    every: dict[tuple[int, int], int] = {}
    for number, cpu in _details(binding).items():
        core = (cpu.socket, cpu.core)
        every[core] = every.get(core, 0) + 1
        if number in mine:
            own[core] = own.get(core, 0) + 1
    return own, every


def _whole_cores(binding: Binding) -> Breach | None:
    if _required_policy(binding) != FULL_PCPUS:
        return None
    own, every = _by_core(binding)
    half = sorted(core for core, count in own.items() if count != every[core])
    return Breach(f"requires whole cores and got a part of cores {half}") if half else None


def _spread_cores(binding: Binding) -> Breach | None:
    if _required_policy(binding) != SPREAD_BY_PCPUS:
        return None
    own, _ = _by_core(binding)
    full = sorted(core for core, count in own.items() if count > 1)
    return Breach(f"requires CPUs of different cores and got several of cores {full}") if full else None


def _has_cpuset(binding: Binding) -> Breach | None:
    pod = binding.pod
    if pod.metadata.labels.get(QOS_LABEL) not in {LSE, LSR} or not _details(binding):
        return None
    cpu = binding.record.requests.get(CPU, 0)
    spec = _read(pod.metadata.annotations, RESOURCE_SPEC, ResourceSpec())
    policies = {spec.required_cpu_bind_policy, spec.preferred_cpu_bind_policy}
    if not cpu or cpu % 1000 or not policies & {FULL_PCPUS, SPREAD_BY_PCPUS} or 0 < pod.spec.priority < 9000:
        return None
    if _cpus(binding.record):
        return None
    return Breach(
        f"is {pod.metadata.labels[QOS_LABEL]} with a bind policy and was bound to {binding.record.node} without CPUs"
    )


def _policy(binding: Binding) -> str:
    own = _read(binding.pod.metadata.annotations, NUMA_TOPOLOGY_SPEC, NumaTopologySpec()).policy
    node = binding.node.metadata.labels.get(NUMA_TOPOLOGY_POLICY_LABEL, "") if binding.node is not None else ""
    return str(own or node)


def _single_numa(binding: Binding) -> Breach | None:
    if _policy(binding) != SINGLE_NUMA_NODE:
        return None
    try:
        zones = {resource.node for resource in binding.record.numa.numa_node_resources if resource.resources}
    except msgspec.DecodeError:
        return None
    details = _details(binding)
    zones |= {details[number].node for number in _cpus(binding.record) if number in details}
    listed = binding.device.spec.devices if binding.device is not None else ()
    mine = {(kind, share.minor) for kind, share in shares_of(binding.record)}
    zones |= {
        device.topology.node_id
        for device in listed
        if (device.type, device.minor) in mine and device.topology is not None and device.topology.node_id >= 0
    }
    return Breach(f"must be on one NUMA node and is on {sorted(zones)}") if len(zones) > 1 else None


def _ratios(binding: Binding) -> dict[str, float]:
    """The node's ratios above 1; none where the amounts of the NUMA nodes have them already (NUMA-R47)."""
    if binding.node is None or binding.topology is None:
        return {}
    if AMPLIFICATION_RATIO in binding.topology.metadata.annotations:
        return {}
    written = _read(binding.node.metadata.annotations, AMPLIFICATION_RATIO, {})
    return {name: ratio for name, ratio in written.items() if isinstance(ratio, int | float) and ratio > 1}


def _zone_sums(binding: Binding) -> Breach | None:
    if binding.topology is None:
        return None
    ratios = _ratios(binding)
    have: dict[int, Amounts] = {}
    for zone in binding.topology.zones:
        number = integer(zone.name.rpartition("-")[2], 0)
        if zone.type == "Node" and number is not None:
            real = amounts({resource.name: resource.allocatable for resource in zone.resources})
            have[number] = {name: math.ceil(value * ratios.get(name, 1.0)) for name, value in real.items()}
    used: dict[tuple[int, str], int] = {}
    for record in binding.use.with_numa.values():
        try:
            parts = record.numa.numa_node_resources
        except msgspec.DecodeError:
            continue
        for part in parts:
            for name, value in amounts(part.resources).items():
                used[part.node, name] = used.get((part.node, name), 0) + value
    for (number, name), total in used.items():
        if total > have.get(number, {}).get(name, total):
            return Breach(
                f"NUMA node {number} of {binding.record.node} has {have[number][name]} of {name}; its pods hold {total}"
            )
    return None


CHANGES = (ChangeInvariant("AUD-302", "The CPUs of a bound pod do not change", _stable),)
BINDINGS = (
    BindingInvariant("AUD-301", "The annotation resource-status can be read", _readable, lasting=True),
    BindingInvariant("AUD-303", "A bound CPU has one pod", _cpus_once, lasting=True),
    BindingInvariant("AUD-304", "A pod gets as many CPUs as it requests", _cpu_count),
    BindingInvariant("AUD-305", "CPUs in the annotation exist on the node", _cpus_exist),
    BindingInvariant("AUD-306", "Reserved CPUs are not given out", _reserved_cpus),
    BindingInvariant("AUD-307", "Required FullPCPUs gives whole cores", _whole_cores),
    BindingInvariant("AUD-308", "Required SpreadByPCPUs gives one CPU of each core", _spread_cores),
    BindingInvariant("AUD-309", "An LSE or LSR pod with a bind policy gets CPUs", _has_cpuset),
    BindingInvariant("AUD-310", "SingleNUMANode keeps a pod on one NUMA node", _single_numa),
    BindingInvariant("AUD-311", "The amounts of a NUMA node are not overcommitted", _zone_sums, lasting=True),
)
