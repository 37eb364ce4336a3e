"""For claims that ask for the same: the nodes that have it. A node is searched again only after its devices changed.

Each decision searches as many nodes as it may take time for. The next one for the same goes on with the others, so that
an expression that takes long for each device of a large cluster delays its own pods, not those of others.

Nodes whose devices are alike, as far as the claims can see, with the same ones in use, are searched once.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from seatrial.scheduler.api.core import Node
from seatrial.scheduler.cache.columns import Ints
from seatrial.scheduler.cache.row_log import RowLog
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.plugins.dynamicresources.allocator import Pick, Search, Solution, serves
from seatrial.scheduler.plugins.dynamicresources.claims import Claims
from seatrial.scheduler.plugins.dynamicresources.expressions import ExhaustedError, Path
from seatrial.scheduler.plugins.dynamicresources.inventory import Card, Counters, View
from seatrial.scheduler.plugins.dynamicresources.wants import AllocationError, Alternative, Want

CANNOT = Status.unresolvable("cannot allocate all claims")
LATER = Status.error("the search for devices goes on: it takes long, and not all nodes are searched yet")
INVALID = Status.unresolvable("invalid resource pools were encountered")
KEPT = 32  # kinds of claims whose verdicts are kept
MAX_WORK = 50_000  # steps of expressions and devices tried in one decision, a second or two
PAUSE = 1.0  # seconds until the next ones
KEPT_SEARCHES = 8192  # results of searches for a kind

FindNode = Callable[[int], Node | None]
_Chosen = tuple[
    tuple[tuple[int, Alternative, Counters | None], ...], ...
]  # by claim: places of devices in `View.cards`


class Changes:
    """Rows whose devices, or the use of them, changed."""

    def __init__(self, handle: Handle) -> None:
        self._handle, self._columns = handle, handle.columns
        self._waking = False
        self.round = 0  # of searches that go on
        self.log = RowLog()
        self.epoch = 0  # grows where any row may have changed

    def note(self, node: str) -> None:
        row = self._columns.rows.get(node) if node else None
        if row is not None:
            self.log.add(row)
        elif not node:
            self.epoch += 1

    def go_on(self) -> None:
        """Have waiting pods looked at again in a moment: a search is not done yet."""
        if not self._waking:
            self._waking = True
            self._handle.clock.call_later(PAUSE, self._wake)

    def _wake(self) -> None:
        self._waking = False
        self.round += 1
        self._handle.request_wake()
        self._handle.request_cycle()


class Verdicts:
    """The verdict on each row. `codes`: [row], an index of `statuses`; 0 where there is a solution."""

    def __init__(self, wants: Sequence[Want], claims: Claims, changes: Changes) -> None:
        self.wants = wants
        self._claims, self._changes = claims, changes
        self.codes: Ints = np.zeros(0, np.int64)
        self.statuses: list[Status] = [SUCCESS, CANNOT, INVALID, LATER]
        self._numbers: dict[Status, int] = {}  # of errors
        self._chosen: dict[int, _Chosen] = {}  # by row
        self._layouts: dict[int, tuple[View, int | None]] = {}  # by row: the number of what the claims see there
        self._ways = [way for want in wants for request in want.requests for way in request]
        self._selectors = [selector for way in self._ways for selector in (*way.class_selectors, *way.selectors)]
        constraints = [constraint for want in wants for constraint in want.constraints]
        self._compared = sorted({item.match_attribute or item.distinct_attribute for item in constraints})
        self.has_choices = any("/" in way.name for way in self._ways)  # see `preference`
        self._paths: tuple[Path, ...] = ()  # that the selectors have read
        self._by_values: dict[tuple[object, ...], tuple[bool, ...]] = {}
        self._layout_numbers: dict[tuple[object, ...], int] = {}
        self._new_number = itertools.count()
        self._searched: dict[tuple[int, int], _Chosen | None] = {}  # by layout and devices in use
        self._position, self._epoch, self._round = -1, -1, -1
        self._later: tuple[int, ...] = ()  # rows that are not searched yet

    def refresh(self, count: int, node: FindNode) -> None:
        """Search the nodes again whose devices changed; there are `count` rows."""
        log = self._changes.log
        later = self._later if self._round != self._changes.round else ()
        done = self._position == log.end and self._epoch == self._changes.epoch and len(self.codes) >= count
        if done and not later:
            return
        rows = None if self._epoch != self._changes.epoch else log.since(self._position, count)
        if rows is None:
            rows = list(range(count))
            self.codes = np.zeros(count, np.int64)
            self._chosen.clear()
            self._layouts.clear()
            del self.statuses[4:]
            self._numbers.clear()
        elif len(self.codes) < count:
            rows = sorted({*rows, *range(len(self.codes), count)})
            self.codes = np.concatenate([self.codes, np.zeros(count - len(self.codes), np.int64)])
        self._position, self._epoch = log.end, self._changes.epoch
        self._round = self._changes.round
        left = dict.fromkeys((*rows, *self._later)) if later else dict.fromkeys(rows)
        allowance = self._claims.expressions.allowance
        allowance.left = MAX_WORK
        try:
            for row in list(left):
                allowance.check()
                row_node = node(row)
                if row_node is not None:
                    self._judge(row, row_node)
                del left[row]
        except ExhaustedError:
            self._changes.go_on()
        finally:
            allowance.left = math.inf
        for row in left:
            self._note(row, None, none=3)
        self._later = tuple(left) if later else tuple(dict.fromkeys((*self._later, *left)))

    def _judge(self, row: int, node: Node) -> None:
        view, ledger = self._claims.inventory.view(node), self._claims.ledger
        before = self._layouts.get(row)
        if before is None or before[0] is not view:
            before = self._layouts[row] = view, self._layout(view)
        key = None if before[1] is None else (before[1], view.in_use(ledger.of_pool))
        if key is not None and key in self._searched:
            self._note(row, self._searched[key])
            return
        search = Search(self.wants, view, ledger, node.name)
        try:
            solution = search.run()
        except AllocationError as error:
            self._chosen.pop(row, None)
            self.codes[row] = self._number(Status.error(str(error)))
            return
        finally:
            self._claims.expressions.allowance.spend(search.steps)
        chosen = None
        if solution is not None:
            chosen = tuple(tuple((view.places[one.card.id], one.way, one.consumed) for one in own) for own in solution)
        if key is not None:
            if len(self._searched) >= KEPT_SEARCHES:
                self._searched.clear()
            self._searched[key] = chosen
        self._note(row, chosen, none=2 if search.invalid else 1)

    def _note(self, row: int, chosen: "_Chosen | None", none: int = 1) -> None:
        if chosen is not None:
            self.codes[row] = 0
            self._chosen[row] = chosen
        else:
            self.codes[row] = none
            self._chosen.pop(row, None)

    def _layout(self, view: View) -> int | None:
        """A number that is equal for nodes of which a search sees the same; None: it may see more than devices in use.

        Names of devices and attributes that nothing reads may differ.
        """
        if not view.plain:
            return None
        seen: tuple[object, ...]
        try:
            seen = tuple([self._served(card) for card in view.cards])
        except AllocationError:
            return None  # the message names the device
        if self._compared:
            seen = (seen, *(card.attributes.get(name) for card in view.cards for name in self._compared))
        number = self._layout_numbers.get(seen)
        if number is None:
            if len(self._layout_numbers) >= KEPT_SEARCHES:  # a number is never used again
                self._layout_numbers.clear()
            number = self._layout_numbers[seen] = next(self._new_number)
        return number

    def _served(self, card: Card) -> tuple[bool, ...]:
        """Which requests mean the card. Cards that are equal in all that the selectors read share the answer."""
        served = self._by_values.get(tuple(map(card.subject.values.get, self._paths)))
        if served is None:
            served = tuple(serves(way, card) for way in self._ways)
            paths = tuple(dict.fromkeys(path for selector in self._selectors for path in selector.reads))
            if paths != self._paths or len(self._by_values) >= KEPT_SEARCHES:
                self._paths = paths
                self._by_values.clear()
            if not any(way.capacity for way in self._ways) and not card.subject.own:
                self._by_values[card.subject.read(paths)] = served
        return served

    def solution(self, row: int, node: Node) -> Solution | None:
        """The devices on the node of a row, of the last `refresh`; None: it does not have them."""
        chosen, cards = self._chosen.get(row), self._claims.inventory.view(node).cards
        if chosen is None:
            return None
        return tuple(tuple(Pick(cards[place], way, consumed) for place, way, consumed in own) for own in chosen)

    def _number(self, status: Status) -> int:
        number = self._numbers.setdefault(status, len(self.statuses))
        if number == len(self.statuses):
            self.statuses.append(status)
        return number

    def preference(self, row: int) -> int:
        """8 less the place of the chosen alternative, for each request that has alternatives (DRA-R66)."""
        total = 0
        for own in self._chosen.get(row, ()):
            ways = {way.name: way for _, way, _ in own if "/" in way.name}
            total += sum(8 - way.place for way in ways.values())
        return total


class VerdictCache:
    """The verdicts on the kinds of claims that were asked for last."""

    def __init__(self, claims: Claims, handle: Handle) -> None:
        self._claims = claims
        self._changes = Changes(handle)
        self._kept: dict[Hashable, Verdicts] = {}
        claims.changed.append(self._changes.note)

    def of(self, key: Hashable, make: Callable[[], Sequence[Want]]) -> Verdicts:
        """The verdicts on claims whose specs, and the version of whose classes, are `key`.

        Raises:
            AllocationError: they cannot be compiled.
        """
        verdicts = self._kept.pop(key, None)
        if verdicts is None:
            verdicts = Verdicts(make(), self._claims, self._changes)
            if len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
        self._kept[key] = verdicts
        return verdicts
