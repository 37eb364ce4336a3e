"""The ResourceSlice of a node, as the vendors' drivers for dynamic resource allocation publish it, and their classes.

Names of devices and attributes are those of the drivers (specification `dra.md`, section 14). A node that offers its
devices so has no Device object and no resources of device plugins: no card is in two inventories.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from seatrial.harness.devices.provider import Device, Driver
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.devices.vendors.claim_driver import ClaimDriver, Part

Manifest = dict[str, Any]
Way = Literal["whole", "partitions", "shares"]  # how cards that can be cut or shared are offered

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
MAX_DEVICES = 64  # of a slice with taints or counters
MAX_COUNTER_SETS = 8  # of a slice
DEFINITIONS_LABEL = "seatrial.dev/definitions"  # of what runs share on a cluster; removed with the last run
CORES, MEMORY = "cores", "memory"  # capacities of which shares are asked for, as in HAMi's driver
_STANDARD = "resource.kubernetes.io"
_MIB, _PERCENT = 1 << 20, 100


@dataclass(frozen=True, slots=True)
class Offer:
    """One entry of a slice: a device, or a part of it: one that can be cut, or that is there."""

    name: str
    device: Device
    part: Part | None = None


def offers(names: ClaimDriver, devices: Iterable[Device], way: Way) -> list[Offer]:
    """The entries of a driver's slices; a card comes before its parts. Of a divided card only parts that are there."""
    entries: list[Offer] = []
    for device in devices:
        name = names.device(device)
        if device.divided:
            parts = names.made(device)
        else:
            entries.append(Offer(name, device))
            cut = names.cut(device) if way == "partitions" else None
            parts = cut.parts if cut is not None else ()
        entries += [Offer(f"{name}-{part.name}", device, part) for part in parts]
    return entries


def offered(devices: Iterable[Device], way: Way) -> dict[tuple[str, str], Device]:
    """The devices behind the entries of all slices, by driver and name; of a part it is the card."""
    drivers = [(VENDORS[device.vendor].claim_driver, device) for device in devices]
    return {(names.name, offer.name): device for names, device in drivers for offer in offers(names, [device], way)}


def slices(
    node: str,
    node_uid: str,
    devices: Mapping[str, Sequence[Device]],
    driver: Callable[[str], Driver],
    generation: int,
    *,
    way: Way,
) -> list[Manifest]:
    """The slices of a node, owned by it: one pool for each driver, with the node's name. `devices`: by vendor."""
    statuses: list[Manifest] = []
    for vendor, own in devices.items():
        names, versions = VENDORS[vendor].claim_driver, driver(vendor)
        entries = [_entry(offer, names, versions, way) for offer in offers(names, own, way)]
        sets = _counter_sets(names, own) if way == "partitions" else []
        parts = [
            *({"sharedCounters": sets[at : at + MAX_COUNTER_SETS]} for at in range(0, len(sets), MAX_COUNTER_SETS)),
            *({"devices": entries[at : at + MAX_DEVICES]} for at in range(0, max(len(entries), 1), MAX_DEVICES)),
        ]
        for number, part in enumerate(parts):
            owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": True}
            statuses.append(
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceSlice",
                    "metadata": {"name": f"{node}-{names.name}-{number}", "ownerReferences": [owner]},
                    "spec": {
                        "driver": names.name,
                        "nodeName": node,
                        "pool": {"name": node, "generation": generation, "resourceSliceCount": len(parts)},
                        **part,
                    },
                }
            )
    return statuses


def classes(vendors: Iterable[str]) -> list[Manifest]:
    """The DeviceClasses that the drivers' charts install: one named as the driver, one for the parts of its cards."""
    statuses = []
    for vendor in vendors:
        names = VENDORS[vendor].claim_driver
        for name, expression in names.classes.items():
            spec: Manifest = {"selectors": [{"cel": {"expression": expression}}]}
            if names.extended and name == names.name:
                spec["extendedResourceName"] = names.extended
            metadata = {"name": name, "labels": {DEFINITIONS_LABEL: "true"}}
            statuses.append(
                {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": metadata, "spec": spec}
            )
    return statuses


def _counter_sets(names: ClaimDriver, devices: Iterable[Device]) -> list[Manifest]:
    """A set of counters for each card that can be cut."""
    return [
        {"name": _set_name(names, device), "counters": _counters(cut.counters)}
        for device in devices
        if not device.divided and (cut := names.cut(device)) is not None
    ]


def _set_name(names: ClaimDriver, device: Device) -> str:
    return f"{names.device(device)}-counter-set"


def _counters(counts: Mapping[str, int]) -> dict[str, Manifest]:
    return {name: {"value": _quantity(name, value)} for name, value in counts.items()}


def _quantity(name: str, value: int) -> str:
    return f"{value // _MIB}Mi" if name == MEMORY else str(value)


def _entry(offer: Offer, names: ClaimDriver, driver: Driver, way: Way) -> Manifest:
    device, part = offer.device, offer.part
    attributes = dict(names.attributes(device, driver))
    if part is not None:
        del attributes["uuid"]  # it has one of its own once it is cut
        attributes.update(part.attributes)
    attributes[f"{_STANDARD}/pciBusID"] = {"string": device.bus_id}
    if device.pcie_root:
        attributes[f"{_STANDARD}/pcieRoot"] = {"string": device.pcie_root}
    if device.numa is not None:
        attributes[f"{_STANDARD}/numaNode"] = {"int": device.numa}
    entry: Manifest = {"name": offer.name, "attributes": attributes}
    cut = names.cut(device) if way == "partitions" and not device.divided else None
    if part is not None:
        entry["capacity"] = _counters(part.capacity)
    elif device.memory:
        entry["capacity"] = _counters({MEMORY: device.memory})
    if cut is not None:
        taken = _counters(part.counters if part is not None else cut.counters)
        entry["consumesCounters"] = [{"counterSet": _set_name(names, device), "counters": taken}]
    if way == "shares" and names.shared and part is None:
        entry["allowMultipleAllocations"] = True
        entry["capacity"] = {
            MEMORY: _shared(_quantity(MEMORY, device.memory), "1Mi"),
            CORES: _shared(str(_PERCENT), "1"),
        }
    if not device.health.ok:
        taint = {"key": f"{names.name}/unhealthy", "value": device.health.code, "effect": "NoSchedule"}
        entry["taints"] = [taint]
    return entry


def _shared(value: str, step: str) -> Manifest:
    """A capacity of which each claim takes what it asks for, in whole steps, and all if it asks for nothing."""
    return {"value": value, "requestPolicy": {"default": value, "validRange": {"min": step, "step": step}}}
