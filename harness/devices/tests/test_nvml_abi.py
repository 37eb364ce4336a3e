"""What every NVML must keep, the real one included: counts, untouched outputs, version words, handles, waits.

Runs against the stand-in as a Python object and as a shared library. Structure sizes are compared with pynvml's own.
"""

import ctypes
import re
import subprocess
import sys
from collections.abc import Iterator
from ctypes import byref, c_uint, c_ulonglong, c_void_p
from pathlib import Path
from typing import Any

import pytest

from seatrial.fake_devices import faults
from seatrial.fake_devices.build import NO_COMPILER, compiler
from seatrial.harness.devices.nvml import Nvml
from seatrial.harness.devices.tests.boundaries import NVML_WAYS, Boundary

INSUFFICIENT_SIZE, TIMEOUT, LOST, VERSION_MISMATCH, UNINITIALIZED, INVALID = 7, 10, 15, 25, 1, 2


@pytest.fixture(params=sorted(NVML_WAYS))
def boundary(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Boundary]:
    with NVML_WAYS[request.param](tmp_path) as boundary:
        yield boundary


@pytest.fixture
def nvml(boundary: Boundary) -> Iterator[Any]:
    with Nvml(boundary.library) as nvml:
        nvml.nvmlInit()
        yield nvml
        nvml.nvmlShutdown()


def raw(nvml: Any, symbol: str) -> Any:
    """The library's function, below pynvml's conveniences."""
    return nvml._nvmlGetFunctionPointer(symbol)


def test_nothing_answers_before_the_library_is_started(boundary: Boundary) -> None:
    with Nvml(boundary.library) as nvml:
        count = c_uint(77)
        assert raw(nvml, "nvmlDeviceGetCount_v2")(byref(count)) == UNINITIALIZED
        assert count.value == 77


def test_start_and_stop_are_counted(boundary: Boundary) -> None:
    with Nvml(boundary.library) as nvml:
        nvml.nvmlInit()
        nvml.nvmlInit()
        nvml.nvmlShutdown()
        assert nvml.nvmlDeviceGetCount() == 8
        nvml.nvmlShutdown()
        with pytest.raises(nvml.NVMLError):
            nvml.nvmlDeviceGetCount()


def test_every_way_of_naming_a_card_leads_to_one_handle(nvml: Any) -> None:
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        bus = nvml.nvmlDeviceGetPciInfo(handle)
        names = [
            nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(handle)),
            nvml.nvmlDeviceGetHandleBySerial(nvml.nvmlDeviceGetSerial(handle)),
            nvml.nvmlDeviceGetHandleByPciBusId(bus.busId),
            nvml.nvmlDeviceGetHandleByPciBusId(bus.busIdLegacy),
            nvml.nvmlDeviceGetHandleByPciBusId(bus.busIdLegacy.lower()),
        ]
        addresses = {ctypes.cast(item, c_void_p).value for item in (handle, *names)}
        assert len(addresses) == 1
        assert nvml.nvmlDeviceGetIndex(handle) == index


def test_bus_addresses_have_both_widths_and_the_board_id_follows(nvml: Any) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    bus = nvml.nvmlDeviceGetPciInfo(handle)
    assert re.fullmatch(r"[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-7]", bus.busId)
    assert bus.busId[4:] == bus.busIdLegacy
    assert nvml.nvmlDeviceGetBoardId(handle) == bus.domain << 16 | bus.bus << 8 | bus.device << 3


@pytest.mark.parametrize("boundary", ["library"], indirect=True)
def test_the_architecture_follows_from_the_capability(nvml: Any) -> None:
    """Only other programs read it, and so only the library has it."""
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    architecture = c_uint()
    assert nvml.nvmlDeviceGetCudaComputeCapability(handle) == (9, 0)
    assert raw(nvml, "nvmlDeviceGetArchitecture")(handle, ctypes.byref(architecture)) == nvml.NVML_SUCCESS
    assert architecture.value == nvml.NVML_DEVICE_ARCH_HOPPER
    assert raw(nvml, "nvmlDeviceGetGpuInstanceProfileInfo")(handle, c_uint(0), ctypes.byref(architecture)) == (
        nvml.NVML_ERROR_NOT_SUPPORTED
    )


def test_an_unknown_name_finds_no_card(nvml: Any) -> None:
    for look_up, name in (
        (nvml.nvmlDeviceGetHandleByUUID, "GPU-0"),
        (nvml.nvmlDeviceGetHandleByPciBusId, "0000:ff:1f.0"),
        (nvml.nvmlDeviceGetHandleByPciBusId, "nonsense"),
        (nvml.nvmlDeviceGetHandleByIndex, 8),
    ):
        with pytest.raises(nvml.NVMLError):
            look_up(name)


