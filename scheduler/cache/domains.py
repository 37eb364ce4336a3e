"""Topology domains: nodes grouped by their value of a label, such as zones, racks or hosts."""

import numpy as np

from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.columns import Bools, Ints
from seatrial.scheduler.cache.node_facts import MAX_KEYS, NodeFact


class Domain:
    """One label key. Each value has a code; nodes without the label have a code, too."""

    def __init__(self, cache: Cache, key: str) -> None:
        self._columns = cache.columns
        self._fact: NodeFact[str | None] = NodeFact(cache, lambda node: node.metadata.labels.get(key))
        self._present: Bools = np.zeros(0, np.bool_)
        self._single = False  # no two nodes have the same value
        self._as_of = (-1, -1)  # node objects and rows that `_present` was computed from

    def codes(self) -> Ints:
        """The code of each row in use, [node]; undefined for rows without a node."""
        return self._fact.codes()[: self._columns.count]

    def value(self, code: int) -> str | None:
        """The label's value of a code; None for the code of nodes without the label."""
        return self._fact.values[code]

    @property
    def size(self) -> int:
        """The number of codes."""
        self._fact.codes()
        return len(self._fact.values)

    def present(self) -> Bools:
        """Whether the node exists and has the label, [node], rows in use. The caller must not change it."""
        columns = self._columns
        now = (columns.static_changes, columns.count)
        if now != self._as_of:
            codes = self.codes()  # may add values
            has = np.array([value is not None for value in self._fact.values] or [False], np.bool_)
            self._present, self._as_of = has[codes] & columns.known[: columns.count], now
            self._single = bool(np.bincount(codes[self._present], minlength=1).max() <= 1)
        return self._present

    def sums(self, counts: Ints, where: Bools) -> Ints:
        """Sum `counts` [node] over the rows of `where`, [code]."""
        return np.bincount(self.codes(), weights=counts * where, minlength=self.size).astype(np.int64)

    def around(self, counts: Ints, where: Bools) -> Ints:
        """For each present row, the sum of `counts` over the rows of `where` with the same value, [node].

        Other rows are undefined. `where` must have present rows only.
        """
        self.present()
        return counts * where if self._single else self.sums(counts, where)[self.codes()]

    def distinct(self, where: Bools) -> Ints:
        """The codes that occur among the rows of `where`, ascending."""
        return np.flatnonzero(np.bincount(self.codes(), weights=where, minlength=self.size))


class Domains:
    """One `Domain` for each label key, created on first use."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._by_key: dict[str, Domain] = {}

    def of(self, key: str) -> Domain:
        domain = self._by_key.get(key)
        if domain is None:
            if len(self._by_key) >= MAX_KEYS:
                self._by_key.clear()
            domain = self._by_key[key] = Domain(self._cache, key)
        return domain
