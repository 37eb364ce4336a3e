"""The occupancy of devices: which pods hold which share of each device of a node, from Device objects and pods."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from seatrial.harness.allocations import parse_allocations
from seatrial.harness.apiserver.quantities import units
from seatrial.harness.results import DeviceState, NodeState, Share
from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY_RATIO, GPU_MODEL_LABEL, Device

Holders = dict[tuple[str, int], list[tuple[str, Share]]]
"""The pods on each device of one node, by type and minor: their keys and shares."""

_SHOWN_LABELS = ("node.kubernetes.io/instance-type", "network.topology.nvidia.com/block")


def shares(pod: Pod) -> dict[str, list[Share]]:
    """The allocated share of each device, in percent.

    Raises:
        msgspec.DecodeError: the annotation does not have Koordinator's format.
    """
    return {
        kind: [
            Share(
                allocation.minor,
                core=float(units(allocation.resources.get(GPU_CORE, 0))),
                memory_ratio=float(units(allocation.resources.get(GPU_MEMORY_RATIO, 0))),
            )
            for allocation in allocated
        ]
        for kind, allocated in parse_allocations(pod.metadata.annotations).items()
    }


def holders(pods: Iterable[tuple[str, Mapping[str, Iterable[Share]]]]) -> Holders:
    """The devices that pods of one node hold, from their keys and `shares`."""
    held: Holders = defaultdict(list)
    for key, parts in pods:
        for kind, allocated in parts.items():
            for share in allocated:
                held[kind, share.minor].append((key, share))
    return held


def node_state(node: Node, device: Device | None, held: Holders) -> NodeState:
    """A node with its devices and what `held` says of them."""
    labels = node.metadata.labels
    model = labels.get(GPU_MODEL_LABEL, "")
    devices = [] if device is None else _states(device, model, held)
    return NodeState(node.name, {key: labels[key] for key in _SHOWN_LABELS if key in labels}, tuple(devices))


def _states(device: Device, model: str, held: Holders) -> list[DeviceState]:
    rows = []
    for entry in device.spec.devices:
        if entry.minor is None:
            continue
        used = held.get((entry.type, entry.minor), [])
        rows.append(
            DeviceState(
                entry.type,
                entry.minor,
                model if entry.type == "gpu" else "",
                entry.topology.node_id if entry.topology else None,
                "ok" if entry.health else "unhealthy",
                used_core_percent=sum(share.core for _, share in used),
                used_memory_percent=sum(share.memory_ratio for _, share in used),
                pods=tuple(key for key, _ in used),
            )
        )
    return sorted(rows, key=lambda row: (row.type, row.minor))