def test_text_that_does_not_fit_is_not_cut(nvml: Any) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    buffer = ctypes.create_string_buffer(b"before", 8)
    assert raw(nvml, "nvmlDeviceGetUUID")(handle, buffer, c_uint(8)) == INSUFFICIENT_SIZE
    assert buffer.value == b"before"


def test_memory_adds_up_in_both_versions(nvml: Any) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    one = nvml.nvmlDeviceGetMemoryInfo(handle)
    two = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    assert one.total == one.free + one.used
    assert two.total == two.free + two.used + two.reserved
    assert one.total == two.total


def test_an_unknown_version_is_refused_and_nothing_is_written(nvml: Any) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    memory = nvml.c_nvmlMemory_v2_t()
    memory.version = 40 | 9 << 24
    memory.total = 4711
    assert raw(nvml, "nvmlDeviceGetMemoryInfo_v2")(handle, byref(memory)) == VERSION_MISMATCH
    assert memory.total == 4711


def test_processes_are_asked_for_twice(nvml: Any, boundary: Boundary) -> None:
    at = boundary.position(0)
    for pid, row in zip((100, 200, 300), boundary.table.processes, strict=False):
        row.device, row.used, row.sm, row.sampled_us, row.pid = at, pid << 20, pid // 10, 5, pid
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    count = c_uint(1)
    small = (nvml.c_nvmlProcessInfo_v3_t * 1)()
    assert raw(nvml, "nvmlDeviceGetComputeRunningProcesses_v3")(handle, byref(count), small) == INSUFFICIENT_SIZE
    assert (count.value, small[0].pid) == (3, 0)
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    assert [(entry.pid, entry.usedGpuMemory) for entry in processes] == [
        (100, 100 << 20),
        (200, 200 << 20),
        (300, 300 << 20),
    ]
    samples = nvml.nvmlDeviceGetProcessUtilization(handle, 0)
    assert [(sample.pid, sample.smUtil) for sample in samples] == [(100, 10), (200, 20), (300, 30)]
    assert nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(1)) == []


def test_a_probe_for_samples_is_answered_with_insufficient_size_even_where_there_are_none(nvml: Any) -> None:
    count = c_uint(0)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    answer = raw(nvml, "nvmlDeviceGetProcessUtilization")(handle, None, byref(count), c_ulonglong(0))
    assert (answer, count.value) == (INSUFFICIENT_SIZE, 0)


def test_topology_is_symmetric_and_nearest_agrees_with_it(nvml: Any) -> None:
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(8)]
    for a in handles:
        for b in handles:
            if a is not b:
                level = nvml.nvmlDeviceGetTopologyCommonAncestor(a, b)
                assert level == nvml.nvmlDeviceGetTopologyCommonAncestor(b, a)
                near = {
                    ctypes.cast(nvmldevicegettopologynearestgpu, c_void_p).value
                    for nvmldevicegettopologynearestgpu in nvml.nvmlDeviceGetTopologyNearestGpus(a, level)
                }
                assert ctypes.cast(b, c_void_p).value in near


def test_links_are_counted_by_asking(nvml: Any) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    ports = 0
    for port in range(36):
        try:
            ports += nvml.nvmlDeviceGetNvLinkState(handle, port)
        except nvml.NVMLError:
            break
        assert nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, port) == 2
        assert nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, port).bus
    assert ports == 18
    assert nvml.nvmlDeviceGetFieldValues(handle, [91])[0].value.uiVal == 18


def test_each_field_answers_for_itself(nvml: Any) -> None:
    good, bad = nvml.nvmlDeviceGetFieldValues(nvml.nvmlDeviceGetHandleByIndex(0), [230, 9999])
    assert (good.nvmlReturn, good.value.uiVal) == (0, 0)
    assert bad.nvmlReturn == 3


def test_ecc_counts_by_type_and_age(nvml: Any, boundary: Boundary) -> None:
    faults.apply(boundary.table, boundary.position(0), "ecc", {"corrected": 5, "uncorrected": 2}, now=1.0)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetTotalEccErrors(handle, 0, 0) == 5
    assert nvml.nvmlDeviceGetTotalEccErrors(handle, 1, 1) == 2
    assert nvml.nvmlDeviceGetRemappedRows(handle)[1:3] == (2, 1)
    assert nvml.nvmlDeviceGetFieldValues(handle, [4])[0].value.ullVal == 2


