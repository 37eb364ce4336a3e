"""DCMI's structures and codes, as the vendor's header has them (LP64). Sizes are checked by tests.

The structures carry no version, and some grew over the years under one name: buffers handed in are of the largest known
layout, and only the fields of the smallest are read.
"""

import ctypes
from ctypes import Structure, c_char, c_float, c_int, c_ubyte, c_uint, c_ulong, c_ulonglong, c_ushort

from seatrial.harness.devices.provider import WELL, FailureKind, Health

LIBRARIES = ("libdcmi.so", "/usr/local/Ascend/driver/lib64/driver/libdcmi.so", "/usr/local/dcmi/libdcmi.so")
MAX_CARDS = 64
NPU = 0
VDIE = 1
USE_AICORE = 2
TIMEOUT = -8006
VNPU, VNPU_ONE, VNPU_TOTAL, VNPU_FREE = 52, 0, 1, 2
CHOOSE = 0xFFFFFFFF
MINOR_FAULT = 1  # health 1 is a warning; from 2 on a device leaves the pool
GONE = 0xFFFFFFFF  # health of a chip that is not there

KINDS = {
    -8002: FailureKind.DENIED,
    -8005: FailureKind.UNKNOWN,
    -8006: FailureKind.TIMEOUT,
    -8007: FailureKind.ABSENT,
    -8008: FailureKind.LOST,
    -8012: FailureKind.LOST,
    -8013: FailureKind.UNSUPPORTED,
    -8015: FailureKind.RESET_NEEDED,
    -8017: FailureKind.RESET_NEEDED,
    -8020: FailureKind.BUSY,
    -8022: FailureKind.BUSY,
    -8255: FailureKind.UNSUPPORTED,
}


class ChipInfo(Structure):
    """`dcmi_chip_info`: type, name and number of AI cores."""

    _fields_ = [("type", c_char * 32), ("name", c_char * 32), ("version", c_char * 32), ("aicores", c_uint)]


class ChipInfoV2(Structure):
    """`dcmi_chip_info_v2`: also the name of the NPU."""

    _fields_ = [("base", ChipInfo), ("npu_name", c_char * 32)]


class PcieInfo(Structure):
    """`dcmi_pcie_info_all`: PCI IDs and address."""

    _fields_ = [
        ("vendor", c_uint),
        ("subvendor", c_uint),
        ("device", c_uint),
        ("subdevice", c_uint),
        ("domain", c_int),
        ("bus", c_uint),
        ("dev", c_uint),
        ("func", c_uint),
        ("reserved", c_int * 8),
    ]


class DieId(Structure):
    """`dcmi_die_id`: five words that identify the die."""

    _fields_ = [("word", c_uint * 5)]


class HbmInfo(Structure):
    """Sizes in MB."""

    _fields_ = [
        ("size", c_ulonglong),
        ("freq", c_uint),
        ("used", c_ulonglong),
        ("temperature", c_int),
        ("bandwidth", c_uint),
    ]


class ProcMem(Structure):
    """`dcmi_proc_mem_info`: memory of one process, in bytes."""

    _fields_ = [("pid", c_int), ("bytes", c_ulong)]


class CreateRes(Structure):
    """`dcmi_create_vdev_res_stru`: the template for a vNPU."""

    _fields_ = [("vdev_id", c_uint), ("vfg_id", c_uint), ("template", c_char * 32), ("reserved", c_ubyte * 64)]


class CreateOut(Structure):
    """`dcmi_create_vdev_out`: the vNPU that was created."""

    _fields_ = [
        ("vdev_id", c_uint),
        ("domain", c_uint),
        ("bus", c_uint),
        ("dev", c_uint),
        ("func", c_uint),
        ("vfg_id", c_uint),
        ("reserved", c_ubyte * 28),
    ]


class BaseResource(Structure):
    """`dcmi_base_resource`: eight words that are not read here."""

    _fields_ = [("words", c_ulonglong * 8)]


class Computing(Structure):
    """`dcmi_computing_resource`: AI cores, vector cores and memory in MiB of a vNPU or chip."""

    _fields_ = [
        ("aicore", c_float),
        ("reserved0", c_float * 3),
        ("vector", c_float),
        ("reserved1", c_float),
        ("memory_mb", c_ulonglong),
        ("reserved2", c_ubyte * 22),
        ("aicpu", c_ushort),
        ("reserved3", c_ubyte * 40),
    ]


class SocTotal(Structure):
    """`dcmi_soc_total_resource`: the vNPUs of a chip and all that it has."""

    _fields_ = [
        ("vdev_num", c_uint),
        ("vdev_id", c_uint * 32),
        ("vfg_num", c_uint),
        ("vfg_bitmap", c_uint),
        ("pad", c_uint),
        ("base", BaseResource),
        ("computing", Computing),
        ("media", c_ubyte * 56),
    ]


class VdevQuery(Structure):
    """`dcmi_vdev_query_info`: the state and the resources of one vNPU."""

    _fields_ = [
        ("name", c_char * 16),
        ("status", c_uint),
        ("in_use", c_uint),
        ("vfid", c_uint),
        ("vfg_id", c_uint),
        ("container_id", c_ulonglong),
        ("base", BaseResource),
        ("computing", Computing),
        ("media", c_ubyte * 56),
    ]


class VdevQueryRequest(Structure):
    """A query for one vNPU: its id, then room for the answer."""

    _fields_ = [("vdev_id", c_uint), ("pad", c_uint), ("query", VdevQuery)]


class FaultEvent(Structure):
    """`dcmi_dms_fault_event`: one fault that occurred or ended."""

    _fields_ = [
        ("event_id", c_uint),
        ("device", c_ushort),
        ("node", c_ubyte * 4),
        ("severity", c_ubyte),
        ("assertion", c_ubyte),
        ("serial", c_int),
        ("notify", c_int),
        ("time", c_ulonglong),
        ("name", c_char * 256),
        ("info", c_ubyte * 64),
    ]


class Event(Structure):
    """`dcmi_event`: the envelope of a fault event."""

    _fields_ = [("type", c_uint), ("pad", c_uint), ("fault", FaultEvent), ("room", c_ubyte * 256)]


SIZES: dict[type[Structure], int] = {
    ChipInfo: 100,
    ChipInfoV2: 132,
    PcieInfo: 64,
    DieId: 20,
    HbmInfo: 32,
    ProcMem: 16,
    CreateRes: 104,
    CreateOut: 52,
    Computing: 96,
    SocTotal: 360,
    VdevQuery: 256,
    VdevQueryRequest: 264,
    FaultEvent: 352,
}


def die_text(die: DieId) -> str:
    """The chip's identity as HAMi and the vendor's plugin print it: five words in hexadecimal."""
    return "-".join(f"{word:08X}" for word in die.word)


def sizes() -> dict[str, int]:
    """Sizes of the structures in this interpreter."""
    return {size.__name__: ctypes.sizeof(size) for size in SIZES}


def dcmi_health(scale: int, code: int) -> Health:
    """Health of an Ascend chip from DCMI's scale: 0 healthy, 1 minor, 2 major, 3 critical, all ones: absent."""
    if scale <= MINOR_FAULT:
        return WELL
    name = f"0x{code:08X}" if code else f"health{scale if scale != GONE else 'Gone'}"
    return Health(ok=False, code=name, message="chip error" if scale != GONE else "chip is not there")


def davinci_nodes(minor: int) -> tuple[str, ...]:
    """Device nodes of one NPU."""
    return (f"/dev/davinci{minor}",)
