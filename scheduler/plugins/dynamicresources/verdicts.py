"""For claims that ask for the same: the nodes that have it. A node is searched again only after its devices changed."""

from collections.abc import Callable, Sequence

import numpy as np

from seatrial.scheduler.api.core import Node
from seatrial.scheduler.cache.columns import Ints, NodeColumns
from seatrial.scheduler.cache.row_log import RowLog
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.plugins.dynamicresources.allocator import Search, Solution
from seatrial.scheduler.plugins.dynamicresources.claims import Claims
from seatrial.scheduler.plugins.dynamicresources.wants import AllocationError, Want

CANNOT = Status.unresolvable("cannot allocate all claims")
INVALID = Status.unresolvable("invalid resource pools were encountered")
KEPT = 32  # kinds of claims whose verdicts are kept

FindNode = Callable[[int], Node | None]


class Changes:
    """Rows whose devices, or the use of them, changed."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self.log = RowLog()
        self.epoch = 0  # grows where any row may have changed

    def note(self, node: str) -> None:
        row = self._columns.rows.get(node) if node else None
        if row is not None:
            self.log.add(row)
        elif not node:
            self.epoch += 1


class Verdicts:
    """The verdict on each row. `codes`: [row], an index of `statuses`; 0 where there is a solution."""

    def __init__(self, wants: Sequence[Want], claims: Claims, changes: Changes) -> None:
        self.wants = wants
        self._claims, self._changes = claims, changes
        self.codes: Ints = np.zeros(0, np.int64)
        self.statuses: list[Status] = [SUCCESS, CANNOT, INVALID]
        self._numbers: dict[Status, int] = {}  # of errors
        self.solutions: dict[int, Solution] = {}
        self._position, self._epoch = -1, -1

    def refresh(self, count: int, node: FindNode) -> None:
        """Search the nodes again whose devices changed; there are `count` rows."""
        log = self._changes.log
        rows = None if self._epoch != self._changes.epoch else log.since(self._position, count)
        if rows is None:
            rows = list(range(count))
            self.codes = np.zeros(count, np.int64)
            self.solutions.clear()
            del self.statuses[3:]
            self._numbers.clear()
        elif len(self.codes) < count:
            rows = sorted({*rows, *range(len(self.codes), count)})
            self.codes = np.concatenate([self.codes, np.zeros(count - len(self.codes), np.int64)])
        self._position, self._epoch = log.end, self._changes.epoch
        for row in rows:
            row_node = node(row)
            if row_node is not None:
                self._judge(row, row_node)

    def _judge(self, row: int, node: Node) -> None:
        self.solutions.pop(row, None)
        search = Search(self.wants, self._claims.inventory.view(node), self._claims.ledger, node.name)
        try:
            solution = search.run()
        except AllocationError as error:
            self.codes[row] = self._number(Status.error(str(error)))
            return
        if solution is not None:
            self.codes[row] = 0
            self.solutions[row] = solution
        else:
            self.codes[row] = 2 if search.invalid else 1

    def _number(self, status: Status) -> int:
        number = self._numbers.setdefault(status, len(self.statuses))
        if number == len(self.statuses):
            self.statuses.append(status)
        return number

    def preference(self, row: int) -> int:
        """8 less the place of the chosen alternative, for each request that has alternatives (DRA-R66)."""
        total = 0
        for picks in self.solutions.get(row, ()):
            ways = {pick.way.name: pick.way for pick in picks if "/" in pick.way.name}
            total += sum(8 - way.place for way in ways.values())
        return total


class VerdictCache:
    """The verdicts on the kinds of claims that were asked for last."""

    def __init__(self, claims: Claims, columns: NodeColumns) -> None:
        self._claims = claims
        self._changes = Changes(columns)
        self._kept: dict[bytes, Verdicts] = {}
        claims.changed.append(self._changes.note)

    def of(self, key: bytes, make: Callable[[], Sequence[Want]]) -> Verdicts:
        """The verdicts on claims whose specs, and the versions of whose classes, are `key`.

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
