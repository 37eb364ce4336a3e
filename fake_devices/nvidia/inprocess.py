"""NVML in this process without a compiler: a Python object that pynvml calls as if it were the loaded library.

It answers what `abi/*.c` answers, from the same table; the conformance suite holds both to the same contracts. Foreign
processes cannot use it, and threads must not. What is missing here (MIG, fabric) answers as an old library would:
the function is not there.
"""

import ctypes
from collections.abc import Callable
from typing import Any, Self

from seatrial.fake_devices.layout import KIND_ACCELERATOR, DeviceRecord
from seatrial.fake_devices.nvidia.hardware import BRAND_NVIDIA, NVIDIA
from seatrial.fake_devices.table import DeviceTable

OK, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 0, 1, 2, 3, 6
INSUFFICIENT_SIZE, TIMEOUT, GPU_IS_LOST, VERSION_MISMATCH = 7, 10, 15, 25
NONE = 0xFFFFFFFF
MEMORY_V2 = 40 | 2 << 24
SUPPORTED_EVENTS = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x100 | 0x4000 | 0x8000
SWITCH_BUS, SWITCH_ID = 0x05, 0x22A310DE

_ERRORS = {
    0: b"The operation was successful",
    1: b"NVML was not first initialized with nvmlInit()",
    2: b"A supplied argument is invalid",
    3: b"The requested operation is not available on target device",
    6: b"A query to find an object was unsuccessful",
    7: b"An input argument is not large enough",
    9: b"NVIDIA driver is not loaded",
    10: b"User provided timeout passed",
    15: b"The GPU has fallen off the bus or has otherwise become inaccessible",
    16: b"The GPU requires a reset before it can be used again",
}


class _Refused(Exception):
    def __init__(self, code: int) -> None:
        self.code = code


class _EventSet:
    """An event set: registered types by device, and the sequence number of the next event to read."""

    def __init__(self) -> None:
        self.next = 0
        self.masks: dict[int, int] = {}  # device position → types


class InProcessNvml:
    """One node's NVML."""

    def __init__(self, table: DeviceTable) -> None:
        self._table = table
        self._users = 0
        self._vendor = NVIDIA.code
        self._sets: dict[int, _EventSet] = {}
        self._next_set = 1
        self._bound: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, symbol: str) -> Callable[..., Any]:
        """A symbol, as `ctypes.CDLL` would give it; AttributeError if this library lacks it."""
        call = _SYMBOLS.get(symbol)
        if call is None:
            raise AttributeError(symbol)

        def function(*arguments: Any) -> Any:
            try:
                result = call(self, *[_plain(argument) for argument in arguments])
            except _Refused as refused:
                return refused.code
            return OK if result is None else result

        return self._bound.setdefault(symbol, function)

    # -- the library --------------------------------------------------------------------------------------------------

    def start(self, *_flags: Any) -> int:
        code = int(self._table.header.libraries[self._vendor].code)
        if not code:
            self._users += 1
        return code

    def stop(self) -> None:
        self._running()
        self._users -= 1

    def error_string(self, code: Any) -> bytes:
        return _ERRORS.get(int(code), b"Unknown Error")

    def driver_version(self, text: Any, room: Any) -> None:
        self._running()
        _write(text, room, self._table.header.libraries[self._vendor].driver)

    def nvml_version(self, text: Any, room: Any) -> None:
        self._running()
        _write(text, room, self._table.header.libraries[self._vendor].library)

    def cuda_version(self, out: Any) -> None:
        self._running()
        out.value = self._table.header.libraries[self._vendor].runtime

    def process_name(self, pid: Any, text: Any, room: Any) -> None:
        self._running()
        for row in self._table.processes:
            if row.pid and row.pid == pid:
                return _write(text, room, row.name)
        raise _Refused(NOT_FOUND)

    # -- finding devices ----------------------------------------------------------------------------------------------

    def count(self, out: Any) -> None:
        self._running()
        out.value = len(self._counted())

    def by_index(self, index: Any, out: Any) -> None:
        self._running()
        counted = self._counted()
        if index >= len(counted):
            raise _Refused(INVALID_ARGUMENT)
        self._give(counted[index], out)

    def by_uuid(self, uuid: Any, out: Any) -> None:
        self._find(out, lambda record: record.uuid == uuid)

    def by_serial(self, serial: Any, out: Any) -> None:
        self._find(out, lambda record: record.serial == serial)

    def by_bus(self, bus: Any, out: Any) -> None:
        try:
            domain, number, rest = bus.decode().split(":")
            device, function = rest.split(".")
            targets = int(domain, 16), int(number, 16), int(device, 16), int(function, 16)
        except ValueError:
            raise _Refused(NOT_FOUND) from None
        self._find(out, lambda item: (item.domain, item.bus, item.device, item.function) == targets)

    # -- identity -----------------------------------------------------------------------------------------------------

    def name(self, handle: Any, text: Any, room: Any) -> None:
        _write(text, room, self._enter(handle).name)

    def uuid(self, handle: Any, text: Any, room: Any) -> None:
        _write(text, room, self._enter(handle).uuid)

    def serial(self, handle: Any, text: Any, room: Any) -> None:
        _write(text, room, self._enter(handle).serial)

    def pci_info(self, handle: Any, out: Any) -> None:
        record = self._enter(handle)
        _fill_pci(out, record)

    def compute_capability(self, handle: Any, major: Any, minor: Any) -> None:
        record = self._enter(handle)
        major.value, minor.value = record.capability_major, record.capability_minor

    # -- utilisation --------------------------------------------------------------------------------------------------

    def memory_info(self, handle: Any, out: Any) -> None:
        record = self._enter(handle)
        used = min(record.memory_total, record.memory_used + record.memory_reserved)
        out.total, out.used, out.free = record.memory_total, used, record.memory_total - used

    def memory_info_v2(self, handle: Any, out: Any) -> None:
        record = self._enter(handle)
        if out.version != MEMORY_V2:
            raise _Refused(VERSION_MISMATCH)
        usable = record.memory_total - record.memory_reserved
        used = min(usable, record.memory_used)
        out.total, out.reserved, out.used, out.free = record.memory_total, record.memory_reserved, used, usable - used

    def utilization(self, handle: Any, out: Any) -> None:
        record = self._enter(handle)
        out.gpu, out.memory = record.core_use, record.memory_use

    def running_processes(self, handle: Any, count: Any, out: Any) -> None:
        rows = self._processes(handle)
        if len(rows) > count.value:
            count.value = len(rows)
            raise _Refused(INSUFFICIENT_SIZE)
        count.value = len(rows)
        for place, row in enumerate(rows):
            out[place].pid, out[place].usedGpuMemory = row.pid, row.used
            if hasattr(out[place], "gpuInstanceId"):
                out[place].gpuInstanceId = out[place].computeInstanceId = NONE

    def process_utilization(self, handle: Any, out: Any, count: Any, since: Any) -> None:
        rows = self._processes(handle)
        if out is None or len(rows) > count.value:
            count.value = len(rows)
            raise _Refused(INSUFFICIENT_SIZE)
        fresh = [row for row in rows if row.sampled_us > since]
        if not fresh:
            raise _Refused(NOT_FOUND)
        count.value = len(fresh)
        for place, row in enumerate(fresh):
            sample = out[place]
            sample.pid, sample.timeStamp = row.pid, row.sampled_us
            sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil = row.sm, row.memory, row.encoder, row.decoder

    # -- heat, power, faults ------------------------------------------------------------------------------------------

    def temperature(self, handle: Any, sensor: Any, out: Any) -> None:
        record = self._enter(handle)
        if sensor:
            raise _Refused(INVALID_ARGUMENT)
        out.value = record.temperature

    def temperature_threshold(self, handle: Any, which: Any, out: Any) -> None:
        record = self._enter(handle)
        if which > 1:
            raise _Refused(NOT_SUPPORTED)
        out.value = record.slowdown_temperature if which else record.shutdown_temperature

    def ecc_mode(self, handle: Any, now: Any, pending: Any) -> None:
        now.value = pending.value = self._enter(handle).ecc_mode

    def ecc_errors(self, handle: Any, kind: Any, counter: Any, out: Any) -> None:
        record = self._enter(handle)
        if kind > 1 or counter > 1:
            raise _Refused(INVALID_ARGUMENT)
        if not record.ecc_mode:
            raise _Refused(NOT_SUPPORTED)
        out.value = getattr(record, ("ecc_uncorrected" if kind else "ecc_corrected") + ("_ever" if counter else ""))

    def memory_error_counter(self, handle: Any, kind: Any, counter: Any, location: Any, out: Any) -> None:
        if location != 2:
            raise _Refused(NOT_SUPPORTED)
        self.ecc_errors(handle, kind, counter, out)

    def remapped_rows(self, handle: Any, *outs: Any) -> None:
        record = self._enter(handle)
        for out, value in zip(outs, record.remapped, strict=True):
            out.value = value

    def field_values(self, handle: Any, count: Any, values: Any) -> None:
        record = self._enter(handle)
        wide = {4: "ecc_uncorrected", 6: "ecc_uncorrected_ever"}
        narrow = {91: "link_count", 185: "power_mw", 186: "power_mw", 230: "recovery_action"}
        for row in values[:count]:
            row.nvmlReturn = OK
            if row.fieldId in wide:
                row.valueType, row.value.ullVal = 3, getattr(record, wide[row.fieldId])
            elif row.fieldId in narrow:
                row.valueType, row.value.uiVal = 1, getattr(record, narrow[row.fieldId])
            elif 142 <= row.fieldId <= 145:
                row.valueType, row.value.uiVal = 1, record.remapped[row.fieldId - 142]
            else:
                row.nvmlReturn = NOT_SUPPORTED

    # -- topology -----------------------------------------------------------------------------------------------------

    def common_ancestor(self, handle: Any, other: Any, out: Any) -> None:
        out.value = _level(self._enter(handle), self._enter(other))

    def nearest(self, handle: Any, level: Any, count: Any, out: Any) -> None:
        record = self._enter(handle)
        matches = [
            item for item in self._counted() if _address(item) != _address(record) and _level(record, item) == level
        ]
        count.value = len(matches) if out is None else min(count.value, len(matches))
        for place in range(count.value if out is not None else 0):
            ctypes.c_void_p.from_buffer(out, place * ctypes.sizeof(ctypes.c_void_p)).value = _address(matches[place])

    def p2p_status(self, handle: Any, other: Any, _index: Any, out: Any) -> None:
        both = self._enter(handle).link_count and self._enter(other).link_count
        out.value = 0 if both else 5

    def link_state(self, handle: Any, port: Any, out: Any) -> None:
        out.value = self._port(handle, port).up

    def link_remote_type(self, handle: Any, port: Any, out: Any) -> None:
        out.value = 2 if self._port(handle, port).peer < 0 else 0

    def link_remote_pci(self, handle: Any, port: Any, out: Any) -> None:
        link = self._port(handle, port)
        if link.peer < 0:
            _fill_pci(out, DeviceRecord(bus=SWITCH_BUS + port % 4, pci_id=SWITCH_ID))
        else:
            _fill_pci(out, self._table.devices[link.peer])

    def link_errors(self, handle: Any, port: Any, counter: Any, out: Any) -> None:
        out.value = self._port(handle, port).errors[counter]

    def memory_affinity(self, handle: Any, words: Any, mask: Any, _scope: Any) -> None:
        record = self._enter(handle)
        if record.numa < 0:
            raise _Refused(NOT_SUPPORTED)
        for word in range(words):
            mask[word] = 1 << record.numa % 64 if word == record.numa // 64 else 0

    # -- events -------------------------------------------------------------------------------------------------------

    def set_create(self, out: Any) -> None:
        self._running()
        number, self._next_set = self._next_set, self._next_set + 1
        self._sets[number] = _EventSet()
        ctypes.c_void_p.from_buffer(out).value = number

    def set_free(self, events: Any) -> None:
        self._running()
        self._sets.pop(_pointer(events), None)

    def supported_events(self, handle: Any, out: Any) -> None:
        self._enter(handle)
        out.value = SUPPORTED_EVENTS

    def register(self, handle: Any, types: Any, events: Any) -> None:
        position = self._position(handle)
        event_set = self._sets.get(_pointer(events))
        if event_set is None:
            raise _Refused(INVALID_ARGUMENT)
        if types & ~SUPPORTED_EVENTS:
            raise _Refused(NOT_SUPPORTED)
        if not event_set.masks:
            event_set.next = self._table.header.event_head
        event_set.masks[position] = event_set.masks.get(position, 0) | types

    def wait(self, events: Any, data: Any, _timeout: Any) -> None:
        """Does not wait: the table's writer is this thread, so no event can arrive during the call."""
        self._running()
        event_set = self._sets.get(_pointer(events))
        if event_set is None:
            raise _Refused(INVALID_ARGUMENT)
        ring = self._table.events
        head = self._table.header.event_head
        event_set.next = max(event_set.next, head - len(ring))
        while event_set.next < head:
            event = ring[event_set.next % len(ring)]
            event_set.next += 1
            if event_set.masks.get(event.device, 0) & event.type:
                ctypes.c_void_p.from_buffer(data).value = _address(self._table.devices[event.device])
                data.eventType, data.eventData = event.type, event.code
                data.gpuInstanceId = data.computeInstanceId = NONE
                return
        raise _Refused(TIMEOUT)

    # -- below --------------------------------------------------------------------------------------------------------

    def _running(self) -> None:
        if not self._users:
            raise _Refused(UNINITIALIZED)

    def _counted(self) -> list[Any]:
        return [
            device
            for device in self._table.devices
            if device.vendor == self._vendor and device.present and device.kind == KIND_ACCELERATOR
        ]

    def _find(self, out: Any, same: Callable[[Any], bool]) -> None:
        self._running()
        for record in self._counted():
            if same(record):
                return self._give(record, out)
        raise _Refused(NOT_FOUND)

    def _give(self, record: Any, out: Any) -> None:
        if record.code:
            raise _Refused(record.code)
        ctypes.c_void_p.from_buffer(out).value = _address(record)

    def _position(self, handle: Any) -> int:
        self._running()
        pointer = _pointer(handle)
        for position, record in enumerate(self._table.devices):
            if _address(record) == pointer:
                if not record.present:
                    raise _Refused(GPU_IS_LOST)
                if record.code:
                    raise _Refused(record.code)
                return position
        raise _Refused(INVALID_ARGUMENT)

    def _enter(self, handle: Any) -> Any:
        return self._table.devices[self._position(handle)]

    def _processes(self, handle: Any) -> list[Any]:
        position = self._position(handle)
        return [row for row in self._table.processes if row.pid and row.device == position]

    def _port(self, handle: Any, port: int) -> Any:
        position = self._position(handle)
        for link in self._table.links:
            if link.device == position and link.port == port:
                return link
        raise _Refused(NOT_SUPPORTED)