def test_a_lost_card_answers_lost_everywhere_and_is_still_counted(nvml: Any, boundary: Boundary) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(2)
    faults.apply(boundary.table, boundary.position(2), "lost", {}, now=1.0)
    assert nvml.nvmlDeviceGetCount() == 8
    name = ctypes.create_string_buffer(96)
    assert raw(nvml, "nvmlDeviceGetName")(handle, name, c_uint(96)) == LOST
    assert name.value == b""
    with pytest.raises(nvml.NVMLError_GpuIsLost):
        nvml.nvmlDeviceGetHandleByIndex(2)
    assert nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(3))


def test_a_removed_card_is_not_counted_and_the_others_move_up(nvml: Any, boundary: Boundary) -> None:
    third = nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(3))
    faults.apply(boundary.table, boundary.position(2), "remove", {}, now=1.0)
    assert nvml.nvmlDeviceGetCount() == 7
    assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(2)) == third


def test_each_event_set_sees_each_event_once_from_when_it_registered(nvml: Any, boundary: Boundary) -> None:
    at = boundary.position(1)
    boundary.table.event(at, type_=8, code=13, now=0.0)
    handle = nvml.nvmlDeviceGetHandleByIndex(1)
    sets = [nvml.nvmlEventSetCreate() for _ in range(2)]
    for event_set in sets:
        nvml.nvmlDeviceRegisterEvents(handle, 8, event_set)
    faults.apply(boundary.table, at, "critical", {"xid": 62}, now=1.0)
    for event_set in sets:
        data = nvml.nvmlEventSetWait_v2(event_set, 0)
        assert (data.eventType, data.eventData) == (8, 62)
        assert ctypes.cast(data.device, c_void_p).value == ctypes.cast(handle, c_void_p).value
        with pytest.raises(nvml.NVMLError_Timeout):
            nvml.nvmlEventSetWait_v2(event_set, 0)
        nvml.nvmlEventSetFree(event_set)


def test_other_devices_and_other_types_are_not_told(nvml: Any, boundary: Boundary) -> None:
    events = nvml.nvmlEventSetCreate()
    nvml.nvmlDeviceRegisterEvents(nvml.nvmlDeviceGetHandleByIndex(0), 8, events)
    boundary.table.event(boundary.position(1), type_=8, code=79, now=0.0)
    boundary.table.event(boundary.position(0), type_=2, code=0, now=0.0)
    with pytest.raises(nvml.NVMLError_Timeout):
        nvml.nvmlEventSetWait_v2(events, 0)


def test_a_type_that_is_not_offered_cannot_be_registered(nvml: Any) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetSupportedEventTypes(handle) & 8
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceRegisterEvents(handle, 1 << 40, nvml.nvmlEventSetCreate())


def test_a_driver_that_is_not_loaded_says_so_at_the_start(boundary: Boundary) -> None:
    boundary.table.header.libraries[0].code = 9
    with Nvml(boundary.library) as nvml, pytest.raises(nvml.NVMLError_DriverNotLoaded):
        nvml.nvmlInit()


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("nvmlPciInfo_t", 68),
        ("c_nvmlMemory_t", 24),
        ("c_nvmlMemory_v2_t", 40),
        ("c_nvmlUtilization_t", 8),
        ("c_nvmlProcessInfo_v3_t", 24),
        ("c_nvmlProcessUtilizationSample_t", 32),
        ("c_nvmlEventData_t", 32),
        ("c_nvmlFieldValue_t", 40),
        ("c_nvmlGpuInstanceInfo_t", 24),
    ],
)
def test_sizes_are_those_of_the_package_that_calls(name: str, size: int) -> None:
    import pynvml

    assert ctypes.sizeof(getattr(pynvml, name)) == size


