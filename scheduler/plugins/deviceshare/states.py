"""Devices of a node and their state, as immutable values that equal nodes share.

A `Template` is the content of a Device object without identities. A `DeviceState` is a template with the used amounts
of each device. Both are interned: a thousand nodes of one model with the same cards allocated share one state, so
results for a state (free amounts, the cards of a request, the state after it) are computed once. An allocation moves a
node to another state.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RENAMED, DeviceInfo
from seatrial.scheduler.api.quantity import Amounts, QuantityError, amount
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.deviceshare.partitions import BUILT_IN, parse_table
from seatrial.scheduler.plugins.deviceshare.shares import Function, Holding, Share, Shares
from seatrial.scheduler.plugins.deviceshare.topology import Place, build

SHARES = (GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO)  # the values in the columns for each card, in this order
MAX_REQUESTS = 4096
MAX_HOLDINGS = 65536
MAX_STATES = 8192  # of about 5 KiB each; then all are dropped, and those that are needed again are computed again
MAX_FREE_AMOUNTS = 65536  # of a template


@dataclass(frozen=True, slots=True)
class FunctionGroup:
    """Virtual functions of one NIC with their labels."""

    labels: tuple[tuple[str, str], ...]
    functions: tuple[Function, ...]  # by bus address


@dataclass(frozen=True, slots=True)
class Slot:
    """One device of a template; `total` is empty while it is unhealthy."""

    type: str
    minor: int
    total: tuple[tuple[str, int], ...]
    place: Place | None = None
    labels: tuple[tuple[str, str], ...] = ()
    groups: tuple[FunctionGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class Traits:
    """What matters of a node's devices together: labels of its Device object and of its Node object."""

    partitions: str = ""  # the partition table's text, valid
    built_in: bool = False  # no table, but a machine with a built-in table
    honour: bool = False  # the table is mandatory
    planned: bool = False  # NICs follow GPUs without a check (secondary-device-well-planned)
    model: str = ""  # vendor-model of the node's labels, the key of slice templates


NO_TRAITS = Traits()


class Choice:
    """The devices that a request gets in some state, and the state afterwards."""

    __slots__ = ("after", "holding")

    def __init__(self, shares: Shares, after: "DeviceState") -> None:
        self.holding = after.template.holding(shares)
        self.after = after


# Keyed by the identity of a device's total and free amounts; keeping the latter keeps its id unique.
Scores = dict[tuple[int, int], tuple[int, Amounts]]


class Template:
    """The devices of one kind of node, by type and minor."""

    __slots__ = (
        "_holdings",
        "_lefts",
        "_scores",
        "alike",
        "by_type",
        "index",
        "narrowed",
        "shares",
        "slots",
        "table",
        "totals",
        "traits",
        "tree",
    )

    def __init__(self, slots: tuple[Slot, ...], traits: Traits) -> None:
        self.slots = slots
        self.traits = traits
        alike: dict[tuple[tuple[str, int], ...], Amounts] = {}  # devices with equal totals share one object
        self.totals: tuple[Amounts, ...] = tuple(alike.setdefault(slot.total, dict(slot.total)) for slot in slots)
        self.index = {(slot.type, slot.minor): number for number, slot in enumerate(slots)}
        self.by_type: dict[str, list[int]] = {}
        for number, slot in enumerate(slots):
            self.by_type.setdefault(slot.type, []).append(number)
        self.alike = len({id(self.totals[number]) for number in self.by_type.get("gpu", [])}) < 2  # all GPUs
        self.tree = build({number: slots[number].place for number in self.by_type.get("gpu", [])})
        self.table = parse_table(traits.partitions) if traits.partitions else BUILT_IN if traits.built_in else None
        self.narrowed: dict[object, list[int]] = {}  # by request; filled and read by the allocator
        self.shares: dict[tuple[object, int], Share] = {}  # by request and slot; filled and read by the allocator
        self._scores: dict[object, Scores] = {}
        self._holdings: dict[Shares, Holding] = {}
        self._lefts: dict[tuple[int, tuple[int, ...]], tuple[Amounts, Amounts]] = {}

    def left(self, number: int, used: tuple[int, ...]) -> tuple[Amounts, Amounts]:
        """Free amounts of a device with these used amounts, and the room for a request: one pair for all equal calls.

        Room is what is free, but percent of memory only as far as the bytes are free too. They may not be: requests in
        bytes are rounded down to percent (DEV-R10).
        """
        total = self.totals[number]
        entry = self._lefts.get((id(total), used))
        if entry is None:
            if len(self._lefts) >= MAX_FREE_AMOUNTS:
                self._lefts.clear()
                self._scores.clear()
            free = {
                name: value - taken if value > taken else 0
                for (name, value), taken in zip(total.items(), used, strict=True)
            }
            room = free
            if total.get(GPU_MEMORY):
                percent = percent_within(free[GPU_MEMORY], total[GPU_MEMORY])
                if percent < free.get(GPU_MEMORY_RATIO, 0):
                    room = free | {GPU_MEMORY_RATIO: percent}
            entry = self._lefts[id(total), used] = (free, room)
        return entry

    def forget_requests(self) -> None:
        """Drop what is kept by request."""
        self.narrowed.clear()
        self.shares.clear()
        self._scores.clear()

    def holding(self, shares: Shares) -> Holding:
        """One object for all pods with equal devices."""
        entry = self._holdings.get(shares)
        if entry is None:
            if len(self._holdings) >= MAX_HOLDINGS:
                self._holdings.clear()
            entry = self._holdings[shares] = Holding(shares)
        return entry

    def scores(self, request: object) -> Scores:
        """Scores of devices for a request. Filled and read by the allocator."""
        score = self._scores.get(request)
        if score is None:
            if len(self._scores) >= MAX_REQUESTS:
                self._scores.clear()
            score = self._scores[request] = {}
        return score


