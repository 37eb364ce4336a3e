"""Results of dry runs for one equivalence class on all nodes, in columns; kept until a node changes."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from seatrial.scheduler.cache.columns import Bools, Ints, Rows
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.accelerations import DryRunBatch
from seatrial.scheduler.framework.collaborators import ClassResults, ProfileRunner
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.defaultpreemption.dry_run import NO_VICTIMS, Outcome, attempt, importance
from seatrial.scheduler.plugins.defaultpreemption.fingerprints import NEVER, NodeFingerprints
from seatrial.scheduler.plugins.defaultpreemption.ledger import PRIORITY_OFFSET, NodeAccounts
from seatrial.scheduler.plugins.defaultpreemption.units import Cost

MAX_OUTCOMES = 65536
NO_CANDIDATE = -1
NO_COST = Cost(-PRIORITY_OFFSET, 0, 0, 0.0)
_VIOLATIONS = 0  # first row of `_ranks`

NominatedPods = Mapping[int, Sequence[PodInfo]]  # row → pods nominated there that a dry run must count


class Outcomes:
    """The dry run results of one class against the possible victims in `fingerprints`.

    A node is tried again after a change there. Where more than the node decides, all results are dropped between two
    pods.
    """

    def __init__(
        self, runner: ProfileRunner, results: ClassResults, fingerprints: NodeFingerprints, *, alone: bool
    ) -> None:
        """`alone`: only what is on a node decides about it: every filter has scope NODE or NODE_PODS."""
        self.results = results
        self.fingerprints = fingerprints
        self._runner = runner
        filters = results.node_pods_filters
        self._filters = [plugin for plugin in filters if isinstance(plugin, DryRunBatch)]
        # Whether nodes with one fingerprint may share a result, and whether many can be tried at once.
        self._shared = alone and len(self._filters) == len(filters)
        self._columnar = self._shared and all(plugin.can_batch_dry_run(results.state) for plugin in self._filters)
        self._alone = alone
        self._versioned = results.versioned
        self._versions: list[int] = []
        self._known: dict[tuple[int, ...], Outcome] = {}  # by fingerprint and the classes of nominated pods
        self._stamp: Ints = np.zeros(0, np.int64)  # of the fingerprint that was tried
        # Candidates are compared by these four rows, smaller is better (FWK-R78): budget violations (-1: no candidate),
        # highest priority of a victim, sum of priorities, number of victims. The start time is a float, kept apart.
        self._ranks: Ints = np.zeros((4, 0), np.int64)
        self._latest: NDArray[np.float64] = np.zeros(0)
        self._outcomes: list[Outcome | Bools | None] = []  # None, or the victims: tried by amounts
        self._uncertain: list[int] = []  # rows tried with nominated pods: valid for that attempt only

    def refresh(self) -> None:
        """Take in the changes since the last call; the fingerprints must be refreshed."""
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
        """Dry runs for `info` on rows without a result. Returns budget violations, -1 where the node is no candidate.

        `nominated`: rows with nominated pods that are at least as important; none of these may have a result of the
        same `refresh` without them.
        """
        if nominated:
            uncertain = [row for row in rows.tolist() if row in nominated]
            self._stamp[uncertain] = NEVER
            self._uncertain += uncertain
        current = self.fingerprints.stamp[rows]
        together: list[int] = []
        accounts: list[NodeAccounts] = []
        for row in rows[(current == NEVER) | (self._stamp[rows] != current)].tolist():
            node_accounts = self._try(row, state, info, nominated.get(row, ()))
            if node_accounts is not None:
                together.append(row)
                accounts.append(node_accounts)
        if together:
            self._try_together(np.array(together, np.intp), accounts)
        violations: Ints = self._ranks[_VIOLATIONS][rows]
        return violations

    def _try(self, row: int, state: CycleState, info: PodInfo, others: Sequence[PodInfo]) -> NodeAccounts | None:
        """Dry run on one node, or its accounts, if it can be tried together with others."""
        fingerprints, node = self.fingerprints, self.results.node(row)
        fingerprint = fingerprints.of(row, node)
        self._stamp[row] = fingerprints.stamp[row]
        if self._columnar and fingerprint.accounts is not None and not others and self.results.admits(row):
            return fingerprint.accounts
        outcome = self._outcomes[row] = self._outcome(row, state, info, others)
        if not outcome.status.ok:
            self._ranks[_VIOLATIONS, row] = NO_CANDIDATE
            return None
        cost = fingerprint.cost(outcome.victims) if outcome.victims else NO_COST
        total = cost.total + PRIORITY_OFFSET * cost.pods
        self._ranks[:, row] = outcome.violations, cost.highest, total, cost.pods
        self._latest[row] = -cost.earliest
        return None

    def _outcome(self, row: int, state: CycleState, info: PodInfo, others: Sequence[PodInfo] = ()) -> Outcome:
        """Dry run on one node, or the known result of another node with the same fingerprint."""
        node = self.results.node(row)
        fingerprint = self.fingerprints.of(row, node)
        if not fingerprint.lesser:
            return NO_VICTIMS
        key: tuple[int, ...] = ()
        if self._shared and self.results.admits(row):
            key = (self.fingerprints.number(fingerprint, node), *sorted(other.pod_class.id for other in others))
            known = self._known.get(key)
            if known is not None:
                return known
        lesser, breaks = fingerprint.lesser, fingerprint.breaks
        # Members of a unit on other nodes are taken off only where what is on other nodes can decide.
        nodes = None if self._alone else self.fingerprints.nodes
        beside = fingerprint.beside(node, nodes)
        outcome = attempt(self._runner, state, info, node, lesser=lesser, breaks=breaks, beside=beside)
        if key:
            if len(self._known) >= MAX_OUTCOMES:
                self._known.clear()
            self._known[key] = outcome
        return outcome

    def _try_together(self, rows: Rows, accounts: Sequence[NodeAccounts]) -> None:
        tried = self.fingerprints.ledger.attempt(self._filters, self.results.state, accounts)
        self._ranks[_VIOLATIONS, rows] = NO_CANDIDATE
        candidates = rows[tried.fits]
        self._ranks[:, candidates] = tried.ranks
        self._latest[candidates] = -tried.earliest
        for row in rows[~tried.fits].tolist():
            self._outcomes[row] = None
        for row, victims in zip(candidates.tolist(), tried.victims, strict=True):
            self._outcomes[row] = victims

    def best(self, rows: Rows) -> int:
        """The best of these candidate rows; the first of equal ones (FWK-R78)."""
        for line in (*self._ranks, self._latest):
            values = line[rows]
            rows = rows[values == values.min()]
            if len(rows) == 1:
                break
        return int(rows[0])

    def victims(self, row: int) -> tuple[PodInfo, ...]:
        """The victims there, most important first; one pod of each unit, the core takes the others."""
        fingerprint = self.fingerprints.of(row, self.results.node(row))
        outcome = self._outcomes[row]
        assert outcome is not None
        gone = outcome.victims if isinstance(outcome, Outcome) else fingerprint.gone(outcome)
        return tuple(sorted((fingerprint.lesser[place] for place in gone), key=importance))

    def statuses(self, rows: Rows, state: CycleState, info: PodInfo) -> "Counter[Status]":
        """Why these rows, which have results and are no candidates, fail."""
        for row in rows.tolist():
            if self._outcomes[row] is None:  # amounts do not give the reason
                self._outcomes[row] = self._outcome(row, state, info)
        return Counter(one.status for row in rows.tolist() if isinstance(one := self._outcomes[row], Outcome))


def stop(candidates: Bools, violations: Ints, value: int, enough: int, *, harmless: bool) -> int:
    """Where the search over some nodes ends: behind the candidate that makes it `enough`, or at their end.

    `value`: number of candidates before; `harmless`: whether one of them violates no budget, which is required.
    """
    counts = np.cumsum(candidates) + value
    safe = np.logical_or.accumulate(candidates & (violations == 0)) | harmless
    ends = np.flatnonzero(candidates & safe & (counts >= enough))
    return int(ends[0]) + 1 if len(ends) else len(candidates)
