"""What is free on each device: totals from Device objects, bookings from pods, and the columns that follow from both.

A device that is listed but not healthy keeps its place with nothing in it. Bookings outlive the Device object, so that
nothing is handed out twice when the object comes back (Koordinator deviceshare/device_cache.go, R19 to R22).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from scheduler.api.device import (
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    RENAMED,
    Allocations,
    Device,
    DeviceInfo,
)
from scheduler.api.quantity import QuantityError, amount
from scheduler.api.requests import Amounts
from scheduler.cache.columns import NodeColumns

SHARES = (GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO)  # what the columns carry for each card, in this order
CARDS, FREE_SUM, TOTAL_SUM, LISTED = "DeviceShare/cards", "DeviceShare/free", "DeviceShare/total", "DeviceShare/gpus"
NO_ENTRY = -1
_FIRST_CARDS = 8


@dataclass(slots=True)
class Slot:
    """One device of a node: what it has, what is left of it, and what is known of it."""

    minor: int
    info: DeviceInfo | None = None  # None: pods hold it, no Device object lists it
    total: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)

    def free(self, name: str) -> int:
        return max(0, self.total.get(name, 0) - self.used.get(name, 0))

    def frees(self) -> Amounts:
        return {name: max(0, total - self.used.get(name, 0)) for name, total in self.total.items()}

    @property
    def touched(self) -> bool:
        return any(self.used.values())

    @property
    def healthy(self) -> bool:
        return bool(self.total)


@dataclass(frozen=True, slots=True)
class Share:
    """So much of one device."""

    type: str
    minor: int
    amounts: tuple[tuple[str, int], ...]
    id: str = ""


Shares = tuple[Share, ...]


class NodeDevices:
    """All devices of one node."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.listed = False  # a Device object exists
        self.types: dict[str, dict[int, Slot]] = {}
        self.held: dict[str, Shares] = {}  # by pod uid
        self.generation = 0

    def slots(self, device_type: str) -> Iterator[Slot]:
        """Listed devices of a type by minor, healthy or not."""
        there = self.types.get(device_type, {})
        return (there[minor] for minor in sorted(there) if there[minor].info is not None)

    def set_device(self, device: Device | None) -> list[str]:
        """Take over what a Device object lists (None: it is gone). Returns what in it cannot be understood."""
        self.generation += 1
        self.listed = device is not None
        wrong: list[str] = []
        for slots in self.types.values():
            for slot in slots.values():
                slot.info, slot.total = None, {}
        for info in device.spec.devices if device is not None else ():
            if info.minor is None:
                wrong.append(f"Device {self.name}: {info.type} {info.id!r} has no minor and is left out")
                continue
            slot = self.types.setdefault(info.type, {}).setdefault(info.minor, Slot(info.minor))
            slot.info = info
            if info.health:
                slot.total, bad = _amounts(info.resources)
                wrong += [f"Device {self.name}: {info.type} {info.minor}: {text}" for text in bad]
        self._sweep()
        return wrong

    def book(self, uid: str, shares: Shares) -> bool:
        """Take `shares` for a pod; a pod that holds something already keeps that (R20). Whether it was taken."""
        if uid in self.held or not shares:
            return False
        self.generation += 1
        self.held[uid] = shares
        for share in shares:
            slot = self.types.setdefault(share.type, {}).setdefault(share.minor, Slot(share.minor))
            for name, value in share.amounts:
                slot.used[name] = slot.used.get(name, 0) + value
        return True

    def release(self, uid: str) -> bool:
        """Give back what a pod holds; whether it held anything."""
        shares = self.held.pop(uid, None)
        if shares is None:
            return False
        self.generation += 1
        for share in shares:
            used = self.types[share.type][share.minor].used
            for name, value in share.amounts:
                used[name] -= value
        self._sweep()
        return True

    def copy(self) -> "NodeDevices":
        """An independent copy for trying things out."""
        copy = NodeDevices(self.name)
        copy.listed = self.listed
        copy.held = self.held.copy()
        for device_type, slots in self.types.items():
            copy.types[device_type] = {
                minor: Slot(minor, slot.info, slot.total, slot.used.copy()) for minor, slot in slots.items()
            }
        return copy

    def _sweep(self) -> None:
        for slots in self.types.values():
            for minor in [minor for minor, slot in slots.items() if slot.info is None and not slot.touched]:
                del slots[minor]


def _amounts(resources: Mapping[str, str | int | float]) -> tuple[Amounts, list[str]]:
    total, wrong = {}, []
    for name, quantity in resources.items():
        try:
            total[RENAMED.get(name, name)] = amount(name, quantity)
        except QuantityError as error:
            wrong.append(f"{name}: {error}")
    return total, wrong


def shares_of(allocations: Allocations) -> Shares:
    """An annotation's allocations as bookings.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    return tuple(
        Share(
            device_type,
            one.minor,
            tuple((RENAMED.get(name, name), amount(name, quantity)) for name, quantity in one.resources.items()),
            one.id,
        )
        for device_type, entries in allocations.items()
        for one in entries
    )


class DeviceCache:
    """The devices of all nodes, with columns over nodes for those who judge many at once."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._nodes: dict[str, NodeDevices] = {}
        columns.add_column(CARDS, (_FIRST_CARDS, len(SHARES)))
        columns.add_column(FREE_SUM, (len(SHARES),))
        columns.add_column(TOTAL_SUM, (len(SHARES),))
        columns.add_column(LISTED, fill=NO_ENTRY)

    def find(self, name: str) -> NodeDevices | None:
        """The node's devices if a Device object lists them (or did, and pods hold some still)."""
        return self._nodes.get(name)

    def __iter__(self) -> Iterator[NodeDevices]:
        return iter(self._nodes.values())

    def set_device(self, name: str, device: Device | None) -> list[str]:
        """A Device object came, changed or (None) went. Returns what in it cannot be understood."""
        node = self._nodes.get(name)
        if node is None:
            if device is None:
                return []
            node = self._nodes[name] = NodeDevices(name)
        wrong = node.set_device(device)
        if device is None and not node.held:
            del self._nodes[name]
        self.show(name)
        return wrong

    def book(self, name: str, uid: str, shares: Shares) -> None:
        """See `NodeDevices.book`; bookings on nodes without a Device object are remembered for when it comes."""
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = NodeDevices(name)
        if node.book(uid, shares):
            self.show(name)

    def release(self, name: str, uid: str) -> None:
        node = self._nodes.get(name)
        if node is not None and node.release(uid):
            if not node.listed and not node.held:
                del self._nodes[name]
            self.show(name)

    def show(self, name: str) -> None:
        """Write one node's devices into the columns; does nothing for a node that has no row yet."""
        columns = self._columns
        row = columns.rows.get(name)
        if row is None:
            return
        node = self._nodes.get(name)
        slots = list(node.slots("gpu")) if node is not None and node.listed else []
        if len(slots) > columns.column(CARDS).shape[1]:
            columns.reshape(CARDS, (len(slots), len(SHARES)))
        frees = [[slot.free(share) for share in SHARES] for slot in slots]
        cards = columns.column(CARDS)[row]
        cards[: len(slots)] = frees or 0
        cards[len(slots) :] = 0
        columns.column(FREE_SUM)[row] = cards.sum(axis=0)
        columns.column(TOTAL_SUM)[row] = [sum(slot.total.get(share, 0) for slot in slots) for share in SHARES]
        columns.column(LISTED)[row] = len(slots) if node is not None and node.listed else NO_ENTRY
        columns.touch(row)
