"""DeviceTable: the present state of a node's devices. It is the only state; stand-in libraries read it.

A table is in ordinary memory or in a file that other processes map (`path`). This process is its only writer; consumers
request changes through the mailbox (see `mailbox.py`).
"""

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, TypeVar

from seatrial.fake_devices.facts import AcceleratorFacts, NicFacts
from seatrial.fake_devices.layout import (
    KIND_ACCELERATOR,
    KIND_NIC,
    LAYOUT,
    MAGIC,
    PRESENT,
    DeviceRecord,
    EventRecord,
    Header,
    LinkRecord,
    Mailbox,
    ProcessRecord,
    Section,
    SliceRecord,
    layout_hash,
)
from seatrial.fake_devices.machine import Identity, Machine, Slot, identity

R = TypeVar("R", bound=ctypes.Structure)

_NIC_ACTIVE, _NIC_LINK_UP = 4, 5
_LINK_LAYERS = {"InfiniBand": 1, "Ethernet": 2}
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Room:
    """Numbers of places for records. The defaults are for fleets, whose tables are read by Python alone."""

    processes: int = 0
    slices: int = 0
    events: int = 16


FULL = Room(processes=256, slices=128, events=256)


class DeviceTable:
    """One node's devices, in the layout of `layout.py`."""

    def __init__(self, buffer: bytearray | mmap.mmap, machine: Machine, node: str) -> None:
        self.machine = machine
        self.node = node
        self.overlays: dict[int, list[Any]] = {}  # by position: the active faults, oldest first
        self._buffer = buffer
        self.header = Header.from_buffer(buffer)
        self.devices = self._records(self.header.devices, DeviceRecord)
        self.links = self._records(self.header.links, LinkRecord)
        self.processes = self._records(self.header.processes, ProcessRecord, room=True)
        self.slices = self._records(self.header.slices, SliceRecord, room=True)
        self.events = self._records(self.header.events, EventRecord, room=True)
        self.mailbox = Mailbox.from_buffer(buffer, self.header.mailbox_offset)

    @classmethod
    def create(
        cls, machine: Machine, node: str, *, seed: int = 0, room: Room = Room(), path: Path | None = None
    ) -> Self:
        """A table of `machine` with healthy, idle devices, in memory or in a new file at `path`."""
        template = _template(machine, room)
        if path is None:
            buffer: bytearray | mmap.mmap = bytearray(template)
        else:
            path.write_bytes(template)
            with path.open("r+b") as file:
                buffer = mmap.mmap(file.fileno(), len(template))
        table = cls(buffer, machine, node)
        for slot, record in zip(machine.slots, table.devices, strict=True):
            _identify(record, slot, identity(node, slot, seed=seed))
        return table

    def close(self) -> None:
        """Release the memory; the table must not be used afterwards."""
        self.devices, self.links, self.processes, self.slices, self.events = (), (), (), (), ()
        del self.header, self.mailbox
        if isinstance(self._buffer, mmap.mmap):
            self._buffer.close()

    def __iter__(self) -> Iterator[tuple[Slot, DeviceRecord]]:
        return zip(self.machine.slots, self.devices, strict=True)

    def position(self, name: str) -> int | None:
        """Position of the device with that UUID or bus address; None if there is none."""
        kind = name.lower()
        for position, (slot, record) in enumerate(self):
            if kind in {slot.bus, record.uuid.decode().lower()}:
                return position
        return None

    @contextmanager
    def writing(self, record: R) -> Iterator[R]:
        """Hold the record's sequence lock, so that readers see all changes or none."""
        record.lock += 1
        try:
            yield record
        finally:
            record.lock += 1
            self.header.generation += 1

    def event(self, position: int, *, type_: int, code: int, now: float, severity: int = 0, assertion: int = 2) -> None:
        """Write an event of a device to the ring; `now` in seconds since 1970."""
        sequence = self.header.event_head
        slot = self.events[sequence % len(self.events)]
        slot.device, slot.type, slot.code = position, type_, code
        slot.severity, slot.assertion, slot.time_us = severity, assertion, int(now * 1e6)
        slot.sequence = sequence
        self.header.event_head = sequence + 1
        self.header.generation += 1

    def _records(self, section: Section, kind: type[R], *, room: bool = False) -> Sequence[R]:
        count = section.room if room else section.count
        return (kind * count).from_buffer(self._buffer, section.offset)  # type: ignore[return-value]


