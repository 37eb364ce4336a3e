"""How a placement on a node changes the keys of that node, computed once for the present classes.

Classes whose plugins all have node signatures get exact keys. The others get bounds, and exact scores from plugins that
have no bound.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.engine.class_entry import ClassEntry
from seatrial.scheduler.engine.compiled_keys import CompiledKeys
from seatrial.scheduler.engine.signatures import SignatureCache
from seatrial.scheduler.framework.accelerations import ScoreBatch, has_delta_bound, score_kind
from seatrial.scheduler.framework.extension_points import Score


@dataclass(slots=True)
class Part:
    """A score and the classes that it counts for."""

    score: Score
    weight: int
    kind: Hashable
    number: int = 0  # of the array in `ScoreMatrix.raw`
    classes: list[int] = field(default_factory=list)
    index: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, np.intp))
    stacked: Any = None

    def max_score_delta(self, node: NodeInfo, placed: PodInfo) -> int:
        """Upper bound of the change of this score on `node` after `placed` came there."""
        assert isinstance(self.score, ScoreBatch)
        return self.score.max_score_delta(node, placed, self.kind)


@dataclass(slots=True)
class Plan:
    """Results kept by signature, and bounds for the other classes."""

    signatures: SignatureCache
    exact_classes: NDArray[np.intp]
    exact_bits: int
    bounds: bool  # whether there are classes without exact keys
    bounded: list[Part]
    exact: list[Part]
    normalized: list[Part]
    unknown: bool  # a score has neither a bound nor a batch method: the node must be judged again
    compiled: CompiledKeys | None = None  # the keys from one call of the kernel; only if no class has bounds


def make_plan(entries: Sequence[ClassEntry], numbers: dict[str, int], revised: dict[str, int], room: int) -> Plan:
    """The plan for these classes.

    `numbers`, `revised`: position in `ScoreMatrix.raw` and `.revised` by plugin; `room`: length of columns.
    """
    quick = [entry for entry in entries if entry.uses_signatures]
    rest = [entry for entry in entries if not entry.uses_signatures]
    bounded: dict[Hashable, Part] = {}
    exact: dict[Hashable, Part] = {}
    normalized: dict[Hashable, Part] = {}
    unknown = False
    for entry in rest:
        for score, weight in entry.rules.node_pods_scores:
            kind = score_kind(score, entry.state) if has_delta_bound(score) else None
            parts = bounded if has_delta_bound(score) else exact
            parts.setdefault((score.name, kind), Part(score, weight, kind)).classes.append(entry.index)
            unknown |= not has_delta_bound(score) and not _can_batch(score, entry)
        for score, weight in entry.rules.node_pods_normalized:
            kind = score_kind(score, entry.state)
            part = normalized.setdefault((score.name, kind), Part(score, weight, kind, numbers[score.name]))
            part.classes.append(entry.index)
            unknown |= not has_delta_bound(score)
    for part in (*bounded.values(), *exact.values(), *normalized.values()):
        part.index = np.array(part.classes, np.intp)
    for part in exact.values():
        if not unknown:
            assert isinstance(part.score, ScoreBatch)
            part.stacked = part.score.stack_scores([entry.state for entry in rest if entry.index in set(part.classes)])
    return Plan(
        SignatureCache(quick, numbers, revised, room),
        np.array([entry.index for entry in quick], np.intp),
        sum(1 << entry.index for entry in quick),
        bool(rest),
        list(bounded.values()),
        list(exact.values()),
        list(normalized.values()),
        unknown,
    )


def _can_batch(score: Score, entry: ClassEntry) -> bool:
    return isinstance(score, ScoreBatch) and score.can_batch_scores(entry.state)
