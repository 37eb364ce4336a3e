"""The last decisions, kept so that a pod that is on a node can be explained later.

One decision is one flat tuple of texts and numbers. It has no reference to a pod or a node.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.state import CycleState, StateKey

KEPT_DECISIONS = 0  # by default: keeping costs 440 bytes and, on 5,000 nodes, 7 to 11 µs of a decision of 25 to 28 µs
BEST_NODES = 5
MAX_MESSAGE = 1000  # characters of a kept message: reasons of plugins may differ from node to node
SCORE_TABLES = 250  # made at once; a table costs about five times as much as the decision
SCORE_TABLES_PER_SECOND = 50  # from then on

ScoreTable = tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...]]
"""The plugins that scored nodes for a pod; their weights; and for each of the best nodes, one after the other, the raw
and the normalized score by each plugin."""

Ranking = tuple[tuple[str, ...], tuple[int, ...], int, int, int, tuple[str, str], ScoreTable | None]
"""The best nodes of a cycle, the selected one first, with their scores; the bits of scores that are upper bounds;
the number of nodes rejected by filters of scope NODE, and by all others; the names of these filters; what plugins
scored, if that is kept."""

RANKING: StateKey[Ranking] = StateKey("framework/ranking")

_Record = tuple[str, str, str, str | None, float, str, Ranking | None, str]


@dataclass(frozen=True, slots=True)
class KeptDecision:
    """One decision. `node` "": the pod was rejected, and `message` says why."""

    namespace: str
    name: str
    uid: str
    created: str | None  # RFC 3339
    time: float  # seconds since 1970
    node: str
    ranking: Ranking | None  # None: the pod was rejected, or the node was not selected by scores
    message: str


class KeptDecisions:
    """A ring of the last decisions; `size` 0: none is kept."""

    def __init__(self, clock: Clock, size: int) -> None:
        self.size = size
        self._now = clock.now
        self._ring: deque[_Record] = deque(maxlen=size)
        self._tables, self._tables_at = float(SCORE_TABLES), clock.now()

    def __len__(self) -> int:
        return len(self._ring)

    def __iter__(self) -> Iterator[KeptDecision]:
        """Newest first."""
        return (KeptDecision(*record) for record in reversed(self._ring))

    def wants_scores(self) -> bool:
        """Whether the score table of the next decision is kept: of all, but in a burst of many only of the first."""
        now = self._now()
        gained = max(now - self._tables_at, 0.0) * SCORE_TABLES_PER_SECOND
        self._tables, self._tables_at = min(self._tables + gained, SCORE_TABLES), now
        if self._tables < 1:
            return False
        self._tables -= 1
        return True

    def place(self, info: PodInfo, state: CycleState, node: str) -> None:
        """Keep the decision to bind a pod."""
        self._add(info, node, state.get(RANKING), "")

    def reject(self, info: PodInfo, message: str) -> None:
        """Keep the decision that a pod cannot be placed."""
        self._add(info, "", None, message[:MAX_MESSAGE])

    def _add(self, info: PodInfo, node: str, ranking: Ranking | None, message: str) -> None:
        pod = info.pod.metadata
        self._ring.append(
            (pod.namespace, pod.name, info.uid, pod.creation_timestamp, self._now(), node, ranking, message)
        )
