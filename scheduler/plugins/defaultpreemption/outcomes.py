"""What trials for one class of pods come to on all nodes, in columns: kept for nodes on which nothing has changed."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler.cache.columns import Bools, Ints, Rows
from scheduler.framework.nodeinfo import PodInfo
from scheduler.framework.points import TrialColumns
from scheduler.framework.runner import Runner
from scheduler.framework.state import CycleState
from scheduler.framework.status import Status
from scheduler.framework.verdicts import ClassVerdicts
from scheduler.plugins.defaultpreemption.dry_run import NO_VICTIMS, Outcome, attempt, importance
from scheduler.plugins.defaultpreemption.fingerprints import NEVER, NodeFingerprints
from scheduler.plugins.defaultpreemption.ledger import PRIORITY_OFFSET, NodeAccounts

MAX_OUTCOMES = 65536
NO_CANDIDATE = -1
_VIOLATIONS = 0  # the first line of `_ranks`

NominatedPods = Mapping[int, Sequence[PodInfo]]  # by row: pods nominated there that a trial has to count


class Outcomes:
    """The outcomes of one class towards the pods that `fingerprints` is about.

    A node is tried again once something changed there; where more than the node decides, everything is forgotten
    between one pod and the next.
    """

    def __init__(self, runner: Runner, verdicts: ClassVerdicts, fingerprints: NodeFingerprints, *, alone: bool) -> None:
        """`alone`: nothing but what is on a node decides about it: every filter is of scope NODE or NODE_PODS."""
        self.verdicts = verdicts
        self.fingerprints = fingerprints
        self._runner = runner
        filters = verdicts.rules.moving_filters
        self._filters = [plugin for plugin in filters if isinstance(plugin, TrialColumns)]
        # Whether nodes in one fingerprint may share an outcome, and whether many can be tried at once.
        self._shared = alone and len(self._filters) == len(filters)
        self._columnar = self._shared and all(plugin.trial_columnar(verdicts.state) for plugin in self._filters)
        self._versioned = verdicts.rules.versioned
        self._versions: list[int] = []
        self._known: dict[tuple[int, ...], Outcome] = {}  # by fingerprint and the classes of pods nominated there
        self._stamp: Ints = np.zeros(0, np.int64)  # of the fingerprint that was tried
        # Candidates are compared by these four rows, smaller is better (FWK-R78): budget violations (-1: no candidate),
        # highest priority of a victim, sum of priorities, number of victims. The start time is a float, kept apart.
        self._ranks: Ints = np.zeros((4, 0), np.int64)
        self._latest: NDArray[np.float64] = np.zeros(0)
        self._outcomes: list[Outcome | Bools | None] = []  # None, or who goes: tried by accounts
        self._uncertain: list[int] = []  # rows that were tried with others nominated there: true for that time only

    def refresh(self) -> None:
        """Take in what changed since the last time; the fingerprints must have been refreshed."""
        missing = len(self.fingerprints.stamp) - len(self._stamp)
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

    def judge(self, rows: Rows, state: CycleState, info: PodInfo, nominated: NominatedPods) -> Ints:
        """Try those rows for `info` that are not known. Returns their violations, -1 where the node will not do.

        `nominated`: the rows where others are nominated that are at least as important; none may have been judged since
        `refresh` without it.
        """
        if nominated:
            uncertain = [row for row in rows.tolist() if row in nominated]
            self._stamp[uncertain] = NEVER
            self._uncertain += uncertain
        current = self.fingerprints.stamp[rows]
        together: list[int] = []
        accounts: list[NodeAccounts] = []
        for row in rows[(current == NEVER) | (self._stamp[rows] != current)].tolist():
            found = self._try(row, state, info, nominated.get(row, ()))
            if found is not None:
                together.append(row)
                accounts.append(found)
        if together:
            self._try_together(np.array(together, np.intp), accounts)
        violations: Ints = self._ranks[_VIOLATIONS][rows]
        return violations

    def _try(self, row: int, state: CycleState, info: PodInfo, others: Sequence[PodInfo]) -> NodeAccounts | None:
        """Try one node, or give its accounts, so that it is tried together with others."""
        fingerprints, node = self.fingerprints, self.verdicts.node(row)
        fingerprint = fingerprints.of(row, node)
        self._stamp[row] = fingerprints.stamp[row]
        if self._columnar and fingerprint.accounts is not None and not others and self._admitted(row):
            return fingerprint.accounts
        outcome = self._outcomes[row] = self._outcome(row, state, info, others)
        if not outcome.status.ok:
            self._ranks[_VIOLATIONS, row] = NO_CANDIDATE
            return None
        victims = [fingerprint.lesser[place] for place in outcome.victims]
        priorities = [victim.priority for victim in victims]
        highest = max(priorities, default=-PRIORITY_OFFSET)
        total = sum(priorities) + PRIORITY_OFFSET * len(victims)
        self._ranks[:, row] = outcome.violations, highest, total, len(victims)
        self._latest[row] = -min((v.started for v in victims if v.priority == highest), default=0.0)
        return None

    def _admitted(self, row: int) -> bool:
        """Whether the node object is no hindrance, so that what is on the node decides."""
        board = self.verdicts.board
        return board is not None and bool(board.node_ok[self.verdicts.line, row])

    def _outcome(self, row: int, state: CycleState, info: PodInfo, others: Sequence[PodInfo] = ()) -> Outcome:
        """Try one node by itself, or find what came of it on another in the same fingerprint."""
        node = self.verdicts.node(row)
        fingerprint = self.fingerprints.of(row, node)
        if not fingerprint.lesser:
            return NO_VICTIMS
        key: tuple[int, ...] = ()
        if self._shared and self._admitted(row):
            key = (self.fingerprints.number(fingerprint, node), *sorted(other.shape.id for other in others))
            known = self._known.get(key)
            if known is not None:
                return known
        outcome = attempt(self._runner, state, info, node, lesser=fingerprint.lesser, breaks=fingerprint.breaks)
        if key:
            if len(self._known) >= MAX_OUTCOMES:
                self._known.clear()
            self._known[key] = outcome
        return outcome

    def _try_together(self, rows: Rows, accounts: Sequence[NodeAccounts]) -> None:
        tried = self.fingerprints.ledger.attempt(self._filters, self.verdicts.state, accounts)
        self._ranks[_VIOLATIONS, rows] = NO_CANDIDATE
        candidates = rows[tried.fits]
        self._ranks[:, candidates] = tried.ranks
        self._latest[candidates] = -tried.earliest
        for row in rows[~tried.fits].tolist():
            self._outcomes[row] = None
        for row, victims in zip(candidates.tolist(), tried.victims, strict=True):
            self._outcomes[row] = victims

    def best(self, rows: Rows) -> int:
        """The best of these rows, which are candidates; the first among equals (FWK-R78)."""
        for line in (*self._ranks, self._latest):
            values = line[rows]
            rows = rows[values == values.min()]
            if len(rows) == 1:
                break
        return int(rows[0])

    def victims(self, row: int) -> tuple[PodInfo, ...]:
        """Who has to go there, the most important first."""
        fingerprint = self.fingerprints.of(row, self.verdicts.node(row))
        outcome = self._outcomes[row]
        assert outcome is not None  # noqa: S101
        gone = outcome.victims if isinstance(outcome, Outcome) else fingerprint.gone(outcome)
        return tuple(sorted((fingerprint.lesser[place] for place in gone), key=importance))

    def statuses(self, rows: Rows, state: CycleState, info: PodInfo) -> "Counter[Status]":
        """Why these rows, all of which were judged and none of which is a candidate, will not do."""
        for row in rows.tolist():
            if self._outcomes[row] is None:  # amounts do not say in words what is missing
                self._outcomes[row] = self._outcome(row, state, info)
        return Counter(one.status for row in rows.tolist() if isinstance(one := self._outcomes[row], Outcome))


def stop(candidates: Bools, violations: Ints, found: int, enough: int, *, harmless: bool) -> int:
    """Where among some nodes the search ends: behind the candidate that makes it `enough`, or at their end.

    `found`: how many candidates there were before; `harmless`: whether one of them breaks no budget, as one must.
    """
    counts = np.cumsum(candidates) + found
    safe = np.logical_or.accumulate(candidates & (violations == 0)) | harmless
    ends = np.flatnonzero(candidates & safe & (counts >= enough))
    return int(ends[0]) + 1 if len(ends) else len(candidates)