Used = tuple[tuple[int, ...], ...]  # for each slot, in the order of its total
Functions = tuple[tuple[int, str], ...]  # slot and bus address, sorted; twice if two pods claim it


class DeviceState:
    """A template and the used amounts of its devices."""

    __slots__ = (
        "_states",
        "_sums",
        "cards",
        "choices",
        "fits",
        "frees",
        "functions",
        "idle",
        "level",
        "rooms",
        "scores",
        "shown",
        "template",
        "unsteady",
        "used",
    )

    def __init__(
        self,
        states: "StateCache",
        template: Template,
        used: Used,
        functions: Functions,
        *,
        frees: tuple[Amounts, ...],
        rooms: tuple[Amounts, ...],
    ) -> None:
        self._states = states
        self.template = template
        self.used = used
        self.functions = functions  # those in use
        self.frees = frees  # for each slot; empty for an unhealthy device
        self.rooms = rooms  # what of it a request may take (`Template.left`); the same objects where nothing differs
        self.choices: dict[object, Choice | Status] = {}  # by request; filled and read by the allocator
        self.fits: dict[object, Status] = {}  # by request; filled and read by the allocator
        self.scores: dict[object, int] = {}  # by request; filled and read by the allocator
        self.shown: NDArray[np.int64] | None = None  # the row of the cache's column; filled and read there
        self.idle: tuple[int, ...] | None = None  # what is left on each GPU; filled and read by DeviceFragmentation
        self.unsteady = False  # a request was refused that may fit after more allocations; set by the allocator
        self._sums: dict[str, tuple[Amounts, Amounts]] = {}
        self.cards: object = None  # shared by states with the same free amounts on as many GPUs, whatever their order
        self.level: object = None  # shared by states with the same free sums of all GPUs

    def touched(self, number: int) -> bool:
        """Whether anything of that slot is used."""
        return any(self.used[number])

    def forget_requests(self) -> None:
        """Drop what is kept by request."""
        self.choices.clear()
        self.fits.clear()
        self.scores.clear()

    def slots(self, device_type: str) -> list[int]:
        """Slot numbers of the listed devices of a type, by minor."""
        return self.template.by_type.get(device_type, [])

    def moved(self, shares: Iterable[Share], sign: int) -> "DeviceState":
        """The state with `shares` allocated (1) or released (-1); devices that the template lacks are ignored."""
        used, changed, functions = list(self.used), list[int](), self.functions
        for share in shares:
            number = self.template.index.get((share.type, share.minor))
            if number is not None:
                change = dict(share.amounts)
                before = zip(self.template.totals[number], used[number], strict=True)
                used[number] = tuple([taken + sign * change.get(name, 0) for name, taken in before])
                changed.append(number)
                if share.functions:
                    functions = _counted(functions, [(number, function.bus) for function in share.functions], sign)
        return self._states.state(self.template, tuple(used), functions, self, changed)

    def narrowed(
        self, caps: Mapping[int, Amounts], hidden: Iterable[int], busy: Iterable[tuple[int, str]] = ()
    ) -> "DeviceState":
        """The state with at most `caps` free in some slots, and nothing free in the slots `hidden`.

        Virtual functions in `busy`, by slot and bus address, count as used.
        """
        used, changed = list(self.used), [*caps, *hidden]
        for number in changed:
            totals, cap = self.template.totals[number], caps.get(number)
            used[number] = tuple(
                [
                    max(taken, total if cap is None else total - cap.get(name, total))
                    for (name, total), taken in zip(totals.items(), used[number], strict=True)
                ]
            )
        functions = tuple(sorted({*self.functions, *busy}))
        return self._states.state(self.template, tuple(used), functions, self, changed)

    def sums(self, device_type: str) -> tuple[Amounts, Amounts]:
        """Total and free amounts of all devices of a type."""
        sums = self._sums.get(device_type)
        if sums is None:
            total: Amounts = {}
            free: Amounts = {}
            for number in self.slots(device_type):
                for name, value in self.template.totals[number].items():
                    total[name] = total.get(name, 0) + value
                    free[name] = free.get(name, 0) + self.frees[number][name]
            sums = self._sums[device_type] = (total, free)
        return sums

    def derive_sums(self, near: "DeviceState", changed: Iterable[int]) -> None:
        """Derive the sums from a state that differs only in the slots `changed`."""
        for device_type, (total, before) in near._sums.items():  # noqa: SLF001
            free = before.copy()
            for number in set(changed):
                if self.template.slots[number].type == device_type:
                    for name, value in near.frees[number].items():
                        free[name] += self.frees[number][name] - value
            self._sums[device_type] = (total, free)

    def find_signatures(self) -> None:
        """Compute `cards` and `level`, which most states do not need."""
        template = self.template
        slots = self.slots("gpu")
        self.cards = (template, *sorted([self.used[number] for number in slots])) if template.alike else self
        self.level = (template, *self.sums("gpu")[1].values())


