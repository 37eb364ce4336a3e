"""Free devices of each node: totals from Device objects, allocations from pods, and columns derived from both.

An unhealthy device keeps its slot with an empty total. Allocations outlive the Device object, so that no device is
allocated twice when the object returns (Koordinator deviceshare/device_cache.go, DEV-R19 to DEV-R22).
"""

import sys
from collections.abc import Callable, Iterator, Mapping

import msgspec
import numpy as np

from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.api.device import (
    DEVICE_ALLOCATED,
    GPU_MEMORY,
    GPU_MODEL_LABEL,
    GPU_PARTITION_POLICY_LABEL,
    GPU_PARTITIONS,
    GPU_VENDOR_LABEL,
    SECONDARY_PLANNED_LABEL,
    Device,
    device_allocations,
)
from seatrial.scheduler.api.quantity import Amounts, QuantityError
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.columns import Ints
from seatrial.scheduler.cache.listener import Listener
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.deviceshare.partitions import TableError, known_machine, parse_table
from seatrial.scheduler.plugins.deviceshare.scoring import ColumnScorer, Scorer
from seatrial.scheduler.plugins.deviceshare.shares import Holding, Shares, quoted, shares_of
from seatrial.scheduler.plugins.deviceshare.states import (
    NO_TRAITS,
    SHARES,
    Choice,
    DeviceState,
    StateCache,
    Template,
    Traits,
)

SHOWN = "DeviceShare/shown"  # one column for all values of a node's GPUs: read and written at once
LISTED, FLAGS, FREE, TOTAL, DIVISOR, WEIGHTS = 0, 1, slice(2, 5), slice(5, 8), slice(8, 11), 11  # then [share, card]
HAS_TREE, HONOURS = 1, 2  # flags: the topology of GPUs is known; whole cards come from the partition table only
NO_ENTRY = -1
_FIRST_CARDS = 8
MAX_UNWRITTEN = 256  # bounds the time of a flush


class NodeDevices:
    """The devices of one node: their state, the holders, and the id of each device."""

    __slots__ = ("deleted", "device", "held", "ids", "labels", "listed", "name", "state")

    def __init__(self, name: str, state: DeviceState) -> None:
        self.name = name
        self.state = state
        self.device: Device | None = None
        self.listed = False  # whether there is a Device object, or was one and the node is still there
        self.deleted = False  # whether it was
        self.labels: Mapping[str, str] = {}  # of the Node object
        self.ids: dict[tuple[str, int], str] = {}  # as JSON strings
        self.held: dict[str, Holding] = {}  # by pod uid

    def id_of(self, device_type: str, minor: int) -> str:
        """The id of a device in the Device object; "" if it has none."""
        identifier = self.ids.get((device_type, minor))
        return str(msgspec.json.decode(identifier)) if identifier else ""

    def take(self, uid: str, holding: Holding, after: DeviceState | None = None) -> bool:
        """Add a pod's allocation; a pod that has one keeps it (DEV-R20). Returns whether it was added."""
        if uid in self.held or not holding.shares:
            return False
        self.held[uid] = holding
        self.state = after if after is not None else self.state.moved(holding.shares, 1)
        return True

    def give_back(self, uid: str) -> bool:
        """Remove a pod's allocation. Returns whether there was one."""
        holding = self.held.pop(uid, None)
        if holding is None:
            return False
        self.state = self.state.moved(holding.shares, -1)
        return True

    def simulated(self, state: DeviceState, held: dict[str, Holding]) -> "NodeDevices":
        """A copy of the node with another state and other holders."""
        devices = NodeDevices(self.name, state)
        devices.device, devices.listed, devices.labels = self.device, self.listed, self.labels
        devices.ids, devices.held = self.ids, held
        return devices


def traits_of(device: Device | None, labels: Mapping[str, str]) -> tuple[Traits, list[str]]:
    """Traits of all devices together, by Device object and node labels, and what is invalid there (DEV-R34)."""
    if device is None:
        return NO_TRAITS, []
    wrong: list[str] = []
    text = device.metadata.annotations.get(GPU_PARTITIONS, "")
    try:
        parse_table(text or "{}")
    except TableError as error:
        wrong.append(str(error))
        text = ""
    policy = (device.metadata.labels if text else labels).get(GPU_PARTITION_POLICY_LABEL, "")
    vendor, model = labels.get(GPU_VENDOR_LABEL, ""), labels.get(GPU_MODEL_LABEL, "")
    planned = device.metadata.labels.get(SECONDARY_PLANNED_LABEL, "") == "true"
    return Traits(
        text, not text and known_machine(vendor, model), policy == "Honor", planned, f"{vendor}-{model}"
    ), wrong


