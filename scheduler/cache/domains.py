"""Nodes by their value of a label: the zones, racks or hosts over which pods are spread or brought together."""

import numpy as np

from scheduler.cache.cache import Cache
from scheduler.cache.columns import Bools, Ints
from scheduler.cache.node_facts import NodeFact


class Domain:
    """One label key. Values are numbers here; nodes without the label have a number too, `missing`."""

    def __init__(self, cache: Cache, key: str) -> None:
        self._columns = cache.columns
        self._fact: NodeFact[str | None] = NodeFact(cache, lambda node: node.metadata.labels.get(key))
        self._present: Bools = np.zeros(0, np.bool_)
        self._single = False  # no two nodes have the same value
        self._as_of = (-1, -1)  # of which node objects and rows `_present` speaks

    def codes(self) -> Ints:
        """The value's number for each row in use; of rows that are no node it says nothing."""
        return self._fact.codes()[: self._columns.count]

    @property
    def size(self) -> int:
        """How many numbers there are."""
        self._fact.codes()
        return len(self._fact.values)

    def present(self) -> Bools:
        """Whether the row's node exists and has the label, for each row in use. Not for the caller to change."""
        columns = self._columns
        now = (len(columns.static_log), columns.count)
        if now != self._as_of:
            codes = self.codes()  # may make new values known
            has = np.array([value is not None for value in self._fact.values] or [False], np.bool_)
            self._present, self._as_of = has[codes] & columns.known[: columns.count], now
            self._single = bool(np.bincount(codes[self._present], minlength=1).max() <= 1)
        return self._present

    def sums(self, counts: Ints, where: Bools) -> Ints:
        """Sum `counts` [node] over the rows of `where`, by number."""
        return np.bincount(self.codes(), weights=counts * where, minlength=self.size).astype(np.int64)

    def around(self, counts: Ints, where: Bools) -> Ints:
        """For each row that is `present`, the sum of `counts` over the rows of `where` with its value; others get any.

        `where` has no rows but present ones.
        """
        self.present()
        return counts * where if self._single else self.sums(counts, where)[self.codes()]

    def distinct(self, where: Bools) -> Ints:
        """The numbers that occur among the rows of `where`, ascending."""
        return np.flatnonzero(np.bincount(self.codes(), weights=where, minlength=self.size))


class Domains:
    """One `Domain` a label key, made when first asked for."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._by_key: dict[str, Domain] = {}

    def of(self, key: str) -> Domain:
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = Domain(self._cache, key)
        return found
