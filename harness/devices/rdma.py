"""RDMA NICs from the kernel: places, names, functions and ports from sysfs, port states over netlink if it has them.

A NIC is a PCI function of the network class that has an RDMA device and is no virtual function itself. Its health is
read anew each time, so it comes back with the link.
"""

import logging
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from seatrial.harness.devices.ib_ports import port_health
from seatrial.harness.devices.provider import (
    Device,
    DeviceProvider,
    Driver,
    Event,
    FailureKind,
    Function,
    Health,
    Link,
    Missing,
    Process,
    ProviderError,
    Source,
    Usage,
)
from seatrial.harness.devices.sysfs import Pci, read_text

if TYPE_CHECKING:
    from seatrial.harness.devices.rdma_netlink import RdmaNetlink

log = logging.getLogger(__name__)

NETWORK_CLASS = 0x02
_NUMBER = re.compile(r"mlx\d+_(\d+)", re.ASCII)
_VERBS = re.compile(r"uverbs(\d+)", re.ASCII)
_STATE = re.compile(r"(\d+)", re.ASCII)


class RdmaProvider(DeviceProvider):
    """Reads this machine's /sys, or a tree below another root; `netlink` is a socket that replaces the kernel's."""

    vendor: ClassVar[str] = "mellanox"

    def __init__(
        self, *, root: Path = Path("/"), netlink: socket.socket | None = None, source: Source = "real"
    ) -> None:
        self._root = root
        self._pci = Pci(root)
        self._socket = netlink
        self._netlink = netlink is not None or root == Path("/")
        self._channel: RdmaNetlink | None = None
        self._source: Source = source
        self._last: dict[str, bool] = {}  # health by uuid, for events

    def probe(self) -> Missing | None:
        if not self._pci.addresses():
            return Missing("no-sysfs", f"there is no PCI tree below {self._root}")
        return None if self._addresses() else Missing("no-rdma", "no network card has an RDMA device")

    def open(self) -> None:
        if missing := self.probe():
            raise ProviderError(FailureKind.ABSENT, vendor=self.vendor, call="open", code=0, text=missing.why)
        self._last = {device.uuid: device.health.ok for device in self.devices()}

    def close(self) -> None:
        self._last.clear()
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def driver(self) -> Driver:
        for bus in self._addresses():
            name = (self._pci.path(bus) / "driver").resolve().name
            version = read_text(self._root / "sys/module" / name / "version") or ""
            return Driver(name, version)
        return Driver("", "")

    def devices(self) -> tuple[Device, ...]:
        states = self._netlink_states()
        return tuple(self._device(index, bus, states) for index, bus in enumerate(self._addresses()))

    def usage(self, uuid: str) -> Usage:  # noqa: ARG002 a NIC has neither memory nor cores
        return Usage()

    def processes(self, uuid: str) -> tuple[Process, ...]:  # noqa: ARG002
        return ()

    def health(self, uuid: str) -> Health:
        if uuid not in self._addresses():
            return Health(ok=False, code="Gone", message=f"{uuid} is not on the bus any more")
        return self._health(uuid, self._netlink_states())

    def links(self) -> tuple[Link, ...]:
        return ()

    def events(self, timeout: float = 0.0) -> tuple[Event, ...]:  # noqa: ARG002 the tree sends no events, it is polled
        events: list[Event] = []
        now = {device.uuid: device.health for device in self.devices()}
        for uuid, was in self._last.items():
            health = now.get(uuid, Health(ok=False, code="Gone"))
            if health.ok != was:
                events.append(Event(uuid, "port", health.code or "PortUp", "warning", on=not health.ok))
        self._last = {**dict.fromkeys(self._last, False), **{uuid: health.ok for uuid, health in now.items()}}
        return tuple(events)

    # -- one NIC ------------------------------------------------------------------------------------------------------

    def _addresses(self) -> list[str]:
        return [
            bus
            for bus in self._pci.addresses()
            if (self._pci.device_class(bus) or 0) >> 16 == NETWORK_CLASS
            and not self._pci.is_virtual_function(bus)
            and self._names(bus)
        ]

    def _names(self, bus: str) -> list[str]:
        return _entries(self._pci.path(bus) / "infiniband")

    def _device(self, index: int, bus: str, states: dict[str, list[int]]) -> Device:
        name = self._names(bus)[0]
        match = _NUMBER.fullmatch(name)
        home = self._pci.path(bus) / "infiniband" / name
        model = read_text(home / "hca_type") or name
        return Device(
            vendor=self.vendor,
            kind="rdma",
            model=model,
            label=model,
            index=index,
            minor=int(match[1]) if match else index,
            uuid=bus,
            bus_id=bus,
            numa=self._pci.numa(bus),
            pcie_root=self._pci.pcie_root(bus),
            memory=0,
            health=self._health(bus, states),
            card=index,
            kernel_name=name,
            nodes=tuple(f"/dev/infiniband/uverbs{number}" for number in self._verbs(bus)),
            functions=self._functions(bus),
            source=self._source,
        )

    def _functions(self, bus: str) -> tuple[Function, ...]:
        home = self._pci.path(bus)
        links = sorted(home.glob("virtfn*"), key=lambda path: int(path.name.removeprefix("virtfn")))
        functions: list[Function] = []
        for link in links:
            address = link.resolve().name
            numbers = self._verbs(address)
            functions.append(Function(address, numbers[0] if numbers else None))
        return tuple(functions)

    def _verbs(self, bus: str) -> list[int]:
        names = _entries(self._pci.path(bus) / "infiniband_verbs")
        return [int(match[1]) for name in names if (match := _VERBS.fullmatch(name))]

    def _health(self, bus: str, states: dict[str, list[int]]) -> Health:
        numbers: list[int] = []
        for name in self._names(bus):
            numbers += states.get(name) or self._sysfs_states(bus, name)
        return port_health(numbers or [0])

    def _sysfs_states(self, bus: str, name: str) -> list[int]:
        ports = self._pci.path(bus) / "infiniband" / name / "ports"
        texts = [read_text(ports / port / "state") or "" for port in _entries(ports)]
        return [int(match[1]) if (match := _STATE.match(text)) else 0 for text in texts]

    def _netlink_states(self) -> dict[str, list[int]]:
        """Port states by device name; empty where the kernel has no RDMA netlink."""
        channel = self._open_channel()
        states: dict[str, list[int]] = {}
        for port in channel.ports() if channel is not None else ():
            states.setdefault(port.device, []).append(port.state)
        return states

    def _open_channel(self) -> "RdmaNetlink | None":
        if self._channel is None and self._netlink:
            from seatrial.harness.devices.rdma_netlink import RdmaNetlink  # pyroute2 is slow to import

            try:
                self._channel = RdmaNetlink(self._socket)
            except ProviderError as error:
                self._netlink = False
                log.info("ports from sysfs why=%s", error)
        return self._channel


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []
