"""NVIDIA's cards through NVML, by the package pynvml; NUMA node and PCIe root from sysfs.

Code 13 (the library has no such function) and code 3 (not supported) both mean that a fact is unknown. A card that does
not answer is listed as unhealthy and the others are still read, unlike in koordlet.
"""

import ctypes
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from seatrial.harness.devices.nvml import BRANDS, Nvml, gpu_label, gpu_nodes, provider_error
from seatrial.harness.devices.provider import (
    WELL,
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
    unread_card,
)
from seatrial.harness.devices.sysfs import Pci, sysfs_bus
from seatrial.harness.devices.xid import APPLICATION_XIDS, RECOVERY_ACTIONS, xid_health

XID, DOUBLE_BIT, RECOVERY = 0x8, 0x2, 0x8000
FIELD_RECOVERY_ACTION = 230
MIG_MINORS, CAP_NODE = "proc/driver/nvidia-caps/mig-minors", "/dev/nvidia-caps/nvidia-cap"
MIG_UNITS = {  # fields of NVML, by the capacities that NVIDIA's driver for claims makes of them
    "multiprocessors": "multiprocessorCount",
    "copyEngines": "sharedCopyEngineCount",
    "decoders": "sharedDecoderCount",
    "encoders": "sharedEncoderCount",
    "jpegEngines": "sharedJpegCount",
    "ofaEngines": "sharedOfaCount",
}
MAX_LINKS = 36
REMOTE_GPU = 0
UNKNOWN_MEMORY = (1 << 64) - 1
THROTTLE = {
    0x4: "software-power-cap",
    0x8: "hardware-slowdown",
    0x10: "sync-boost",
    0x20: "software-thermal",
    0x40: "hardware-thermal",
    0x80: "hardware-power-brake",
    0x100: "display",
}


