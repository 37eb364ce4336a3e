"""What each plugin scored for the best nodes of one decision, when it is made.

The sum of the normalized scores, each times its weight, is the score by which the node was selected. A plugin that gave
all nodes 0, and that therefore is in no sum, has no column.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from seatrial.scheduler.cache.columns import Ints, Rows
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.engine.class_entry import ClassEntry
from seatrial.scheduler.engine.normalization import ClassNormalizer
from seatrial.scheduler.framework.extension_points import Score
from seatrial.scheduler.framework.kept_decisions import ScoreTable
from seatrial.scheduler.framework.restored import as_seen
from seatrial.scheduler.framework.state import CycleState


@dataclass(slots=True)
class OwnScores:
    """What differs, in the scores of a pod, from those of its class."""

    highest: dict[str, int] = field(default_factory=dict)  # largest raw scores by plugin, where renormalized
    rows: Rows | None = None  # the feasible rows, ascending, that plugins of scope CLUSTER scored
    of_cluster: list[tuple[str, int, Ints, Ints]] = field(default_factory=list)  # plugin, weight, raw, normalized


OF_CLASS = OwnScores()


def score_table(
    entry: ClassEntry,
    normalizer: ClassNormalizer,
    info: PodInfo,
    state: CycleState,
    rows: Sequence[int],
    *,
    own: OwnScores,
) -> ScoreTable:
    """The scores of the nodes in these rows, before the pod takes one of them."""
    rules = entry.rules
    seen = [as_seen(state, entry.node(row)) for row in rows]

    def raw_of(score: Score) -> list[int]:
        return [int(score.score(there, info.pod, node)) for there, node in seen]

    columns = [
        (score.name, weight, raw := raw_of(score), raw)
        for score, weight in (*normalizer.plain, *rules.node_pods_scores)
    ]
    scaled = [(kept.score, kept.weight, kept.highest) for kept in normalizer.node_scores if kept.raw is not None]
    scaled += [(*both, highest) for both, highest in zip(rules.node_pods_normalized, entry.highest, strict=True)]
    for score, weight, of_class in scaled:
        assert score.normalizer is not None
        one, highest, raw = score.normalizer.one, own.highest.get(score.name, of_class), raw_of(score)
        columns.append((score.name, weight, raw, [one(value, highest) for value in raw]))
    if own.rows is not None:
        places = np.searchsorted(own.rows, rows)
        columns += [
            (name, weight, raw[places].tolist(), normal[places].tolist())
            for name, weight, raw, normal in own.of_cluster
        ]
    return (
        tuple([name for name, *_ in columns]),
        tuple([weight for _, weight, *_ in columns]),
        tuple(
            [
                value
                for place in range(len(rows))
                for *_, raw, normal in columns
                for value in (raw[place], normal[place])
            ]
        ),
    )