class StateCache:
    """Interns templates and states."""

    def __init__(self) -> None:
        self._templates: dict[tuple[tuple[Slot, ...], Traits], Template] = {}
        self._states: dict[tuple[Template, Used, Functions], DeviceState] = {}

    def template(self, infos: Iterable[DeviceInfo], traits: Traits = NO_TRAITS) -> tuple[Template, list[str]]:
        """The template for the devices of a Device object, and what in it is invalid."""
        slots: dict[tuple[str, int], Slot] = {}
        wrong: list[str] = []
        for info in infos:
            if info.minor is None:
                wrong.append(f"{info.type} {info.id!r} has no minor and is left out")
                continue
            slots[info.type, info.minor], bad = _slot(info, info.minor)
            wrong += [f"{info.type} {info.minor}: {text}" for text in bad]
        key = tuple(slots[where] for where in sorted(slots))
        template = self._templates.get((key, traits))
        if template is None:
            template = self._templates[key, traits] = Template(key, traits)
        return template, wrong

    def state(
        self,
        template: Template,
        used: Used,
        functions: Functions = (),
        near: DeviceState | None = None,
        changed: Iterable[int] = (),
    ) -> DeviceState:
        """The state with these used amounts; `near`, if given, differs from it only in the slots `changed`."""
        key = (template, used, functions)
        state = self._states.get(key)
        if state is None:
            if len(self._states) >= MAX_STATES:
                self._drop_states()
            if near is None:
                pairs = [template.left(number, there) for number, there in enumerate(used)]
                frees, rooms = tuple(free for free, _ in pairs), tuple(room for _, room in pairs)
            else:
                left, fitting = list(near.frees), list(near.rooms)
                for number in changed:
                    left[number], fitting[number] = template.left(number, used[number])
                frees, rooms = tuple(left), tuple(fitting)
            state = self._states[key] = DeviceState(self, template, used, functions, frees=frees, rooms=rooms)
            if near is not None:
                state.derive_sums(near, changed)
        return state

    def _drop_states(self) -> None:
        """Forget all states. Nodes keep references to theirs, but not to those that allocations would lead to.

        Without the latter, one node that is never touched would keep everything that was ever reached from its state.
        """
        for state in self._states.values():
            state.choices.clear()
        self._states.clear()

    def forget_requests(self) -> None:
        """Drop what is kept by request, for all states and templates."""
        for state in self._states.values():
            state.forget_requests()
        for template in self._templates.values():
            template.forget_requests()

    def untouched(self, template: Template) -> DeviceState:
        return self.state(template, tuple((0,) * len(slot.total) for slot in template.slots))


def _slot(info: DeviceInfo, minor: int) -> tuple[Slot, list[str]]:
    total, wrong = understood(info.resources) if info.health else ({}, [])
    place = Place(info.topology.node_id, info.topology.pcie_id) if info.topology is not None else None
    groups = tuple(
        FunctionGroup(
            tuple(sorted(group.labels.items())), tuple(sorted(Function(vf.bus_id, vf.minor) for vf in group.vfs))
        )
        for group in info.vf_groups
    )
    labels = tuple(sorted(info.labels.items()))
    return Slot(info.type, minor, tuple(total.items()), place, labels, groups), wrong


def percent_within(size: int, memory: int) -> int:
    """The largest percentage of a card with `memory` bytes that takes at most `size` bytes (DEV-R10)."""
    return (100 * size + 99) // memory


def _counted(functions: Functions, moved: Iterable[tuple[int, str]], sign: int) -> Functions:
    if sign > 0:
        return tuple(sorted((*functions, *moved)))
    left = list(functions)
    for item in moved:
        if item in left:
            left.remove(item)
    return tuple(left)


def understood(resources: Mapping[str, str | int | float]) -> tuple[Amounts, list[str]]:
    """A device's resources in integers under their current names, and what is invalid."""
    total, wrong = {}, []
    for name, quantity in resources.items():
        try:
            total[RENAMED.get(name, name)] = amount(name, quantity)
        except QuantityError as error:
            wrong.append(f"{name}: {error}")
    return total, wrong
