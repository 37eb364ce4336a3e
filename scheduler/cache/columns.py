"""All nodes as columns, and a log of which rows changed, so that whoever derives from them recomputes those rows alone.

A row belongs to one node name while that name is known; the row of a forgotten node is given to the next new one. Every
view remembers how much of the log it has read. Plugins add columns of their own; they grow with the table.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from scheduler.cache.resources import ResourceIndex

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Rows = NDArray[np.intp]

TieBreak = Callable[[str], int]

TIE_BITS = 31
_FIRST_CAPACITY = 64
_LOG_LIMIT = 1 << 20


def seeded_ties(seed: int) -> TieBreak:
    """Among equal scores the node whose name hashes highest with `seed` wins: even, repeatable, and blind to order."""
    salt = seed.to_bytes(8, "little", signed=True)

    def rank(name: str) -> int:
        digest = hashlib.blake2b(name.encode(), key=salt, digest_size=8).digest()
        return int.from_bytes(digest, "little") >> (64 - TIE_BITS)

    return rank


@dataclass(slots=True)
class _Extra:
    shape: tuple[int, ...]
    fill: int
    array: NDArray[Any]


class NodeColumns:
    """Arrays over nodes (first axis: row). Read them freely; they change only through the methods here.

    `allocatable`, `free`: resource columns (`ResourceIndex`), int64; free may be negative on an overcommitted node.
    `room`: cpu (milli) and memory (bytes) that non-zero requests leave, int64 [rows, 2].
    `known`: the row belongs to a node that exists. `tie`: what decides between equal scores, higher wins.
    """

    def __init__(self, resources: ResourceIndex, tie_break: TieBreak) -> None:
        self.resources = resources
        self._tie_break = tie_break
        self.count = 0  # rows in use are all below this
        self.capacity = _FIRST_CAPACITY
        self.names: list[str] = []
        self.rows: dict[str, int] = {}
        self._spare: list[int] = []
        width = len(resources) + 4
        self.allocatable: Ints = np.zeros((self.capacity, width), np.int64)
        self.free: Ints = np.zeros((self.capacity, width), np.int64)
        self.room: Ints = np.zeros((self.capacity, 2), np.int64)
        self.known: Bools = np.zeros(self.capacity, np.bool_)
        self.tie: Ints = np.zeros(self.capacity, np.int64)
        self._extra: dict[str, _Extra] = {}
        self._log: list[int] = []
        self._log_start = 0
        self.static_log: list[int] = []  # rows whose node object changed: rare, never cut
        self.changes = 0  # how much has been logged since the beginning; the log's end

    def row(self, name: str) -> int:
        """The row of `name`, given out now if it has none."""
        row = self.rows.get(name)
        if row is not None:
            return row
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
        self.tie[row] = self._tie_break(name)
        return row

    def release(self, name: str) -> None:
        """Forget `name`; its row counts as unknown until another name gets it."""
        row = self.rows.pop(name)
        self._spare.append(row)
        self.known[row] = False
        self.allocatable[row] = self.free[row] = 0
        self.room[row] = 0
        for extra in self._extra.values():
            extra.array[row] = extra.fill
        self.touch_static(row)

    def add_column(self, name: str, shape: tuple[int, ...] = (), *, dtype: DTypeLike = np.int64, fill: int = 0) -> None:
        """Add a plugin's own column, filled with `fill`; read it with `column`, write it in place, then `touch`."""
        array = np.full((self.capacity, *shape), fill, dtype)
        self._extra[name] = _Extra(shape, fill, array)

    def column(self, name: str) -> NDArray[Any]:
        """The array of a plugin's column; ask anew each time, because it moves when the table grows."""
        return self._extra[name].array

    def reshape(self, name: str, shape: tuple[int, ...]) -> None:
        """Give each row of a plugin's column a larger shape; what was there stays at the low end."""
        extra = self._extra[name]
        array = np.full((self.capacity, *shape), extra.fill, extra.array.dtype)
        array[tuple(slice(0, size) for size in extra.array.shape)] = extra.array
        extra.shape, extra.array = shape, array

    def set_sums(self, row: int, allocatable: list[int], requested: list[int], nonzero: tuple[int, int]) -> None:
        """Write all of a node's resource columns."""
        self._widen(max(len(allocatable), len(requested)))
        self.allocatable[row, : len(allocatable)] = allocatable
        self.free[row, : len(allocatable)] = allocatable
        self.free[row, : len(requested)] -= np.array(requested, np.int64)
        self.set_room(row, allocatable, nonzero)

    def set_room(self, row: int, allocatable: list[int], nonzero: tuple[int, int]) -> None:
        room = self.room
        room[row, 0] = allocatable[1] - nonzero[0]
        room[row, 1] = allocatable[2] - nonzero[1]

    def touch(self, row: int) -> None:
        """Note that something on this node changed: pods, devices, sums."""
        self._log.append(row)
        self.changes += 1
        if len(self._log) > _LOG_LIMIT:
            del self._log[: _LOG_LIMIT // 2]
            self._log_start += _LOG_LIMIT // 2

    def touch_static(self, row: int) -> None:
        """Note that the node object itself changed: labels, taints, capacity, coming and going."""
        self.static_log.append(row)
        self.touch(row)

    def changed_since(self, position: int) -> list[int] | None:
        """Rows logged since `position`, each once, oldest first; None if so many that all should be looked at."""
        if position < self._log_start or self.changes - position > self.count:
            return None
        recent = self._log[position - self._log_start :]
        return recent if len(recent) < 2 else list(dict.fromkeys(recent))

    def _widen(self, width: int) -> None:
        have = self.allocatable.shape[1]
        if width > have:
            more = ((0, 0), (0, width - have + 4))
            self.allocatable = np.pad(self.allocatable, more)
            self.free = np.pad(self.free, more)

    def ensure_width(self) -> None:
        """Make sure that every resource known to the index has its column."""
        self._widen(len(self.resources))

    def _grow(self) -> None:
        more = self.capacity
        self.allocatable = np.pad(self.allocatable, ((0, more), (0, 0)))
        self.free = np.pad(self.free, ((0, more), (0, 0)))
        self.room = np.pad(self.room, ((0, more), (0, 0)))
        self.known = np.pad(self.known, (0, more))
        self.tie = np.pad(self.tie, (0, more))
        self.capacity += more
        for extra in self._extra.values():
            array = np.full((self.capacity, *extra.shape), extra.fill, extra.array.dtype)
            array[:more] = extra.array
            extra.array = array


class Batch:
    """The rows that one pass looks at, with the columns gathered at most once for all plugins."""

    __slots__ = ("_gathered", "columns", "everything", "rows", "size")

    def __init__(self, columns: NodeColumns, rows: Rows | None) -> None:
        """`rows` None means all rows in use; columns then come as views, without a copy."""
        self.columns = columns
        self.everything = rows is None
        self.rows: Rows = np.arange(columns.count) if rows is None else rows
        self.size = columns.count if rows is None else len(rows)
        self._gathered: dict[str, NDArray[Any]] = {}

    @property
    def allocatable(self) -> Ints:
        return self._gather("\0allocatable", self.columns.allocatable)

    @property
    def free(self) -> Ints:
        return self._gather("\0free", self.columns.free)

    @property
    def room(self) -> Ints:
        return self._gather("\0room", self.columns.room)

    def own(self, name: str) -> NDArray[Any]:
        """These rows of a plugin's column."""
        return self._gather(name, self.columns.column(name))

    def pick(self, array: NDArray[Any]) -> NDArray[Any]:
        """These rows of any array over nodes."""
        return array[: self.size] if self.everything else array.take(self.rows, 0)

    def _gather(self, name: str, array: NDArray[Any]) -> NDArray[Any]:
        found = self._gathered.get(name)
        if found is None:
            found = self._gathered[name] = self.pick(array)
        return found
