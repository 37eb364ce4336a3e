"""Shared regions as HAMi-core's releases lay them out, written by C structures field by field.

This module shares no code with the readers, so that tests of a reader compare two implementations. Structures follow
the order of fields in the library; their sizes and a few offsets are fixed by tests.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAGIC = 19920718
_MEMORY_KINDS = ("context", "module", "data", "offset", "total")
V0_BYTES = 1_197_897


class Use(ctypes.Structure):
    """Memory that one process uses on one card, in bytes by kind."""

    _fields_ = [*((name, ctypes.c_uint64) for name in _MEMORY_KINDS), ("spare", ctypes.c_uint64 * 3)]


class Utilisation(ctypes.Structure):
    """Utilisation that one process has of one card, in percent."""

    _fields_ = [
        ("decoder", ctypes.c_uint64),
        ("encoder", ctypes.c_uint64),
        ("sm", ctypes.c_uint64),
        ("spare", ctypes.c_uint64 * 3),
    ]


_BEFORE: list[Any] = [("pid", ctypes.c_int32), ("host_pid", ctypes.c_int32)]
_BOOKS: list[Any] = [
    ("used", Use * 16),
    ("monitor_used", ctypes.c_uint64 * 16),
    ("utilisation", Utilisation * 16),
    ("status", ctypes.c_int32),
]


class Slot11(ctypes.Structure):
    """The record of one process in regions of layout 1.1."""

    _fields_ = [*_BEFORE, *_BOOKS, ("spare", ctypes.c_uint64 * 3)]


class Slot281(ctypes.Structure):
    """The record of one process in regions of HAMi 2.8.1: layout 1.1 with a sequence number before the counters."""

    _fields_ = [*_BEFORE, ("sequence", ctypes.c_uint64), *_BOOKS, ("spare", ctypes.c_uint64 * 2)]


class Slot12(ctypes.Structure):
    """The record of one process in regions of layout 1.2."""

    _fields_ = [*_BEFORE, *_BOOKS, ("sequence", ctypes.c_uint64), ("spare", ctypes.c_uint64 * 2)]


_HEAD: list[Any] = [
    ("magic", ctypes.c_int32),
    ("major", ctypes.c_int32),
    ("minor", ctypes.c_int32),
    ("limiter", ctypes.c_int32),
    ("owner", ctypes.c_uint64),
    ("semaphore", ctypes.c_uint8 * 32),
]
_CARDS: list[Any] = [
    ("device_count", ctypes.c_uint64),
    ("uuids", (ctypes.c_char * 96) * 16),
    ("memory_limits", ctypes.c_uint64 * 16),
    ("core_limits", ctypes.c_uint64 * 16),
]
_TAIL: list[Any] = [
    ("process_count", ctypes.c_int32),
    ("switch", ctypes.c_int32),
    ("recent_kernel", ctypes.c_int32),
    ("priority", ctypes.c_int32),
    ("last_kernel", ctypes.c_uint64),
]


class Region11(ctypes.Structure):
    """A shared region of layout 1.1: limits of the cards and 1024 processes."""

    _fields_ = [*_HEAD, *_CARDS, ("slots", Slot11 * 1024), *_TAIL, ("unused", ctypes.c_uint64 * 4)]


class Region281(ctypes.Structure):
    """A shared region of HAMi 2.8.1: layout 1.1 with 32 more bytes after its head."""

    _fields_ = [
        *_HEAD,
        ("started", ctypes.c_uint8 * 32),
        *_CARDS,
        ("slots", Slot281 * 1024),
        *_TAIL,
        ("unused", ctypes.c_uint64 * 4),
    ]


class Region12(ctypes.Structure):
    """A shared region of layout 1.2."""

    _fields_ = [*_HEAD, *_CARDS, ("slots", Slot12 * 1024), *_TAIL, ("started", ctypes.c_uint8 * 32)]


RELEASES: dict[str, tuple[type[ctypes.Structure], int]] = {  # HAMi's release → structure, minor version in the file
    "v2.6.1": (Region11, 1),
    "v2.8.1": (Region281, 1),
    "v2.9.0": (Region12, 2),
}


@dataclass(frozen=True, slots=True)
class CardLimits:
    """One card of the container: bytes and percent; 0 is no limit."""

    uuid: str
    memory: int = 0
    cores: int = 0


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """One process: bytes by kind on each card, cores in percent on each card."""

    pid: int
    used: Sequence[dict[str, int]] = ()
    cores: Sequence[int] = ()
    host_pid: int = 0
    status: int = 1
    sequence: int = 0


def new_region(release: str, cards: Sequence[CardLimits], processes: Sequence[ProcessUsage] = ()) -> Any:
    """The structure of a release, filled; what has no argument here can be set on it."""
    kind, minor = RELEASES[release]
    region: Any = kind()
    region.magic, region.major, region.minor = MAGIC, 1, minor
    region.device_count, region.process_count = len(cards), len(processes)
    for number, limits in enumerate(cards):
        region.uuids[number].value = limits.uuid.encode()
        region.memory_limits[number], region.core_limits[number] = limits.memory, limits.cores
    for number, process in enumerate(processes):
        slot = region.slots[number]
        slot.pid, slot.host_pid, slot.status = process.pid, process.host_pid, process.status
        for card, amounts in enumerate(process.used):
            for name, value in amounts.items():
                setattr(slot.used[card], name, value)
            if "total" not in amounts:
                slot.used[card].total = sum(amounts.get(name, 0) for name in ("context", "module", "data"))
        for card, percent in enumerate(process.cores):
            slot.utilisation[card].sm = percent
        if hasattr(slot, "sequence"):
            slot.sequence = process.sequence
    return region


def write_region(path: Path, region: Any) -> None:
    """The file as the library leaves it: the structure and one byte more, open to all."""
    path.write_bytes(bytes(region) + b"\0")
    path.chmod(0o666)
