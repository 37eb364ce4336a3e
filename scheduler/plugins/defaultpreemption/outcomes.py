"""What trials for one class of pods come to on all nodes, in columns: kept for nodes on which nothing has changed."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from scheduler.cache.columns import Bools, Ints, Rows
from scheduler.framework.nodeinfo import NodeInfo, PodInfo
from scheduler.framework.runner import Runner
from scheduler.framework.state import CycleState
from scheduler.framework.status import Status
from scheduler.framework.verdicts import ClassVerdicts
from scheduler.plugins.defaultpreemption.situations import NEVER, Situations
from scheduler.plugins.defaultpreemption.trial import NO_VICTIMS, Outcome, attempt, importance

PRIORITY_OFFSET = 1 << 31  # keeps the sum over victims growing with their number, negative priorities or not
MOST_KEPT = 65536
_NO_CANDIDATE = -1
_VIOLATIONS = 0  # the first line of `_ranks`

Crowd = Mapping[int, Sequence[PodInfo]]  # by row: pods nominated there that a trial has to count


class Outcomes:
    """The outcomes of one class towards the pods that `situations` is about.

    `shared`: whether nodes in one situation may share an outcome; if not, each node is tried by itself. Either way a
    node is tried again only once something changed there, so every filter asked must be of scope NODE or NODE_PODS.
    """

    def __init__(self, runner: Runner, verdicts: ClassVerdicts, situations: Situations, *, shared: bool) -> None:
        self.verdicts = verdicts
        self.situations = situations
        self._runner = runner
        self._shared = shared
        self._versioned = verdicts.rules.versioned
        self._versions: list[int] = []
        self._known: dict[tuple[int, ...], Outcome] = {}  # by situation and the classes of pods nominated there
        self._stamp: Ints = np.zeros(0, np.int64)  # of the situation that was tried
        # What candidates are compared by, smaller is better (R78): violations (-1: no candidate), highest priority of a
        # victim, sum of priorities, number of victims; and apart from these, as a float, when they started.
        self._ranks: Ints = np.zeros((4, 0), np.int64)
        self._latest: np.typing.NDArray[np.float64] = np.zeros(0)
        self._outcomes: list[Outcome] = []
        self._uncertain: list[int] = []  # rows that were tried with others nominated there: true for that time only

    def refresh(self) -> None:
        """Take in what changed since the last time; the situations must have been refreshed."""
        missing = len(self.situations.stamp) - len(self._stamp)
        if missing:
            self._stamp = np.pad(self._stamp, (0, missing))
            self._ranks = np.pad(self._ranks, ((0, 0), (0, missing)))
            self._latest = np.pad(self._latest, (0, missing))
            self._outcomes += [NO_VICTIMS] * missing
        if self._versioned:
            versions = [plugin.version for plugin in self._versioned]
            if versions != self._versions:
                self._versions = versions
                self._stamp[:] = NEVER
        if self._uncertain:
            self._stamp[self._uncertain] = NEVER
            self._uncertain.clear()

    def judge(self, rows: Rows, state: CycleState, info: PodInfo, crowd: Crowd) -> Ints:
        """Try those rows for `info` that are not known. Returns their violations, -1 where the node will not do.

        `crowd`: the rows where others are nominated that are at least as important; none may have been judged since
        `refresh` without it.
        """
        if crowd:
            uncertain = [row for row in rows.tolist() if row in crowd]
            self._stamp[uncertain] = NEVER
            self._uncertain += uncertain
        current = self.situations.stamp[rows]
        for row in rows[(current == NEVER) | (self._stamp[rows] != current)].tolist():
            self._try(row, state, info, crowd.get(row, ()))
        violations: Ints = self._ranks[_VIOLATIONS][rows]
        return violations

    def _try(self, row: int, state: CycleState, info: PodInfo, others: Sequence[PodInfo]) -> None:
        verdicts, situations = self.verdicts, self.situations
        node = verdicts.node(row)
        situation = situations.of(row, node)
        self._stamp[row] = situations.stamp[row]
        assert verdicts.board is not None  # noqa: S101
        outcome = None
        key: tuple[int, ...] = ()
        if not situation.lesser:
            outcome = NO_VICTIMS
        elif self._shared and verdicts.board.node_ok[verdicts.line, row]:
            key = (situation.number, *sorted(other.shape.id for other in others))
            outcome = self._known.get(key)
        if outcome is None:
            outcome = attempt(self._runner, state, info, node, situation.lesser, situation.breaks)
            if key:
                if len(self._known) >= MOST_KEPT:
                    self._known.clear()
                self._known[key] = outcome
        self._outcomes[row] = outcome
        if not outcome.status.ok:
            self._ranks[_VIOLATIONS, row] = _NO_CANDIDATE
            return
        victims = [situation.lesser[place] for place in outcome.victims]
        priorities = [victim.priority for victim in victims]
        highest = max(priorities, default=-PRIORITY_OFFSET)
        total = sum(priorities) + PRIORITY_OFFSET * len(victims)
        self._ranks[:, row] = outcome.violations, highest, total, len(victims)
        self._latest[row] = -min((v.started for v in victims if v.priority == highest), default=0.0)

    def best(self, rows: Rows) -> int:
        """The best of these rows, which are candidates; the first among equals (R78)."""
        for line in (*self._ranks, self._latest):
            values = line[rows]
            rows = rows[values == values.min()]
            if len(rows) == 1:
                break
        return int(rows[0])

    def victims(self, row: int) -> tuple[PodInfo, ...]:
        """Who has to go there, the most important first."""
        node: NodeInfo = self.verdicts.node(row)
        lesser = self.situations.of(row, node).lesser
        return tuple(sorted((lesser[place] for place in self._outcomes[row].victims), key=importance))

    def statuses(self, rows: Rows) -> "Counter[Status]":
        """Why these rows, all of which were judged, will not do."""
        return Counter(self._outcomes[row].status for row in rows.tolist())


def stop(candidates: Bools, violations: Ints, found: int, enough: int, *, harmless: bool) -> int:
    """Where among some nodes the search ends: behind the candidate that makes it `enough`, or at their end.

    `found`: how many candidates there were before; `harmless`: whether one of them breaks no budget, as one must.
    """
    counts = np.cumsum(candidates) + found
    safe = np.logical_or.accumulate(candidates & (violations == 0)) | harmless
    ends = np.flatnonzero(candidates & safe & (counts >= enough))
    return int(ends[0]) + 1 if len(ends) else len(candidates)
