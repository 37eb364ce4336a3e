"""NodeColumns: arrays over nodes, and a log of changed rows, so that derived data is updated for those rows only.

A row is the index of a node on the node axis. A node name keeps its row while it is known; the row of a removed node is
reused. Readers of the log keep their position. Plugins can add their own columns.

The node axis is the last axis of every array, so that one resource of many nodes is contiguous.
"""

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from seatrial.scheduler.cache.resources import CPU_COLUMN, MEMORY_COLUMN, ResourceIndex
from seatrial.scheduler.cache.row_log import RowLog

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.intp]

TIE_BITS = 31
_FIRST_CAPACITY = 64
_SPARE_RESOURCES = 4


class Ties:
    """Tie-break between nodes of equal score: a hash of seed, equivalence class and node name; the highest wins.

    It is uniform, repeatable and independent of the order of nodes. Classes have different ranks, so that they do not
    all prefer the same node.
    """

    def __init__(self, seed: int = 0) -> None:
        self._key = seed.to_bytes(8, "little", signed=True)

    def rank(self, name: str) -> int:
        """A node's rank, 0 to 2^31 - 1."""
        digest = hashlib.blake2b(name.encode(), key=self._key, digest_size=8).digest()
        return int.from_bytes(digest, "little") >> (64 - TIE_BITS)

    def salt(self, digest: int) -> int:
        """The value with which the ranks are XORed for a class."""
        return digest


class Watcher(Protocol):
    """Derives data from the columns row by row."""

    def filled(self, row: int, node: Any, placed: Any) -> None:
        """The pod `placed` was placed on `node`; nothing else changed there."""

    def vacated(self, row: int, node: Any) -> None:
        """A pod left `node`; nothing else changed there."""

    def opened(self, row: int) -> None:
        """The row changed in another way."""


@dataclass(slots=True)
class _Own:
    fill: NDArray[Any]  # value of a row that was not written, [*shape]
    array: NDArray[Any]
    catch_up: Callable[[NDArray[Any]], None] | None


