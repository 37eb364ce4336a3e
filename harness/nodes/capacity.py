"""Capacity and allocatable of a node, as kubelet, the vendors' device plugins and Koordinator's manager write them.

Koordinator's resources count healthy devices only, in both lists. A device plugin's resource counts an unhealthy card
in capacity and not in allocatable.
"""

from collections.abc import Sequence
from typing import Protocol

from seatrial.harness.apiserver.quantities import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, binary, text
from seatrial.harness.devices.provider import Device
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.nodes.devices import card_resources
from seatrial.scheduler.api import device as words

SHARES_PER_CARD = 100  # gpu.shared of the node for each healthy card
DISK = 512 << 30

PLUGIN_NAMES = {name: vendor.plugin_resource for name, vendor in VENDORS.items() if vendor.plugin_resource}

Amounts = dict[str, int]  # whole units, cpu in milli


class Sized(Protocol):
    """The size of a machine: threads, bytes, pods, extended resources; `server` is its model, or empty."""

    @property
    def cpu(self) -> int: ...
    @property
    def memory(self) -> int: ...
    @property
    def pods(self) -> int: ...
    @property
    def server(self) -> str: ...
    @property
    def extended(self) -> Sequence[tuple[str, int]]: ...


def koordinator_amounts(devices: Sequence[Device]) -> Amounts:
    """The sums over healthy devices that koord-manager copies from Device to Node."""
    total: Amounts = {}
    for device in devices:
        if not device.health.ok:
            continue
        for name, value in card_resources(device).items():
            total[name] = total.get(name, 0) + value
        if device.kind == "gpu":
            total[words.GPU_SHARED] = total.get(words.GPU_SHARED, 0) + SHARES_PER_CARD
        if device.kind == "gpu" and not VENDORS[device.vendor].by_daemon:
            total[words.GPU] = total.get(words.GPU, 0) + card_resources(device)[words.GPU_CORE]
    return total


def plugin_amounts(devices: Sequence[Device], *, healthy: bool) -> Amounts:
    """The resources that the vendors' device plugins register; with `healthy`, of healthy devices only."""
    total: Amounts = {}
    for device in devices:
        if device.vendor not in PLUGIN_NAMES or (healthy and not device.health.ok):
            continue
        results = {PLUGIN_NAMES[device.vendor]: 1, **VENDORS[device.vendor].plugin_extra(device)}
        for name, value in results.items():
            total[name] = total.get(name, 0) + value
    return total


def kubelet_amounts(machine: Sized) -> Amounts:
    """Kubelet's own resources, and the extended ones. Nothing is reserved for the system."""
    own = {CPU: machine.cpu * 1000, MEMORY: machine.memory, EPHEMERAL_STORAGE: DISK, PODS: machine.pods}
    return {**dict(machine.extended), **own}


def capacity_and_allocatable(machine: Sized, devices: Sequence[Device]) -> tuple[Amounts, Amounts]:
    """Capacity and allocatable, in this order."""
    own, koordinator = kubelet_amounts(machine), koordinator_amounts(devices)
    return (
        {**own, **plugin_amounts(devices, healthy=False), **koordinator},
        {
            **own,
            **dict.fromkeys(plugin_amounts(devices, healthy=False), 0),
            **plugin_amounts(devices, healthy=True),
            **koordinator,
        },
    )


def quantities(amounts: Amounts) -> dict[str, str]:
    """The amounts as quantities; memory in Ki, as kubelet writes it, if it is a multiple."""
    texts = {name: text(name, value) for name, value in amounts.items()}
    for name in (MEMORY, EPHEMERAL_STORAGE):
        if name in amounts:
            texts[name] = f"{amounts[name] >> 10}Ki" if amounts[name] % 1024 == 0 else binary(amounts[name])
    return texts
