"""The ABI of the stand-in libraries except NVML: names, sizes, versions, and loading by other processes."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.fake_devices import faults
from seatrial.fake_devices.build import compiler
from seatrial.harness.devices import cndev, dcmi, rsmi
from seatrial.harness.devices.tests.boundaries import LIBRARY_WAYS, Boundary, Way, cndev_library

WAYS: dict[str, Way] = {name: way for name, way in LIBRARY_WAYS.items() if name != "nvidia"}  # NVML has its own file
START = {"huawei": "dcmi_init()", "cambricon": "cndevInit(0)", "amd": "rsmi_init(0)"}
NAMES = {
    "huawei": (
        "dcmi_init",
        "dcmi_get_card_list",
        "dcmi_get_card_num_list",
        "dcmi_get_device_num_in_card",
        "dcmi_get_device_type",
        "dcmi_get_device_chip_info",
        "dcmi_get_device_pcie_info_v2",
        "dcmi_get_device_die_v2",
        "dcmi_get_device_logic_id",
        "dcmi_get_device_phyid_from_logicid",
        "dcmi_get_device_hbm_info",
        "dcmi_get_device_health",
        "dcmi_get_device_errorcode_v2",
        "dcmi_get_device_temperature",
        "dcmi_get_device_power_info",
        "dcmi_get_device_utilization_rate",
        "dcmi_get_topo_info_by_device_id",
        "dcmi_subscribe_fault_event",
        "dcmi_get_fault_event",
        "dcmi_create_vdevice",
        "dcmi_set_destroy_vdevice",
        "dcmi_get_device_info",
        "dcmi_get_driver_version",
        "dcmi_get_dcmi_version",
        "dcmi_get_device_resource_info",
    ),
    "cambricon": (
        "cndevInit",
        "cndevRelease",
        "cndevGetDeviceCount",
        "cndevGetUUID",
        "cndevGetCardSN",
        "cndevGetMemoryUsageV2",
        "cndevGetVersionInfo",
        "cndevGetCardHealthState",
        "cndevGetDeviceUtilizationInfo",
        "cndevGetPCIeInfoV2",
        "cndevGetMLULinkStatusV2",
        "cndevGetMLULinkRemoteInfo",
        "cndevGetTemperatureInfo",
        "cndevCreateSMluProfileInfo",
        "cndevCreateSMluInstanceByProfileId",
        "cndevDestroySMluInstanceByHandle",
        "cndevGetAllSMluInstanceInfo",
        "cndevGetSMluInstanceInfo",
    ),
    "amd": (
        "rsmi_init",
        "rsmi_shut_down",
        "rsmi_status_string",
        "rsmi_version_get",
        "rsmi_version_str_get",
        "rsmi_num_monitor_devices",
        "rsmi_dev_name_get",
        "rsmi_dev_serial_number_get",
        "rsmi_dev_unique_id_get",
        "rsmi_dev_pci_id_get",
        "rsmi_dev_id_get",
        "rsmi_dev_drm_render_minor_get",
        "rsmi_topo_numa_affinity_get",
        "rsmi_dev_memory_total_get",
        "rsmi_dev_memory_usage_get",
        "rsmi_dev_busy_percent_get",
        "rsmi_dev_temp_metric_get",
        "rsmi_dev_power_get",
        "rsmi_dev_ecc_count_get",
        "rsmi_compute_process_info_get",
        "rsmi_compute_process_info_by_device_get",
        "rsmi_topo_get_link_type",
        "rsmi_dev_xgmi_error_status",
        "rsmi_event_notification_init",
        "rsmi_event_notification_mask_set",
        "rsmi_event_notification_get",
        "rsmi_event_notification_stop",
    ),
}
HIDDEN = ("table_attach", "table_header", "table_ask", "dcmi_enter_chip", "cndev_enter", "rsmi_enter", "rsmi_positions")


@pytest.fixture(params=sorted(WAYS))
def boundary(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Boundary]:
    with WAYS[request.param](tmp_path) as boundary:
        yield boundary


def loaded(boundary: Boundary) -> ctypes.CDLL:
    return ctypes.CDLL(str(boundary.library))


def test_it_exports_the_vendor_s_names_and_nothing_of_ours(boundary: Boundary) -> None:
    library = loaded(boundary)
    missing = [name for name in NAMES[boundary.vendor] if not hasattr(library, name)]
    assert missing == []
    assert [name for name in HIDDEN if hasattr(library, name)] == []


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        *(pytest.param(kind, size, id=f"dcmi-{kind.__name__}") for kind, size in dcmi.SIZES.items()),
        *(pytest.param(kind, size, id=f"cndev-{kind.__name__}") for kind, size in cndev.SIZES.items()),
        *(pytest.param(kind, size, id=f"rsmi-{kind.__name__}") for kind, size in rsmi.SIZES.items()),
    ],
)
def test_the_provider_s_structures_are_as_large_as_the_vendor_s(kind: type[ctypes.Structure], size: int) -> None:
    """The C side asserts the same figures while it is compiled."""
    assert ctypes.sizeof(kind) == size


def test_nothing_answers_before_the_library_is_started(boundary: Boundary) -> None:
    library = loaded(boundary)
    count = ctypes.c_int(77)
    if boundary.vendor == "huawei":
        cards = (ctypes.c_int * dcmi.MAX_CARDS)()
        assert library.dcmi_get_card_list(ctypes.byref(count), cards, dcmi.MAX_CARDS) != 0
        assert count.value == 77
    elif boundary.vendor == "amd":
        assert library.rsmi_num_monitor_devices(ctypes.byref(count)) != 0
        assert count.value == 77
    else:
        info = cndev.CardInfo(version=cndev.VERSION, number=77)
        assert library.cndevGetDeviceCount(ctypes.byref(info)) != 0
        assert info.number == 77


def test_a_table_of_another_layout_is_not_read(boundary: Boundary) -> None:
    boundary.table.header.layout_hash += 1
    name, _, argument = START[boundary.vendor].rstrip(")").partition("(")
    assert getattr(loaded(boundary), name)(*map(int, argument)) != 0


@pytest.mark.parametrize("version", [0, 5, 7])
def test_an_unknown_version_is_refused_and_nothing_is_written(tmp_path: Path, version: int) -> None:
    """CNDEV's structures begin with the version that the caller speaks."""
    with cndev_library(tmp_path) as boundary:
        library = loaded(boundary)
        assert library.cndevInit(0) == 0
        info = cndev.CardHealthState(version=version)
        before = bytes(info)
        assert library.cndevGetCardHealthState(ctypes.byref(info), 0) == 3
        assert bytes(info) == before
        info.version = cndev.VERSION
        assert library.cndevGetCardHealthState(ctypes.byref(info), 0) == 0
        assert bytes(info) != before


