"""One equivalence class in a `ScoreMatrix`: its plugins, and how far its row of the matrix is up to date."""

from collections.abc import Hashable

import numpy as np

from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.classes import EquivalenceClass
from seatrial.scheduler.cache.columns import Batch, Bools, Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.engine.rules import ClassRules
from seatrial.scheduler.framework.accelerations import FilterBatch, ScoreBatch
from seatrial.scheduler.framework.extension_points import Filter, Score
from seatrial.scheduler.framework.state import CycleState


class ClassEntry:
    """The plugins of one class, run for many nodes at once where they can, else node by node."""

    def __init__(self, cache: Cache, pod_class: EquivalenceClass, rules: ClassRules) -> None:
        self.pod_class = pod_class
        self.state = rules.state
        self.rules = rules
        self.index = -1  # on the class axis; -1: not in the matrix
        self.raw_numbers: list[int] = []  # positions in `ScoreMatrix.raw` of its normalised scores
        self.position = -1  # how much of the matrix's log has been read; -1: nothing
        self.synced = -1  # number of the last joint pass that its row is in step with
        self.visited = 0
        self.highest = [0] * len(rules.node_pods_normalized)  # the largest raw scores, by which its keys are normalised
        self.tops = [-1] * len(self.highest)  # a row that has it; -1: unknown, -2: no node is feasible
        self.raised = 0
        self.uses_signatures = rules.uses_signatures
        self.revised = rules.revised
        self.revisions = [-1] * len(self.revised)  # at which its row was last scored by these plugins
        self.batch_key: tuple[Hashable, ...] = rules.batch_key
        self.salt = 0 if rules.common_ties else cache.columns.ties.salt(pod_class.digest)
        self._cache = cache
        self._names = cache.columns.names

    def node(self, row: int) -> NodeInfo:
        return self._cache.nodes[self._names[row]]

    def allows(self, row: int) -> bool:
        """Whether the row is a node that the PreFilters of this class left."""
        allowed = self.rules.allowed
        return bool(self._cache.columns.known[row]) and (allowed is None or self._names[row] in allowed)

    def stack(self, plugin: Filter, states: list[CycleState]) -> object:
        """The argument `stacked` of `narrow`; None if the plugin has to be called for each node."""
        return plugin.stack(states) if isinstance(plugin, FilterBatch) and plugin.can_batch(self.state) else None

    def stack_scores(self, score: Score, states: list[CycleState]) -> object:
        """The argument `stacked` of `values`; None if the plugin has to be called for each node."""
        return (
            score.stack_scores(states) if isinstance(score, ScoreBatch) and score.can_batch_scores(self.state) else None
        )

    def narrow(self, plugin: Filter, stacked: object, batch: Batch, ok: Bools) -> None:
        """Clear `ok` [class, node] where the plugin rejects; without `stacked`, for this class alone."""
        if stacked is not None:
            assert isinstance(plugin, FilterBatch)
            passing = plugin.filter_batch(stacked, batch)
            if passing is not None:
                ok &= passing
            return
        for index in np.flatnonzero(ok[0]):
            if not plugin.filter(self.state, self.pod_class.example, self.node(int(batch.rows[index]))).ok:
                ok[0, index] = False

    def values(self, score: Score, stacked: object, batch: Batch, ok: Bools) -> Ints | None:
        """Scores of the nodes that are `ok`, [class, node]; None if all are 0."""
        if stacked is not None:
            assert isinstance(score, ScoreBatch)
            return score.score_batch(stacked, batch)
        values = np.zeros((1, batch.size), np.int64)
        for index in np.flatnonzero(ok[0]):
            values[0, index] = score.score(self.state, self.pod_class.example, self.node(int(batch.rows[index])))
        return values