class NvidiaProvider(DeviceProvider):
    """Reads the system's NVML, or any library with its ABI."""

    vendor: ClassVar[str] = "nvidia"

    def __init__(
        self, library: str | Path | object | None = None, *, root: Path = Path("/"), source: Source = "real"
    ) -> None:
        """`library`: None for the system's; `root`: where /sys and /proc are; `source`: the devices' label."""
        self._nvml = Nvml(library)
        self._pci, self._root = Pci(root), root
        self._source: Source = source
        self._open = False
        self._handles: dict[str, Any] = {}
        self._seen: dict[int, Device] = {}  # by index
        self._sick: dict[str, Health] = {}  # by uuid
        self._events: Any = None

    def probe(self) -> Missing | None:
        if self._open:
            return None
        try:
            self.open()
        except ProviderError as error:
            key = "no-library" if error.code == 12 else "no-driver"
            return Missing(key, f"NVML does not start: {error}")
        try:
            with self._nvml as nvml:
                if not nvml.nvmlDeviceGetCount():
                    return Missing("no-gpu", "NVML works and counts no GPU")
        finally:
            self.close()
        return None

    def open(self) -> None:
        if self._open:
            return
        with self._nvml as nvml:
            try:
                nvml.nvmlInit()
            except nvml.NVMLError as error:
                raise provider_error(error, "nvmlInit") from error
            self._open = True
            self._events = self._listen(nvml)

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        with self._nvml as nvml:
            for call in (lambda: nvml.nvmlEventSetFree(self._events), nvml.nvmlShutdown):
                try:
                    call()
                except nvml.NVMLError:
                    continue  # a lost library cannot be closed
        self._events = None
        self._handles.clear()

    def driver(self) -> Driver:
        with self._nvml as nvml:
            version = _maybe(nvml, nvml.nvmlSystemGetCudaDriverVersion)
            return Driver(
                _maybe(nvml, nvml.nvmlSystemGetDriverVersion) or "",
                _maybe(nvml, nvml.nvmlSystemGetNVMLVersion) or "",
                str(version) if version else "",
            )

    def devices(self) -> tuple[Device, ...]:
        with self._nvml as nvml:
            try:
                count = nvml.nvmlDeviceGetCount()
            except nvml.NVMLError as error:
                raise provider_error(error, "nvmlDeviceGetCount") from error
            return tuple(self._device(nvml, index) for index in range(count))

    def usage(self, uuid: str) -> Usage:
        with self._nvml as nvml:
            handle = self._handle(nvml, uuid)
            memory = _maybe(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
            rates = _maybe(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
            celsius = _maybe(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
            milliwatts = _maybe(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
            reasons = _maybe(nvml, nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        return Usage(
            memory=memory.used if memory is not None else None,
            core=float(rates.gpu) if rates is not None else None,
            temperature=float(celsius) if celsius is not None else None,
            power=milliwatts / 1000 if milliwatts is not None else None,
            throttle=frozenset(word for bit, word in THROTTLE.items() if reasons & bit)
            if reasons is not None
            else None,
        )

    def processes(self, uuid: str) -> tuple[Process, ...]:
        with self._nvml as nvml:
            handle = self._handle(nvml, uuid)
            running = _maybe(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
            samples = _maybe(nvml, nvml.nvmlDeviceGetProcessUtilization, handle, 0) or []
            cores = {sample.pid: float(sample.smUtil) for sample in samples}
            return tuple(
                Process(
                    pid=item.pid,
                    memory=item.usedGpuMemory if item.usedGpuMemory != UNKNOWN_MEMORY else None,
                    core=cores.get(item.pid),
                    name=_maybe(nvml, nvml.nvmlSystemGetProcessName, item.pid) or "",
                )
                for item in running
            )

    def health(self, uuid: str) -> Health:
        """A critical XID is sticky, as in koordlet; without one, the card's present state."""
        self.events()
        with self._nvml as nvml:
            try:
                handle = self._handle(nvml, uuid)
                nvml.nvmlDeviceGetMemoryInfo(handle)
            except ProviderError as error:
                return self._sick.get(uuid) or _unanswered(error)
            except nvml.NVMLError as error:
                return self._sick.get(uuid) or _unanswered(provider_error(error, "nvmlDeviceGetMemoryInfo"))
            action = self._recovery_action(nvml, handle)
        sick = self._sick.get(uuid)
        if sick is not None:
            return replace(sick, action=RECOVERY_ACTIONS[action] if action < len(RECOVERY_ACTIONS) else sick.action)
        if action:
            name = RECOVERY_ACTIONS[action] if action < len(RECOVERY_ACTIONS) else str(action)
            return Health(ok=False, code="RecoveryAction", message=f"the driver asks for {name}", action=name)
        return WELL

    def links(self) -> tuple[Link, ...]:
        results: dict[tuple[str, str], list[bool]] = {}
        by_bus = {item.bus_id: item.uuid for item in self._seen.values()} or {
            device.bus_id: device.uuid for device in self.devices()
        }
        with self._nvml as nvml:
            for uuid in by_bus.values():
                try:
                    handle = self._handle(nvml, uuid)
                except ProviderError:
                    continue
                for port in range(MAX_LINKS):
                    up = _maybe(nvml, nvml.nvmlDeviceGetNvLinkState, handle, port)
                    if up is None:
                        break
                    peer = self._peer(nvml, handle, port, by_bus)
                    first, second = (uuid, peer) if not peer or uuid < peer else (peer, uuid)
                    if first == uuid:
                        results.setdefault((first, second), []).append(bool(up))
        return tuple(Link(a, b, "nvlink", len(ups), all(ups)) for (a, b), ups in results.items())

    def events(self, timeout: float = 0.0) -> tuple[Event, ...]:
        events: list[Event] = []
        with self._nvml as nvml:
            wait = int(timeout * 1000)
            while self._events is not None:
                try:
                    data = nvml.nvmlEventSetWait_v2(self._events, wait)
                except nvml.NVMLError:
                    break
                wait = 0
                event = self._event(nvml, data)
                if event is not None:
                    events.append(event)
        return tuple(events)

    def forget(self, uuid: str) -> None:
        self.events()  # events from before the reset must not count afterwards
        self._sick.pop(uuid, None)

    # -- one card -----------------------------------------------------------------------------------------------------

    def _device(self, nvml: Any, index: int) -> Device:
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            device = self._read(nvml, index, handle)
        except nvml.NVMLError as error:
            health = _unanswered(provider_error(error, f"device {index}"))
            known = self._seen.get(index)
            if known is None:
                return unread_card(self.vendor, index, health, self._source)
            return replace(known, health=self._sick.get(known.uuid, health))
        self._handles[device.uuid] = handle
        self._seen[index] = device
        return replace(device, health=self.health(device.uuid))

    def _read(self, nvml: Any, index: int, handle: Any) -> Device:
        info = nvml.nvmlDeviceGetPciInfo(handle)
        bus = sysfs_bus(info.busId)
        name = nvml.nvmlDeviceGetName(handle)
        minor = nvml.nvmlDeviceGetMinorNumber(handle)
        board = _maybe(nvml, nvml.nvmlDeviceGetBoardId, handle)
        capability = _maybe(nvml, nvml.nvmlDeviceGetCudaComputeCapability, handle) or ()
        divided = bool((_maybe(nvml, nvml.nvmlDeviceGetMigMode, handle) or (0,))[0])
        return Device(
            vendor=self.vendor,
            kind="gpu",
            model=name,
            label=gpu_label(name),
            index=index,
            minor=minor,
            uuid=nvml.nvmlDeviceGetUUID(handle),
            bus_id=bus,
            numa=self._pci.numa(bus),
            pcie_root=self._pci.pcie_root(bus),
            memory=nvml.nvmlDeviceGetMemoryInfo(handle).total,
            card=index,
            capability=".".join(map(str, capability)),
            brand=BRANDS.get(_maybe(nvml, nvml.nvmlDeviceGetBrand, handle) or 0, ""),
            board=f"{board:x}" if board is not None else "",
            serial=_maybe(nvml, nvml.nvmlDeviceGetSerial, handle) or "",
            nodes=gpu_nodes(minor),
            slices=self._slices(nvml, handle, minor) if divided else (),
            divided=divided,
            source=self._source,
        )

    def _slices(self, nvml: Any, handle: Any, minor: int) -> tuple[Slice, ...]:
        slices, caps = list[Slice](), self._cap_numbers()
        for number in range(_maybe(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
            part = _maybe(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
            if part is None:
                continue
            name = nvml.nvmlDeviceGetName(part)
            template = name.rpartition("MIG ")[2]
            memory = nvml.nvmlDeviceGetMemoryInfo(part).total
            made = Slice(nvml.nvmlDeviceGetUUID(part), "mig", template, memory)
            slices.append(_placed(nvml, handle, part, made, f"gpu{minor}", caps))
        return tuple(slices)

    def _cap_numbers(self) -> dict[str, str]:
        """The numbers of device nodes that open instances, by path; none without the module nvidia-caps."""
        try:
            lines = (self._root / MIG_MINORS).read_text(errors="replace").splitlines()
        except OSError:
            return {}
        return dict(line.split() for line in lines if len(line.split()) == 2)

    def _handle(self, nvml: Any, uuid: str) -> Any:
        handle = self._handles.get(uuid)
        if handle is None:
            try:
                handle = self._handles[uuid] = nvml.nvmlDeviceGetHandleByUUID(uuid)
            except nvml.NVMLError as error:
                raise provider_error(error, f"nvmlDeviceGetHandleByUUID {uuid}") from error
        return handle

    def _recovery_action(self, nvml: Any, handle: Any) -> int:
        values = _maybe(nvml, nvml.nvmlDeviceGetFieldValues, handle, [FIELD_RECOVERY_ACTION])
        return int(values[0].value.uiVal) if values is not None and values[0].nvmlReturn == 0 else 0

    def _peer(self, nvml: Any, handle: Any, port: int, by_bus: dict[str, str]) -> str:
        if _maybe(nvml, nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, port) != REMOTE_GPU:
            return ""
        info = _maybe(nvml, nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, port)
        return by_bus.get(sysfs_bus(info.busId), "") if info is not None else ""

    def _listen(self, nvml: Any) -> Any:
        """An event set for all cards; None if the library has no events."""
        try:
            events = nvml.nvmlEventSetCreate()
        except nvml.NVMLError:
            return None
        for index in range(_maybe(nvml, nvml.nvmlDeviceGetCount) or 0):
            handle = _maybe(nvml, nvml.nvmlDeviceGetHandleByIndex, index)
            if handle is None:
                continue
            offered = _maybe(nvml, nvml.nvmlDeviceGetSupportedEventTypes, handle) or 0
            mask = offered & (XID | DOUBLE_BIT | RECOVERY)
            if mask:
                _maybe(nvml, nvml.nvmlDeviceRegisterEvents, handle, mask, events)
        return events

    def _event(self, nvml: Any, data: Any) -> Event | None:
        uuid = self._uuid_of(nvml, data.device)
        if data.eventType != XID:
            kind = "ecc" if data.eventType == DOUBLE_BIT else "recovery"
            return Event(uuid, kind, str(data.eventData), "warning", on=True)
        xid = int(data.eventData)
        if xid in APPLICATION_XIDS:
            return Event(uuid, "xid", f"Xid{xid}", "info", on=True)
        for sick in [uuid] if uuid else [item.uuid for item in self._seen.values()]:
            self._sick[sick] = xid_health(xid)
        return Event(uuid, "xid", f"Xid{xid}", "critical", on=True)

    def _uuid_of(self, nvml: Any, handle: Any) -> str:
        """The UUID of an event's card. A lost card does not report it, but keeps its handle."""
        address = _address(handle)
        for uuid, known in self._handles.items():
            if _address(known) == address:
                return uuid
        return _maybe(nvml, nvml.nvmlDeviceGetUUID, handle) or ""


def _placed(nvml: Any, card: Any, part: Any, made: Slice, path: str, caps: dict[str, str]) -> Slice:  # noqa: PLR0917
    """A MIG device with its place on the card, its units and device nodes; as it is, if NVML does not tell them.

    `path`, `caps`: the card's, and the numbers of device nodes, as `_cap_numbers` has them.
    """
    try:
        instance, compute = nvml.nvmlDeviceGetGpuInstanceId(part), nvml.nvmlDeviceGetComputeInstanceId(part)
        info = nvml.nvmlGpuInstanceGetInfo(nvml.nvmlDeviceGetGpuInstanceById(card, instance))
        units = nvml.nvmlDeviceGetAttributes_v2(part)
    except nvml.NVMLError:
        return made
    access = (f"{path}/gi{instance}/access", f"{path}/gi{instance}/ci{compute}/access")
    return replace(
        made,
        nodes=tuple(CAP_NODE + caps[each] for each in access if each in caps),
        profile=info.profileId,
        places=range(info.placement.start, info.placement.start + info.placement.size),
        engines=tuple((name, getattr(units, field)) for name, field in MIG_UNITS.items()),
    )


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _maybe(nvml: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a call; None if the library does not report it."""
    try:
        return call(*arguments)
    except nvml.NVMLError:
        return None


def _unanswered(error: ProviderError) -> Health:
    code = {FailureKind.LOST: "GpuIsLost", FailureKind.RESET_NEEDED: "ResetRequired"}.get(
        error.kind, f"NvmlError{error.code}"
    )
    return Health(ok=False, code=code, message=str(error), sticky=error.kind == FailureKind.LOST)
