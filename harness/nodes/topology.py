"""The NodeResourceTopology of a node, as koordlet publishes it: a pure function of the machine.

CPUs are numbered as Linux does on servers: first one thread of every core, by NUMA node, then the other threads in the
same order.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from seatrial.fake_devices.machine import Machine
from seatrial.harness.apiserver.quantities import CPU, MEMORY, QuantityError, milli, text
from seatrial.harness.cpusets import CpusetError, cpuset_text, parse_cpuset
from seatrial.scheduler.api import numa
from seatrial.scheduler.api.wire import decode_as, to_json

Manifest = dict[str, Any]

MAX_SOCKETS = 2
POLICIES = (
    "None",
    "BestEffortContainerLevel",
    "BestEffortPodLevel",
    "RestrictedContainerLevel",
    "RestrictedPodLevel",
    "SingleNUMANodeContainerLevel",
    "SingleNUMANodePodLevel",
)


class Kubelet(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A kubelet's settings for CPUs and NUMA nodes, in the format of fleet files."""

    topology_policy: str = "None"  # with its scope, as koordlet reports both
    full_pcpus_only: bool = False  # the static CPU manager with that option
    reserved_cpus: str = ""

    def check(self) -> None:
        """
        Raises:
            ValueError: an unknown value; the message lists the known ones.
        """
        if self.topology_policy not in POLICIES:
            raise ValueError(
                f"kubelet.topology_policy: expected one of {', '.join(POLICIES)}, found {self.topology_policy!r}"
            )
        try:
            parse_cpuset(self.reserved_cpus)
        except CpusetError as error:
            raise ValueError(f"kubelet.reserved_cpus: {error}") from error


PLAIN = Kubelet()


class Processor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The CPU model that a node reports, in the format of fleet files."""

    model: str = "Simulated CPU"
    vendor: str = ""
    hyper_threading: bool | None = None  # None: as the CPUs of the machine are numbered
    turbo: bool = False

    def report(self, machine: Machine) -> numa.CpuBasicInfo:
        threads = _threads(machine) == 2 if self.hyper_threading is None else self.hyper_threading
        return numa.CpuBasicInfo(self.model, threads, self.turbo, self.vendor)


ANY_PROCESSOR = Processor()


def _threads(machine: Machine) -> int:
    """Threads per core: two if the number of CPUs allows it."""
    return 2 if machine.cpu % (2 * max(machine.numa, 1)) == 0 else 1


def cpus_of(machine: Machine) -> list[Manifest]:
    """Every CPU with its core, socket and NUMA node."""
    nodes = max(machine.numa, 1)
    cores = machine.cpu // _threads(machine)
    sockets = min(nodes, MAX_SOCKETS)
    cpus = []
    for number in range(machine.cpu):
        core = number % cores
        node = core * nodes // cores
        cpus.append({"id": number, "core": core, "socket": node * sockets // nodes, "node": node})
    return cpus


@lru_cache(maxsize=256)
def _cpu_topology(machine: Machine) -> str:
    """The annotation; cached, because it is long and equal for all nodes of a model."""
    return to_json({"detail": cpus_of(machine)}).decode()


@lru_cache(maxsize=256)
def zones_of(machine: Machine) -> list[Manifest]:
    """The resources of each NUMA node; nothing is reserved for the system."""
    nodes = max(machine.numa, 1)
    there = [cpu["node"] for cpu in cpus_of(machine)]
    return [
        {
            "name": f"node-{node}",
            "type": "Node",
            "resources": [
                {"name": name, **dict.fromkeys(("capacity", "allocatable", "available"), text(name, value))}
                for name, value in ((CPU, there.count(node) * 1000), (MEMORY, machine.memory // nodes))
            ],
        }
        for node in range(nodes)
    ]


def reservation(machine: Machine, written: str) -> str | None:
    """The annotation of a Node with reserved resources, with the reserved CPUs; None if it reserves no CPU.

    CPUs are chosen as by kubelet: by socket, whole cores, then single CPUs.
    """
    try:
        result = decode_as(written, numa.NodeReservation) if written else numa.NodeReservation()
        count = -(-milli(result.resources.get(CPU, 0)) // 1000)
        chosen = parse_cpuset(result.reserved_cpus)
    except (msgspec.DecodeError, QuantityError, CpusetError):
        return None  # as koordlet: an invalid annotation reserves nothing
    if not chosen and count > 0:
        order = sorted(cpus_of(machine), key=lambda cpu: (cpu["socket"], cpu["node"], cpu["core"], cpu["id"]))
        chosen = frozenset(cpu["id"] for cpu in order[:count])
    if not chosen:
        return None
    return to_json(msgspec.structs.replace(result, reserved_cpus=cpuset_text(chosen))).decode()


def manifest(
    node: str, node_uid: str, machine: Machine, kubelet: Kubelet = PLAIN, processor: Processor = ANY_PROCESSOR
) -> Manifest:
    """The NodeResourceTopology object, owned by its Node."""
    policy = {"policy": "static" if kubelet.full_pcpus_only else "none"} | (
        {"options": {"full-pcpus-only": "true"}} if kubelet.full_pcpus_only else {}
    )
    annotations: Mapping[str, Any] = {
        numa.KUBELET_CPU_MANAGER: {**policy, "reservedCPUs": kubelet.reserved_cpus},
        numa.POD_CPU_ALLOCS: None,
    }
    return {
        "apiVersion": numa.GROUP_VERSION,
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": node,
            "labels": {"app.kubernetes.io/managed-by": "Koordinator"},
            "annotations": {
                numa.CPU_TOPOLOGY: _cpu_topology(machine),
                numa.CPU_BASIC_INFO: to_json(processor.report(machine)).decode(),
                **{key: to_json(value).decode() for key, value in annotations.items()},
            },
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "name": node,
                    "uid": node_uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "topologyPolicies": [kubelet.topology_policy],
        "zones": zones_of(machine),
    }
