"""What moves the keys of a node when a pod comes to it, worked out once for the lines that there are.

Lines whose plugins can all be asked by signature get exact keys; the others have bounds, and exact scores where a bound
would be too wide.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.nodeinfo import NodeInfo, PodInfo
from scheduler.framework.accelerations import ScoreBatch, has_delta_bound, score_kind
from scheduler.framework.extension_points import Score
from scheduler.framework.signatures import SignatureCache

if TYPE_CHECKING:
    from scheduler.framework.class_scores import ClassScores


@dataclass(slots=True)
class Part:
    """A score and the lines that it counts for."""

    score: Score
    weight: int
    kind: Hashable
    number: int = 0  # of the array in `ScoreMatrix.raw`
    lines: list[int] = field(default_factory=list)
    index: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    stacked: Any = None

    def max_score_delta(self, node: NodeInfo, placed: PodInfo) -> int:
        """Upper bound of the change of this score on `node` after `placed` came there."""
        assert isinstance(self.score, ScoreBatch)  # noqa: S101
        return self.score.max_score_delta(node, placed, self.kind)


@dataclass(slots=True)
class Plan:
    """What is remembered of signatures, and bounds for the rest."""

    signatures: SignatureCache
    exact_lines: NDArray[np.intp]
    exact_bits: int
    bounds: bool  # whether there are other lines
    bounded: list[Part]
    exact: list[Part]
    normalized: list[Part]
    unknown: bool  # a score that has no bound and no columns: nothing for it but to judge the node anew


def make_plan(lines: "Sequence[ClassScores]", numbers: dict[str, int], room: int) -> Plan:
    """The plan for these lines; `numbers`: position in `ScoreMatrix.raw` by plugin; `room`: length of columns."""
    quick = [line for line in lines if line.uses_signatures]
    rest = [line for line in lines if not line.uses_signatures]
    bounded: dict[Hashable, Part] = {}
    exact: dict[Hashable, Part] = {}
    normalized: dict[Hashable, Part] = {}
    unknown = False
    for line in rest:
        for score, weight in line.rules.moving_scores:
            kind = score_kind(score, line.state) if has_delta_bound(score) else None
            parts = bounded if has_delta_bound(score) else exact
            parts.setdefault((score.name, kind), Part(score, weight, kind)).lines.append(line.line)
            unknown |= not has_delta_bound(score) and not _columnar(score, line)
        for score, weight in line.rules.moving_normalized:
            kind = score_kind(score, line.state)
            part = normalized.setdefault((score.name, kind), Part(score, weight, kind, numbers[score.name]))
            part.lines.append(line.line)
            unknown |= not has_delta_bound(score)
    for part in (*bounded.values(), *exact.values(), *normalized.values()):
        part.index = np.array(part.lines, np.intp)
    for part in exact.values():
        if not unknown:
            assert isinstance(part.score, ScoreBatch)  # noqa: S101
            part.stacked = part.score.stack_scores([line.state for line in rest if line.line in set(part.lines)])
    return Plan(
        SignatureCache(quick, numbers, room),
        np.array([line.line for line in quick], np.intp),
        sum(1 << line.line for line in quick),
        bool(rest),
        list(bounded.values()),
        list(exact.values()),
        list(normalized.values()),
        unknown,
    )


def _columnar(score: Score, line: "ClassScores") -> bool:
    return isinstance(score, ScoreBatch) and score.can_batch_scores(line.state)
