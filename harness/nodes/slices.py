"""The ResourceSlice of a node, as the vendors' drivers for dynamic resource allocation publish it, and their classes.

Names of devices and attributes are those of the drivers (specification `dra.md`, section 14). A node that offers its
devices so has no Device object and no resources of device plugins: no card is in two inventories.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seatrial.harness.devices.provider import Device, Driver

Manifest = dict[str, Any]

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
MAX_DEVICES = 64  # of a slice with taints
_STANDARD = "resource.kubernetes.io"
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ClaimDriver:
    """How one vendor's driver names devices. `kind`: the value of its attribute `type`; "" where it has none."""

    name: str
    kind: str
    device: Callable[[Device], str]
    attributes: Callable[[Device, Driver], Mapping[str, Any]]
    extended: str = ""  # the extended resource that its class serves

    @property
    def expression(self) -> str:
        """Which devices are of its class."""
        own = f"device.driver == '{self.name}'"
        return f"{own} && device.attributes['{self.name}'].type == '{self.kind}'" if self.kind else own


def _version(text: str) -> dict[str, str]:
    """The version as semver.org wants it: three numbers without leading zeros; 535.104.05 → 535.104.5."""
    numbers = [str(int(part)) for part in re.findall(r"\d+", text, re.ASCII)[:3]]
    return {"version": ".".join([*numbers, *["0"] * (3 - len(numbers))])}


def _nvidia(device: Device, driver: Driver) -> dict[str, Any]:
    runtime = (
        driver.runtime
        if "." in driver.runtime
        else f"{int(driver.runtime or 0) // 1000}.{int(driver.runtime or 0) % 1000 // 10}"
    )
    return {
        "type": {"string": "gpu"},
        "uuid": {"string": device.uuid},
        "productName": {"string": device.model},
        "driverVersion": _version(driver.driver),
        "cudaDriverVersion": _version(runtime),
    }


def _amd(device: Device, driver: Driver) -> dict[str, Any]:
    return {
        "type": {"string": "amdgpu"},
        "pciAddr": {"string": device.bus_id},
        "cardIndex": {"int": device.minor},
        "renderIndex": {"int": 128 + device.minor},
        "productName": {"string": device.model},
        "driverVersion": _version(driver.driver),
    }


def _plain(kind: str) -> Callable[[Device, Driver], dict[str, Any]]:
    """The attributes of cards of a vendor that publishes no driver: those that the others have in common."""

    def attributes(device: Device, driver: Driver) -> dict[str, Any]:
        return {
            "type": {"string": kind},
            "uuid": {"string": device.uuid},
            "productName": {"string": device.model},
            "driverVersion": _version(driver.driver),
        }

    return attributes


def _nic(device: Device, _driver: Driver) -> dict[str, Any]:
    return {
        "rdma": {"bool": True},
        "rdmaDevice": {"string": device.kernel_name},
        "pciAddress": {"string": device.bus_id},
        "sriovVfs": {"int": len(device.functions)},
    }


DRIVERS: Mapping[str, ClaimDriver] = {
    "nvidia": ClaimDriver("gpu.nvidia.com", "gpu", lambda device: f"gpu-{device.minor}", _nvidia, "nvidia.com/gpu"),
    "amd": ClaimDriver("gpu.amd.com", "amdgpu", lambda device: f"gpu-{device.minor}-{128 + device.minor}", _amd),
    "huawei": ClaimDriver("npu.huawei.com", "npu", lambda device: f"npu-{device.minor}", _plain("npu")),
    "cambricon": ClaimDriver("mlu.cambricon.com", "mlu", lambda device: f"mlu-{device.minor}", _plain("mlu")),
    "mellanox": ClaimDriver("dra.net", "", lambda device: f"rdma-{device.minor}", _nic),
}


def slices(
    node: str, node_uid: str, devices: Sequence[Device], driver: Callable[[str], Driver], generation: int
) -> list[Manifest]:
    """The slices of a node, owned by it: one pool for each driver, with the node's name."""
    found: list[Manifest] = []
    for vendor in dict.fromkeys(device.vendor for device in devices):
        names, versions = DRIVERS[vendor], driver(vendor)
        entries = [_entry(device, names, versions) for device in devices if device.vendor == vendor]
        parts = [entries[at : at + MAX_DEVICES] for at in range(0, len(entries), MAX_DEVICES)]
        for number, part in enumerate(parts):
            owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": True}
            found.append(
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
    return found


def classes(devices: Sequence[Device]) -> list[Manifest]:
    """The DeviceClasses that the drivers' charts install, named as the drivers."""
    found = []
    for vendor in dict.fromkeys(device.vendor for device in devices):
        names = DRIVERS[vendor]
        spec: Manifest = {"selectors": [{"cel": {"expression": names.expression}}]}
        if names.extended:
            spec["extendedResourceName"] = names.extended
        metadata = {"name": names.name}
        found.append({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": metadata, "spec": spec})
    return found


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
