"""Counts of matching pods on each node, for every set of matchers that a plugin uses, updated pod by pod."""

from collections import OrderedDict

import numpy as np

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.columns import Ints
from seatrial.scheduler.cache.listener import Listener
from seatrial.scheduler.cache.matching import LabelIndex, LabelPair, Namespaces, PodMatcher
from seatrial.scheduler.cache.nodeinfo import PodInfo

MAX_KEPT_CELLS = 50_000_000  # tallies times nodes, 8 bytes each; beyond, the least recently used are dropped
MIN_TALLIES = 64  # this many are kept in any case


class Tally:
    """The number of pods that match all `matchers`, [node]; `staying`: without pods that are being deleted."""

    __slots__ = ("_hash", "matchers", "rows", "staying", "total")

    def __init__(self, matchers: tuple[PodMatcher, ...], *, staying: bool) -> None:
        self.matchers = matchers
        self.staying = staying
        self.rows: Ints = np.zeros(0, np.int64)
        self.total = 0
        self._hash = hash((matchers, staying))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tally) and (self.matchers, self.staying) == (other.matchers, other.staying)

    def matches(self, pod: Pod, known: Namespaces) -> bool:
        if self.staying and pod.deleting:
            return False
        return all(matcher.matches(pod, known) for matcher in self.matchers)

    def needs(self) -> list[LabelPair] | None:
        label_pairs = (matcher.needs() for matcher in self.matchers)
        return next((pairs for pairs in label_pairs if pairs is not None), None)

    def count(self, row: int, change: int, capacity: int) -> None:
        if len(self.rows) < capacity:
            self.rows = np.concatenate([self.rows, np.zeros(capacity - len(self.rows), np.int64)])
        self.rows[row] += change
        self.total += change


class Tallies(Listener):
    """All tallies of one scheduler."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._known: OrderedDict[Tally, Tally] = OrderedDict()
        self._index: LabelIndex[Tally] = LabelIndex()
        self._counted: dict[str, list[Tally]] = {}  # by pod uid: the tallies that count it
        cache.listen(self)

    def __len__(self) -> int:
        return len(self._known)

    def of(self, *matchers: PodMatcher, staying: bool = False) -> Tally:
        """The tally of the pods that match all of these; counted now if it is new."""
        request = Tally(matchers, staying=staying)
        entry = self._known.get(request)
        if entry is None:
            entry = self._known[request] = request
            self._count_all(entry)
            self._index.add(entry)
            if len(self._known) > MIN_TALLIES:
                self._forget_one()
        else:
            self._known.move_to_end(entry)
        capacity = self._cache.columns.capacity
        if len(entry.rows) < capacity:
            entry.count(0, 0, capacity)
        return entry

    def _count_all(self, tally: Tally) -> None:
        for node in self._cache.nodes.values():
            for info in node.pods.values():
                if tally.matches(info.pod, self._cache.namespaces):
                    tally.count(node.row, 1, self._cache.columns.capacity)
                    self._counted.setdefault(info.uid, []).append(tally)

    def _forget_one(self) -> None:
        """Drop the least recently used tally if there are too many, or if its pods are gone, as those of a workload."""
        oldest = next(iter(self._known))
        if not oldest.total or len(self._known) * self._cache.columns.capacity > MAX_KEPT_CELLS:
            self._drop(oldest)
        else:
            self._known.move_to_end(oldest)  # so that the next one is looked at

    def _drop(self, tally: Tally) -> None:
        del self._known[tally]
        self._index.discard(tally)
        if not tally.total:
            return
        for uid in [uid for uid, tallies in self._counted.items() if tally in tallies]:
            self._counted[uid].remove(tally)

    def pod_placed(self, info: PodInfo) -> None:
        if not self._known:
            return
        matchers = list(self._index.find(info.pod, self._cache.namespaces))
        if matchers:
            self._counted[info.uid] = matchers
            self._change(info, matchers, 1)

    def pod_gone(self, info: PodInfo) -> None:
        entry = self._counted.pop(info.uid, None)
        if entry:
            self._change(info, entry, -1)

    def pod_changed(self, info: PodInfo, before: Pod) -> None:  # noqa: ARG002
        self.pod_gone(info)
        self.pod_placed(info)

    def namespace_changed(self, name: str) -> None:
        for node in self._cache.nodes.values():
            for info in node.pods.values():
                if info.pod.metadata.namespace == name:
                    self.pod_changed(info, info.pod)

    def _change(self, info: PodInfo, tallies: list[Tally], change: int) -> None:
        columns = self._cache.columns
        row = columns.rows[info.node_name]
        for tally in tallies:
            tally.count(row, change, columns.capacity)
        self._cache.placement_changes += 1
