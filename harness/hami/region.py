"""Reads HAMi-core's shared region: memory and cores of one container's processes on each card. Takes no lock.

The library (`libvgpu.so`) maps one file a container, `CUDA_DEVICE_MEMORY_SHARED_CACHE`, and every process of the
container counts its use there. Layouts differ between releases, and one release writes a wrong version, so a layout is
identified by the file's size and then its version; any other file is refused.

Offsets: little endian, LP64, natural alignment. The file is one byte longer than the structure in it.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seatrial.harness.errors import DeviceError

MAGIC = 19920718
DEVICES, SLOTS, UUID_BYTES = 16, 1024, 96
SLOT_BYTES = 1960
USE_BYTES, UTILISATION_BYTES = 64, 48
V0_BYTES = 1_197_897
REREADS = 100  # of a slot that is being written; a writer needs microseconds

GONE, RUNNING, SWAPPED = 0, 1, 2


class RegionError(DeviceError):
    """A file is not a shared region that can be read."""


@dataclass(frozen=True, slots=True)
class Layout:
    """One layout. Offsets of the head are from the file's start, those of a slot from the slot's start."""

    name: str
    releases: str
    version: tuple[int, int]  # as written in the file
    bytes: int
    shift: int  # bytes of a second semaphore between version and devices
    used: int
    monitor_used: int
    utilisation: int
    status: int
    sequence: int | None  # the slot's sequence lock: odd while being written

    @property
    def count(self) -> int:
        return 56 + self.shift

    @property
    def uuids(self) -> int:
        return self.count + 8

    @property
    def limits(self) -> int:
        return self.uuids + DEVICES * UUID_BYTES

    @property
    def slots(self) -> int:
        return self.limits + 2 * 8 * DEVICES

    @property
    def tail(self) -> int:
        return self.slots + SLOTS * SLOT_BYTES


LAYOUTS = (
    Layout("1.1", "v2.4.1 to v2.8.0", (1, 1), 2_008_953, 0, 8, 1032, 1160, 1928, None),
    Layout("1.1 of v2.8.1", "v2.8.1", (1, 1), 2_008_985, 32, 16, 1040, 1168, 1936, 8),
    Layout("1.2", "v2.9.0 and later", (1, 2), 2_008_953, 0, 8, 1032, 1160, 1928, 1936),
)
_HEAD = struct.Struct("<iiiiQ")  # magic, major, minor, limiter started, owner of the semaphore
_TAIL = struct.Struct("<iiiiQ")  # process count, switch, recent kernel, priority, time of the last kernel
_USE = struct.Struct("<5Q")
_KNOWN = ", ".join(f"{layout.name} ({layout.bytes} bytes, HAMi {layout.releases})" for layout in LAYOUTS)


@dataclass(frozen=True, slots=True)
class Use:
    """One process's memory on one card, in bytes; `total` is what counts against the limit."""

    context: int = 0
    module: int = 0
    data: int = 0
    offset: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Tenant:
    """One process in its slot; amounts by the container's card number."""

    pid: int
    host_pid: int  # 0: the library did not find itself in NVML's list
    status: int
    used: tuple[Use, ...]
    seen: tuple[int, ...]  # bytes, as written by a monitor outside the container
    cores: tuple[int, ...]  # percent of time with a kernel, as sampled by the limiter


@dataclass(frozen=True, slots=True)
class Card:
    """The container's limits on one card: memory in bytes, 0 for none; cores in percent, 0 or 100 for none."""

    uuid: str
    memory_limit: int
    core_limit: int


@dataclass(frozen=True, slots=True)
class Region:
    """The content of one container's region at one moment."""

    layout: Layout
    cards: tuple[Card, ...]
    tenants: tuple[Tenant, ...]
    lock_owner: int  # pid, 0 while the semaphore is free
    switch: int  # whether the limiter is on; written by a monitor
    recent_kernel: int
    priority: int
    last_kernel: int  # seconds since 1970, 0 before the first

    def used(self, card: int) -> int:
        """Bytes that the container's processes hold, as the library counts them."""
        return sum(tenant.used[card].total for tenant in self.tenants)

    def parts(self, card: int) -> Use:
        """The same bytes by kind of memory."""
        all_ = [tenant.used[card] for tenant in self.tenants]
        return Use(
            sum(member.context for member in all_),
            sum(member.module for member in all_),
            sum(member.data for member in all_),
            sum(member.offset for member in all_),
            sum(member.total for member in all_),
        )

    def cores(self, card: int) -> int:
        """Percent of the card, summed over the container's processes."""
        return sum(tenant.cores[card] for tenant in self.tenants)