def _all_unhealthy(device: Device) -> Device:
    devices = tuple(msgspec.structs.replace(info, health=False) for info in device.spec.devices)
    return msgspec.structs.replace(device, spec=msgspec.structs.replace(device.spec, devices=devices))


class DeviceCache(Listener):
    """The devices of all nodes, with columns over nodes for batches. All profiles share one."""

    only_annotations = True

    def __init__(self, cache: Cache, request_wake: Callable[[], None] = lambda: None) -> None:
        """`request_wake` is called when a waiting pod may fit because another pod came."""
        self.request_wake = request_wake
        self._cache = cache
        self._columns = cache.columns
        self._scorers: dict[Scorer, ColumnScorer] = {}
        self.honouring = 0  # number of nodes whose partition table is mandatory
        self._states = StateCache()
        self._nothing = self._states.untouched(self._states.template(())[0])
        self._nodes: dict[str, NodeDevices] = {}
        # The node's devices, if a Device object lists them or pods still hold some. Called several times a decision,
        # so it is the dictionary's own method.
        self.find: Callable[[str], NodeDevices | None] = self._nodes.get
        self._pending: dict[str, str] = {}  # pod uid → the allocation that is decided and being written
        self._cards = _FIRST_CARDS
        self._blank = self._vector(NO_ENTRY, 0, {}, {}, [])
        self._trial_places: dict[Template, dict[int, tuple[int, int, int]]] = {}
        self._unwritten: dict[int, Ints] = {}  # row → values to write into the column `SHOWN`
        self._columns.add_column(SHOWN, self._blank, self._catch_up)

    @staticmethod
    def of(handle: Handle) -> "DeviceCache":
        """The cache of this scheduler; the first caller creates it and registers it as a listener."""

        def make() -> DeviceCache:
            devices = DeviceCache(handle.cache, handle.request_wake)
            handle.cache.listen(devices)
            return devices

        return handle.shared(DeviceCache, make)

    def weigh(self, scorer: Scorer) -> tuple[int, ColumnScorer]:
        """Add the weights of a scorer to the columns. Returns its number and its form over columns."""
        known = self._scorers.get(scorer)
        if known is None:
            known = self._scorers[scorer] = scorer.over(SHARES)
            self._renew(self._cards)
        return list(self._scorers).index(scorer), known

    @property
    def first_card(self) -> int:
        """Index of the first card in the column `SHOWN`."""
        return WEIGHTS + len(self._scorers)

    def __iter__(self) -> Iterator[NodeDevices]:
        return iter(self._nodes.values())

    def set_device(self, name: str, device: Device | None) -> list[str]:
        """Take in a Device object that was added, changed or (None) deleted. Returns what in it is invalid.

        As long as its node is there, the devices of a deleted object are unhealthy ones (DEV-R21): without them pods
        would pass as on a node that never had an object.
        """
        node = self._nodes.get(name)
        if node is None:
            if device is None:
                return []
            node = self._nodes[sys.intern(name)] = NodeDevices(name, self._nothing)
        node.deleted = device is None and node.device is not None and self._cache.find(name) is not None
        if node.deleted and node.device is not None:
            device = _all_unhealthy(node.device)
        node.device, node.listed = device, device is not None
        infos = device.spec.devices if device is not None else ()
        node.ids = {(info.type, info.minor): quoted(info.id) for info in infos if info.minor is not None and info.id}
        known = self._cache.find(name)
        node.labels = known.known.metadata.labels if known is not None else {}
        wrong = self._recompute(node)
        self._drop_if_empty(node)
        self.show(name)
        row = self._columns.rows.get(name)
        if row is not None:
            self._columns.touch(row)
        return [f"Device {name}: {text}" for text in wrong]

    def _recompute(self, node: NodeDevices) -> list[str]:
        """Recompute the node's template and state. Returns what is invalid."""
        before = node.state.template
        traits, wrong = traits_of(node.device, node.labels)
        template, bad = self._states.template(node.device.spec.devices if node.device is not None else (), traits)
        held = (share for holding in node.held.values() for share in holding.shares)
        node.state = self._states.untouched(template).moved(held, 1)
        self.honouring += template.traits.honour - before.traits.honour
        return wrong + bad

    # -- events of the cache of pods and nodes ------------------------------------------------------------------------

    def node_set(self, node: Node, before: Node | None) -> None:
        devices = self._nodes.get(node.name)
        if devices is not None and devices.labels != node.metadata.labels:
            devices.labels = node.metadata.labels
            self._recompute(devices)
            self.show(node.name)

    def node_added(self, name: str) -> None:
        """Fill the new row of a node whose devices were known before it."""
        self.show(name)  # the log of columns has the new node already

    def node_gone(self, name: str) -> None:
        """Forget the devices of an object that was deleted before its node; one that is there is deleted with it."""
        node = self._nodes.get(name)
        if node is not None and node.deleted:
            self.set_device(name, None)

    def pod_placed(self, info: PodInfo) -> None:
        if DEVICE_ALLOCATED not in info.pod.metadata.annotations:
            return
        try:
            shares = shares_of(device_allocations(info.pod))
        except (msgspec.DecodeError, QuantityError):
            return  # an allocation that this scheduler did not make; the node agent refuses such a pod
        if shares:
            self.assign(info.node_name, info.uid, shares)

    def pod_changed(self, info: PodInfo, before: Pod) -> None:
        old, new = (pod.metadata.annotations.get(DEVICE_ALLOCATED, "") for pod in (before, info.pod))
        if self._pending.pop(info.uid, None) == new and not old:
            return  # the annotation that this scheduler wrote: assigned already
        if old and old != new:
            self.release(info.node_name, info.uid)
        if old != new:
            self.pod_placed(info)

    def record_pending(self, uid: str, annotation: str) -> None:
        """Record an allocation that is about to be written into the pod's annotation."""
        self._pending[uid] = annotation

    def pod_gone(self, info: PodInfo) -> None:
        self._pending.pop(info.uid, None)
        self.release(info.node_name, info.uid)

    # -- allocations --------------------------------------------------------------------------------------------------

    def assign(self, name: str, uid: str, shares: Shares) -> None:
        """Add the allocation in a pod's annotation; without a Device object it is kept until one comes."""
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[sys.intern(name)] = NodeDevices(name, self._nothing)
        before = node.state
        if node.take(uid, Holding(shares)):
            self.show(name)
            if before.unsteady:
                self._unsettle(name)

    def settle(self, node: NodeDevices, uid: str, choice: Choice) -> None:
        """Add what the allocator chose for a pod on `node`, in the node's current state."""
        before, after = node.state, choice.after
        if node.take(uid, choice.holding, after):
            if after.shown is None:
                self._derive(before, after)
            self.show(node.name)
            if before.unsteady:
                self._unsettle(node.name)

    def release(self, name: str, uid: str) -> None:
        """Give back what a pod holds on a node; no effect if it holds nothing there."""
        node = self._nodes.get(name)
        if node is not None and node.give_back(uid):
            self._drop_if_empty(node)
            self.show(name)

    def forget_requests(self) -> None:
        """Drop everything that is kept by request: most requests are of classes that no longer exist."""
        self._states.forget_requests()
        for node in self._nodes.values():
            node.state.forget_requests()

    def _unsettle(self, name: str) -> None:
        """Cached results for the node become invalid: an allocation may have made room for a rejected pod."""
        row = self._columns.rows.get(name)
        if row is not None:
            self.request_wake()
            self._columns.touch(row)

    def show(self, name: str) -> None:
        """Write one node's devices into the columns; does nothing for a node without a row."""
        row = self._columns.rows.get(name)
        if row is None:
            return
        node = self._nodes.get(name)
        # Most decisions read single nodes. Forty scattered values are written only when a batch reads the column.
        self._unwritten[row] = self._blank if node is None or not node.listed else self.shown(node.state)
        if len(self._unwritten) >= MAX_UNWRITTEN:
            self._columns.column(SHOWN)

    # -- amounts for dry runs of preemption: whether nothing is listed, then [share, card], then memory ----------------

    @property
    def dry_run_width(self) -> int:
        return 1 + (len(SHARES) + 1) * self._cards

    def dry_run_free(self, node: NodeDevices | None) -> list[int]:
        """Free amounts of a node's GPUs; below 0 where more is allocated than there is. Then their memory in bytes."""
        numbers = [0] * self.dry_run_width
        if node is None or not node.listed:
            numbers[0] = 1
            return numbers
        used = node.state.used
        for where, (number, place, total) in self._places(node.state.template).items():
            numbers[where] = total - used[number][place]
        template = node.state.template
        for card, number in enumerate(node.state.slots("gpu")):
            numbers[1 + len(SHARES) * self._cards + card] = template.totals[number].get(GPU_MEMORY, 0)
        return numbers

    def dry_run_held(self, node: NodeDevices | None, uid: str) -> list[int]:
        """The amounts that a pod holds of the node's GPUs."""
        numbers = [0] * self.dry_run_width
        holding = node.held.get(uid) if node is not None and node.listed else None
        if node is None or holding is None:
            return numbers
        places, template = self._places(node.state.template), node.state.template
        cards = {template.slots[number].minor: card for card, number in enumerate(node.state.slots("gpu"))}
        for share in holding.shares:
            if share.type == "gpu" and share.minor in cards:
                for name, value in share.amounts:
                    where = self._place(name, cards[share.minor])
                    if where in places:
                        numbers[where] += value
        return numbers

    def _place(self, name: str, card: int) -> int:
        """Index of a card's share among the numbers; -1 if the columns do not carry this share."""
        return 1 + SHARES.index(name) * self._cards + card if name in SHARES else -1

    def _places(self, template: Template) -> dict[int, tuple[int, int, int]]:
        """For each number: the slot, the index in its used amounts, and its total."""
        numbers = self._trial_places.get(template)
        if numbers is None:
            numbers = self._trial_places[template] = {
                where: (number, place, total)
                for card, number in enumerate(template.by_type.get("gpu", []))
                for place, (name, total) in enumerate(template.totals[number].items())
                if (where := self._place(name, card)) > 0
            }
        return numbers

    def _catch_up(self, array: Ints) -> None:
        if self._unwritten:
            rows = np.fromiter(self._unwritten, np.intp, len(self._unwritten))
            array[:, rows] = np.array(list(self._unwritten.values())).T
            self._unwritten.clear()

    def shown(self, state: DeviceState) -> Ints:
        """The row of the column `SHOWN` for a node in this state."""
        if state.shown is None or len(state.shown) != len(self._blank):
            cards = [state.rooms[number] for number in state.slots("gpu")]
            if len(cards) > self._cards:
                self._renew(len(cards))
            total, free = state.sums("gpu")
            template = state.template
            flags = (template.tree is not None) * HAS_TREE | template.traits.honour * HONOURS
            state.shown = self._vector(len(cards), flags, total, free, cards)
        return state.shown

    def _derive(self, before: DeviceState, after: DeviceState) -> None:
        """`shown` computed from a state that differs in a few cards only: cheaper than from scratch."""
        slots = after.slots("gpu")
        if before.shown is None or len(before.shown) != len(self._blank) or before.template is not after.template:
            return
        shown = after.shown = before.shown.copy()
        free = after.sums("gpu")[1]
        shown[FREE] = [free.get(name, 0) for name in SHARES]
        first = self.first_card
        for card, number in enumerate(slots):
            left = after.rooms[number]
            if left is not before.rooms[number]:
                for share, name in enumerate(SHARES):
                    shown[first + share * self._cards + card] = left.get(name, 0)

    def _vector(self, listed: int, flags: int, total: Amounts, free: Amounts, cards: list[Amounts]) -> Ints:
        totals = [total.get(name, 0) for name in SHARES]
        numbers = [
            listed,
            flags,
            *(free.get(name, 0) for name in SHARES),
            *totals,
            *(max(entry, 1) for entry in totals),
        ]
        numbers += [scorer.weight_of(totals) for scorer in self._scorers.values()]
        rest = [0] * (self._cards - len(cards))
        for name in SHARES:
            numbers += [card.get(name, 0) for card in cards]
            numbers += rest
        return np.array(numbers, np.int64)

    def _renew(self, cards: int) -> None:
        """Enlarge the column for nodes with more cards, or for the weights of a new scorer."""
        self._cards = cards
        self._trial_places.clear()
        self._blank = self._vector(NO_ENTRY, 0, {}, {}, [])
        self._unwritten.clear()
        self._columns.add_column(SHOWN, self._blank, self._catch_up)
        for name in self._nodes:
            self.show(name)

    def _drop_if_empty(self, node: NodeDevices) -> None:
        if not node.listed and not node.held:
            del self._nodes[node.name]
