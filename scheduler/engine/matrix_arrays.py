"""The arrays of a `ScoreMatrix`, the classes that have an index in them, and the log of nodes to judge again."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seatrial.scheduler.cache.columns import Bools, Ints, NodeColumns
from seatrial.scheduler.cache.row_log import RowLog
from seatrial.scheduler.engine.class_entry import ClassEntry
from seatrial.scheduler.engine.rules import ClassRules
from seatrial.scheduler.engine.signatures import REFUSED
from seatrial.scheduler.engine.update_plan import Plan
from seatrial.scheduler.framework.extension_points import MAX_NODE_SCORE

NOT_FEASIBLE = -(1 << 62)  # no sum of bounds raises it to 0; any key below 0 is infeasible
NO_RAW = -(1 << 40)
_FIRST_CLASSES = 32
_MORE_CLASSES = 8  # or a quarter, if that is more: each placement writes to all rows, so few are kept in reserve
PADDING = 40  # class rows at power-of-two distances would map to the same cache sets, so that one column always misses


@dataclass(slots=True)
class Together:
    """Classes with one batch key, with the stacked arguments of their plugins."""

    entries: list[ClassEntry]
    index: NDArray[np.intp]  # [class]
    start: NDArray[np.intp]  # [class, 1], where each class starts in the flattened arrays
    filters: list[Any]
    scores: list[Any]
    normalized: list[Any]


class MatrixArrays:
    """Storage: allocation, indices of classes, and rows that changed."""

    def __init__(self, columns: NodeColumns) -> None:
        self._columns = columns
        self._entries: list[ClassEntry | None] = []
        self._spare: list[int] = []
        self.log = RowLog()  # rows that all classes have to judge again
        self.pending: list[int] = []  # rows whose keys are bounds since the last `_sync`
        self._exact_for: dict[int, int] = {}  # of those, by row: classes that judged it since, as bits
        self._syncs = 0
        self._patches = 0
        self._visits = 0
        self._plan: Plan | None = None
        self._together: list[Together] = []
        self._in_step: list[ClassEntry] = []  # the entries that `_together` was made of
        self._raised = 0  # how often a raw score rose above the largest of some class
        self._numbers: dict[str, int] = {}  # plugin name of a normalised score → position in `raw`
        self._highest_ever = MAX_NODE_SCORE
        self._revised_numbers: dict[str, int] = {}  # plugin name of a score with revisions → position in `revised`
        self.raw: list[Ints] = []
        self.revised: list[Ints] = []
        self.highest: list[Ints] = []
        self._divisor: list[Ints] = []  # the same for classes with exact keys, [class], at least 1
        self.capacity = 0
        self._allocate(_FIRST_CLASSES, columns.capacity)

    def _allocate(self, classes: int, capacity: int) -> None:
        """Allocate arrays of a new size. All classes are judged again when they are next used."""
        self._room, self.capacity, width = classes, capacity, capacity + PADDING
        self._plan = None  # the compiled keys refer to the arrays
        self._width = width
        self.key: Ints = np.full((classes, width), NOT_FEASIBLE, np.int64)
        self.exact: Ints = np.zeros((classes, width), np.int64)
        self.node_ok: Bools = np.zeros((classes, width), np.bool_)
        self.node_total: Ints = np.zeros((classes, width), np.int64)
        self.base: Ints = np.full((width, classes), REFUSED, np.int64)  # [node, class]
        self.salt: Ints = np.zeros((classes, 1), np.int64)
        self.raw = [np.full((classes, width), NO_RAW, np.int64) for _ in self.raw]
        self.revised = [np.zeros((classes, width), np.int64) for _ in self.revised]
        self.highest = [np.zeros((classes, 1), np.int64) for _ in self.highest]
        self._divisor = [np.ones(classes, np.int64) for _ in self.highest]
        self.pending.clear()
        self._exact_for.clear()
        self._together, self._in_step = [], []
        for index, entry in enumerate(self._entries):
            if entry is not None:
                self._start_class(index, entry)

    def _add_room(self, classes: int) -> None:
        """Make room for more classes; the keys of the others stay as they are."""
        if self.capacity != self._columns.capacity:
            self._allocate(classes, self._columns.capacity)
            return
        before, self._room, self._plan = self._room, classes, None
        more = ((0, classes - before), (0, 0))

        def longer(array: Ints, fill: int) -> Ints:
            return np.pad(array, more, constant_values=fill)

        self.key, self.exact = longer(self.key, NOT_FEASIBLE), longer(self.exact, 0)
        self.node_ok, self.node_total = np.pad(self.node_ok, more), longer(self.node_total, 0)
        self.base = np.pad(self.base, more[::-1], constant_values=REFUSED)
        self.salt = longer(self.salt, 0)
        self.raw = [longer(raw, NO_RAW) for raw in self.raw]
        self.revised = [longer(revised, 0) for revised in self.revised]
        self.highest = [longer(highest, 0) for highest in self.highest]
        self._divisor = [np.pad(divisor, more[0], constant_values=1) for divisor in self._divisor]

    # -- classes ------------------------------------------------------------------------------------------------------

    def join(self, entry: ClassEntry) -> None:
        """Add a class: give it its index on the class axis."""
        self._plan = None
        for score, _ in entry.rules.node_pods_normalized:
            if score.name not in self._numbers:
                self._numbers[score.name] = len(self.raw)
                self.raw.append(np.full((self._room, self._width), NO_RAW, np.int64))
                self.highest.append(np.zeros((self._room, 1), np.int64))
                self._divisor.append(np.ones(self._room, np.int64))
        for revised, _ in entry.revised:
            if revised.name not in self._revised_numbers:
                self._revised_numbers[revised.name] = len(self.revised)
                self.revised.append(np.zeros((self._room, self._width), np.int64))
        if self._spare:
            index = self._spare.pop()
            self._entries[index] = entry
        else:
            index = len(self._entries)
            self._entries.append(entry)
            if index == self._room:
                self._add_room(self._room + max(_MORE_CLASSES, self._room // 4))
        entry.index = index
        entry.raw_numbers = self.numbers(entry.rules)
        self._start_class(index, entry)

    def leave(self, index: int) -> None:
        self._plan = None
        self._entries[index] = None
        self._spare.append(index)

    def _start_class(self, index: int, entry: ClassEntry) -> None:
        entry.position = -1
        self.salt[index] = entry.salt
        self.key[index] = NOT_FEASIBLE
        self.exact[index] = 0
        self.base[:, index] = REFUSED
        for raw, highest, divisor in zip(self.raw, self.highest, self._divisor, strict=True):
            raw[index] = NO_RAW
            highest[index] = 0
            divisor[index] = 1
        entry.highest = [0] * len(entry.rules.node_pods_normalized)
        entry.tops = [-1] * len(entry.highest)

    def numbers(self, rules: ClassRules) -> list[int]:
        """Positions in `raw` of the normalised scores of a class."""
        return [self._numbers[score.name] for score, _ in rules.node_pods_normalized]

    # -- changes ------------------------------------------------------------------------------------------------------

    def opened(self, row: int) -> None:
        """A node changed in a way that has no bound: all classes judge it again."""
        self.log.add(row)

    def opened_since(self, position: int) -> list[int] | None:
        """Rows to judge again since `position`, each once; None: all rows."""
        return self.log.since(position, self._columns.count)
