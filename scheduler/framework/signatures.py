"""What plugins say of one node for many classes at once, remembered by what of the node they look at.

A pod that comes to a node changes the node's verdicts for every class. Working them out costs a dozen NumPy calls a
plugin; but nodes with the same sums or the same cards free get the same verdicts, and a cluster has far fewer such
signatures than nodes. So most of what a placement changes is found in a dictionary and added up.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.columns import TIE_BITS, Ints
from scheduler.cache.nodeinfo import NodeInfo
from scheduler.framework.accelerations import FilterBatch, ScoreBatch
from scheduler.framework.extension_points import MAX_NODE_SCORE
from scheduler.framework.rules import ClassRules

if TYPE_CHECKING:
    from scheduler.framework.class_scores import ClassScores

REFUSED = -(1 << 58)  # so low that no score brings it up to 0, and so high that a dozen of them do not overflow
MAX_NUMBERS = 1 << 20  # remembered for each plugin; beyond, all are forgotten
MIN_SIGNATURES = 256  # but so many signatures are remembered in any case

Judge = Callable[[Any, NodeInfo], Ints]
SignatureOf = Callable[[Any, NodeInfo], Hashable]


def uses_signatures(rules: ClassRules) -> bool:
    """Whether all that moves can be judged for single nodes and many classes at once, and be remembered."""
    if any(score.normalizer is None or score.normalizer.reverse for score, _ in rules.moving_normalized):
        return False  # what counts down falls below 0 while the largest raw score is out of date
    plugins = (*rules.moving_filters, *(score for score, _ in (*rules.moving_scores, *rules.moving_normalized)))
    return rules.can_batch and all(getattr(plugin, "has_signature", False) for plugin in plugins)


class Remembered:
    """One plugin's numbers, [class]; 0 on lines that it does not count for."""

    __slots__ = ("_judge", "_most", "_room", "lines", "memo", "signature", "stacked")

    def __init__(self, judge: Judge, signature: SignatureOf, stacked: Any, lines: Sequence[int], room: int) -> None:
        self._judge = judge
        self.lines: NDArray[np.intp] = np.array(lines, np.intp)
        self._room = room
        self._most = max(MAX_NUMBERS // room, MIN_SIGNATURES)
        self.signature = signature
        self.stacked = stacked
        self.memo: dict[Hashable, Ints] = {}

    def add(self, signature: Hashable, node: NodeInfo) -> Ints:
        """Work out what is not in `memo`."""
        if len(self.memo) >= self._most:
            self.memo.clear()
        found = self.memo[signature] = np.zeros(self._room, np.int64)
        found[self.lines] = self._judge(self.stacked, node)
        return found


class Normalized(Remembered):
    """Scores of a plugin that is normalised over the feasible nodes: raw, and scaled for division by the largest.

    `number` is that of the array in `raw`.
    """

    __slots__ = ("both", "monotone", "number", "weight")

    def __init__(self, score: ScoreBatch, weight: int, number: int, lines: "list[ClassScores]", room: int) -> None:
        assert score.normalizer is not None  # noqa: S101
        states = [line.state for line in lines]
        super().__init__(
            score.score_classes_batch,
            score.score_signature,
            score.stack_scores(states),
            [line.line for line in lines],
            room,
        )
        self.both: dict[Hashable, tuple[Ints, Ints]] = {}  # as `memo`, with the scaled ones
        self.number, self.monotone = number, score.monotone
        self.weight = np.zeros(room, np.int64)  # [line], shifted to where scores are in a key
        self.weight[self.lines] = weight << TIE_BITS

    def add_both(self, signature: Hashable, node: NodeInfo) -> tuple[Ints, Ints]:
        """What is not in `both`: raw scores and scaled ones, [class] each."""
        if len(self.both) >= self._most:
            self.both.clear()
            self.memo.clear()
        raw = self.add(signature, node)
        both = self.both[signature] = raw, raw * MAX_NODE_SCORE
        return both


class SignatureCache:
    """All that moves the keys of some lines, plugin by plugin."""

    def __init__(self, lines: "Iterable[ClassScores]", numbers: dict[str, int], room: int) -> None:
        """`numbers`: position in `ScoreMatrix.raw` by plugin name; `room`: length of the class axis."""
        filters: dict[FilterBatch, list[ClassScores]] = {}
        scores: dict[tuple[ScoreBatch, int], list[ClassScores]] = {}
        normalized: dict[tuple[ScoreBatch, int], list[ClassScores]] = {}
        for line in lines:
            for plugin in line.rules.moving_filters:
                assert isinstance(plugin, FilterBatch)  # noqa: S101
                filters.setdefault(plugin, []).append(line)
            for kind, found in ((scores, line.rules.moving_scores), (normalized, line.rules.moving_normalized)):
                for score, weight in found:
                    assert isinstance(score, ScoreBatch)  # noqa: S101
                    kind.setdefault((score, weight), []).append(line)
        sums = [
            Remembered(
                _refusals(plugin.filter_classes_batch),
                plugin.filter_signature,
                plugin.stack([line.state for line in group]),
                [line.line for line in group],
                room,
            )
            for plugin, group in filters.items()
        ]
        sums += [
            Remembered(
                _weighted(score.score_classes_batch, weight),
                score.score_signature,
                score.stack_scores([line.state for line in group]),
                [line.line for line in group],
                room,
            )
            for (score, weight), group in scores.items()
        ]
        # Taken apart for the one loop that every decision goes through.
        self.sums = [(one.signature, one.stacked, one.memo.get, one.add) for one in sums]
        self.normalized = [
            Normalized(score, weight, numbers[score.name], group, room) for (score, weight), group in normalized.items()
        ]


def _refusals(filter_classes_batch: Callable[[Any, NodeInfo], Any]) -> Judge:
    def judge(stacked: Any, node: NodeInfo) -> Ints:
        return np.where(filter_classes_batch(stacked, node), 0, REFUSED)

    return judge


def _weighted(score_classes_batch: Judge, weight: int) -> Judge:
    def judge(stacked: Any, node: NodeInfo) -> Ints:
        return score_classes_batch(stacked, node) * (weight << TIE_BITS)

    return judge
