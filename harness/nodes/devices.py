"""The Device object of a node, as Koordinator's node agent would publish it: a pure function of the neutral model.

Two dialects, quirks included. NVIDIA cards and NICs as koordlet reads them from NVML and sysfs; NPUs and MLUs as they
come through the files of koord-device-daemon. As there, a machine that has NPUs or MLUs shows no NVIDIA cards.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seatrial.harness.apiserver.quantities import text
from seatrial.harness.devices.provider import Device, Driver, Link
from seatrial.harness.devices.vendors import VENDORS
from seatrial.scheduler.api import device as words
from seatrial.scheduler.api.wire import to_json

Manifest = dict[str, Any]

DAEMON_VENDORS = frozenset(name for name, vendor in VENDORS.items() if vendor.by_daemon)
_PARTITION_LINKS = frozenset(vendor.partition_links for vendor in VENDORS.values() if vendor.partition_links)
_NIC_NAME = re.compile(r"mlx\d+_\d+", re.ASCII)


def reported(devices: Sequence[Device], *, daemon: bool | None = None) -> tuple[Device, ...]:
    """The devices that reach the Device object; of the NICs only those with the kernel's own names (mlx5_0).

    `daemon`: whether cards of other vendors than the daemon's are left out, as on a machine with both.
    """
    if daemon is None:
        daemon = any(_by_daemon(device) for device in devices)
    return tuple(
        device
        for device in devices
        if (_NIC_NAME.fullmatch(device.kernel_name) if device.kind == "rdma" else not daemon or _by_daemon(device))
    )


def _by_daemon(device: Device) -> bool:
    return device.vendor in DAEMON_VENDORS


def spec(devices: Sequence[Device], before: Iterable[Manifest] = (), *, now: str) -> Manifest:
    """`spec` of the object: sorted by type and minor; `before` is the list last published, whose conditions' times stay
    where nothing changed."""
    known = {(entry["type"], entry["minor"]): entry for entry in before}
    entries = [_entry(device, known, now) for device in sorted(devices, key=lambda device: (device.kind, device.minor))]
    return {"devices": entries}


def labels(devices: Sequence[Device], driver: Driver | None) -> dict[str, str]:
    """Vendor, model and driver of the node's cards. NVIDIA cards of two models have neither model nor driver label."""
    cards = [device for device in devices if device.kind == "gpu"]
    if not cards:
        return {}
    first = cards[0]
    drivers = {words.GPU_VENDOR_LABEL: first.vendor}
    if _by_daemon(first):
        return {**drivers, words.GPU_MODEL_LABEL: first.label}
    if all(card.label == first.label for card in cards):
        drivers[words.GPU_MODEL_LABEL] = first.label
        if driver is not None:
            drivers[words.GPU_DRIVER_LABEL] = driver.driver
    return drivers


def partitions(devices: Sequence[Device], links: Iterable[Link]) -> str:
    """The partition table that koordlet makes of HCCS links, as JSON; empty without such links.

    Each card's peers and itself make one partition, filed under its size; groups that several cards name count once.
    """
    minors = {device.uuid: device.minor for device in devices if device.kind == "gpu"}
    peers: dict[int, set[int]] = {}
    for link in links:
        if link.kind in _PARTITION_LINKS and link.up and link.a in minors and link.b in minors:
            a, b = minors[link.a], minors[link.b]
            peers.setdefault(a, {a}).add(b)
            peers.setdefault(b, {b}).add(a)
    table: dict[str, list[Manifest]] = {}
    for group in dict.fromkeys(tuple(sorted(peers[minor])) for minor in sorted(peers)):
        table.setdefault(str(len(group)), []).append({"minors": group, "gpuLinkType": "HCCS", "allocationScore": 1})
    return to_json(table).decode() if table else ""


def manifest(node: str, node_uid: str, content: Manifest, marks: Mapping[str, str], table: str) -> Manifest:
    """The Device object, owned by its Node."""
    own = {**marks, words.GPU_PARTITION_POLICY_LABEL: "Prefer"} if table else dict(marks)
    metadata: Manifest = {
        "name": node,
        "labels": own,
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
    }
    if table:
        metadata["annotations"] = {words.GPU_PARTITIONS: table}
    return {"apiVersion": words.GROUP_VERSION, "kind": "Device", "metadata": metadata, "spec": content}


def device_id(device: Device) -> str:
    """The device's `id` in the Device object: NVML's UUID, a NIC's bus address, the daemon's ID for NPUs and MLUs."""
    return VENDORS[device.vendor].device_id(device)


def card_resources(device: Device) -> dict[str, int]:
    """Koordinator's resources of one device, by resource name."""
    return dict(VENDORS[device.vendor].amounts(device))


def _entry(device: Device, known: Mapping[tuple[str, int], Manifest], now: str) -> Manifest:
    entry: Manifest = {
        "type": device.kind,
        "id": device_id(device),
        "minor": device.minor,
        "health": device.health.ok,
        "resources": {name: text(name, value) for name, value in card_resources(device).items()},
        "topology": _topology(device),
    }
    if device.kind == "gpu":
        entry["conditions"] = [_condition(device, known.get((device.kind, device.minor)), now)]
    if device.functions:
        entry["vfGroups"] = [{"vfs": [{"minor": -1, "busID": function.bus_id} for function in device.functions]}]
    return entry


def _topology(device: Device) -> Manifest:
    if _by_daemon(device):
        # The daemon does not report the PCIe root of an MLU, so no allocation there is aligned to PCIe.
        root = device.pcie_root if VENDORS[device.vendor].daemon_knows_root else ""
        node = device.numa if device.numa is not None else -1
        return {"socketID": -1, "nodeID": node, "pcieID": root, "busID": device.bus_id}
    return {"socketID": -1, "nodeID": device.numa or 0, "pcieID": device.pcie_root, "busID": device.bus_id}


def _condition(device: Device, before: Manifest | None, now: str) -> Manifest:
    well = device.health.ok
    condition = {
        "type": "Healthy",
        "status": "True" if well else "False",
        "reason": "DeviceHealthy" if well else device.health.code or "Unknown",
        "message": "device is healthy" if well else device.health.message or "device is unhealthy",
        "lastTransitionTime": now,
    }
    if before is not None and before["conditions"][0]["status"] == condition["status"]:
        condition["lastTransitionTime"] = before["conditions"][0]["lastTransitionTime"]
    return condition
