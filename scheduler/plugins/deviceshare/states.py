"""What a node's devices are, and in what state they are, as values that all nodes alike share.

A `Template` is all that a Device object says of a node's devices, identities aside; a `DeviceState` is a template with
what is used of each. Both are interned: a thousand nodes of one model with the same cards taken are in one state, and
whatever is worked out about a state (what is free, which cards a request would get, what comes after) is worked out
once. States are never changed; booking moves a node from one to another.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.api.device import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RENAMED, DeviceInfo
from scheduler.api.quantity import QuantityError, amount, text
from scheduler.api.requests import Amounts
from scheduler.api.wire import to_json
from scheduler.framework.status import Status

SHARES = (GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO)  # what the columns carry for each card, in this order
MOST_STATES = 200_000  # more than that, and they are forgotten and worked out anew


@dataclass(frozen=True, slots=True)
class Share:
    """So much of one device."""

    type: str
    minor: int
    amounts: tuple[tuple[str, int], ...]


Shares = tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """One device of a template; `total` is empty while it is not healthy."""

    type: str
    minor: int
    total: tuple[tuple[str, int], ...]


class Holding:
    """What a pod has of devices. All pods that got the same in the same state share one."""

    __slots__ = ("_pieces", "amounts", "rises", "shares")

    def __init__(self, shares: Shares) -> None:
        self.shares = shares
        self.amounts: dict[str, Amounts] = {}  # by device type
        for share in shares:
            sums = self.amounts.setdefault(share.type, {})
            for name, value in share.amounts:
                sums[name] = sums.get(name, 0) + value
        self.rises: dict[object, int] = {}  # filled and read by the plugin's `rise`
        self._pieces: list[tuple[str, tuple[str, int]]] | None = None

    def annotation(self, ids: Mapping[tuple[str, int], str]) -> str:
        """`device-allocated` as Koordinator writes it; `ids` by type and minor are this node's own, as JSON strings."""
        if self._pieces is None:
            self._pieces = list(_pieces(self.shares))
        parts = []
        for piece, where in self._pieces:
            found = ids.get(where, "")
            parts.append(f'{piece},"id":{found}}}' if found else piece + "}")
        return "".join(parts) + "]}"


class Choice:
    """The devices that a request gets in some state, and the state after that."""

    __slots__ = ("after", "holding")

    def __init__(self, shares: Shares, after: "DeviceState") -> None:
        self.holding = Holding(shares)
        self.after = after


def _pieces(shares: Shares) -> Iterator[tuple[str, tuple[str, int]]]:
    """The annotation's text up to where each device's id goes."""
    before = None
    for share in shares:
        opening = f'{"{" if before is None else "],"}"{share.type}":[' if share.type != before else ","
        resources = ",".join(f"{quoted(name)}:{quoted(text(name, value))}" for name, value in share.amounts)
        yield f'{opening}{{"minor":{share.minor},"resources":{{{resources}}}', (share.type, share.minor)
        before = share.type


def quoted(word: str) -> str:
    """A JSON string."""
    return to_json(word).decode()


class Template:
    """The devices of one kind of node, by type and minor."""

    __slots__ = ("by_type", "index", "slots", "totals")

    def __init__(self, slots: tuple[Slot, ...]) -> None:
        self.slots = slots
        alike: dict[tuple[tuple[str, int], ...], Amounts] = {}  # devices with the same total share one
        self.totals: tuple[Amounts, ...] = tuple(alike.setdefault(slot.total, dict(slot.total)) for slot in slots)
        self.index = {(slot.type, slot.minor): number for number, slot in enumerate(slots)}
        self.by_type: dict[str, list[int]] = {}
        for number, slot in enumerate(slots):
            self.by_type.setdefault(slot.type, []).append(number)


Used = tuple[tuple[int, ...], ...]  # per slot, in the order of its total


