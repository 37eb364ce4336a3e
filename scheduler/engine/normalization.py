"""Normalisation of the scores of one class over its feasible nodes.

`ScoreMatrix` normalises scores that placements change. This module has the scores that depend on the node object alone,
and the second normalisation that a pod needs if it cannot use all nodes that are feasible for its class.
"""

import numpy as np

from seatrial.scheduler.cache.columns import TIE_BITS, Batch, Ints, NodeColumns, Rows
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.engine.class_entry import ClassEntry
from seatrial.scheduler.engine.score_matrix import ScoreMatrix
from seatrial.scheduler.framework.extension_points import Score
from seatrial.scheduler.framework.restored import RESTORED
from seatrial.scheduler.framework.state import CycleState


class NodeScore:
    """A score of scope NODE with a normalizer. Raw scores are kept, because the feasible nodes change."""

    def __init__(self, score: Score, weight: int) -> None:
        self.score, self.weight = score, weight
        self.raw: Ints | None = None  # [node]; None: 0 on every node
        self.highest = 0

    def normal(self, raw: Ints) -> Ints:
        """Scores 0..100, [1, node], for `raw` [node]."""
        assert self.score.normalizer is not None
        return self.score.normalizer.apply(raw[None], np.full((1, 1), self.highest))

    def raw_of(self, count: int) -> Ints:
        """The raw scores of the first `count` rows, [node]."""
        return np.zeros(count, np.int64) if self.raw is None else self.raw[:count]

    def keep(self, values: Ints | None, batch: Batch, *, everything: bool) -> None:
        """Store raw scores [1, node] for the rows of `batch`; `everything`: it has all rows; None: all are 0."""
        if everything:
            self.raw, self.highest = None, 0
        if values is None and self.raw is None:
            return
        capacity = batch.columns.capacity
        if self.raw is None or len(self.raw) < capacity:
            raw = np.zeros(capacity, np.int64)
            if self.raw is not None:
                raw[: len(self.raw)] = self.raw
            self.raw = raw
        self.raw[batch.rows] = 0 if values is None else values[0]


class ClassNormalizer:
    """Normalises the scores of one class."""

    def __init__(self, entry: ClassEntry, matrix: ScoreMatrix, columns: NodeColumns) -> None:
        self._entry, self._matrix, self._columns = entry, matrix, columns
        rules = entry.rules
        self.plain = [item for item in rules.node_scores if item[0].normalizer is None]
        self.node_scores = [NodeScore(*item) for item in rules.node_scores if item[0].normalizer is not None]
        self._included = False  # whether `include` changed totals since the last update

    def include(self, kept: NodeScore) -> None:
        """Add a score to the totals of all nodes. It was left out while its raw value was 0 on every node."""
        count = self._columns.count
        self._matrix.node_total[self._entry.index, :count] += kept.normal(kept.raw_of(count))[0] * kept.weight
        self._included = True

    def update(self) -> bool:
        """Update the largest raw scores. Returns whether the keys of the class have to be computed again."""
        stale, self._included = self._included, False
        if self._entry.highest and self._matrix.normalize(self._entry):
            stale = True
        for kept in self.node_scores:
            if kept.raw is not None and self._update_node_score(kept, kept.raw[: self._columns.count]):
                stale = True
        return stale

    def _update_node_score(self, kept: NodeScore, raw: Ints) -> bool:
        """`ScoreMatrix.normalize` for a score of scope NODE."""
        matrix = self._matrix
        matrix.settle(self._entry)  # all feasible nodes count here, not only the best
        key = matrix.key[self._entry.index, : self._columns.count]
        highest = int(np.where(key >= 0, raw, 0).max())
        if highest == kept.highest:
            return False
        before = kept.normal(raw)
        kept.highest = highest
        matrix.node_total[self._entry.index, : self._columns.count] += (kept.normal(raw) - before)[0] * kept.weight
        return True

    def renormalize(self, key: Ints, info: PodInfo, state: CycleState) -> dict[str, int]:
        """Normalise `key` [node] over its feasible nodes, after nodes of the class were excluded for this pod.

        Returns the largest raw scores among them, by plugin, where they were searched.
        """
        matrix, tops = self._matrix, dict[str, int]()
        rows: Rows | None = None
        restored = state.get(RESTORED)
        moving = len(self.node_scores)
        scored = [(kept.score, kept.weight, kept.raw, kept.highest) for kept in self.node_scores]
        scored += [
            (score, weight, matrix.raw[number][self._entry.index], self._entry.highest[order])
            for order, (number, (score, weight)) in enumerate(
                zip(self._entry.raw_numbers, self._entry.rules.node_pods_normalized, strict=True)
            )
        ]
        for number, (score, weight, all_raw, before) in enumerate(scored):
            if all_raw is None or (restored is None and number >= moving and self._keeps_top(number - moving, key)):
                continue
            rows = np.flatnonzero(key >= 0) if rows is None else rows
            raw = all_raw[rows]
            anew = list[int]()
            if restored is not None and number >= moving:
                names = [self._columns.names[row] for row in rows]
                anew = [place for place, name in enumerate(names) if name in restored.nodes]
                raw[anew] = [score.score(restored.state, info.pod, restored.nodes[names[place]]) for place in anew]
            highest = tops[score.name] = int(raw.max())
            if anew or highest != before:
                assert score.normalizer is not None
                now, then = (score.normalizer.apply(raw[None], np.full((1, 1), top))[0] for top in (highest, before))
                then[anew] = 0
                key[rows] += (now - then) * weight << TIE_BITS
        return tops

    def _keeps_top(self, order: int, key: Ints) -> bool:
        """Whether the node with the largest raw score of that order is still feasible."""
        top = self._entry.tops[order] if self._entry.uses_signatures else -1
        return top >= 0 and bool(key[top] >= 0)
