"""Cambricon's MLUs through CNDEV; NUMA node and PCIe root from sysfs.

Health is polled and recovers with the card. CNDEV reports memory in MiB, that of sMLU in bytes.
"""

import ctypes
from ctypes import byref, c_char_p, c_int, c_uint, c_void_p
from pathlib import Path
from typing import ClassVar

from seatrial.harness.devices import cndev
from seatrial.harness.devices.cndev import cambricon_health, cambricon_nodes, text, versioned
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
    model_label,
    unread_card,
)
from seatrial.harness.devices.sysfs import Pci

MIB, KIB = 1 << 20, 1 << 10
MAX_SLICES = 128
PROHIBITED = 2
_SLOT_BITS = 8  # an instance's handle is its number, shifted by these bits, and the card's number


class CambriconProvider(DeviceProvider):
    """Reads the system's libcndev.so, or a library given by its path."""

    vendor: ClassVar[str] = "cambricon"

    def __init__(self, library: str | Path | None = None, *, root: Path = Path("/"), source: Source = "real") -> None:
        names = (library,) if library is not None else cndev.LIBRARIES
        self._cndev = VendorLibrary(self.vendor, names, cndev.KINDS)
        self._pci = Pci(root)
        self._source: Source = source
        self._open = False
        self._seen: dict[int, Device] = {}  # by index
        self._events: c_void_p | None = None

    def probe(self) -> Missing | None:
        if self._open:
            return None
        try:
            self._cndev.load()
        except ProviderError as error:
            return Missing("no-library", f"CNDEV is not installed: {error}")
        try:
            self._cndev.call("cndevInit", 0)
        except ProviderError as error:
            return Missing("no-driver", f"CNDEV does not start: {error}")
        count = self._count()
        self._cndev.call("cndevRelease")
        return None if count else Missing("no-mlu", "CNDEV works and counts no MLU")

    def open(self) -> None:
        if self._open:
            return
        self._cndev.call("cndevInit", 0)
        self._open = True
        handle = c_void_p()
        if self._cndev.maybe("cndevEventHandleCreate", byref(handle)):
            self._events = handle
            for index in self._cards():
                self._cndev.maybe("cndevRegisterEvents", handle, ctypes.c_uint64(cndev.XID), index)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._events is not None:
            self._cndev.maybe("cndevEventHandleDestroy", self._events)
            self._events = None
        self._cndev.maybe("cndevRelease")

    def driver(self) -> Driver:
        info = versioned(cndev.VersionInfo)
        if not self._cndev.maybe("cndevGetVersionInfo", byref(info), 0):
            return Driver("", "")
        return Driver(".".join(map(str, info.driver)), "")

    def devices(self) -> tuple[Device, ...]:
        return tuple(self._device(index) for index in self._cards())

    def usage(self, uuid: str) -> Usage:
        index = self._index(uuid)
        memory, use = cndev.MemoryInfoV2(), versioned(cndev.UtilizationInfo)
        heat = versioned(cndev.TemperatureInfo)
        return Usage(
            memory=memory.used * MIB if self._cndev.maybe("cndevGetMemoryUsageV2", byref(memory), index) else None,
            core=float(use.average) if self._cndev.maybe("cndevGetDeviceUtilizationInfo", byref(use), index) else None,
            temperature=float(heat.board) if self._cndev.maybe("cndevGetTemperatureInfo", byref(heat), index) else None,
        )

    def processes(self, uuid: str) -> tuple[Process, ...]:
        index, count = self._index(uuid), c_uint(64)
        while True:
            rows = (cndev.ProcessInfo * count.value)()
            for row in rows:
                row.version = cndev.VERSION
            code = self._cndev.code("cndevGetProcessInfo", byref(count), rows, index)
            if code == 0:
                return tuple(Process(row.pid, row.physical * KIB) for row in rows[: count.value])
            if code != cndev.SPACE_TOO_SMALL:
                raise self._cndev.error(code, "cndevGetProcessInfo")

    def health(self, uuid: str) -> Health:
        return self._health(self._index(uuid))

    def links(self) -> tuple[Link, ...]:
        lanes: dict[tuple[str, str], list[bool]] = {}
        for device in self._seen.values() or self.devices():
            ports = self._cndev.code("cndevGetMLULinkPortNumber", device.index)
            for port in range(ports):
                status, remote = versioned(cndev.MLULinkStatusV2), versioned(cndev.MLULinkRemoteInfo)
                if not self._cndev.maybe("cndevGetMLULinkStatusV2", byref(status), device.index, port):
                    continue
                if not self._cndev.maybe("cndevGetMLULinkRemoteInfo", byref(remote), device.index, port):
                    continue
                peer = text(remote.uuid)
                if device.uuid < peer:
                    lanes.setdefault((device.uuid, peer), []).append(bool(status.mac_state))
        return tuple(Link(a, b, "mlulink", len(ups), all(ups)) for (a, b), ups in lanes.items())

    def events(self, timeout: float = 0.0) -> tuple[Event, ...]:
        events: list[Event] = []
        wait = int(timeout * 1000)
        while self._events is not None:
            data = versioned(cndev.EventData)
            if self._cndev.code("cndevEventWait", self._events, byref(data), wait):
                break
            wait = 0
            known = self._seen.get(data.device)
            events.append(
                Event(known.uuid if known else "", "xid", str(data.data), "critical", on=True, at=data.time / 1e6)
            )
        return tuple(events)

    def slice(self, uuid: str, template: str) -> Slice:
        """Create an sMLU instance; `template` is quota in percent and memory in bytes, as `10:1073741824`."""
        index = self._index(uuid)
        quota, _, memory = template.partition(":")
        target = cndev.SMluSet(version=cndev.VERSION, quota=int(quota), memory=int(memory or 0))
        profile, handle = c_int(), c_int()
        self._cndev.call("cndevCreateSMluProfileInfo", byref(target), byref(profile), index)
        try:
            name = c_char_p(f"seatrial-{quota}-{memory}".encode())
            self._cndev.call("cndevCreateSMluInstanceByProfileId", byref(handle), c_uint(profile.value), index, name)
        except ProviderError:
            self._cndev.maybe("cndevDestroySMluProfileInfo", profile.value, index)
            raise
        return self._slice(handle.value)

    def unslice(self, uuid: str, slice_id: str) -> None:
        info = self._slice_info(int(slice_id))
        self._cndev.call("cndevDestroySMluInstanceByHandle", int(slice_id))
        # The library removes a profile only after its last instance.
        self._cndev.maybe("cndevDestroySMluProfileInfo", info.profile, self._index(uuid))

    # -- one card -----------------------------------------------------------------------------------------------------

    def _count(self) -> int:
        info = versioned(cndev.CardInfo)
        self._cndev.call("cndevGetDeviceCount", byref(info))
        return int(info.number)

    def _cards(self) -> list[int]:
        """The numbers of the present cards. A card keeps its number when another is removed."""
        values: list[int] = []
        handle = c_int()
        for place in range(self._count()):
            self._cndev.call("cndevGetDeviceHandleByIndex", place, byref(handle))
            values.append(handle.value)
        return values

    def _device(self, index: int) -> Device:
        try:
            device = self._seen[index] = self._read(index)
        except ProviderError as error:
            return unread_card(self.vendor, index, _unanswered(error), self._source, self._seen.get(index))
        return device

    def _read(self, index: int) -> Device:
        call = self._cndev.call
        uuid, place, memory = versioned(cndev.Uuid), cndev.PCIeInfoV2(), cndev.MemoryInfoV2()
        serial = versioned(cndev.CardSN)
        call("cndevGetUUID", byref(uuid), index)
        call("cndevGetPCIeInfoV2", byref(place), index)
        call("cndevGetMemoryUsageV2", byref(memory), index)
        bus = f"{place.domain:04x}:{place.bus:02x}:{place.device_id:02x}.{place.function:x}"
        known = self._cndev.maybe("cndevGetCardSN", byref(serial), index)
        name = self._name(index)
        return Device(
            vendor=self.vendor,
            kind="gpu",
            model=name,
            label=model_label(name),
            index=index,
            minor=index,  # plugin and driver name device nodes by the library's index
            uuid=text(uuid.uuid),
            bus_id=bus,
            numa=self._pci.numa(bus),
            pcie_root=self._pci.pcie_root(bus),
            memory=memory.total * MIB,
            health=self._health(index),
            card=index,
            serial=f"{serial.sn:013d}" if known else "",
            nodes=cambricon_nodes(index),
            slices=self._slices(index),
            source=self._source,
        )

    def _name(self, index: int) -> str:
        function = self._cndev.load().cndevGetCardNameStringByDevId
        function.restype = c_char_p
        return bytes(function(index) or b"").decode()

    def _health(self, index: int) -> Health:
        state, mode = versioned(cndev.CardHealthState), versioned(cndev.Number)
        try:
            self._cndev.call("cndevGetCardHealthState", byref(state), index)
        except ProviderError as error:
            return _unanswered(error)
        if self._cndev.maybe("cndevGetComputeMode", byref(mode), index) and mode.value == PROHIBITED:
            return Health(ok=False, code="ComputeModeProhibited", message="compute mode is prohibited")
        return cambricon_health(state.health, state.driver_state)

    def _slices(self, index: int) -> tuple[Slice, ...]:
        rows, count = (cndev.SMluInfo * MAX_SLICES)(), c_int(MAX_SLICES)
        for row in rows:
            row.version = cndev.VERSION
        if not self._cndev.maybe("cndevGetAllSMluInstanceInfo", byref(count), rows, index):
            return ()
        return tuple(_as_slice(row, row.instance << _SLOT_BITS | index) for row in rows[: count.value])

    def _slice(self, handle: int) -> Slice:
        return _as_slice(self._slice_info(handle), handle)

    def _slice_info(self, handle: int) -> cndev.SMluInfo:
        info = versioned(cndev.SMluInfo)
        self._cndev.call("cndevGetSMluInstanceInfo", byref(info), handle)
        return info

    def _index(self, uuid: str) -> int:
        for index, known in self._seen.items():
            if known.uuid == uuid:
                return index
        for device in self.devices():
            if device.uuid == uuid:
                return device.index
        raise ProviderError(FailureKind.ABSENT, vendor=self.vendor, call=f"find {uuid}", code=6)


def _as_slice(info: cndev.SMluInfo, handle: int) -> Slice:
    nodes = tuple(filter(None, text(info.node_name).split(",")))
    return Slice(str(handle), "smlu", text(info.profile_name), int(info.memory[0]), int(info.quota[0]), nodes)


def _unanswered(error: ProviderError) -> Health:
    code = "CardLost" if error.kind == FailureKind.LOST else f"CndevError{error.code}"
    return Health(ok=False, code=code, message=str(error))
