"""PodTopologySpread: the extension points (kubernetes plugins/podtopologyspread, FWK-R70, FWK-R71).

Upstream iterates over all pods of all nodes in each cycle. Here pods are counted by node when they come and go, for
each selector of a constraint, and a cycle sums the counts over domains.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, log
from typing import Literal

import numpy as np

from seatrial.scheduler.api.core import HOSTNAME_LABEL, ZONE_LABEL, Pod, TopologySpreadConstraint
from seatrial.scheduler.cache.columns import Batch, Bools, Ints
from seatrial.scheduler.cache.domains import Domains
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.cache.tallies import Tallies
from seatrial.scheduler.framework.accelerations import FilterBatch, ScoreBatch
from seatrial.scheduler.framework.extension_points import MAX_NODE_SCORE, Args, PreFilter, Scope, VictimAware
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.plugins.node_selection import Selection
from seatrial.scheduler.plugins.podtopologyspread.constraints import (
    HARD,
    SOFT,
    Constraint,
    Eligibility,
    counts_node,
    own,
)
from seatrial.scheduler.plugins.podtopologyspread.domains import DomainCounts, counted_on

SKEWED = Status.unschedulable("node(s) didn't match pod topology spread constraints")
NO_LABEL = Status.unresolvable("node(s) didn't match pod topology spread constraints (missing required label)")

SYSTEM_DEFAULTS = (
    TopologySpreadConstraint(max_skew=3, topology_key=HOSTNAME_LABEL, when_unsatisfiable=SOFT),
    TopologySpreadConstraint(max_skew=5, topology_key=ZONE_LABEL, when_unsatisfiable=SOFT),
)
LEFT_OUT = -1  # raw score of a node that lacks a label; other scores are not negative


class PodTopologySpreadArgs(Args, frozen=True):
    """Upstream's arguments."""

    default_constraints: tuple[TopologySpreadConstraint, ...] = ()
    defaulting_type: Literal["System", "List"] = "System"

    def check(self) -> None:
        if self.defaulting_type == "System" and self.default_constraints:
            raise ValueError(
                f"defaultConstraints: expected none with defaultingType System, found {len(self.default_constraints)}"
            )
        for index, constraint in enumerate(self.default_constraints):
            where = f"defaultConstraints[{index}]"
            if constraint.max_skew < 1:
                raise ValueError(f"{where}.maxSkew: expected 1 or more, found {constraint.max_skew}")
            if not constraint.topology_key:
                raise ValueError(f"{where}.topologyKey: expected a label key, found none")
            if constraint.when_unsatisfiable not in {HARD, SOFT}:
                raise ValueError(
                    f"{where}.whenUnsatisfiable: expected {HARD} or {SOFT}, found {constraint.when_unsatisfiable!r}"
                )
            if constraint.label_selector is not None:
                raise ValueError(f"{where}.labelSelector: expected none, it follows from the pod's services and owner")


@dataclass(slots=True)
class _Hard:
    """The hard constraints of a pod in a cycle; `counts` is computed when a node is evaluated by itself."""

    pod: Pod
    constraints: tuple[Constraint, ...]
    counts: DomainCounts | None = None


@dataclass(frozen=True, slots=True)
class _Soft:
    pod: Pod
    constraints: tuple[Constraint, ...]
    strict: bool  # nodes without one of the labels are left out


@dataclass(frozen=True, slots=True)
class _Survey:
    """Values of feasible nodes for single-node scores: each constraint's weight and its pods by domain."""

    weights: tuple[float, ...]
    counts: tuple[dict[str | None, int], ...]


HARDS: StateKey[_Hard] = StateKey("PodTopologySpread/hard")
SIMULATED: StateKey[dict[tuple[int, str], int]] = StateKey("PodTopologySpread/simulated")
SOFTS: StateKey[_Soft] = StateKey("PodTopologySpread/soft")
SURVEY: StateKey[_Survey] = StateKey("PodTopologySpread/survey")