class DeviceState:
    """A template and what is used of it."""

    __slots__ = ("_book", "_sums", "choices", "fits", "frees", "scores", "shown", "template", "used")

    def __init__(self, book: "StateBook", template: Template, used: Used, frees: tuple[Amounts, ...]) -> None:
        self._book = book
        self.template = template
        self.used = used
        self.frees = frees  # per slot; empty for a device that is not healthy
        self.choices: dict[object, Choice | Status] = {}  # by request: filled and read by the allocator
        self.fits: dict[object, Status] = {}  # by request: likewise
        self.scores: dict[object, int] = {}  # by request: likewise
        self.shown: NDArray[np.int64] | None = None  # as the cache's column has it; written and read there
        self._sums: dict[str, tuple[Amounts, Amounts]] = {}

    def touched(self, number: int) -> bool:
        """Whether anything of that slot is used."""
        return any(self.used[number])

    def slots(self, device_type: str) -> list[int]:
        """Numbers of the listed slots of a type, by minor."""
        return self.template.by_type.get(device_type, [])

    def moved(self, shares: Iterable[Share], sign: int) -> "DeviceState":
        """The state with `shares` taken (1) or given back (-1); what the template does not have is passed over."""
        used, changed = list(self.used), list[int]()
        for share in shares:
            number = self.template.index.get((share.type, share.minor))
            if number is not None:
                change = dict(share.amounts)
                used[number] = tuple(
                    taken + sign * change.get(name, 0)
                    for name, taken in zip(self.template.totals[number], used[number], strict=True)
                )
                changed.append(number)
        return self._book.state(self.template, tuple(used), self, changed)

    def sums(self, device_type: str) -> tuple[Amounts, Amounts]:
        """Total and free over all devices of a type."""
        found = self._sums.get(device_type)
        if found is None:
            total: Amounts = {}
            free: Amounts = {}
            for number in self.slots(device_type):
                for name, value in self.template.totals[number].items():
                    total[name] = total.get(name, 0) + value
                    free[name] = free.get(name, 0) + self.frees[number][name]
            found = self._sums[device_type] = (total, free)
        return found

    def gpu_shares(self) -> NDArray[np.int64]:
        """What is free of each listed GPU, [card, share] by `SHARES`."""
        return np.array(
            [[self.frees[gpu].get(name, 0) for name in SHARES] for gpu in self.slots("gpu")], np.int64
        ).reshape(-1, len(SHARES))


class StateBook:
    """Interns templates and states."""

    def __init__(self) -> None:
        self._templates: dict[tuple[Slot, ...], Template] = {}
        self._states: dict[tuple[Template, Used], DeviceState] = {}

    def template(self, infos: Iterable[DeviceInfo]) -> tuple[Template, list[str]]:
        """The template for the devices of a Device object, and what in it cannot be understood."""
        slots: dict[tuple[str, int], Slot] = {}
        wrong: list[str] = []
        for info in infos:
            if info.minor is None:
                wrong.append(f"{info.type} {info.id!r} has no minor and is left out")
                continue
            total, bad = understood(info.resources) if info.health else ({}, [])
            wrong += [f"{info.type} {info.minor}: {text}" for text in bad]
            slots[info.type, info.minor] = Slot(info.type, info.minor, tuple(total.items()))
        key = tuple(slots[where] for where in sorted(slots))
        found = self._templates.get(key)
        if found is None:
            found = self._templates[key] = Template(key)
        return found, wrong

    def state(
        self, template: Template, used: Used, near: DeviceState | None = None, changed: Iterable[int] = ()
    ) -> DeviceState:
        """The state in which so much is used; `near` differs from it in the slots `changed`, if it is given."""
        key = (template, used)
        found = self._states.get(key)
        if found is None:
            if len(self._states) >= MOST_STATES:
                self._states.clear()  # nodes keep the states they are in
            if near is None:
                frees = tuple(_left(total, there) for total, there in zip(template.totals, used, strict=True))
            else:
                parts = list(near.frees)
                for number in changed:
                    parts[number] = _left(template.totals[number], used[number])
                frees = tuple(parts)
            found = self._states[key] = DeviceState(self, template, used, frees)
        return found

    def untouched(self, template: Template) -> DeviceState:
        return self.state(template, tuple((0,) * len(slot.total) for slot in template.slots))


def _left(total: Amounts, used: tuple[int, ...]) -> Amounts:
    return {
        name: value - taken if value > taken else 0 for (name, value), taken in zip(total.items(), used, strict=True)
    }


def understood(resources: Mapping[str, str | int | float]) -> tuple[Amounts, list[str]]:
    """A device's resources in integers under their present names, and what about them is wrong."""
    total, wrong = {}, []
    for name, quantity in resources.items():
        try:
            total[RENAMED.get(name, name)] = amount(name, quantity)
        except QuantityError as error:
            wrong.append(f"{name}: {error}")
    return total, wrong
