"""This machine as a node: devices from the vendors' libraries, everything else from the kernel.

Providers block while a driver works: `look` and `usage` are called in a worker thread. Everything else returns what
was read last.
"""

import logging
import os
import platform
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from seatrial.harness.devices.provider import Device, DeviceProvider, Driver, Link, ProviderError, Slice, Usage
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.errors import DeviceError
from seatrial.harness.nodes.usage import NodeUse, measured_use

log = logging.getLogger(__name__)

MAX_PODS = 110  # kubelet's default
LOOK_EVERY = 0.5  # seconds; a failed device is detected within one second
_ALL_EVERY = 60  # calls of `look` between two full reads; the others read health only
_NOWHERE = "192.0.2.1"  # an address for documentation: nothing is sent there
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class LocalMachine:
    """Capacity: number of hardware threads, bytes of memory, number of pods."""

    cpu: int
    memory: int
    pods: int = MAX_PODS
    server: str = ""
    extended: tuple[tuple[str, int], ...] = ()


def this_machine(proc: Path = Path("/proc")) -> LocalMachine:
    """The threads this process may use and the machine's memory.

    Raises:
        DeviceError: the amount of memory cannot be read from the kernel.
    """
    try:
        lines = (proc / "meminfo").read_text(encoding="ascii").splitlines()
        total = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemTotal:"))
    except (OSError, StopIteration, ValueError, IndexError) as error:
        raise DeviceError(f"{proc / 'meminfo'}: expected a line `MemTotal: N kB`: {error}") from error
    return LocalMachine(len(os.sched_getaffinity(0)), total)


def address() -> str:
    """The source address of this machine; the loopback address if it has no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((_NOWHERE, 9))  # a datagram socket sends nothing for that
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def facts() -> dict[str, str]:
    """The fields of `nodeInfo` that are read from the machine."""
    try:
        system = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    except OSError:
        system = "Linux"
    machine = platform.machine()
    results = {
        "kernelVersion": platform.release(),
        "osImage": system,
        "architecture": _ARCHITECTURES.get(machine, machine),
    }
    boot = Path("/proc/sys/kernel/random/boot_id")
    return {**results, "bootID": boot.read_text(encoding="ascii").strip()} if boot.exists() else results


class LocalHardware:
    """The devices of several providers. Open it before the first `look`; a context manager opens and closes it."""

    def __init__(self, providers: Sequence[DeviceProvider], machine: LocalMachine | None = None) -> None:
        self.machine = machine or this_machine()
        self.missing: dict[str, str] = {}  # vendor → why it has no devices here
        self._all = tuple(providers)
        self._present: list[DeviceProvider] = []
        self._stack = ExitStack()
        self._devices: tuple[Device, ...] = ()
        self._drivers: dict[str, Driver] = {}
        self._links: tuple[Link, ...] = ()
        self._owners: dict[str, DeviceProvider] = {}  # by uuid
        self._looks = 0

    def __enter__(self) -> Self:
        for provider in self._all:
            absent = provider.probe()
            if absent is not None:
                self.missing[provider.vendor] = absent.why
                continue
            try:
                self._stack.enter_context(provider)
            except DeviceError as error:
                self.missing[provider.vendor] = str(error)
                continue
            self._present.append(provider)
        self._read_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._present.clear()
        self._stack.close()

    # -- what was seen last -------------------------------------------------------------------------------------------

    def devices(self) -> tuple[Device, ...]:
        """All devices, cards first, each kind sorted by minor."""
        return self._devices

    def driver(self, vendor: str) -> Driver:
        """Versions of a vendor's driver and library; empty if unknown."""
        return self._drivers.get(vendor, Driver("", ""))

    def cutters(self) -> frozenset[str]:
        """The vendors whose cards can be cut here."""
        return frozenset(one.vendor for one in self._present if type(one).slice is not DeviceProvider.slice)

    def links(self) -> tuple[Link, ...]:
        """The links between cards."""
        return self._links

    # -- beside the loop ----------------------------------------------------------------------------------------------

    def look(self) -> bool:
        """Read health, and every `_ALL_EVERY` calls everything. Returns whether anything changed."""
        before = self._devices
        self._looks += 1
        if self._looks % _ALL_EVERY == 0:
            self._read_all()
        else:
            self._devices = tuple(self._with_health(device) for device in self._devices)
        return self._devices != before

    def forget(self, uuids: Iterable[str]) -> None:
        """Forget earlier events of devices that were reset or replaced."""
        for uuid in uuids:
            if uuid in self._owners:
                self._owners[uuid].forget(uuid)

    def slice(self, uuid: str, template: str) -> Slice:
        """Create a slice of a card, as `DeviceProvider.slice`."""
        return self._owners[uuid].slice(uuid, template)

    def unslice(self, uuid: str, slice_id: str) -> None:
        """Remove a slice, as `DeviceProvider.unslice`."""
        self._owners[uuid].unslice(uuid, slice_id)

    def usage(self) -> dict[str, Usage]:
        """The usage of devices by UUID, without those that report none."""
        usages: dict[str, Usage] = {}
        for device in self._devices:
            try:
                usages[device.uuid] = self._owners[device.uuid].usage(device.uuid)
            except DeviceError as error:
                log.info("usage unknown device=%s why=%s", device.uuid, error)
        return usages

    def use(self, pod_of: Callable[[int], tuple[str, str] | None]) -> NodeUse:
        """The use of NVIDIA cards by processes, grouped by pod; `pod_of` as in `measured_use`."""
        nodes = [measured_use(provider, pod_of) for provider in self._present if VENDORS[provider.vendor].measured]
        return NodeUse(
            tuple(device for node in nodes for device in node.devices),
            tuple(pod for node in nodes for pod in node.pods),
        )

    def _with_health(self, device: Device) -> Device:
        try:
            health = self._owners[device.uuid].health(device.uuid)
        except DeviceError as error:
            log.warning("health unknown device=%s why=%s", device.uuid, error)
            return device
        return device if health == device.health else replace(device, health=health)

    def _read_all(self) -> None:
        devices: list[Device] = []
        links: list[Link] = []
        for provider in self._present:
            try:
                own = provider.devices()
                self._drivers[provider.vendor] = provider.driver()
                links += provider.links()
            except ProviderError as error:
                log.warning("devices unread vendor=%s why=%s", provider.vendor, error)
                own = tuple(device for device in self._devices if device.vendor == provider.vendor)
            devices += own
            self._owners.update((device.uuid, provider) for device in own)
        self._devices = tuple(sorted(devices, key=lambda device: (device.kind, device.minor)))
        self._links = tuple(links)
