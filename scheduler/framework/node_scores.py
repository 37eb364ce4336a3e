"""A score that the node object alone decides, for one class of pods."""

import numpy as np

from scheduler.cache.columns import Batch, Ints
from scheduler.framework.extension_points import Score


class NodeScore:
    """Normalised over the nodes that are feasible, so raw scores are kept."""

    def __init__(self, score: Score, weight: int) -> None:
        self.score, self.weight = score, weight
        self.raw: Ints | None = None  # [row]; None: 0 on every node, which changes no order
        self.highest = 0

    def normal(self, raw: Ints) -> Ints:
        """Scores from 0 to 100 for `raw` [node], [1, node]."""
        assert self.score.normalizer is not None  # noqa: S101
        return self.score.normalizer.apply(raw[None], np.full((1, 1), self.highest))

    def keep(self, values: Ints | None, batch: Batch, *, everything: bool) -> None:
        """Take in raw scores [1, node] for some rows, or for all; None: they are all 0."""
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