@lru_cache(maxsize=256)
def _template(machine: Machine, room: Room) -> bytes:
    """The bytes of a machine's table, without the values that `identity` gives."""
    kinds: list[tuple[str, type[ctypes.Structure], int, int]] = [
        ("devices", DeviceRecord, len(machine.slots), len(machine.slots)),
        ("links", LinkRecord, len(machine.links), len(machine.links)),
        ("processes", ProcessRecord, 0, room.processes),
        ("slices", SliceRecord, 0, room.slices),
        ("events", EventRecord, 0, room.events),
    ]
    header = Header(magic=MAGIC, layout_hash=layout_hash(), layout=LAYOUT, event_head=1)
    offset = ctypes.sizeof(Header)
    for name, kind, count, places in kinds:
        setattr(header, name, Section(offset=offset, stride=ctypes.sizeof(kind), count=count, room=places))
        offset += ctypes.sizeof(kind) * places
    header.mailbox_offset = offset
    header.bytes = offset + ctypes.sizeof(Mailbox)
    for slot in machine.slots:
        hardware, facts = slot.model.hardware, slot.model.facts
        library = header.libraries[hardware.code]
        library.driver, library.library = facts.driver.encode(), facts.library.encode()
        library.runtime = hardware.runtime(facts)
    content = bytearray(header.bytes)
    content[: ctypes.sizeof(Header)] = bytes(header)
    for position, slot in enumerate(machine.slots):
        _describe(DeviceRecord.from_buffer(content, header.devices.offset + position * header.devices.stride), slot)
    for number, link in enumerate(machine.links):
        record = LinkRecord.from_buffer(content, header.links.offset + number * header.links.stride)
        record.device, record.port, record.peer, record.up = link.slot, link.port, link.peer, 1
        record.kind = machine.slots[link.slot].model.hardware.code
    return bytes(content)


def _describe(record: Any, slot: Slot) -> None:
    """Write the facts that come from a device's model and place."""
    facts = slot.model.facts
    record.vendor = slot.model.hardware.code
    record.present = PRESENT
    record.index, record.minor, record.card, record.chip = slot.index, slot.minor, slot.card, slot.chip
    record.numa = slot.numa
    domain, bus, rest = slot.bus.split(":")
    device, function = rest.split(".")
    record.domain, record.bus = int(domain, 16), int(bus, 16)
    record.device, record.function = int(device, 16), int(function, 16)
    record.pci_id, record.pci_subsystem = _pci(facts.pci), _pci(facts.subsystem)
    record.switch_bus = int(slot.switch.split(":")[1], 16) if slot.switch else 0
    record.name, record.root = facts.name.encode(), slot.root.encode()
    if isinstance(facts, AcceleratorFacts):
        record.kind = KIND_ACCELERATOR
        record.memory_total, record.memory_reserved = facts.memory, facts.reserved
        record.cores, record.link_count = facts.cores, facts.links
        record.temperature = facts.idle_temperature
        record.slowdown_temperature, record.shutdown_temperature = (
            facts.slowdown_temperature,
            facts.shutdown_temperature,
        )
        record.power_mw, record.power_limit_mw = facts.idle_power * 1000, facts.power_limit * 1000
    elif isinstance(facts, NicFacts):
        record.kind = KIND_NIC
        record.port_state, record.port_phys_state, record.rate_gbps = _NIC_ACTIVE, _NIC_LINK_UP, facts.rate
        record.link_layer = _LINK_LAYERS[facts.link_layer]
        record.vfs_total, record.vfs_enabled = facts.vfs, len(slot.vfs)
        record.uverbs, record.ifindex = slot.minor, 10 + slot.minor
        record.ibdev, record.netdev = f"mlx5_{slot.minor}".encode(), f"ib{slot.minor}".encode()
        record.firmware, record.board = facts.firmware.encode(), facts.board.encode()
    slot.model.hardware.describe(record, facts)


def _identify(record: Any, slot: Slot, own: Identity) -> None:
    record.uuid = own.uuid.encode() if not slot.model.is_nic else slot.bus.encode()
    record.serial, record.guid = own.serial.encode(), own.guid


def _pci(text: str) -> int:
    vendor, device = text.split(":")
    return int(device, 16) << 16 | int(vendor, 16)
