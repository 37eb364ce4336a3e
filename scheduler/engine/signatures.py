"""Results of plugins for one node and all classes, kept by node signature.

A placement changes a node's results for every class. Computing them costs a dozen NumPy calls for each plugin. Nodes
with equal sums or equal free cards have equal signatures and results, and a cluster has far fewer signatures than
nodes. So most updates are dictionary look-ups and additions.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seatrial.scheduler.cache.columns import TIE_BITS, Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.engine.class_entry import ClassEntry
from seatrial.scheduler.framework.accelerations import FilterBatch, ScoreBatch
from seatrial.scheduler.framework.extension_points import MAX_NODE_SCORE

REFUSED = -(1 << 58)  # no score raises it to 0, and a dozen of them do not overflow
MAX_NUMBERS = 1 << 18  # kept for each plugin, 2 MiB; beyond that, all are dropped
MIN_SIGNATURES = 2048  # this many signatures are kept in any case

Judge = Callable[[Any, NodeInfo], Ints]
SignatureOf = Callable[[Any, NodeInfo], Hashable]


class Remembered:
    """One plugin's numbers, [class]; 0 for classes without the plugin."""

    __slots__ = ("_judge", "_most", "_room", "classes", "memo", "signature", "stacked")

    def __init__(self, judge: Judge, signature: SignatureOf, stacked: Any, classes: Sequence[int], room: int) -> None:
        self._judge = judge
        self.classes: NDArray[np.intp] = np.array(classes, np.intp)
        self._room = room
        self._most = max(MAX_NUMBERS // room, MIN_SIGNATURES)
        self.signature = signature
        self.stacked = stacked
        self.memo: dict[Hashable, Ints] = {}

    def add(self, signature: Hashable, node: NodeInfo) -> Ints:
        """Compute and keep the result for a signature that is not in `memo`."""
        if len(self.memo) >= self._most:
            self.memo.clear()
        zeros = self.memo[signature] = np.zeros(self._room, np.int64)
        zeros[self.classes] = self._judge(self.stacked, node)
        return zeros


class Normalized(Remembered):
    """Scores of a plugin that is normalised over the feasible nodes: raw, and scaled for division by the largest.

    `number` is that of the array in `raw`.
    """

    __slots__ = ("both", "monotone", "number", "weight")

    def __init__(self, score: ScoreBatch, weight: int, number: int, entries: list[ClassEntry], room: int) -> None:
        assert score.normalizer is not None
        states = [entry.state for entry in entries]
        super().__init__(
            score.score_classes_batch,
            score.score_signature,
            score.stack_scores(states),
            [entry.index for entry in entries],
            room,
        )
        self.both: dict[Hashable, tuple[Ints, Ints]] = {}  # as `memo`, with the scaled ones
        self.number, self.monotone = number, score.monotone
        self.weight = np.zeros(room, np.int64)  # [class], shifted to where scores are in a key
        self.weight[self.classes] = weight << TIE_BITS

    def add_both(self, signature: Hashable, node: NodeInfo) -> tuple[Ints, Ints]:
        """Compute and keep raw and scaled scores, [class] each, for a signature that is not in `both`."""
        if len(self.both) >= self._most:
            self.both.clear()
            self.memo.clear()
        raw = self.add(signature, node)
        both = self.both[signature] = raw, raw * MAX_NODE_SCORE
        return both


class SignatureCache:
    """For some classes: everything that a placement changes in their keys, plugin by plugin."""

    def __init__(
        self, entries: Iterable[ClassEntry], numbers: dict[str, int], revised: dict[str, int], room: int
    ) -> None:
        """`numbers`, `revised`: position in `ScoreMatrix.raw` and `.revised`, by plugin; `room`: number of classes."""
        filters: dict[FilterBatch, list[ClassEntry]] = {}
        scores: dict[tuple[ScoreBatch, int], list[ClassEntry]] = {}
        normalized: dict[tuple[ScoreBatch, int], list[ClassEntry]] = {}
        for entry in entries:
            for plugin in entry.rules.node_pods_filters:
                assert isinstance(plugin, FilterBatch)
                filters.setdefault(plugin, []).append(entry)
            for kind, result in (
                (scores, entry.rules.node_pods_scores),
                (normalized, entry.rules.node_pods_normalized),
            ):
                for score, weight in result:
                    assert isinstance(score, ScoreBatch)
                    kind.setdefault((score, weight), []).append(entry)
        refusals = [
            (
                plugin,
                Remembered(
                    _refusals(plugin.filter_classes_batch),
                    plugin.filter_signature,
                    plugin.stack([entry.state for entry in group]),
                    [entry.index for entry in group],
                    room,
                ),
            )
            for plugin, group in filters.items()
        ]
        by_score = [
            (
                score,
                weight,
                Remembered(
                    _weighted(score.score_classes_batch, weight),
                    score.score_signature,
                    score.stack_scores([entry.state for entry in group]),
                    [entry.index for entry in group],
                    room,
                ),
            )
            for (score, weight), group in scores.items()
        ]
        kept = [(score.name, outcome) for score, _, outcome in by_score if score.name in revised]
        sums = [outcome for _, outcome in refusals] + [
            outcome for score, _, outcome in by_score if score.name not in revised
        ]
        # Tuples, because every decision runs these loops.
        self.sums = [(entry.signature, entry.stacked, entry.memo.get, entry.add) for entry in sums]
        self.revised = [(revised[name], e.signature, e.stacked, e.memo.get, e.add) for name, e in kept]
        self.normalized = [
            Normalized(score, weight, numbers[score.name], group, room) for (score, weight), group in normalized.items()
        ]
        # For the compiled kernel: plugins with what is kept of them; of a score also its position in `revised`.
        self.filters = refusals
        self.scores = [(score, weight, outcome, revised.get(score.name)) for score, weight, outcome in by_score]
        self.normalized_scores = [(*key, outcome) for key, outcome in zip(normalized, self.normalized, strict=True)]


def _refusals(filter_classes_batch: Callable[[Any, NodeInfo], Any]) -> Judge:
    def judge(stacked: Any, node: NodeInfo) -> Ints:
        return np.where(filter_classes_batch(stacked, node), 0, REFUSED)

    return judge


def _weighted(score_classes_batch: Judge, weight: int) -> Judge:
    def judge(stacked: Any, node: NodeInfo) -> Ints:
        return score_classes_batch(stacked, node) * (weight << TIE_BITS)

    return judge
