"""The ResourceSlice of a node, as the vendors' drivers for dynamic resource allocation publish it, and their classes.

Names of devices and attributes are those of the drivers (specification `dra.md`, section 14). A node that offers its
devices so has no Device object and no resources of device plugins: no card is in two inventories.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from seatrial.harness.devices.provider import Device, Driver
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.devices.vendors.claim_driver import ClaimDriver

Manifest = dict[str, Any]

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
MAX_DEVICES = 64  # of a slice with taints
DEFINITIONS_LABEL = "seatrial.dev/definitions"  # of what runs share on a cluster; removed with the last run
_STANDARD = "resource.kubernetes.io"
_MIB = 1 << 20


def slices(
    node: str, node_uid: str, devices: Mapping[str, Sequence[Device]], driver: Callable[[str], Driver], generation: int
) -> list[Manifest]:
    """The slices of a node, owned by it: one pool for each driver, with the node's name. `devices`: by vendor."""
    statuses: list[Manifest] = []
    for vendor, own in devices.items():
        names, versions = VENDORS[vendor].claim_driver, driver(vendor)
        entries = [_entry(device, names, versions) for device in own]
        parts = [entries[at : at + MAX_DEVICES] for at in range(0, len(entries), MAX_DEVICES)] or [[]]
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
                        "devices": part,
                    },
                }
            )
    return statuses


def classes(vendors: Iterable[str]) -> list[Manifest]:
    """The DeviceClasses that the drivers' charts install, named as the drivers."""
    statuses = []
    for vendor in vendors:
        names = VENDORS[vendor].claim_driver
        spec: Manifest = {"selectors": [{"cel": {"expression": names.expression}}]}
        if names.extended:
            spec["extendedResourceName"] = names.extended
        metadata = {"name": names.name, "labels": {DEFINITIONS_LABEL: "true"}}
        statuses.append({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": metadata, "spec": spec})
    return statuses


def _entry(device: Device, names: ClaimDriver, driver: Driver) -> Manifest:
    attributes = dict(names.attributes(device, driver))
    attributes[f"{_STANDARD}/pciBusID"] = {"string": device.bus_id}
    if device.pcie_root:
        attributes[f"{_STANDARD}/pcieRoot"] = {"string": device.pcie_root}
    if device.numa is not None:
        attributes[f"{_STANDARD}/numaNode"] = {"int": device.numa}
    entry: Manifest = {"name": names.device(device), "attributes": attributes}
    if device.memory:
        entry["capacity"] = {"memory": {"value": f"{device.memory // _MIB}Mi"}}
    if not device.health.ok:
        taint = {"key": f"{names.name}/unhealthy", "value": device.health.code, "effect": "NoSchedule"}
        entry["taints"] = [taint]
    return entry