class TestAsALibrary:
    """What only a file can show: names, other processes, copies."""

    @pytest.fixture
    def library(self, tmp_path: Path) -> Iterator[Boundary]:
        with NVML_WAYS["library"](tmp_path) as boundary:
            yield boundary

    def test_it_exports_versioned_and_plain_names_and_nothing_else(self, library: Boundary) -> None:
        loaded = ctypes.CDLL(str(library.library))
        for name in (
            "nvmlInit",
            "nvmlInit_v2",
            "nvmlInitWithFlags",
            "nvmlDeviceGetCount",
            "nvmlDeviceGetCount_v2",
            "nvmlDeviceGetHandleByIndex",
            "nvmlDeviceGetHandleByPciBusId",
            "nvmlDeviceGetPciInfo",
            "nvmlDeviceGetComputeRunningProcesses",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        ):
            assert getattr(loaded, name)
        for name in ("table_attach", "table_header", "nvml_enter"):
            assert not hasattr(loaded, name)

    def test_a_table_of_another_layout_is_not_read(self, library: Boundary) -> None:
        library.table.header.layout_hash += 1
        with Nvml(library.library) as nvml, pytest.raises(nvml.NVMLError_DriverNotLoaded):
            nvml.nvmlInit()

    def test_two_nodes_are_two_libraries(self, tmp_path: Path) -> None:
        with (
            NVML_WAYS["library"](tmp_path / "a") as a,
            NVML_WAYS["library"](tmp_path / "b", "a10-4") as b,
            Nvml(a.library) as first,
        ):
            first.nvmlInit()
            assert first.nvmlDeviceGetCount() == 8
            with Nvml(b.library) as second:
                second.nvmlInit()
                assert second.nvmlDeviceGetCount() == 4

    def test_an_unmodified_python_process_finds_it_by_the_loaders_path(self, library: Boundary) -> None:
        script = (
            "import pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(7);"
            "print(n.nvmlDeviceGetCount(), n.nvmlDeviceGetName(h), n.nvmlDeviceGetMinorNumber(h))"
        )
        folder = str(Path(str(library.library)).parent)
        done = subprocess.run(
            [sys.executable, "-c", script], env={"LD_LIBRARY_PATH": folder}, capture_output=True, text=True, check=False
        )
        assert done.stdout.split("\n")[0] == "8 NVIDIA H100 80GB HBM3 6", done.stderr

    def test_an_unmodified_c_program_sees_what_pynvml_sees(self, library: Boundary, tmp_path: Path) -> None:
        command = compiler()
        if command is None:
            pytest.skip(NO_COMPILER)
        source = tmp_path / "smi.c"
        source.write_text(C_PROGRAM)
        program = tmp_path / "smi"
        subprocess.run([*command, str(source), "-o", str(program), "-ldl"], check=True)
        folder = str(Path(str(library.library)).parent)
        done = subprocess.run(
            [str(program)], env={"LD_LIBRARY_PATH": folder}, capture_output=True, text=True, check=False
        )
        seen = done.stdout.splitlines()
        with Nvml(library.library) as nvml:
            nvml.nvmlInit()
            want = []
            for index in range(nvml.nvmlDeviceGetCount()):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                want.append(f"{nvml.nvmlDeviceGetUUID(handle)} {nvml.nvmlDeviceGetMemoryInfo(handle).total}")
            nvml.nvmlShutdown()
        assert seen == want

    def test_a_waiting_process_hears_of_a_fault_from_outside(self, library: Boundary) -> None:
        script = (
            "import pynvml as n; n.nvmlInit(); s = n.nvmlEventSetCreate();"
            "n.nvmlDeviceRegisterEvents(n.nvmlDeviceGetHandleByIndex(1), 8, s); print('ready', flush=True);"
            "print(n.nvmlEventSetWait_v2(s, 20000).eventData)"
        )
        folder = str(Path(str(library.library)).parent)
        child = subprocess.Popen(
            [sys.executable, "-c", script], env={"LD_LIBRARY_PATH": folder}, stdout=subprocess.PIPE, text=True
        )
        with child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            faults.apply(library.table, library.position(1), "critical", {"xid": 119}, now=1.0)
            assert child.stdout.readline() == "119\n"


C_PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>
typedef struct { unsigned long long total, free, used; } Memory;
int main(void)
{
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
    if (!nvml) { puts(dlerror()); return 1; }
    int (*start)(void) = dlsym(nvml, "nvmlInit_v2");
    int (*count)(unsigned *) = dlsym(nvml, "nvmlDeviceGetCount_v2");
    int (*get)(unsigned, void **) = dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
    int (*uuid)(void *, char *, unsigned) = dlsym(nvml, "nvmlDeviceGetUUID");
    int (*memory)(void *, Memory *) = dlsym(nvml, "nvmlDeviceGetMemoryInfo");
    unsigned devices = 0;
    if (start() || count(&devices)) return 2;
    for (unsigned at = 0; at < devices; at++) {
        void *handle;
        char text[96];
        Memory m;
        if (get(at, &handle) || uuid(handle, text, sizeof text) || memory(handle, &m)) return 3;
        printf("%s %llu\n", text, m.total);
    }
    return 0;
}
"""
