"""The use of CPU and memory of each NUMA node, as a NodeMetric reports it in `numaUsages` (QOS-KM-1, KM-2, KM-8).

A simulated pod uses the NUMA nodes that its annotation `resource-status` names in equal parts, otherwise all of them;
everything else uses all NUMA nodes in equal parts. For this machine the files of the kernel are read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from seatrial.harness.cpusets import parse_cpuset
from seatrial.harness.nodes.usage_samples import Samples, total
from seatrial.scheduler.api.numa import RESOURCE_STATUS, ResourceStatus

_KIB = 1024
_NODES = "sys/devices/system/node"
_NOT_USED = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")
_ROWS = {"anon": 1, "file": 1, "hierarchical_anon": 4096, "hierarchical_file": 4096}
"""Rows of memory.numa_stat with the bytes of their unit: of version 2, and of version 1, which counts pages."""

_decode_status = msgspec.json.Decoder(ResourceStatus).decode


@dataclass(frozen=True, slots=True)
class NumaUse:
    """The use of one NUMA node; `system`: what no pod uses, None if it is not known."""

    number: int
    node: Samples
    system: Samples | None = None


def zones_of_pod(annotations: Mapping[str, str], count: int) -> Sequence[int]:
    """The NUMA nodes of a machine with `count` of them that the pod's annotation names; otherwise all."""
    try:
        status = _decode_status(annotations.get(RESOURCE_STATUS) or "{}")
    except msgspec.DecodeError:
        status = ResourceStatus()
    named = sorted({entry.node for entry in status.numa_node_resources if 0 <= entry.node < count})
    return named or range(count)


def divided(
    node: Samples, system: Samples | None, pods: Sequence[tuple[Samples, Sequence[int]]], count: int
) -> tuple[NumaUse, ...]:
    """The use of `count` NUMA nodes, from that of the node, of its system, and of pods with their NUMA nodes."""
    everyone = total(node.times, (samples for samples, _ in pods))
    numa_uses = []
    for number in range(count):
        own = total(node.times, (_part(samples, len(zones)) for samples, zones in pods if number in zones))
        rest_cpu, rest_memory = (node.cpu - everyone.cpu) / count, (node.memory - everyone.memory) / count
        used = Samples(node.times, own.cpu + rest_cpu, own.memory + rest_memory)
        numa_uses.append(NumaUse(number, used, _system(used, own, node, system)))
    return tuple(numa_uses)


def _part(samples: Samples, parts: int) -> Samples:
    return Samples(samples.times, samples.cpu / parts, samples.memory / parts)


def _system(used: Samples, pods: Samples, node: Samples, system: Samples | None) -> Samples | None:
    """Of the system's CPU the part that the NUMA node has of all CPU; of memory what pods leave (QOS-KM-8)."""
    if system is None or len(system) != len(node):
        return None
    share = np.divide(used.cpu, node.cpu, out=np.zeros(len(node)), where=node.cpu > 0)
    return Samples(node.times, system.cpu * share, np.maximum(used.memory - pods.memory, 0.0))


# -- this machine -----------------------------------------------------------------------------------------------------


def read_nodes(root: Path, stat: str, ticks: int) -> dict[int, tuple[float, float]]:
    """CPU seconds and bytes in use of each NUMA node. `stat`: the text of /proc/stat; `ticks` of it in a second.

    A NUMA node whose files cannot be read is left out.
    """
    seconds = {}
    for line in stat.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdigit():
            seconds[int(name[3:])] = sum(int(fields[place]) for place in (0, 1, 2, 5, 6)) / ticks
    nodes = {}
    for folder in (root / _NODES).glob("node[0-9]*"):
        try:
            cpus = parse_cpuset((folder / "cpulist").read_text().strip())
            memory = _memory((folder / "meminfo").read_text())
        except (OSError, ValueError, KeyError):
            continue
        nodes[int(folder.name.removeprefix("node"))] = sum(seconds.get(cpu, 0.0) for cpu in cpus), memory
    return nodes


def _memory(text: str) -> float:
    """Bytes in use, from lines as `Node 0 MemTotal:  1000 kB`."""
    rows = {}
    for line in text.splitlines():
        name, _, amount = line.partition(":")
        rows[name.split()[-1]] = int(amount.split()[0]) * _KIB
    return float(rows["MemTotal"] - sum(rows.get(name, 0) for name in _NOT_USED))


def read_pod(folders: Iterable[Path]) -> dict[int, float] | None:
    """Bytes of a pod on each NUMA node, from `memory.numa_stat` of its control groups; None if one has none."""
    pod: dict[int, float] = {}
    for folder in folders:
        try:
            lines = (folder / "memory.numa_stat").read_text().splitlines()
        except OSError:
            return None
        for line in lines:
            first, *fields = line.split()
            name, of_version_1, _ = first.partition("=")
            if name not in _ROWS or (_ROWS[name] > 1) != bool(of_version_1):
                continue
            for field in fields:
                number, _, amount = field.removeprefix("N").partition("=")
                pod[int(number)] = pod.get(int(number), 0.0) + float(amount) * _ROWS[name]
    return pod
