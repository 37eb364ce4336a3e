"""Places the members of a group in one domain of the network: the engine's part of topology planning.

The counter has the number of members that fit on each node (slots), the group's `Domains` choose domains and shares,
and the members are placed there. Slots can be an upper bound, for members of several classes and for rules on the
places of other pods. If a member cannot be placed in the domain after all, the next domain is tried.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from seatrial.scheduler.core.groups.slots import COSCHEDULING, SlotCounter, Slots
from seatrial.scheduler.core.queue.active import Entry
from seatrial.scheduler.engine.runner import Runners
from seatrial.scheduler.framework.domains import DomainChoice, DomainOffer
from seatrial.scheduler.framework.fit_error import FitError
from seatrial.scheduler.framework.group_failure import Unplaced
from seatrial.scheduler.framework.groups import Attempt
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState

Kind = tuple[str, int]  # scheduler name, class
AT_ONCE = 4  # of up to so many classes, one is left out after the other, of more a part


@dataclass(frozen=True, slots=True)
class Gathered:
    """The result for one group: `failed` is None if all of `entries` are placed, and nothing is placed otherwise."""

    entries: Sequence[Entry]
    left: Sequence[Entry]  # members that were taken from the queue and not tried
    failed: Entry | None = None
    reason: str = ""
    gate: Any = None  # the placement's failure by a gate, as a quota: no other domain can help
    slots: Mapping[Kind, Slots] | None = None  # by kind of `entries`, if slots in the domains are missing
    room: int = 0  # members that the best domain seems to have room for, if it is not enough


class Gathering:
    """Tries domains for groups, with the engine's own steps for single members."""

    def __init__(
        self,
        handle: Handle,
        runners: Runners,
        place: Callable[[Entry, str, Sequence[int] | None], Any],
        release: Callable[[Any], None],
        failure: type[Any],
    ) -> None:
        self._nominator, self._runners = handle.nominator, runners
        self._place, self._release, self._failure = place, release, failure
        self._counter = SlotCounter(handle, runners)

    def gather(self, attempt: Attempt, entries: Sequence[Entry]) -> Gathered:
        """Place all of `entries`; where that fails and the group needs fewer, so many as it needs."""
        nominator = self._nominator
        own = {entry.info.uid: node for entry in entries if (node := nominator.node_of(entry.info.uid))}
        for uid in own:
            nominator.forget(uid)  # filters must not count the group's own nominations against it (GANG-R54)
        result: Gathered | None = None
        try:
            result = self._try(attempt, entries)
            if result.failed is not None and result.gate is None and not attempt.needs_all:
                result = self._try_fewer(attempt, entries, result)
        finally:  # also where a plugin raises
            if result is None or result.failed is not None:
                for entry in entries:
                    if entry.info.uid in own:
                        nominator.nominate(entry.info, own[entry.info.uid], attempt.key)
        return result

    def _try_fewer(self, attempt: Attempt, entries: Sequence[Entry], whole: Gathered) -> Gathered:
        """Place as many members as the group needs. If they may be any: of all classes, then without the class that has
        the fewest places for its members, and so on (WAS-R25)."""
        result, rest = whole, entries
        while result.failed is not None and result.gate is None:
            needed = frozenset(attempt.fewer(result.room, [entry.info.uid for entry in rest]))
            part = [entry for entry in rest if entry.info.uid in needed]
            if len(part) < len(rest):
                result = self._try_part(attempt, part, entries)
            if result.failed is None or result.slots is None or not attempt.picks:
                break
            rest = _without_scarcest(attempt, result.slots, rest)
            if len(rest) < max(1, len(attempt.minimal)):
                break
            result = self._try_part(attempt, rest, entries)
        return result

    def _try_part(self, attempt: Attempt, part: Sequence[Entry], entries: Sequence[Entry]) -> Gathered:
        uids = {entry.info.uid for entry in part}
        return replace(self._try(attempt, part), left=[entry for entry in entries if entry.info.uid not in uids])

    def unplaced(self, gathered: Gathered) -> list[Unplaced]:
        """The members that have no place, in the order in which they are placed, with what preemption reads."""
        assert gathered.slots is not None
        numbers = Counter(_kind(entry) for entry in gathered.entries)
        of_kind: dict[Kind, tuple[FitError, CycleState]] = {}
        members: list[Unplaced] = []
        for entry in gathered.entries:
            info, kind = entry.info, _kind(entry)
            if kind not in of_kind:
                class_scores = self._runners.of(info).class_scores(info.pod_class)
                nowhere = class_scores.select_within(info, (), COSCHEDULING)
                state = nowhere.state if isinstance(nowhere, FitError) else None
                failure = self._counter.failure(info, gathered.slots[kind], numbers[kind])
                of_kind[kind] = failure, state or class_scores.state
            members.append(Unplaced(info, *of_kind[kind]))
        return members

    def _try(self, attempt: Attempt, entries: Sequence[Entry]) -> Gathered:
        domains = attempt.domains
        assert domains is not None
        classes: dict[Kind, list[Entry]] = {}
        for entry in entries:
            classes.setdefault(_kind(entry), []).append(entry)
        slots = [self._counter.count([entry.info for entry in members]) for members in classes.values()]
        numbers = [len(members) for members in classes.values()]
        offer = DomainOffer([each.count for each in slots], numbers, slots[0].scores)
        plan = domains.plan(offer, [entry.info for entry in entries])
        scarce = [int(each.count.sum()) / count for each, count in zip(slots, numbers, strict=True)]
        order = list(entries)
        if len(classes) > 1 and not attempt.ordered:
            rank = dict(zip(classes, scarce, strict=True))
            order.sort(key=lambda entry: (-entry.info.priority, rank[_kind(entry)]))
        tried: list[str] = []
        for choice in plan.choices():
            failed = self._place_in(attempt, choice, order, exactly=len(classes) == 1)
            if failed is None:
                return Gathered(entries, ())
            entry, failure = failed
            if failure.gate:
                return Gathered(entries, (), entry, failure.reason, failure)
            tried.append(choice.name)
        worst = scarce.index(min(scarce))
        members = list(classes.values())[worst]
        fit_error = self._counter.failure(members[0].info, slots[worst], numbers[worst]).message()
        room = plan.best_slots()
        failed_at = order[min(room, len(order) - 1)]
        known = dict(zip(classes, slots, strict=True))
        return Gathered(order, (), failed_at, plan.failure(fit_error, tried), slots=known, room=room)

    def _place_in(
        self, attempt: Attempt, choice: DomainChoice, entries: Sequence[Entry], *, exactly: bool
    ) -> tuple[Entry, Any] | None:
        """Place the members in one domain, those of one class on their shares; or none, and which member failed."""
        planned = [row for row, count in choice.shares for _ in range(count)] if exactly else []
        placed: list[Any] = []
        for number, entry in enumerate(entries):
            place = self._place(entry, attempt.key, (planned[number],)) if exactly else None
            if place is None or (isinstance(place, self._failure) and not place.gate and len(choice.rows) > 1):
                place = self._place(entry, attempt.key, choice.rows)
            if isinstance(place, self._failure):
                for member in reversed(placed):
                    self._release(member)
                attempt.again()
                return entry, place
            placed.append(place)
            attempt.placed(entry.info.uid)
        return None


def _kind(entry: Entry) -> Kind:
    return entry.info.pod.spec.scheduler_name, entry.info.pod_class.id


def _without_scarcest(attempt: Attempt, slots: Mapping[Kind, Slots], entries: Sequence[Entry]) -> list[Entry]:
    """The entries but those of classes without a place in any domain; if there is none, but those of the class of which
    a domain has room for the smallest part. Of many classes several go at once, so that the attempts stay few."""
    rows = attempt.domains.rows() if attempt.domains is not None else None
    if rows is None:
        return []
    numbers, inside = Counter(map(_kind, entries)), rows >= 0

    def part(kind: Kind) -> float:
        most = np.bincount(rows[inside], weights=slots[kind].count[inside]).max(initial=0)
        return float(most) / numbers[kind]

    parts = {kind: part(kind) for kind in numbers if kind in slots}
    scarcest = sorted(parts, key=parts.__getitem__)[: max(1, len(numbers) // AT_ONCE)]
    out = {kind for kind in parts if not parts[kind]} or {*scarcest}
    return [entry for entry in entries if _kind(entry) not in out] if out else []
