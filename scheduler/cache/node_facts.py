"""Facts of node objects as codes: nodes with equal values share a code, and a plugin judges each value once.

Ten thousand nodes have a handful of taint sets, so a selector is evaluated a handful of times. A fact is computed again
only for nodes whose object changed.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np

from seatrial.scheduler.api.core import Node
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.columns import Batch, Bools, Ints

MIN_VALUES = 64  # kept, however few nodes there are
MAX_KEYS = 256  # facts that are kept: pods name labels, and each fact has an array over all nodes; then all are dropped

V = TypeVar("V", bound=Hashable)


class NodeFact(Generic[V]):
    """One fact, for all nodes."""

    def __init__(self, cache: Cache, read: Callable[[Node], V]) -> None:
        self._cache = cache
        self._read = read
        self._position = 0
        self._codes: Ints = np.zeros(0, np.int64)
        self._numbers: dict[V, int] = {}
        self.values: list[V] = []

    def codes(self) -> Ints:
        """The position of each row's value in `values`, [node]."""
        self._catch_up()
        return self._codes

    def judge(self, batch: Batch, predicates: Sequence[Callable[[V], bool]]) -> Bools | None:
        """Each predicate on each row's value, [predicate, node]; None if all are true for all values."""
        self._catch_up()
        per_value = np.array([[predicate(value) for value in self.values] for predicate in predicates], np.bool_)
        return None if per_value.all() else per_value[:, batch.pick(self._codes)]

    def measure(self, batch: Batch, measures: Sequence[Callable[[V], int]]) -> Ints | None:
        """Each measure of each row's value, [measure, node]; None if all are 0 for every value there is."""
        self._catch_up()
        per_value = np.array([[measure(value) for value in self.values] for measure in measures], np.int64)
        return per_value[:, batch.pick(self._codes)] if per_value.any() else None

    def _catch_up(self) -> None:
        columns = self._cache.columns
        if len(self._codes) < columns.capacity:
            self._codes = np.concatenate([self._codes, np.zeros(columns.capacity - len(self._codes), np.int64)])
        if self._position == columns.static_changes:
            return
        if len(self.values) > 2 * columns.count + MIN_VALUES and self._cache.known_count:
            self._numbers.clear()  # most are of nodes that are gone
            self.values.clear()
            self._codes[:] = 0
            self._position = -1
        for row in columns.static_changed_since(self._position):
            node = self._cache.find(columns.names[row])
            if node is not None:
                value = self._read(node.known)
                code = self._numbers.get(value)
                if code is None:
                    code = self._numbers[value] = len(self.values)
                    self.values.append(value)
                self._codes[row] = code
        self._position = columns.static_changes
