"""What is free on each node's devices: totals from Device objects, bookings from pods, columns that follow from both.

A device that is listed but not healthy keeps its place with nothing in it. Bookings outlive the Device object, so that
nothing is handed out twice when the object comes back (Koordinator deviceshare/device_cache.go, R19 to R22).
"""

from collections.abc import Iterator

import numpy as np

from scheduler.api.device import RENAMED, Allocations, Device
from scheduler.api.quantity import amount
from scheduler.cache.columns import Ints, NodeColumns
from scheduler.plugins.deviceshare.scoring import ColumnScorer
from scheduler.plugins.deviceshare.states import SHARES, Choice, DeviceState, Holding, Share, Shares, StateBook, quoted

SHOWN = "DeviceShare/shown"  # one column for all that is shown of a node's GPUs, so that it is read and written at once
LISTED, WEIGHT, FREE, TOTAL, DIVISOR, FIRST_CARD = (
    0,
    1,
    slice(2, 5),
    slice(5, 8),
    slice(8, 11),
    11,
)  # [share, card], flat
NO_ENTRY = -1
_FIRST_CARDS = 8


class NodeDevices:
    """The devices of one node: their state, who holds what, and which device bears which id."""

    __slots__ = ("held", "ids", "listed", "name", "state")

    def __init__(self, name: str, state: DeviceState) -> None:
        self.name = name
        self.state = state
        self.listed = False  # a Device object exists
        self.ids: dict[tuple[str, int], str] = {}  # as JSON strings
        self.held: dict[str, Holding] = {}  # by pod uid

    def take(self, uid: str, holding: Holding, after: DeviceState | None = None) -> bool:
        """Book devices for a pod; one that holds something already keeps that (R20). Whether they were booked."""
        if uid in self.held or not holding.shares:
            return False
        self.held[uid] = holding
        self.state = after if after is not None else self.state.moved(holding.shares, 1)
        return True

    def give_back(self, uid: str) -> bool:
        """Release what a pod holds; whether it held anything."""
        holding = self.held.pop(uid, None)
        if holding is None:
            return False
        self.state = self.state.moved(holding.shares, -1)
        return True

    def copy(self) -> "NodeDevices":
        """An independent copy for trying things out."""
        copy = NodeDevices(self.name, self.state)
        copy.listed, copy.ids, copy.held = self.listed, self.ids, self.held.copy()
        return copy


def shares_of(allocations: Allocations) -> Shares:
    """An annotation's allocations as bookings.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    return tuple(
        Share(
            device_type,
            one.minor,
            tuple(
                sorted((RENAMED.get(name, name), amount(name, quantity)) for name, quantity in one.resources.items())
            ),
        )
        for device_type, entries in allocations.items()
        for one in entries
    )


class DeviceCache:
    """The devices of all nodes, with columns over nodes for those who judge many at once."""

    def __init__(self, columns: NodeColumns, scorer: ColumnScorer) -> None:
        self._columns = columns
        self._scorer = scorer
        self._book = StateBook()
        self._nothing = self._book.untouched(self._book.template(())[0])
        self._nodes: dict[str, NodeDevices] = {}
        self._cards = _FIRST_CARDS
        self._blank = self._vector(NO_ENTRY, np.zeros(len(SHARES), np.int64), np.zeros((0, len(SHARES)), np.int64))
        columns.add_column(SHOWN, self._blank)

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
            node = self._nodes[name] = NodeDevices(name, self._nothing)
        infos = device.spec.devices if device is not None else ()
        template, wrong = self._book.template(infos)
        node.listed = device is not None
        node.ids = {(info.type, info.minor): quoted(info.id) for info in infos if info.minor is not None and info.id}
        held = (share for holding in node.held.values() for share in holding.shares)
        node.state = self._book.untouched(template).moved(held, 1)
        self._drop_if_empty(node)
        self.show(name)
        return [f"Device {name}: {text}" for text in wrong]

    def book(self, name: str, uid: str, shares: Shares) -> None:
        """What a pod's annotation says it holds; on nodes without a Device object it is kept for when one comes."""
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = NodeDevices(name, self._nothing)
        if node.take(uid, Holding(shares)):
            self.show(name)

    def settle(self, node: NodeDevices, uid: str, choice: Choice) -> None:
        """What the allocator chose for a pod on `node`, in the state that `node` is in."""
        if node.take(uid, choice.holding, choice.after):
            self.show(node.name)

    def release(self, name: str, uid: str) -> None:
        node = self._nodes.get(name)
        if node is not None and node.give_back(uid):
            self._drop_if_empty(node)
            self.show(name)

    def show(self, name: str) -> None:
        """Write one node's devices into the columns; does nothing for a node that has no row yet."""
        row = self._columns.rows.get(name)
        if row is None:
            return
        node = self._nodes.get(name)
        shown = self._blank if node is None or not node.listed else self._shown(node.state)
        self._columns.column(SHOWN)[:, row] = shown

    def _shown(self, state: DeviceState) -> Ints:
        if state.shown is None or len(state.shown) != len(self._blank):
            cards = state.gpu_shares()
            if len(cards) > self._cards:
                self._widen(len(cards))
            total = state.sums("gpu")[0]
            totals = np.array([total.get(name, 0) for name in SHARES], np.int64)
            state.shown = self._vector(len(cards), totals, cards)
        return state.shown

    def _vector(self, listed: int, total: Ints, cards: Ints) -> Ints:
        vector = np.zeros(FIRST_CARD + self._cards * len(SHARES), np.int64)
        vector[FIRST_CARD:].reshape(len(SHARES), self._cards)[:, : len(cards)] = cards.T
        vector[LISTED] = listed
        vector[WEIGHT] = self._scorer.weight_of(total)
        vector[FREE] = cards.sum(axis=0)
        vector[TOTAL] = total
        vector[DIVISOR] = np.maximum(total, 1)
        return vector

    def _widen(self, cards: int) -> None:
        """A node with more cards than any before it."""
        self._cards = cards
        self._blank = self._vector(NO_ENTRY, np.zeros(len(SHARES), np.int64), np.zeros((0, len(SHARES)), np.int64))
        self._columns.add_column(SHOWN, self._blank)
        for name in self._nodes:
            self.show(name)

    def _drop_if_empty(self, node: NodeDevices) -> None:
        if not node.listed and not node.held:
            del self._nodes[node.name]
