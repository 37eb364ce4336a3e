"""The resources that the plugin registers with kubelet, and the device IDs of each.

kubelet counts an extended resource in device IDs. A card has one ID of its vendor's resource (`nvidia.com/gpu`) and as
many IDs of each of Koordinator's resources as it has units: 100 of `koordinator.sh/gpu-core`. Bytes cannot be counted
this way: `koordinator.sh/gpu-memory` is written to the Node's status (node_report.py), as koord-manager does, and a
container that asks for nothing else does not reach the plugin.
"""

from collections.abc import Sequence
from dataclasses import replace

from seatrial.harness.devices.provider import WELL, Device
from seatrial.harness.nodes.capacity import koordinator_amounts, plugin_amounts
from seatrial.harness.nodes.devices import device_id
from seatrial.scheduler.api import device as words

IN_BYTES = frozenset({words.GPU_MEMORY})
_SEPARATOR = "::"


def units(device: Device) -> dict[str, int]:
    """How many units of each registered resource one device has, healthy or not."""
    whole = [_as_healthy(device)]
    own = plugin_amounts(whole, healthy=False) | koordinator_amounts(whole)
    return {name: count for name, count in own.items() if name not in IN_BYTES and count}


def registered(devices: Sequence[Device]) -> tuple[str, ...]:
    """The resources of a machine's devices, sorted."""
    return tuple(sorted({name for device in devices for name in units(device)}))


def ids_of(device: Device, resource: str) -> tuple[str, ...]:
    """The IDs of a device in a resource: its own where it counts once, else one for each unit."""
    count, own = units(device).get(resource, 0), device_id(device)
    if count == 1:
        return (own,)
    return tuple(f"{own}{_SEPARATOR}{number}" for number in range(count))


def owner_of(identifier: str) -> str:
    """The device ID (`device_id`) of the device that one of its IDs belongs to."""
    return identifier.partition(_SEPARATOR)[0]


def kind_of(resource: str, devices: Sequence[Device]) -> str:
    """The type of devices, gpu or rdma, that has a resource."""
    return next(device.kind for device in devices if resource in units(device))


def preferred(
    promised: Sequence[Device], resource: str, available: Sequence[str], must_include: Sequence[str], size: int
) -> tuple[str, ...]:
    """The IDs that kubelet should take: equal parts of the devices that were promised, as far as they are free.

    What must be included comes first. If the promised devices have too few free IDs, others fill the request: these IDs
    are kubelet's count only, the container gets what was promised.
    """
    chosen = list(must_include)[:size]
    free = [identifier for identifier in available if identifier not in set(chosen)]
    by_owner: dict[str, list[str]] = {}
    for identifier in sorted(free, key=_order):
        by_owner.setdefault(owner_of(identifier), []).append(identifier)
    owners = [device_id(device) for device in promised if resource in units(device)]
    part = -(-size // len(owners)) if owners else 0
    for owner in owners:
        have = sum(owner_of(identifier) == owner for identifier in chosen)
        chosen += by_owner.get(owner, [])[: max(0, min(part - have, size - len(chosen)))]
    for owner in (*owners, *(name for name in by_owner if name not in owners)):
        rest = [identifier for identifier in by_owner.get(owner, ()) if identifier not in chosen]
        chosen += rest[: size - len(chosen)]
    return tuple(chosen)


def _order(identifier: str) -> tuple[str, int]:
    owner, _, number = identifier.partition(_SEPARATOR)
    return owner, int(number or 0)


def _as_healthy(device: Device) -> Device:
    """Capacity does not depend on health: kubelet itself counts sick devices apart."""
    return device if device.health.ok else replace(device, health=WELL)
