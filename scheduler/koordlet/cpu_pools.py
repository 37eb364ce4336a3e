"""The CPUs of pods: those that are bound to them, else those that the pods of the node share (HK-5, NUMA-R67).

As Koordinator's pkg/koordlet/runtimehooks/hooks/cpuset. Where its agent writes the pools of a node into the
NodeResourceTopology and reads them there, this one makes them where they are needed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from seatrial.scheduler.api.numa import (
    KUBELET_CPU_MANAGER,
    POD_CPU_ALLOCS,
    RESOURCE_STATUS,
    SYSTEM_QOS,
    CpuManagerPolicy,
    NodeResourceTopology,
    PodCpuAlloc,
    ResourceStatus,
    SystemQos,
    parse_cpuset,
)
from seatrial.scheduler.api.quantity import CPU, amount
from seatrial.scheduler.api.slo import BATCH_CPU
from seatrial.scheduler.api.wire import decode_as
from seatrial.scheduler.koordlet.machine import Cpu
from seatrial.scheduler.koordlet.objects import LocalPod
from seatrial.scheduler.pods.qos import BE, BEST_EFFORT, LS, SYSTEM


@dataclass(frozen=True, slots=True)
class KubeletCpus:
    """What a NodeResourceTopology says of CPUs that are not the agent's to give.

    `static`: kubelet binds CPUs itself. `apart`: those that it has bound, and those of pods of class SYSTEM alone.
    `system`: the CPUs of pods of class SYSTEM.
    """

    static: bool = False
    apart: frozenset[int] = frozenset()
    system: frozenset[int] = frozenset()


def kubelet_cpus(topology: NodeResourceTopology) -> KubeletCpus:
    """Read the annotations.

    Raises:
        CpusetError: an annotation has no list of CPUs.
        msgspec.MsgspecError: an annotation is not of its form.
    """
    annotations = topology.metadata.annotations
    manager = decode_as(annotations.get(KUBELET_CPU_MANAGER) or "{}", CpuManagerPolicy)
    allocs = decode_as(annotations.get(POD_CPU_ALLOCS) or "null", list[PodCpuAlloc] | None) or ()  # type: ignore[arg-type]
    system = decode_as(annotations.get(SYSTEM_QOS) or "{}", SystemQos)
    cpus = parse_cpuset(system.cpuset)
    bound = (parse_cpuset(alloc.cpuset) for alloc in allocs if alloc.managed_by_kubelet)
    exclusive = cpus if system.cpuset_exclusive is not False else frozenset()
    return KubeletCpus(manager.policy == "static", exclusive.union(*bound), cpus)


@dataclass(frozen=True, slots=True)
class Pools:
    """The CPUs that pods without bound ones share, by NUMA node; `kubelet` None: the node has no topology, and what
    kubelet gives is not known."""

    by_node: Mapping[int, frozenset[int]]
    kubelet: KubeletCpus | None

    @property
    def all(self) -> frozenset[int]:
        return frozenset(chain.from_iterable(self.by_node.values()))


def pools(cpus: Iterable[Cpu], taken: frozenset[int], kubelet: KubeletCpus | None) -> Pools:
    """The pools of a node; `taken`: CPUs that are bound to pods, or reserved."""
    if kubelet is not None:
        taken |= kubelet.apart
    by_node: dict[int, frozenset[int]] = {}
    for cpu in cpus:
        by_node[cpu.node] = by_node.get(cpu.node, frozenset()) | ({cpu.id} - taken)
    return Pools(by_node, kubelet)


def bound_cpus(pod: LocalPod) -> frozenset[int]:
    """The CPUs that are bound to a pod.

    Raises:
        CpusetError: its annotation has no list of CPUs.
        msgspec.MsgspecError: the annotation is not of its form.
    """
    return parse_cpuset(_status(pod).cpuset)


def pod_cpus(pod: LocalPod, shared: Pools) -> frozenset[int]:
    """The CPUs that the containers of a pod get; empty: they keep what they have, as best-effort pods, which are
    suppressed, and pods to which kubelet may have bound CPUs.

    Raises:
        CpusetError: its annotation has no list of CPUs.
        QuantityError: its annotation has an amount that is no quantity.
        msgspec.MsgspecError: the annotation is not of its form.
    """
    status, kubelet = _status(pod), shared.kubelet
    if status.cpuset:
        return parse_cpuset(status.cpuset)
    if kubelet is None:
        return frozenset()
    nodes = [
        each.node
        for each in status.numa_node_resources
        if any(amount(name, each.resources.get(name, 0)) for name in (CPU, BATCH_CPU))
    ]
    if nodes and pod.raw_qos != BE:
        return frozenset().union(*(shared.by_node.get(node, frozenset()) for node in nodes))
    if pod.raw_qos == SYSTEM and kubelet.system:
        return kubelet.system
    if pod.raw_qos != LS and (pod.kubernetes == BEST_EFFORT or kubelet.static):
        return frozenset()
    return shared.all


def _status(pod: LocalPod) -> ResourceStatus:
    text = pod.pod.metadata.annotations.get(RESOURCE_STATUS, "")
    return decode_as(text, ResourceStatus) if text else ResourceStatus()