class NodeColumns:
    """Arrays over nodes. They must be changed only by the methods of this class.

    `allocatable`, `free`: int64 [resource, node] by `ResourceIndex`; free is negative on an overcommitted node.
    `room`: int64 [2, node], cpu (milli) and memory (bytes) that non-zero requests leave.
    `divisor`: int64 [2, node], allocatable cpu and memory, but at least 1; `lacking`: how many known nodes have less.
    `known`: bool [node], the row belongs to a node that exists. `tie`: int64 [node], tie-break, the highest wins.
    """

    def __init__(self, resources: ResourceIndex, ties: Ties | None = None) -> None:
        self.resources = resources
        self.ties = ties or Ties()
        self.count = 0  # all rows in use are less than this
        self.capacity = _FIRST_CAPACITY
        self.names: list[str] = []
        self.rows: dict[str, int] = {}
        self._spare: list[int] = []
        self.width = len(resources) + _SPARE_RESOURCES
        self.allocatable: Ints = np.zeros((self.width, self.capacity), np.int64)
        self.free: Ints = np.zeros((self.width, self.capacity), np.int64)
        self.room: Ints = np.zeros((2, self.capacity), np.int64)
        self.divisor: Ints = np.ones((2, self.capacity), np.int64)
        self.lacking = 0
        self.known: Bools = np.zeros(self.capacity, np.bool_)
        self.tie: Ints = np.zeros(self.capacity, np.int64)
        self._own: dict[str, _Own] = {}
        self._log = RowLog()
        self._static_log = RowLog()  # rows whose node object changed
        self.static_changes = 0  # of node objects since the beginning
        self._watchers: list[Watcher] = []

    @property
    def changes(self) -> int:
        """The number of changes logged since the beginning."""
        return self._log.end

    def row(self, name: str) -> int:
        """The row of `name`, assigned now if it has none."""
        row = self.rows.get(name)
        if row is not None:
            return row
        name = sys.intern(name)  # dictionary look-ups then compare by identity
        if self._spare:
            row = self._spare.pop()
            self.names[row] = name
        else:
            row = self.count
            if row == self.capacity:
                self._grow()
            self.count += 1
            self.names.append(name)
        self.rows[name] = row
        self.tie[row] = self.ties.rank(name)
        return row

    def release(self, name: str) -> None:
        """Forget `name`. Its row is unknown until another name gets it."""
        row = self.rows.pop(name)
        self._spare.append(row)
        self.forget(row)
        self.allocatable[:, row] = self.free[:, row] = 0
        self.room[:, row] = 0
        for own in self._own.values():
            if own.catch_up is not None:
                own.catch_up(own.array)
            own.array[..., row] = own.fill
        self.touch_static(row)

    def add_column(self, name: str, fill: NDArray[Any], catch_up: Callable[[NDArray[Any]], None] | None = None) -> None:
        """Add a plugin's own array [*fill.shape, node], initialised with `fill`; an existing one is replaced.

        Read it with `column` and write it in place. `catch_up` is called with the array before each read, for plugins
        that defer writes.
        """
        self._own[name] = _Own(fill, np.repeat(fill[..., None], self.capacity, axis=-1), catch_up)

    def column(self, name: str) -> NDArray[Any]:
        """The array of a plugin's column. Do not keep it: it is reallocated when the table grows."""
        own = self._own[name]
        if own.catch_up is not None:
            own.catch_up(own.array)
        return own.array

    def set_sums(self, row: int, allocatable: list[int], requested: list[int], nonzero: tuple[int, int]) -> None:
        """Write the sums of an existing node to its row; both lists have one value for each resource."""
        self.forget(row)
        self._widen(len(allocatable))
        self.allocatable[: len(allocatable), row] = allocatable
        self.free[: len(allocatable), row] = np.subtract(allocatable, requested)
        self.set_room(row, allocatable, nonzero)
        cpu, memory = allocatable[CPU_COLUMN], allocatable[MEMORY_COLUMN]
        self.lacking += not (cpu and memory)
        self.divisor[:, row] = max(cpu, 1), max(memory, 1)
        self.known[row] = True

    def forget(self, row: int) -> None:
        """The node of the row was deleted: the row counts as unknown until `set_sums` is called for it again."""
        if self.known[row]:
            self.known[row] = False
            self.lacking -= not self.allocatable[CPU_COLUMN : MEMORY_COLUMN + 1, row].all()

    def set_room(self, row: int, allocatable: list[int], nonzero: tuple[int, int]) -> None:
        room = self.room
        room[0, row] = allocatable[CPU_COLUMN] - nonzero[0]
        room[1, row] = allocatable[MEMORY_COLUMN] - nonzero[1]

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` for every later change."""
        self._watchers.append(watcher)

    def touch(self, row: int) -> None:
        """Log that pods, devices or sums of this node changed."""
        self._log.add(row)
        for watcher in self._watchers:
            watcher.opened(row)

    def fill(self, row: int, node: Any, placed: Any) -> None:
        """Log that a pod was placed on this node; sums and devices have been written already."""
        self._log.add(row)
        for watcher in self._watchers:
            watcher.filled(row, node, placed)

    def vacate(self, row: int, node: Any) -> None:
        """Log that a pod left this node; sums and devices have been written already."""
        self._log.add(row)
        for watcher in self._watchers:
            watcher.vacated(row, node)

    def touch_static(self, row: int) -> None:
        """Log that the node object changed: labels, taints, capacity, creation or deletion."""
        self._static_log.add(row)
        self.static_changes += 1
        self.touch(row)

    def changed_since(self, position: int) -> list[int] | None:
        """Rows logged since `position`, each once, oldest first; None: too many, use all rows."""
        return self._log.since(position, self.count)

    def static_changed_since(self, position: int) -> Sequence[int]:
        """Rows whose node object changed since `position`, each once; all rows in use if they are too many."""
        rows = self._static_log.since(position, self.count)
        return range(self.count) if rows is None else rows

    def changed_among(self, marks: bytearray, position: int) -> bool:
        """Whether a row with a mark, [row], was logged since `position`. No node came since the marks were made."""
        return self._log.has_marked(marks, position)

    def ensure_width(self) -> None:
        """Make room for every resource of the index."""
        self._widen(len(self.resources))

    def _widen(self, width: int) -> None:
        if width > self.width:
            more = ((0, width - self.width + _SPARE_RESOURCES), (0, 0))
            self.allocatable = np.pad(self.allocatable, more)
            self.free = np.pad(self.free, more)
            self.width = len(self.free)

    def _grow(self) -> None:
        more = self.capacity
        self.allocatable = np.pad(self.allocatable, ((0, 0), (0, more)))
        self.free = np.pad(self.free, ((0, 0), (0, more)))
        self.room = np.pad(self.room, ((0, 0), (0, more)))
        self.divisor = np.pad(self.divisor, ((0, 0), (0, more)), constant_values=1)
        self.known = np.pad(self.known, (0, more))
        self.tie = np.pad(self.tie, (0, more))
        self.capacity += more
        for own in self._own.values():
            own.array = np.concatenate([own.array, np.repeat(own.fill[..., None], more, axis=-1)], axis=-1)


class Batch:
    """The rows of one pass, with the columns gathered at most once for all plugins.

    `rows` None: all rows in use; the columns are then views without a copy.
    """

    __slots__ = ("_allocatable", "_divisor", "_free", "_own", "_room", "_rows", "columns", "everything", "size")

    def __init__(self, columns: NodeColumns, rows: Rows | None) -> None:
        self.columns = columns
        self.everything = rows is None
        self._rows = rows
        self.size = columns.count if rows is None else len(rows)
        self._allocatable: Ints | None = None
        self._free: Ints | None = None
        self._room: Ints | None = None
        self._divisor: Ints | None = None
        self._own: dict[str, NDArray[Any]] = {}

    @property
    def rows(self) -> Rows:
        if self._rows is None:
            self._rows = np.arange(self.size)
        return self._rows

    @property
    def allocatable(self) -> Ints:
        if self._allocatable is None:
            self._allocatable = self.pick(self.columns.allocatable)
        return self._allocatable

    @property
    def free(self) -> Ints:
        if self._free is None:
            self._free = self.pick(self.columns.free)
        return self._free

    @property
    def room(self) -> Ints:
        if self._room is None:
            self._room = self.pick(self.columns.room)
        return self._room

    @property
    def divisor(self) -> Ints:
        if self._divisor is None:
            self._divisor = self.pick(self.columns.divisor)
        return self._divisor

    def own(self, name: str) -> NDArray[Any]:
        """These rows of a plugin's column."""
        entry = self._own.get(name)
        if entry is None:
            entry = self._own[name] = self.pick(self.columns.column(name))
        return entry

    def pick(self, array: NDArray[Any]) -> NDArray[Any]:
        """These rows of any array over nodes."""
        return array[..., : self.size] if self.everything else array.take(self.rows, -1)
