"""Attraction of pods with one value of `network-topology-selector` (GANG-R68): order of nodes, and counts of peers."""

from collections import Counter

import numpy as np

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.networktopology import TOPOLOGY_SELECTOR
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.columns import Ints, Rows
from seatrial.scheduler.cache.listener import Listener
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.coscheduling.topology.tree import TreeView


class SelectorPeers(Listener):
    """The number of placed pods of each selector value on each node."""

    only_annotations = True

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._counts: dict[str, Counter[str]] = {}  # by value, then by node name
        for node in cache.nodes.values():
            for info in node.pods.values():
                self.pod_placed(info)
        cache.listen(self)

    @staticmethod
    def of(handle: Handle) -> "SelectorPeers":
        return handle.shared(SelectorPeers, lambda: SelectorPeers(handle.cache))

    def rows(self, value: str) -> Ints:
        """The number of pods with this value on each node, [node]."""
        columns = self._cache.columns
        counts = np.zeros(columns.count, np.int64)
        for name, count in self._counts.get(value, {}).items():
            row = columns.rows.get(name)
            if row is not None:
                counts[row] = count
        return counts

    def pod_placed(self, info: PodInfo) -> None:
        value = info.pod.metadata.annotations.get(TOPOLOGY_SELECTOR)
        if value:
            self._counts.setdefault(value, Counter())[info.node_name] += 1

    def pod_gone(self, info: PodInfo) -> None:
        self._remove(info.pod, info.node_name)

    def pod_changed(self, info: PodInfo, before: Pod) -> None:
        after = info.pod.metadata.annotations.get(TOPOLOGY_SELECTOR)
        if after != before.metadata.annotations.get(TOPOLOGY_SELECTOR):
            self._remove(before, info.node_name)
            self.pod_placed(info)

    def _remove(self, pod: Pod, node: str) -> None:
        value = pod.metadata.annotations.get(TOPOLOGY_SELECTOR)
        if value:
            counts = self._counts[value]
            counts[node] -= 1
            if not counts[node]:
                del counts[node]
                if not counts:
                    del self._counts[value]


def positions(view: TreeView, rows: Rows, peers: Ints) -> Ints:
    """The position of each of these nodes, 0 is best: more peers on the node and then its ancestors, fewer of `rows` in
    the same domain, on the node and then its ancestors, and the name. Nodes outside of the tree come last.

    `peers`: [node].
    """
    outside = view.domains[view.bottom][rows] < 0
    crowds: list[Ints] = []
    candidates: list[Ints] = []
    for level in range(view.bottom, 0, -1):
        domains = view.domains[level]
        size = len(view.paths[level])
        inside = domains >= 0
        sums = np.bincount(domains[inside], weights=peers[inside], minlength=size).astype(np.int64)
        own = domains[rows]
        numbers = np.bincount(own[own >= 0], minlength=size)
        crowds.append(-sums[np.maximum(own, 0)])
        candidates.append(numbers[np.maximum(own, 0)])
    ranks = view.ranks[view.bottom][rows]
    keys = [outside, *(np.where(outside, 0, key) for key in (*crowds, *candidates)), ranks]
    order = np.lexsort(keys[::-1])
    by_order = np.empty(len(rows), np.int64)
    by_order[order] = np.arange(len(rows))
    return by_order