class PodTopologySpread(PreFilter, FilterBatch, ScoreBatch, VictimAware):
    """The extension points of PodTopologySpread."""

    name = "PodTopologySpread"
    scope = Scope.CLUSTER

    def __init__(self, handle: Handle, args: PodTopologySpreadArgs | None = None) -> None:
        args = args or PodTopologySpreadArgs()
        self._handle = handle
        self._cache = handle.cache
        self._system = args.defaulting_type == "System"
        self._defaults = SYSTEM_DEFAULTS if self._system else args.default_constraints

    @property
    def _tallies(self) -> Tallies:
        return self._handle.shared(Tallies)

    def concerns(self, pod: Pod) -> bool:
        if pod.spec.topology_spread_constraints:
            return True
        if not self._defaults:
            return False
        owners = self._cache.owners
        return bool(owners) and owners.selector_of(pod) is not None

    def _constraints(self, pod: Pod, when: str) -> tuple[Constraint, ...]:
        if pod.spec.topology_spread_constraints:
            return own(pod, when)
        defaults = [default for default in self._defaults if default.when_unsatisfiable == when]
        selector = self._cache.owners.selector_of(pod) if defaults else None
        return tuple(Constraint.read(default, pod, selector) for default in defaults) if selector is not None else ()

    def label_keys(self, pod: Pod) -> frozenset[str] | None:
        if not pod.spec.topology_spread_constraints and not self._system:
            return None  # constraints of the configuration: which pods they count depends on services
        constraints = (*self._constraints(pod, HARD), *self._constraints(pod, SOFT))
        return frozenset[str]().union(
            *(constraint.matcher.label_keys() for constraint in constraints if constraint.matcher is not None)
        )

    # -- filter -------------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        constraints = self._constraints(pod, HARD)
        if not constraints:
            return Status.skip()
        state[HARDS] = _Hard(pod, constraints)
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        hard, labels = state[HARDS], node.known.metadata.labels
        counts = self._counts(hard)
        simulated = state.get(SIMULATED) or {}
        for number, constraint in enumerate(hard.constraints):
            value = labels.get(constraint.key)
            if value is None:
                return NO_LABEL
            there = counts.at(number, value, simulated) + constraint.itself
            if there - counts.least(number, simulated) > constraint.max_skew:
                return SKEWED
        return SUCCESS

    def _counts(self, hard: _Hard) -> DomainCounts:
        if hard.counts is None:
            hard.counts = DomainCounts(self._cache, self._tallies, hard.pod, hard.constraints)
        return hard.counts

    def reasons_batch(self, stacked: Sequence[CycleState], batch: Batch) -> tuple[Ints, Callable[[int], Status]]:
        """1: a label is missing; 2: the skew would be too large."""
        (state,) = stacked
        hard = state[HARDS]
        rows = self._cache.columns.count
        eligible = self._carrying(hard.constraints)
        codes = np.zeros(rows, np.int64)
        for constraint in hard.constraints:
            domain = self._handle.shared(Domains).of(constraint.key)
            where = eligible & self._handle.shared(Eligibility).rows(constraint, hard.pod)
            sums = domain.sums(self._rows(constraint), where)
            places = domain.distinct(where)
            least = int(sums[places].min()) if len(places) >= max(constraint.min_domains, 1) else 0
            crowded = (sums + (constraint.itself - least) > constraint.max_skew)[domain.codes()]
            codes = np.where(codes, codes, np.where(domain.present(), crowded * 2, 1))
        return batch.pick(codes), lambda code: NO_LABEL if code == 1 else SKEWED

    def filter_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Bools | None:
        return np.stack([self.reasons_batch([state], batch)[0] == 0 for state in stacked])

    def _carrying(self, constraints: Sequence[Constraint]) -> Bools:
        """Rows of nodes that have the labels of all constraints."""
        domains = self._handle.shared(Domains)
        result = self._known.copy()
        for constraint in constraints:
            result &= domains.of(constraint.key).present()
        return result

    def _rows(self, constraint: Constraint) -> Ints:
        """The number of matching pods on each row."""
        count = self._cache.columns.count
        if constraint.matcher is None:
            return np.zeros(count, np.int64)
        return self._tallies.of(constraint.matcher, staying=True).rows[:count]

    # -- preemption ---------------------------------------------------------------------------------------------------

    def victim_removed(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        self._move_in_dry_run(state, victim, node, -1)

    def victim_returned(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        self._move_in_dry_run(state, victim, node, 1)

    def _move_in_dry_run(self, state: CycleState, victim: PodInfo, node: NodeInfo, change: int) -> None:
        hard = state.get(HARDS)
        if hard is None or victim.pod.deleting:
            return
        before = state.get(SIMULATED)
        simulated = {} if before is None else before.copy()
        selection = Selection(hard.pod)
        labels = node.known.metadata.labels
        if not all(constraint.key in labels for constraint in hard.constraints):
            return
        for number, constraint in enumerate(hard.constraints):
            if (
                constraint.matcher is not None
                and constraint.matcher.matches(victim.pod, self._cache.namespaces)
                and counts_node(constraint, selection, hard.pod, node.known)
            ):
                place = (number, labels[constraint.key])
                simulated[place] = simulated.get(place, 0) + change
        state[SIMULATED] = simulated

    # -- score --------------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        constraints = self._constraints(pod, SOFT)
        strict = bool(pod.spec.topology_spread_constraints) or not self._system
        state[SOFTS] = _Soft(pod, constraints, strict)
        return bool(constraints)

    def survey(self, state: CycleState, pod: Pod, nodes: Sequence[NodeInfo]) -> None:
        soft = state[SOFTS]
        counted = [node for node in nodes if not self._left_out(soft, node)]
        weights, counts = [], []
        for constraint in soft.constraints:
            if constraint.key == HOSTNAME_LABEL:
                size, here = len(counted), dict[str | None, int]()
            else:
                here = dict.fromkeys((node.known.metadata.labels.get(constraint.key) for node in counted), 0)
                size = len(here)
                for value, count in counted_on(
                    self._cache, self._tallies, pod, constraint, soft.constraints if soft.strict else ()
                ):
                    if value in here:
                        here[value] += count
            weights.append(log(size + 2))
            counts.append(here)
        state[SURVEY] = _Survey(tuple(weights), tuple(counts))

    def _left_out(self, soft: _Soft, node: NodeInfo) -> bool:
        labels = node.known.metadata.labels
        return soft.strict and not all(constraint.key in labels for constraint in soft.constraints)

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        soft, survey = state[SOFTS], state[SURVEY]
        if self._left_out(soft, node):
            return LEFT_OUT
        labels, total = node.known.metadata.labels, 0.0
        for constraint, weight, counts in zip(soft.constraints, survey.weights, survey.counts, strict=True):
            value = labels.get(constraint.key)
            if value is None:
                continue
            here = int(self._rows(constraint)[node.row]) if constraint.key == HOSTNAME_LABEL else counts[value]
            total += here * weight + (constraint.max_skew - 1)
        return floor(total + 0.5)

    def score_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Ints | None:
        (state,) = stacked
        soft, rows = state[SOFTS], batch.rows
        carrying = self._carrying(soft.constraints) if soft.strict else self._known
        counted = np.zeros(self._cache.columns.count, np.bool_)
        counted[rows] = carrying[rows]
        total = np.zeros(len(carrying), np.float64)
        for constraint in soft.constraints:
            domain = self._handle.shared(Domains).of(constraint.key)
            here = self._rows(constraint)
            if constraint.key == HOSTNAME_LABEL:
                size, there = int(np.count_nonzero(counted)), here
            else:
                size = len(domain.distinct(counted))
                where = carrying & self._handle.shared(Eligibility).rows(constraint, soft.pod)
                there = domain.sums(here, where)[domain.codes()]
            total += np.where(domain.present(), there * log(size + 2) + (constraint.max_skew - 1), 0.0)
        raw = np.floor(total + 0.5).astype(np.int64)
        return np.where(counted, raw, LEFT_OUT)[rows][None]

    @property
    def _known(self) -> Bools:
        return self._cache.columns.known[: self._cache.columns.count]

    def normalize(self, state: CycleState, raw: Ints) -> Ints:
        """Fewer matching pods give a higher score; nodes that were left out score 0."""
        counted = raw != LEFT_OUT
        kept = raw[counted]
        if not len(kept):
            return np.zeros_like(raw)
        most, least = int(kept.max()), int(kept.min())
        scores = MAX_NODE_SCORE * (most + least - raw) // most if most else np.full_like(raw, MAX_NODE_SCORE)
        return np.where(counted, scores, 0)
