"""The descriptor of one vendor: everything that the rest of the program needs of its devices.

What the vendor's hardware and library look like is in `fake_devices` (`Vendor.hardware`); how the scheduler adapts to
the vendor's device plugin is in `scheduler/plugins/deviceshare/vendors.py`, because the scheduler imports nothing of
this package.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seatrial.fake_devices.hardware import Hardware
from seatrial.harness.devices.provider import (
    Assignment,
    ContainerGrant,
    Device,
    DeviceKind,
    DeviceProvider,
    Health,
    model_label,
)
from seatrial.harness.devices.vendors.claim_driver import ClaimDriver, plain_driver
from seatrial.scheduler.api import device as words

UNIT = 100  # percent: one whole device


@dataclass(frozen=True, slots=True)
class CardNames:
    """How a container's environment and /dev name the cards that were granted."""

    variable: str  # comma-separated list of cards; "" where no variable lists them
    node: str  # device node of a card without its number
    first: int = 0  # number of the node of minor 0
    by_uuid: bool = False  # the variable lists UUIDs, not minors


@dataclass(frozen=True, slots=True)
class SharedPlugin:
    """The protocol of a device plugin that cuts slices and answers on the pod."""

    assigned: str  # pod annotation that becomes "true"
    lock: str  # node annotation that the plugin removes


def gpu_amounts(device: Device) -> dict[str, int]:
    """Koordinator's resources of a card that is counted in percent and bytes."""
    return {words.GPU_CORE: UNIT, words.GPU_MEMORY: device.memory, words.GPU_MEMORY_RATIO: UNIT}


@dataclass(frozen=True, slots=True)
class Vendor:
    """One vendor's devices.

    `health` and `details` take a `DeviceRecord` of the device table; their results equal those of the provider for the
    same device.
    """

    title: str  # the vendor's name in sentences
    hardware: Hardware
    provider: Callable[[], type[DeviceProvider]]  # imported when called: a vendor's bindings cost start-up time
    grant: Callable[[Assignment], ContainerGrant]
    nodes: Callable[[int], tuple[str, ...]]  # device nodes of the device with that minor
    health: Callable[[Any], Health]
    names: CardNames
    probe_globs: tuple[str, ...]  # device nodes that a container prints to show what reached it
    any_model: str = ""  # the catalogue's model of simulated nodes whose entry leaves it open
    kind: DeviceKind = "gpu"
    label: Callable[[Any], str] = field(default=lambda facts: model_label(facts.name))
    details: Callable[[Any], Mapping[str, Any]] = field(default=lambda _: {})  # further fields of `Device`
    device_id: Callable[[Device], str] = field(default=lambda device: device.uuid)  # in the Device object
    amounts: Callable[[Device], Mapping[str, int]] = gpu_amounts  # Koordinator's resources of one device
    plugin_resource: str = ""  # what the vendor's device plugin registers for each device
    plugin_extra: Callable[[Device], Mapping[str, int]] = field(default=lambda _: {})  # further names it registers
    shared_plugin: SharedPlugin | None = None
    by_daemon: bool = False  # reported through the files of koord-device-daemon, not by koordlet's own reader
    daemon_knows_root: bool = True  # the daemon's file has the PCIe root
    partition_links: str = ""  # kind of links of which koordlet makes the partition table
    visible: str = ""  # variable by which the vendor's libraries choose cards, for processes without a container
    visible_by_uuid: bool = False
    oci_runtime: str = ""  # the vendor's container runtime, where one is installed
    dra: ClaimDriver | None = None  # the vendor's driver for claims, if it publishes one
    measured: bool = False  # koordlet reports use by pod

    @property
    def name(self) -> str:
        """The key of the table, and the value of the label `node.koordinator.sh/gpu-vendor`."""
        return self.hardware.name

    @property
    def claim_driver(self) -> ClaimDriver:
        """How its devices are offered to claims."""
        return self.dra or plain_driver(f"gpu.{self.name}.com", "gpu")