def _number(field: str) -> Callable[..., None]:
    def call(self: InProcessNvml, handle: Any, out: Any) -> None:
        out.value = getattr(self._enter(handle), field)

    return call


def _brand(self: InProcessNvml, handle: Any, out: Any) -> None:
    self._enter(handle)
    out.value = BRAND_NVIDIA


def _board_id(self: InProcessNvml, handle: Any, out: Any) -> None:
    record = self._enter(handle)
    out.value = record.domain << 16 | record.bus << 8 | record.device << 3


_N = InProcessNvml
_SYMBOLS: dict[str, Callable[..., Any]] = {
    "nvmlInitWithFlags": _N.start,
    "nvmlInit_v2": _N.start,
    "nvmlInit": _N.start,
    "nvmlShutdown": _N.stop,
    "nvmlErrorString": _N.error_string,
    "nvmlSystemGetDriverVersion": _N.driver_version,
    "nvmlSystemGetNVMLVersion": _N.nvml_version,
    "nvmlSystemGetCudaDriverVersion": _N.cuda_version,
    "nvmlSystemGetCudaDriverVersion_v2": _N.cuda_version,
    "nvmlSystemGetProcessName": _N.process_name,
    "nvmlDeviceGetCount_v2": _N.count,
    "nvmlDeviceGetCount": _N.count,
    "nvmlDeviceGetHandleByIndex_v2": _N.by_index,
    "nvmlDeviceGetHandleByIndex": _N.by_index,
    "nvmlDeviceGetHandleByUUID": _N.by_uuid,
    "nvmlDeviceGetHandleBySerial": _N.by_serial,
    "nvmlDeviceGetHandleByPciBusId_v2": _N.by_bus,
    "nvmlDeviceGetHandleByPciBusId": _N.by_bus,
    "nvmlDeviceGetName": _N.name,
    "nvmlDeviceGetUUID": _N.uuid,
    "nvmlDeviceGetSerial": _N.serial,
    "nvmlDeviceGetIndex": _number("index"),
    "nvmlDeviceGetMinorNumber": _number("minor"),
    "nvmlDeviceGetBoardId": _board_id,
    "nvmlDeviceGetBrand": _brand,
    "nvmlDeviceGetPciInfo_v3": _N.pci_info,
    "nvmlDeviceGetPciInfo_v2": _N.pci_info,
    "nvmlDeviceGetCudaComputeCapability": _N.compute_capability,
    "nvmlDeviceGetMemoryInfo": _N.memory_info,
    "nvmlDeviceGetMemoryInfo_v2": _N.memory_info_v2,
    "nvmlDeviceGetUtilizationRates": _N.utilization,
    "nvmlDeviceGetComputeRunningProcesses_v3": _N.running_processes,
    "nvmlDeviceGetComputeRunningProcesses_v2": _N.running_processes,
    "nvmlDeviceGetComputeRunningProcesses": _N.running_processes,
    "nvmlDeviceGetProcessUtilization": _N.process_utilization,
    "nvmlDeviceGetTemperature": _N.temperature,
    "nvmlDeviceGetTemperatureThreshold": _N.temperature_threshold,
    "nvmlDeviceGetPowerUsage": _number("power_mw"),
    "nvmlDeviceGetEnforcedPowerLimit": _number("power_limit_mw"),
    "nvmlDeviceGetPowerManagementLimit": _number("power_limit_mw"),
    "nvmlDeviceGetCurrentClocksEventReasons": _number("throttle"),
    "nvmlDeviceGetCurrentClocksThrottleReasons": _number("throttle"),
    "nvmlDeviceGetEccMode": _N.ecc_mode,
    "nvmlDeviceGetTotalEccErrors": _N.ecc_errors,
    "nvmlDeviceGetMemoryErrorCounter": _N.memory_error_counter,
    "nvmlDeviceGetRemappedRows": _N.remapped_rows,
    "nvmlDeviceGetFieldValues": _N.field_values,
    "nvmlDeviceGetTopologyCommonAncestor": _N.common_ancestor,
    "nvmlDeviceGetTopologyNearestGpus": _N.nearest,
    "nvmlDeviceGetP2PStatus": _N.p2p_status,
    "nvmlDeviceGetNvLinkState": _N.link_state,
    "nvmlDeviceGetNvLinkRemoteDeviceType": _N.link_remote_type,
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": _N.link_remote_pci,
    "nvmlDeviceGetNvLinkErrorCounter": _N.link_errors,
    "nvmlDeviceGetMemoryAffinity": _N.memory_affinity,
    "nvmlEventSetCreate": _N.set_create,
    "nvmlEventSetFree": _N.set_free,
    "nvmlDeviceGetSupportedEventTypes": _N.supported_events,
    "nvmlDeviceRegisterEvents": _N.register,
    "nvmlEventSetWait_v2": _N.wait,
    "nvmlEventSetWait": _N.wait,
}


