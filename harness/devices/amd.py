"""AMD's GPUs through ROCm SMI; NUMA node and PCIe root from sysfs.

ROCm SMI has no health call: a GPU is unwell while a block has uncorrectable RAS errors, while it hangs, and once its
sysfs files can no longer be read. The list of devices is made when the library starts, so a GPU that is removed later
stays in it as lost.
"""

from ctypes import byref, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from seatrial.harness.devices import rsmi
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
    Source,
    Usage,
    model_label,
    unread_card,
)
from seatrial.harness.devices.sysfs import Pci

MAX_EVENTS = 64


class AmdProvider(DeviceProvider):
    """Reads the system's librocm_smi64.so, or a library given by its path."""

    vendor: ClassVar[str] = "amd"

    def __init__(self, library: str | Path | None = None, *, root: Path = Path("/"), source: Source = "real") -> None:
        names = (library,) if library is not None else rsmi.LIBRARIES
        self._rsmi = VendorLibrary(self.vendor, names, rsmi.KINDS)
        self._pci = Pci(root)
        self._source: Source = source
        self._open = False
        self._seen: dict[int, Device] = {}  # by index

    def probe(self) -> Missing | None:
        if self._open:
            return None
        try:
            self._rsmi.load()
        except ProviderError as error:
            return Missing("no-library", f"ROCm SMI is not installed: {error}")
        try:
            self._rsmi.call("rsmi_init", c_uint64(0))
        except ProviderError as error:
            return Missing("no-driver", f"ROCm SMI does not start: {error}")
        count = self._count()
        self._rsmi.call("rsmi_shut_down")
        return None if count else Missing("no-gpu", "ROCm SMI works and counts no GPU")

    def open(self) -> None:
        if self._open:
            return
        self._rsmi.call("rsmi_init", c_uint64(0))
        self._open = True
        self._seen.clear()
        for index in range(self._count()):
            if self._rsmi.maybe("rsmi_event_notification_init", index):
                self._rsmi.maybe("rsmi_event_notification_mask_set", index, c_uint64(rsmi.EVENT_MASK))

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        for index in self._seen:
            self._rsmi.maybe("rsmi_event_notification_stop", index)
        self._rsmi.maybe("rsmi_shut_down")

    def driver(self) -> Driver:
        text, version = rsmi.text_buffer(), rsmi.Version()
        known = self._rsmi.maybe("rsmi_version_str_get", rsmi.DRIVER_VERSION, text, c_uint32(len(text)))
        library = ""
        if self._rsmi.maybe("rsmi_version_get", byref(version)):
            library = f"{version.major}.{version.minor}.{version.patch}"
        return Driver(text.value.decode() if known else "", library)

    def devices(self) -> tuple[Device, ...]:
        return tuple(self._device(index) for index in range(self._count()))

    def usage(self, uuid: str) -> Usage:
        index = self._index(uuid)
        memory, core, heat, power, kind = c_uint64(), c_uint32(), c_int64(), c_uint64(), c_int()
        maybe = self._rsmi.maybe
        return Usage(
            memory=memory.value if maybe("rsmi_dev_memory_usage_get", index, rsmi.VRAM, byref(memory)) else None,
            core=float(core.value) if maybe("rsmi_dev_busy_percent_get", index, byref(core)) else None,
            temperature=heat.value / 1000
            if maybe("rsmi_dev_temp_metric_get", index, rsmi.JUNCTION, rsmi.CURRENT, byref(heat))
            else None,
            power=power.value / 1e6 if maybe("rsmi_dev_power_get", index, byref(power), byref(kind)) else None,
        )

    def processes(self, uuid: str) -> tuple[Process, ...]:
        index, processes = self._index(uuid), []
        for pid in dict.fromkeys(self._pids()):
            info = rsmi.ProcessInfo()
            code = self._rsmi.code("rsmi_compute_process_info_by_device_get", c_uint32(pid), index, byref(info))
            if code == 0:
                processes.append(Process(pid, info.vram, float(info.cu_occupancy)))
            elif code != rsmi.NOT_FOUND:
                raise self._rsmi.error(code, "rsmi_compute_process_info_by_device_get")
        return tuple(processes)

    def health(self, uuid: str) -> Health:
        return self._health(self._index(uuid))

    def links(self) -> tuple[Link, ...]:
        devices = tuple(self._seen.values()) or self.devices()
        failed = {device.index for device in devices if self._xgmi_failed(device.index)}
        links: list[Link] = []
        for a in devices:
            for b in devices:
                hops, kind = c_uint64(), c_int()
                if a.uuid >= b.uuid or not self._rsmi.maybe(
                    "rsmi_topo_get_link_type", a.index, b.index, byref(hops), byref(kind)
                ):
                    continue
                if kind.value == rsmi.XGMI:
                    links.append(Link(a.uuid, b.uuid, "xgmi", 1, failed.isdisjoint({a.index, b.index})))
        return tuple(links)

    def events(self, timeout: float = 0.0) -> tuple[Event, ...]:
        rows, count = (rsmi.EventData * MAX_EVENTS)(), c_uint32(MAX_EVENTS)
        if self._rsmi.code("rsmi_event_notification_get", int(timeout * 1000), byref(count), rows):
            return ()
        return tuple(self._event(row) for row in rows[: count.value])

    # -- one GPU ------------------------------------------------------------------------------------------------------

    def _count(self) -> int:
        count = c_uint32()
        self._rsmi.call("rsmi_num_monitor_devices", byref(count))
        return count.value

    def _device(self, index: int) -> Device:
        try:
            device = self._seen[index] = self._read(index)
        except ProviderError as error:
            return unread_card(self.vendor, index, rsmi.failed_health(error.code), self._source, self._seen.get(index))
        return device

    def _read(self, index: int) -> Device:
        call = self._rsmi.call
        unique, place, memory, render = c_uint64(), c_uint64(), c_uint64(), c_uint32()
        name, serial = rsmi.text_buffer(), rsmi.text_buffer()
        call("rsmi_dev_memory_total_get", index, rsmi.VRAM, byref(memory))
        call("rsmi_dev_unique_id_get", index, byref(unique))
        call("rsmi_dev_pci_id_get", index, byref(place))
        call("rsmi_dev_drm_render_minor_get", index, byref(render))
        call("rsmi_dev_name_get", index, name, c_size_t(len(name)))
        known = self._rsmi.maybe("rsmi_dev_serial_number_get", index, serial, c_uint32(len(serial)))
        bus = rsmi.bus_address(place.value)
        minor, model = render.value - rsmi.FIRST_RENDER_MINOR, name.value.decode()
        return Device(
            vendor=self.vendor,
            kind="gpu",
            model=model,
            label=model_label(model),
            index=index,
            minor=minor,
            uuid=rsmi.uuid_text(unique.value),
            bus_id=bus,
            numa=self._numa(index, bus),
            pcie_root=self._pci.pcie_root(bus),
            memory=memory.value,
            health=self._health(index),
            card=index,
            serial=serial.value.decode() if known else "",
            nodes=rsmi.render_nodes(minor),
            source=self._source,
        )

    def _numa(self, index: int, bus: str) -> int | None:
        node = c_int32(-1)
        if self._rsmi.maybe("rsmi_topo_numa_affinity_get", index, byref(node)) and node.value >= 0:
            return node.value
        return self._pci.numa(bus)

    def _health(self, index: int) -> Health:
        memory, bad = c_uint64(), []
        code = self._rsmi.code("rsmi_dev_memory_total_get", index, rsmi.VRAM, byref(memory))  # reads sysfs each time
        if code:
            return rsmi.failed_health(code)
        for bit in range(len(rsmi.BLOCKS)):
            count = rsmi.ErrorCount()
            if self._rsmi.maybe("rsmi_dev_ecc_count_get", index, c_uint64(1 << bit), byref(count)):
                bad += [1 << bit] if count.uncorrectable else []
        return rsmi.ras_health(bad)

    def _xgmi_failed(self, index: int) -> bool:
        status = c_int()
        return self._rsmi.maybe("rsmi_dev_xgmi_error_status", index, byref(status)) and status.value != 0

    def _pids(self) -> list[int]:
        count = c_uint32()
        self._rsmi.call("rsmi_compute_process_info_get", None, byref(count))
        while count.value:
            count = c_uint32(count.value + 8)  # processes may start between the two calls
            rows: Any = (rsmi.ProcessInfo * count.value)()
            code = self._rsmi.code("rsmi_compute_process_info_get", rows, byref(count))
            if code == 0:
                return [row.pid for row in rows[: count.value]]
            if code != rsmi.INSUFFICIENT_SIZE:
                raise self._rsmi.error(code, "rsmi_compute_process_info_get")
        return []

    def _event(self, row: Any) -> Event:
        known = self._seen.get(row.device)
        code, severity = rsmi.EVENTS.get(row.event, (str(row.event), "info"))
        return Event(
            known.uuid if known else "",
            "fault",
            code,
            cast("Literal['info', 'warning', 'critical']", severity),
            on=row.event != rsmi.POST_RESET,
        )

    def _index(self, uuid: str) -> int:
        for index, known in self._seen.items():
            if known.uuid == uuid:
                return index
        for device in self.devices():
            if device.uuid == uuid:
                return device.index
        raise ProviderError(FailureKind.ABSENT, vendor=self.vendor, call=f"find {uuid}", code=rsmi.NOT_FOUND)
