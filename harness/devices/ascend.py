"""Huawei's NPUs through DCMI; NUMA node and PCIe root from sysfs.

A chip has four numbers: card and device on it (what every call takes), logic id (this machine's order) and physical id
(the N of /dev/davinciN, here `minor`). DCMI's MB are MiB, its power is in tenths of a watt; both stop here.
"""

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_int, c_uint, create_string_buffer
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from seatrial.harness.devices import dcmi
from seatrial.harness.devices.dcmi import davinci_nodes, dcmi_health
from seatrial.harness.devices.library import VendorLibrary
from seatrial.harness.devices.provider import (
    Device,
    DeviceProvider,
    Driver,
    Event,
    FailureKind,
    Health,
    Link,
    Missing,
    Process,
    ProviderError,
    Slice,
    Source,
    Usage,
)
from seatrial.harness.devices.sysfs import Pci

MIB = 1 << 20
TOPO_HCCS, TOPO_SIO = 3, 6
_LINK_KINDS = {TOPO_HCCS: "hccs", TOPO_SIO: "sio"}
_SEVERITIES = {0: "info", 1: "warning", 2: "critical", 3: "critical"}

Chip = tuple[int, int]  # card and device


class AscendProvider(DeviceProvider):
    """Reads the system's libdcmi.so, or a library given by its path."""

    vendor: ClassVar[str] = "huawei"

    def __init__(self, library: str | Path | None = None, *, root: Path = Path("/"), source: Source = "real") -> None:
        names = (library,) if library is not None else dcmi.LIBRARIES
        self._dcmi = VendorLibrary(self.vendor, names, dcmi.KINDS)
        self._pci = Pci(root)
        self._source: Source = source
        self._open = False
        self._chips: dict[str, Chip] = {}  # by uuid
        self._seen: dict[Chip, Device] = {}

    def probe(self) -> Missing | None:
        try:
            self._dcmi.load()
        except ProviderError as error:
            return Missing("no-library", f"DCMI is not installed: {error}")
        try:
            self._dcmi.call("dcmi_init")
        except ProviderError as error:
            return Missing("no-driver", f"DCMI does not start: {error}")
        return None if any(True for _ in self._walk()) else Missing("no-npu", "DCMI works and counts no NPU")

    def open(self) -> None:
        if self._open:
            return
        self._dcmi.call("dcmi_init")
        self._open = True
        for card, device in self._walk():
            self._dcmi.maybe("dcmi_subscribe_fault_event", card, device, create_string_buffer(32), None)

    def close(self) -> None:
        self._open = False
        self._chips.clear()

    def driver(self) -> Driver:
        driver, library = create_string_buffer(64), create_string_buffer(64)
        self._dcmi.maybe("dcmi_get_driver_version", driver, c_uint(64))
        self._dcmi.maybe("dcmi_get_dcmi_version", library, c_uint(64))
        return Driver(driver.value.decode(), library.value.decode())

    def devices(self) -> tuple[Device, ...]:
        devices = [self._device(chip) for chip in self._walk()]
        listed = {(entry.card, entry.index) for entry in devices}
        # The library no longer lists a card that dropped off; it stays among the devices until the node restarts.
        gone = [device for device in self._seen.values() if (device.card, device.index) not in listed]
        return tuple(sorted((*devices, *map(_dropped, gone)), key=lambda entry: entry.index))

    def usage(self, uuid: str) -> Usage:
        chip = self._chip(uuid)
        hbm, rate, celsius, tenths = dcmi.HbmInfo(), c_uint(), c_int(), c_int()
        return Usage(
            memory=hbm.used * MIB if self._dcmi.maybe("dcmi_get_device_hbm_info", *chip, byref(hbm)) else None,
            core=float(rate.value)
            if self._dcmi.maybe("dcmi_get_device_utilization_rate", *chip, dcmi.USE_AICORE, byref(rate))
            else None,
            temperature=float(celsius.value)
            if self._dcmi.maybe("dcmi_get_device_temperature", *chip, byref(celsius))
            else None,
            power=tenths.value / 10 if self._dcmi.maybe("dcmi_get_device_power_info", *chip, byref(tenths)) else None,
        )

    def processes(self, uuid: str) -> tuple[Process, ...]:
        rows, count = (dcmi.ProcMem * 64)(), c_int()
        self._dcmi.call("dcmi_get_device_resource_info", *self._chip(uuid), rows, byref(count))
        return tuple(Process(row.pid, row.bytes) for row in rows[: count.value])

    def health(self, uuid: str) -> Health:
        return self._health(self._chip(uuid))

    def links(self) -> tuple[Link, ...]:
        chips = sorted(self._seen.items()) or [((candidate.card, 0), candidate) for candidate in self.devices()]
        links: list[Link] = []
        topology = c_int()
        for number, (chip, device) in enumerate(chips):
            for other, peer in chips[number + 1 :]:
                maybe = self._dcmi.maybe("dcmi_get_topo_info_by_device_id", *chip, *other, byref(topology))
                kind = _LINK_KINDS.get(topology.value) if maybe else None
                if kind:
                    first, second = sorted((device.uuid, peer.uuid))
                    links.append(Link(first, second, kind, 1, up=True))
        return tuple(links)

    def events(self, timeout: float = 0.0) -> tuple[Event, ...]:
        events: list[Event] = []
        by_index = {device.index: device.uuid for device in self._seen.values()}
        wait = int(timeout * 1000)
        while True:
            event = dcmi.Event()
            code = self._dcmi.code("dcmi_get_fault_event", -1, -1, wait, byref(event))
            if code:
                return tuple(events)
            wait = 0
            fault = event.fault
            events.append(
                Event(
                    by_index.get(fault.device, ""),
                    "fault",
                    f"0x{fault.event_id:08X}",
                    _SEVERITIES.get(fault.severity, "info"),  # type: ignore[arg-type]
                    on=fault.assertion != 0,
                    at=fault.time / 1000,
                )
            )

    def slice(self, uuid: str, template: str) -> Slice:
        target = dcmi.CreateRes(vdev_id=dcmi.CHOOSE, vfg_id=dcmi.CHOOSE, template=template.encode())
        made = dcmi.CreateOut()
        chip = self._chip(uuid)
        self._dcmi.call("dcmi_create_vdevice", *chip, byref(target), byref(made))
        return self._slice(chip, made.vdev_id)

    def unslice(self, uuid: str, slice_id: str) -> None:
        self._dcmi.call("dcmi_set_destroy_vdevice", *self._chip(uuid), c_uint(int(slice_id)))

    # -- one chip -----------------------------------------------------------------------------------------------------

    def _walk(self) -> Iterator[Chip]:
        count, cards = c_int(), (c_int * dcmi.MAX_CARDS)()
        if not self._dcmi.maybe("dcmi_get_card_list", byref(count), cards, dcmi.MAX_CARDS):
            self._dcmi.call("dcmi_get_card_num_list", byref(count), cards, dcmi.MAX_CARDS)  # the older name
        for card in cards[: count.value]:
            chips, kind = c_int(), c_uint()
            self._dcmi.call("dcmi_get_device_num_in_card", card, byref(chips))
            for device in range(chips.value):
                code = self._dcmi.code("dcmi_get_device_type", card, device, byref(kind))
                if code or kind.value == dcmi.NPU:  # a device that does not answer its type counts as an NPU
                    yield card, device

    def _device(self, chip: Chip) -> Device:
        try:
            device = self._read(chip)
        except ProviderError as error:
            health = self._health_after(chip, error)
            known = self._seen.get(chip)
            return replace(known, health=health) if known is not None else self._nameless(chip, health)
        self._seen[chip] = device
        self._chips[device.uuid] = chip
        return device

    def _read(self, chip: Chip) -> Device:
        call = self._dcmi.call
        info, place, die, hbm = dcmi.ChipInfo(), dcmi.PcieInfo(), dcmi.DieId(), dcmi.HbmInfo()
        logic, physical = c_int(), c_uint()
        call("dcmi_get_device_chip_info", *chip, byref(info))
        call("dcmi_get_device_pcie_info_v2", *chip, byref(place))
        call("dcmi_get_device_die_v2", *chip, dcmi.VDIE, byref(die))
        call("dcmi_get_device_logic_id", byref(logic), *chip)
        call("dcmi_get_device_phyid_from_logicid", c_uint(logic.value), byref(physical))
        call("dcmi_get_device_hbm_info", *chip, byref(hbm))
        bus = f"{place.domain:04x}:{place.bus:02x}:{place.dev:02x}.{place.func:x}"
        name = info.name.decode()
        return Device(
            vendor=self.vendor,
            kind="gpu",
            model=name,
            label=f"Ascend-{name.removeprefix('Ascend')}",
            index=logic.value,
            minor=physical.value,
            uuid=dcmi.die_text(die),
            bus_id=bus,
            numa=self._pci.numa(bus),
            pcie_root=self._pci.pcie_root(bus),
            memory=hbm.size * MIB,
            health=self._health(chip),
            card=chip[0],
            ai_cores=info.aicores,
            ai_cpus=self._ai_cpus(chip),
            nodes=davinci_nodes(physical.value),
            slices=self._slices(chip),
            source=self._source,
        )

    def _nameless(self, chip: Chip, health: Health) -> Device:
        return Device(
            vendor=self.vendor,
            kind="gpu",
            model="",
            label="",
            index=chip[0],
            minor=chip[0],
            uuid=f"unknown-{chip[0]}-{chip[1]}",
            bus_id="",
            numa=None,
            pcie_root="",
            memory=0,
            health=health,
            card=chip[0],
            source=self._source,
        )

    def _health(self, chip: Chip) -> Health:
        scale = c_uint()
        try:
            self._dcmi.call("dcmi_get_device_health", *chip, byref(scale))
        except ProviderError as error:
            return self._health_after(chip, error)
        count, codes = c_int(), (c_uint * 128)()
        known = self._dcmi.maybe("dcmi_get_device_errorcode_v2", *chip, byref(count), codes, c_uint(128))
        return dcmi_health(scale.value, codes[0] if known and count.value else 0)

    def _health_after(self, chip: Chip, error: ProviderError) -> Health:
        code = {FailureKind.LOST: "NotReady", FailureKind.RESET_NEEDED: "ResetNeeded"}.get(
            error.kind, f"DcmiError{error.code}"
        )
        return Health(ok=False, code=code, message=f"card {chip[0]} device {chip[1]}: {error}")

    def _ai_cpus(self, chip: Chip) -> int:
        """AI CPUs; the library reports them only among the resources for vNPUs."""
        total = self._total(chip)
        return total.computing.aicpu if total is not None else 0

    def _total(self, chip: Chip) -> dcmi.SocTotal | None:
        total, size = dcmi.SocTotal(), c_uint(ctypes.sizeof(dcmi.SocTotal))
        maybe = self._dcmi.maybe("dcmi_get_device_info", *chip, dcmi.VNPU, dcmi.VNPU_TOTAL, byref(total), byref(size))
        return total if maybe else None

    def _slices(self, chip: Chip) -> tuple[Slice, ...]:
        total = self._total(chip)
        if total is None:
            return ()
        return tuple(self._slice(chip, number) for number in total.vdev_id[: total.vdev_num])

    def _slice(self, chip: Chip, number: int) -> Slice:
        request, size = dcmi.VdevQueryRequest(vdev_id=number), c_uint(ctypes.sizeof(dcmi.VdevQueryRequest))
        self._dcmi.call("dcmi_get_device_info", *chip, dcmi.VNPU, dcmi.VNPU_ONE, byref(request), byref(size))
        computing = request.query.computing
        template = request.query.name.decode()
        return Slice(str(number), "vnpu", template, computing.memory_mb * MIB, int(computing.aicore))

    def _chip(self, uuid: str) -> Chip:
        if uuid not in self._chips:
            self.devices()
        if uuid not in self._chips:
            raise ProviderError(FailureKind.ABSENT, vendor=self.vendor, call=f"find {uuid}", code=-8008)
        return self._chips[uuid]


def _dropped(device: Device) -> Device:
    return replace(device, health=Health(ok=False, code="CardDrop", message="card is not in the list any more"))
