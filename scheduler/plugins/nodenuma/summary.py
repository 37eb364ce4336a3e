"""CPUs and NUMA nodes of one node, in the format of Koordinator's services API."""

from collections.abc import Mapping
from typing import Any

from seatrial.scheduler.api.numa import cpuset_text
from seatrial.scheduler.api.quantity import Amounts, text
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.plugins.nodenuma.accumulator import Mark
from seatrial.scheduler.plugins.nodenuma.cache import NodeNuma
from seatrial.scheduler.plugins.nodenuma.options import ZoneAmounts
from seatrial.scheduler.plugins.nodenuma.topology import Cpu

MAX_REF_COUNT = 1  # maximum number of pods on a bound CPU
FREE = Mark(0, "")


def summary_of(numa: NodeNuma, cache: Cache) -> dict[str, Any]:
    """The body for one node whose CPUs are known."""
    state = numa.state
    options, topology = state.options, state.topology
    known = cache.find(numa.name)
    pods = known.pods if known is not None else {}
    held = state.marks.keys() & topology.ids
    return {
        "name": numa.name,
        "cpuTopology": {
            "numCPUs": len(topology.cpus),
            "numCores": len(topology.cores),
            "numNodes": len(topology.nodes),
            "numSockets": len(topology.sockets),
            "cpuDetails": {str(cpu.id): _cpu(cpu, FREE) for cpu in topology.cpus.values()},
        },
        "reservedCPUs": cpuset_text(options.reserved),
        "maxRefCount": MAX_REF_COUNT,
        "policy": {"cpuBindPolicy": options.bind_policy, "numaAllocateStrategy": options.strategy},
        "numaTopologyPolicy": options.policy(),
        "numaNodeResources": _zones(state.totals),
        "amplificationRatios": dict(options.ratios),
        "remainingNUMANodeResources": _zones(state.available),
        "allocatedNUMANodeResources": _zones(state.allocated),
        "availableCPUs": {str(cpu): _cpu(topology.cpus[cpu], FREE) for cpu in sorted(state.free)},
        "allocatedCPUs": {str(cpu): _cpu(topology.cpus[cpu], state.marks[cpu]) for cpu in sorted(held)},
        "allocatedPods": [
            {
                "uid": uid,
                "namespace": pods[uid].pod.metadata.namespace if uid in pods else "",
                "name": pods[uid].pod.metadata.name if uid in pods else "",
                "cpuset": cpuset_text(allocation.cpus),
                "cpuExclusivePolicy": allocation.exclusive,
                "numaNodeResources": _listed(allocation.zones),
            }
            for uid, allocation in sorted(numa.held.items())
        ],
    }


def _cpu(cpu: Cpu, mark: Mark) -> dict[str, Any]:
    return {
        "cpuID": cpu.id,
        "coreID": cpu.core[0] << 16 | cpu.core[1],
        "nodeID": cpu.node,
        "socketID": cpu.socket,
        "refCount": mark.pods,
        "exclusivePolicy": mark.exclusive,
    }


def _zones(zones: Mapping[int, Amounts]) -> list[dict[str, Any]]:
    return _listed(tuple((node, tuple(sorted(amounts.items()))) for node, amounts in sorted(zones.items())))


def _listed(zones: ZoneAmounts) -> list[dict[str, Any]]:
    return [{"node": node, "resources": {name: text(name, value) for name, value in parts}} for node, parts in zones]
