"""The memory layout of a device table. Python and the C stand-ins share this description.

The C header is generated from these structures (`c_header`). A table starts with a hash of the layout, and a library
that was compiled with another hash refuses to read it.

Every record begins with `lock`, a sequence lock: it is odd during a write. A reader that finds it odd, or changed after
reading, reads again. All sizes are multiples of eight, so there is no implicit padding.
"""

import ctypes
import hashlib
from ctypes import Structure, c_char, c_int32, c_int64, c_uint32, c_uint64
from functools import cache
from typing import Any

MAGIC = 0x4C42415456454453  # "SDEVTABL" read as little-endian
LAYOUT = 1

MAX_VENDORS = 8  # places for libraries in the header; `Hardware.code` is a vendor's place
KIND_ACCELERATOR, KIND_NIC = 0, 1
PEER_SWITCH = -1
SLICE_INSTANCE, SLICE_COMPUTE, SLICE_VNPU, SLICE_SMLU = 0, 1, 2, 3

# Values of `DeviceRecord.present`.
PRESENT, REMOVED = 1, 0


class Section(Structure):
    """The records of one kind: offset of the first, bytes per record, number in use, number of places."""

    offset: int
    stride: int
    count: int
    room: int
    _fields_ = [
        ("offset", c_uint64),
        ("stride", c_uint32),
        ("count", c_uint32),
        ("room", c_uint32),
        ("spare", c_uint32),
    ]


class Library(Structure):
    """One vendor's driver and library. `code` is the return code of its start call; `delay_ms` delays every call."""

    code: int
    delay_ms: int
    runtime: int
    _fields_ = [
        ("code", c_int32),
        ("delay_ms", c_uint32),
        ("runtime", c_int32),
        ("spare", c_uint32),
        ("driver", c_char * 48),
        ("library", c_char * 48),
        ("hang", c_char * 64),
    ]


class Header(Structure):
    """The start of a table."""

    magic: int
    layout_hash: int
    layout: int
    lock: int
    bytes: int
    generation: int
    event_head: int
    devices: Section
    links: Section
    processes: Section
    slices: Section
    events: Section
    _fields_ = [
        ("magic", c_uint64),
        ("layout_hash", c_uint64),
        ("layout", c_uint32),
        ("lock", c_uint32),
        ("bytes", c_uint64),
        ("generation", c_uint64),
        ("event_head", c_uint64),  # sequence number of the next event
        ("writer_beat", c_uint64),  # the writer's monotonic milliseconds; stale: the mailbox is not answered
        ("libraries", Library * MAX_VENDORS),
        ("devices", Section),
        ("links", Section),
        ("processes", Section),
        ("slices", Section),
        ("events", Section),
        ("mailbox_offset", c_uint64),
        ("spare", c_uint64 * 8),
    ]


class DeviceRecord(Structure):
    """One device. Bytes, °C, milliwatts, percent; the stand-in library converts to the vendor's units."""

    _fields_ = [
        ("lock", c_uint32),
        ("vendor", c_uint32),
        ("kind", c_uint32),
        ("present", c_uint32),
        ("code", c_int32),  # return code of every call on the device; 0: the call succeeds
        ("delay_ms", c_uint32),
        ("index", c_int32),
        ("minor", c_int32),
        ("card", c_int32),
        ("chip", c_int32),
        ("numa", c_int32),
        ("slice_capable", c_uint32),
        ("domain", c_uint32),
        ("bus", c_uint32),
        ("device", c_uint32),
        ("function", c_uint32),
        ("pci_id", c_uint32),
        ("pci_subsystem", c_uint32),  # device << 16 | vendor
        ("switch_bus", c_uint32),
        ("switch_spare", c_uint32),
        ("name", c_char * 96),
        ("uuid", c_char * 80),
        ("serial", c_char * 32),
        ("root", c_char * 24),
        ("memory_total", c_uint64),
        ("memory_reserved", c_uint64),
        ("memory_used", c_uint64),
        ("core_use", c_uint32),
        ("memory_use", c_uint32),  # percent
        ("cores", c_uint32),
        ("cpus", c_uint32),
        ("temperature", c_int32),
        ("slowdown_temperature", c_int32),
        ("shutdown_temperature", c_int32),
        ("clock_mhz", c_uint32),
        ("clock_max_mhz", c_uint32),
        ("spare0", c_uint32),
        ("power_mw", c_uint32),
        ("power_limit_mw", c_uint32),
        ("throttle", c_uint64),  # the vendor's own bits
        ("ecc_mode", c_uint32),
        ("slice_mode", c_uint32),
        ("ecc_corrected", c_uint64),
        ("ecc_uncorrected", c_uint64),  # since the driver was loaded
        ("ecc_corrected_ever", c_uint64),
        ("ecc_uncorrected_ever", c_uint64),
        ("remapped", c_uint32 * 4),  # corrected, uncorrected, pending, failed
        ("health", c_uint32),  # the vendor's scale: in DCMI 0 is healthy, in CNDEV 1
        ("driver_state", c_uint32),  # CNDEV's
        ("recovery_action", c_uint32),
        ("error_count", c_uint32),
        ("error_codes", c_uint32 * 8),
        ("capability_major", c_uint32),
        ("capability_minor", c_uint32),
        ("link_count", c_uint32),
        ("model_code", c_uint32),
        ("port_state", c_uint32),
        ("port_phys_state", c_uint32),
        ("rate_gbps", c_uint32),
        ("link_layer", c_uint32),
        ("guid", c_uint64),
        ("vfs_total", c_uint32),
        ("vfs_enabled", c_uint32),
        ("uverbs", c_uint32),
        ("ifindex", c_uint32),
        ("ibdev", c_char * 24),
        ("netdev", c_char * 24),
        ("firmware", c_char * 24),
        ("board", c_char * 24),
    ]