def _plain(argument: Any) -> Any:
    """What a C function would receive: numbers by value, the thing itself where its address was passed."""
    argument = getattr(argument, "_obj", argument)
    if isinstance(argument, ctypes.c_char_p):
        return argument.value
    simple = isinstance(argument, ctypes._SimpleCData)  # noqa: SLF001 the only name of that class
    return _ByValue(argument) if simple else argument


class _ByValue(int):
    """A ctypes number: usable as the int it holds, and writable through `value` where it was passed by address."""

    _cell: Any

    def __new__(cls, cell: Any) -> Self:
        made = super().__new__(cls, cell.value or 0)
        made._cell = cell
        return made

    @property
    def value(self) -> int:
        return int(self._cell.value or 0)

    @value.setter
    def value(self, new: int) -> None:
        self._cell.value = new


def _write(text: Any, room: Any, content: bytes) -> None:
    if len(content) >= int(room):
        raise _Refused(INSUFFICIENT_SIZE)
    text.value = content


def _address(record: Any) -> int:
    return ctypes.addressof(record)


def _pointer(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _level(a: Any, b: Any) -> int:
    """NVML's topology level between two cards, by their place in the PCIe tree."""
    if _address(a) == _address(b):
        return 0
    if a.root == b.root:
        return 10 if a.switch_bus and a.switch_bus == b.switch_bus else 30
    return 40 if a.numa == b.numa else 50


def _fill_pci(out: Any, of: Any) -> None:
    place = f"{of.bus:02X}:{of.device:02X}.{of.function:X}"
    out.busIdLegacy, out.busId = f"{of.domain & 0xFFFF:04X}:{place}".encode(), f"{of.domain:08X}:{place}".encode()
    out.domain, out.bus, out.device = of.domain, of.bus, of.device
    out.pciDeviceId, out.pciSubSystemId = of.pci_id, of.pci_subsystem