HEALTH_IN_C = {
    "huawei": """
        #include <stdio.h>
        int dcmi_init(void); int dcmi_get_device_health(int, int, unsigned int *);
        int main(void) { unsigned int h = 99; if (dcmi_init()) return 2;
            int code = dcmi_get_device_health(CARD, 0, &h); printf("%d %u\\n", code, h); return 0; }
    """,
    "cambricon": """
        #include <stdio.h>
        struct health { int version, state; int more[2]; };
        int cndevInit(int); int cndevGetCardHealthState(struct health *, int);
        int main(void) { struct health h = {6, 99, {0, 0}}; if (cndevInit(0)) return 2;
            int code = cndevGetCardHealthState(&h, 0); printf("%d %d\\n", code, h.state); return 0; }
    """,
    "amd": """
        #include <stdint.h>
        #include <stdio.h>
        struct count { uint64_t correctable, uncorrectable; };
        int rsmi_init(uint64_t); int rsmi_dev_ecc_count_get(uint32_t, uint64_t, struct count *);
        int main(void) { struct count c = {99, 99}; if (rsmi_init(0)) return 2;
            int code = rsmi_dev_ecc_count_get(0, 4, &c); printf("%d %d\\n", code, (int)c.uncorrectable); return 0; }
    """,
}


def test_an_unmodified_c_program_sees_the_health_that_the_provider_sees(boundary: Boundary, tmp_path: Path) -> None:
    """Linked against the library's name, found by the loader's path; before and after a fault."""
    command = compiler()
    assert command is not None
    folder, source, program = Path(str(boundary.library)).parent, tmp_path / "ask.c", tmp_path / "ask"
    first = next(at for at, slot in enumerate(boundary.table.machine.slots) if slot.index == 0)
    source.write_text(HEALTH_IN_C[boundary.vendor].replace("CARD", str(boundary.table.devices[first].card)))
    subprocess.run([*command, str(source), "-o", str(program), str(boundary.library)], check=True, capture_output=True)

    def output() -> str:
        env = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
        return subprocess.run([str(program)], env=env, capture_output=True, text=True, check=True).stdout.strip()

    with boundary.provider() as provider:
        device = next(candidate for candidate in provider.devices() if candidate.index == 0)
        well, ill = {"huawei": ("0 0", "0 3"), "cambricon": ("0 1", "0 0"), "amd": ("0 0", "0 1")}[boundary.vendor]
        assert (output(), provider.health(device.uuid).ok) == (well, True)
        faults.apply(boundary.table, first, "critical", {}, now=1.0)
        assert (output(), provider.health(device.uuid).ok) == (ill, False)


def test_an_unmodified_python_process_loads_the_library(boundary: Boundary) -> None:
    """ctypes alone, by the name that the vendor's own bindings load."""
    name = {"huawei": "libdcmi.so", "cambricon": "libcndev.so", "amd": "librocm_smi64.so"}[boundary.vendor]
    script = f"import ctypes; l = ctypes.CDLL({name!r}); print(l.{START[boundary.vendor]})"
    env = {**os.environ, "LD_LIBRARY_PATH": str(Path(str(boundary.library)).parent)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr
