"""ROCm SMI's structures, codes and units, as rocm_smi.h has them (LP64), and their meaning. Tests check the sizes.

Bytes, millidegrees Celsius, microwatts. Device indices are counted by rsmi_init and fixed until the next one.
"""

import ctypes
from collections.abc import Iterable
from ctypes import Structure, c_char, c_char_p, c_int, c_uint32, c_uint64

from seatrial.harness.devices.provider import WELL, FailureKind, Health

LIBRARIES = ("librocm_smi64.so.7", "librocm_smi64.so", "/opt/rocm/lib/librocm_smi64.so")

DRIVER_VERSION = 0  # rsmi_sw_component_t
VRAM = 0  # rsmi_memory_type_t
JUNCTION, CURRENT = 1, 0  # rsmi_temperature_type_t, rsmi_temperature_metric_t
XGMI = 2  # RSMI_IO_LINK_TYPE
NOT_FOUND, INSUFFICIENT_SIZE = 10, 11
FILE_ERROR, BUSY = 3, 16
EVENTS = {  # rsmi_evt_notification_type_t → code of the neutral event, severity
    1: ("VmFault", "info"),
    2: ("ThermalThrottle", "warning"),
    3: ("GpuPreReset", "critical"),
    4: ("GpuPostReset", "info"),
    5: ("RingHang", "critical"),
}
EVENT_MASK = sum(1 << (event - 1) for event in EVENTS)
POST_RESET = 4
BLOCKS = (  # rsmi_gpu_block_t by bit
    "Umc",
    "Sdma",
    "Gfx",
    "Mmhub",
    "Athub",
    "PcieBif",
    "Hdp",
    "XgmiWafl",
    "Df",
    "Smn",
    "Sem",
    "Mp0",
    "Mp1",
    "Fuse",
)
FIRST_RENDER_MINOR = 128  # of /dev/dri/renderD…; the kernel's DRM_MINOR_RENDER

KINDS = {
    2: FailureKind.UNSUPPORTED,
    3: FailureKind.LOST,
    4: FailureKind.DENIED,
    5: FailureKind.BUSY,
    8: FailureKind.ABSENT,
    9: FailureKind.UNSUPPORTED,
    10: FailureKind.ABSENT,
    16: FailureKind.RESET_NEEDED,
}


class Version(Structure):
    """`rsmi_version_t`."""

    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("patch", c_uint32), ("build", c_char_p)]


class ErrorCount(Structure):
    """`rsmi_error_count_t`: ECC errors of one block."""

    _fields_ = [("correctable", c_uint64), ("uncorrectable", c_uint64)]


class ProcessInfo(Structure):
    """VRAM in bytes, SDMA in microseconds, occupancy of the compute units in percent."""

    _fields_ = [
        ("pid", c_uint32),
        ("pasid", c_uint32),
        ("vram", c_uint64),
        ("sdma", c_uint64),
        ("cu_occupancy", c_uint32),
    ]


class EventData(Structure):
    """`rsmi_evt_notification_data_t`: one event of a card."""

    _fields_ = [("device", c_uint32), ("event", c_int), ("message", c_char * 64)]


SIZES: dict[type[Structure], int] = {Version: 24, ErrorCount: 16, ProcessInfo: 32, EventData: 72}


def bus_address(bdf: int) -> str:
    """The bus address in a BDF id: domain in bits 32 to 63, bus in 8 to 15, device in 3 to 7, function in 0 to 2."""
    return f"{bdf >> 32:04x}:{bdf >> 8 & 0xFF:02x}:{bdf >> 3 & 0x1F:02x}.{bdf & 7:x}"


def uuid_text(unique_id: int) -> str:
    """A GPU's UUID as the ROCm runtime spells it, in `rocminfo` and in ROCR_VISIBLE_DEVICES."""
    return f"GPU-{unique_id:016x}"


def render_nodes(minor: int) -> tuple[str, ...]:
    """Device nodes of one GPU. Compute needs no other; the node card<n> is for displays."""
    return (f"/dev/dri/renderD{FIRST_RENDER_MINOR + minor}",)


def ras_health(blocks: Iterable[int]) -> Health:
    """Health from the blocks (bits of rsmi_gpu_block_t) with uncorrectable errors; a reset clears the counters."""
    first = min(blocks, default=0)
    if not first:
        return WELL
    bit = first.bit_length() - 1
    name = BLOCKS[bit] if bit < len(BLOCKS) else str(bit)
    return Health(ok=False, code=f"Ras{name}", message=f"uncorrectable RAS errors in block {name}", action="gpu-reset")


def failed_health(code: int) -> Health:
    """Health of a GPU whose calls fail with that status: out of the machine, in a reset, or unknown."""
    if code == FILE_ERROR:
        return Health(ok=False, code="GpuIsLost", message="GPU is lost")
    if code == BUSY:
        return Health(ok=False, code="GpuResetNeeded", message="GPU hangs until it is reset", action="gpu-reset")
    return Health(ok=False, code=f"RsmiStatus{code}", message=f"ROCm SMI answers {code}")


def text_buffer(size: int = 128) -> "ctypes.Array[c_char]":
    """Room for a text that the library writes."""
    return ctypes.create_string_buffer(size)
