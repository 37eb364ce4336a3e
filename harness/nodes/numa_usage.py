"""The use of CPU and memory of each NUMA node, as a NodeMetric reports it in `numaUsages` (QOS-KM-8).

A simulated pod uses the NUMA nodes that its annotation `resource-status` names in equal parts, otherwise all of them;
everything else uses all NUMA nodes in equal parts. Of this machine the node agent's functions read the files.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from seatrial.harness.nodes.usage_samples import Samples, total
from seatrial.scheduler.api.numa import RESOURCE_STATUS, ResourceStatus
from seatrial.scheduler.api.numa_usage import group_bytes

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


def read_pod(folders: Iterable[Path]) -> dict[int, float] | None:
    """Bytes of a pod on each NUMA node, from `memory.numa_stat` of its control groups; None if one has none."""
    pod: dict[int, float] = {}
    for folder in folders:
        try:
            text = (folder / "memory.numa_stat").read_text(encoding="ascii")
        except OSError:
            return None
        for number, size in group_bytes(text).items():
            pod[number] = pod.get(number, 0.0) + size
    return pod