def read_region(path: Path) -> Region:
    """Read a region while its processes run.

    Raises:
        RegionError: the file cannot be read, is not a region, has an unknown layout, or changes in every attempt.
    """
    with _opened(path) as file:
        size = os.fstat(file).st_size
        layout = _layout(path, size, _bytes(path, file, 0, _HEAD.size))
        head = _bytes(path, file, 0, layout.slots)
        tail = _TAIL.unpack(_bytes(path, file, layout.tail, _TAIL.size))
        count = int.from_bytes(head[layout.count : layout.uuids], "little")
        if count > DEVICES:
            raise RegionError(f"region {path}: expected at most {DEVICES} devices, found {count}")
        slots, switch, recent, priority, last = tail
        if not 0 <= slots <= SLOTS:
            raise RegionError(f"region {path}: expected 0 to {SLOTS} processes, found {slots}")
        results = (_tenant(path, file, layout, number, count) for number in range(slots))
        # From v2.8.1 on a process that ends clears only its pid; its slot keeps the last amounts.
        tenants = [entry for entry in results if entry.pid]
    return Region(
        layout=layout,
        cards=_cards(head, layout, count),
        tenants=tuple(tenants),
        lock_owner=_HEAD.unpack_from(head)[4],
        switch=switch,
        recent_kernel=recent,
        priority=priority,
        last_kernel=last,
    )


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open for pread, not mapped: reading a map of a file that shrinks raises SIGBUS."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise RegionError(f"region {path}: {error.strerror}") from error
    try:
        yield file
    finally:
        os.close(file)


def _bytes(path: Path, file: int, offset: int, length: int) -> bytes:
    try:
        pread = os.pread(file, length, offset)
    except OSError as error:
        raise RegionError(f"region {path}: {error.strerror}") from error
    if len(pread) < length:
        raise RegionError(f"region {path}: expected {length} bytes at {offset}, found {len(pread)}")
    return pread


def _layout(path: Path, size: int, head: bytes) -> Layout:
    if size == V0_BYTES:
        raise RegionError(f"region {path}: expected a layout of {_KNOWN}, found one from before HAMi v2.4.1")
    magic, major, minor, *_ = _HEAD.unpack(head)
    if all(size != layout.bytes for layout in LAYOUTS):
        raise RegionError(f"region {path}: expected a layout of {_KNOWN}, found {size} bytes")
    if magic == 0:
        raise RegionError(f"region {path}: expected the magic number {MAGIC}, found 0: no process has finished it yet")
    if magic != MAGIC:
        raise RegionError(f"region {path}: expected the magic number {MAGIC}, found {magic}")
    for layout in LAYOUTS:
        if (layout.bytes, layout.version) == (size, (major, minor)):
            return layout
    raise RegionError(f"region {path}: expected a layout of {_KNOWN}, found version {major}.{minor} in {size} bytes")


def _cards(head: bytes, layout: Layout, count: int) -> tuple[Card, ...]:
    memory = struct.unpack_from(f"<{DEVICES}Q", head, layout.limits)
    cores = struct.unpack_from(f"<{DEVICES}Q", head, layout.limits + 8 * DEVICES)
    starts = [layout.uuids + number * UUID_BYTES for number in range(count)]
    return tuple(
        Card(head[start : start + UUID_BYTES].split(b"\0", 1)[0].decode(errors="replace"), memory[at], cores[at])
        for at, start in enumerate(starts)
    )


def _tenant(path: Path, file: int, layout: Layout, number: int, count: int) -> Tenant:
    raw = _slot(path, file, layout, number)
    pid, host_pid = struct.unpack_from("<ii", raw)
    return Tenant(
        pid=pid,
        host_pid=host_pid,
        status=struct.unpack_from("<i", raw, layout.status)[0],
        used=tuple(Use(*_USE.unpack_from(raw, layout.used + USE_BYTES * card)) for card in range(count)),
        seen=struct.unpack_from(f"<{count}Q", raw, layout.monitor_used),
        cores=tuple(
            struct.unpack_from("<Q", raw, layout.utilisation + UTILISATION_BYTES * card + 16)[0]
            for card in range(count)
        ),
    )


def _slot(path: Path, file: int, layout: Layout, number: int) -> bytes:
    """One slot, read consistently: with a sequence lock, the same even number before and after."""
    start = layout.slots + number * SLOT_BYTES
    if layout.sequence is None:
        return _bytes(path, file, start, SLOT_BYTES)
    for _ in range(REREADS):
        raw = _bytes(path, file, start, SLOT_BYTES)
        before = raw[layout.sequence : layout.sequence + 8]
        if before[0] % 2 == 0 and before == _bytes(path, file, start + layout.sequence, 8):
            return raw
    sequence = int.from_bytes(before, "little")
    raise RegionError(
        f"region {path}: slot {number}: expected an even sequence number that stays, found {sequence} moving or odd"
        f" in {REREADS} reads: its process died while writing, or writes without pause"
    )