class LinkRecord(Structure):
    """One port of a device. Errors: replays, recoveries, CRC flits, CRC data."""

    _fields_ = [
        ("lock", c_uint32),
        ("device", c_uint32),
        ("port", c_uint32),
        ("peer", c_int32),
        ("up", c_uint32),
        ("kind", c_uint32),
        ("errors", c_uint64 * 4),
    ]


class ProcessRecord(Structure):
    """A process on a device; pid 0: a free record. Use in percent, `sampled_us` in microseconds since 1970."""

    _fields_ = [
        ("lock", c_uint32),
        ("pid", c_uint32),
        ("device", c_uint32),
        ("slice", c_uint32),
        ("used", c_uint64),
        ("sm", c_uint32),
        ("memory", c_uint32),
        ("encoder", c_uint32),
        ("decoder", c_uint32),
        ("sampled_us", c_uint64),
        ("name", c_char * 64),
    ]


class SliceRecord(Structure):
    """A slice of a device: MIG instance, vNPU, sMLU; id 0: a free record.

    `start`, `size`: of a MIG instance, in eighths of the card's memory. `engines`: one byte for each number of
    `SliceProfile.engines`, the first is the lowest.
    """

    _fields_ = [
        ("lock", c_uint32),
        ("id", c_uint32),
        ("device", c_uint32),
        ("kind", c_uint32),
        ("parent", c_uint32),
        ("profile", c_uint32),
        ("start", c_uint32),
        ("size", c_uint32),
        ("memory", c_uint64),
        ("memory_used", c_uint64),
        ("cores", c_uint32),
        ("cpus", c_uint32),
        ("number", c_uint32),
        ("engines", c_uint32),
        ("uuid", c_char * 80),
        ("name", c_char * 32),
        ("label", c_char * 64),
    ]


class EventRecord(Structure):
    """An event of a device. `assertion`: 1 began, 0 ended, 2 one-off. Time in µs since 1970."""

    _fields_ = [
        ("sequence", c_uint64),
        ("device", c_uint32),
        ("severity", c_uint32),
        ("type", c_uint64),
        ("code", c_uint64),
        ("time_us", c_int64),
        ("assertion", c_uint32),
        ("spare", c_uint32),
    ]


class Mailbox(Structure):
    """A request for a change: the consumer fills it in and sets `state` to ASKED; the writer answers."""

    _fields_ = [
        ("state", c_uint32),
        ("operation", c_uint32),
        ("device", c_uint32),
        ("answer", c_int32),
        ("arguments", c_uint64 * 8),
        ("results", c_uint64 * 8),
        ("text", c_char * 128),
    ]


MAILBOX_FREE, MAILBOX_FILLING, MAILBOX_ASKED, MAILBOX_ANSWERED = 0, 1, 2, 3
OPERATIONS = {"set_slice_mode": 1, "create_slice": 2, "destroy_slice": 3, "create_profile": 4, "destroy_profile": 5}

STRUCTURES: tuple[type[Structure], ...] = (
    Section,
    Library,
    Header,
    DeviceRecord,
    LinkRecord,
    ProcessRecord,
    SliceRecord,
    EventRecord,
    Mailbox,
)

_C_NAMES: dict[Any, str] = {
    c_uint32: "uint32_t",
    c_int32: "int32_t",
    c_uint64: "uint64_t",
    c_int64: "int64_t",
    c_char: "char",
}


@cache
def layout_hash() -> int:
    """A hash of all structures, field names and types included."""
    return int.from_bytes(hashlib.sha256(_structures().encode()).digest()[:8], "little")


@cache
def c_header() -> str:
    """The header that the C stand-ins are compiled with; sizes are asserted at compile time."""
    asserts = "\n".join(
        f'_Static_assert(sizeof(struct {structure.__name__}) == {ctypes.sizeof(structure)}, "{structure.__name__}");'
        for structure in STRUCTURES
    )
    return f"""/* Written by fake_devices/layout.py; do not edit. */
#ifndef DEVICE_TABLE_H
#define DEVICE_TABLE_H
#include <stdint.h>
#define TABLE_MAGIC {MAGIC:#x}ull
#define TABLE_LAYOUT {LAYOUT}u
#define TABLE_HASH {layout_hash():#x}ull
{_structures()}
{asserts}
#endif
"""


def _structures() -> str:
    return "\n".join(_structure(structure) for structure in STRUCTURES)


def _structure(structure: type[Structure]) -> str:
    fields = "\n".join(f"    {_c_field(name, kind)};" for name, kind, *_ in structure._fields_)
    return f"struct {structure.__name__} {{\n{fields}\n}};"


def _c_field(name: str, kind: Any) -> str:
    if hasattr(kind, "_length_"):
        return f"{_c_type(kind._type_)} {name}[{kind._length_}]"
    return f"{_c_type(kind)} {name}"


def _c_type(kind: Any) -> str:
    return _C_NAMES.get(kind, f"struct {kind.__name__}")
