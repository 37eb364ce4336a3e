"""NodeNUMAResource: bind CPUs, and serve a pod's CPUs, memory and devices from the same NUMA nodes.

A rejection is a `Status` with Koordinator's text. Devices take part through `numahints`. NodeNUMAResource comes before
DeviceShare at every extension point and leaves the pod's NUMA nodes in the cycle state. Follows Koordinator
`pkg/scheduler/plugins/nodenumaresource`; deviations are in scheduler/DESIGN.md.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.numa import (
    NUMA_TOPOLOGY_SPEC,
    PRIORITY_CLASS_LABEL,
    QOS_LABEL,
    RESOURCE_SPEC,
    RESOURCE_STATUS,
)
from seatrial.scheduler.api.quantity import CPU
from seatrial.scheduler.cache.columns import Batch, Bools, Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.accelerations import FilterBatch, ScoreBatch
from seatrial.scheduler.framework.extension_points import (
    NO_METADATA_CHANGES,
    MetadataChanges,
    PreBind,
    PreFilter,
    Reserve,
    Scope,
    VictimAware,
)
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.reservation_info import (
    MATCHED,
    NOMINATE,
    NOMINATED,
    TARGET,
    ReservationAware,
    ReservationInfo,
    for_target,
    matched_on,
    targets_on,
)
from seatrial.scheduler.framework.restored import as_seen
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.plugins.nodenuma.alignment import Devices, Outcome, Rules, align
from seatrial.scheduler.plugins.nodenuma.args import NodeNUMAResourceArgs, ScoringStrategy
from seatrial.scheduler.plugins.nodenuma.cache import AFFECTS_PLAIN_PODS, NodeNuma, NumaCache, status_text
from seatrial.scheduler.plugins.nodenuma.demand import Demand, demand_of, written_back
from seatrial.scheduler.plugins.nodenuma.nodescore import NodeScore
from seatrial.scheduler.plugins.nodenuma.options import amplify
from seatrial.scheduler.plugins.nodenuma.reservation_rest import NOTHING, has, left
from seatrial.scheduler.plugins.nodenuma.states import NumaAllocation, NumaState
from seatrial.scheduler.plugins.numahints import AFFINITY, ALIGNER, PLANNED, PROVIDER, HintProvider, Mask
from seatrial.scheduler.plugins.reservation.cache import ReservationCache

BAD_RATIO = Status.unresolvable("node(s) invalid CPU amplification ratio")
NO_AMPLIFIED = Status.unschedulable("Insufficient amplified cpu")
PREFIX = "Reservation(s) "
MAX_OUTCOMES = 4096  # for each state of a node; each keeps its demand, whose id is part of the key
MAX_DEMANDS = 4096  # of which equal ones share one object

DEMAND: StateKey[Demand] = StateKey("NodeNUMAResource/demand")
OUTCOME: StateKey[Outcome] = StateKey("NodeNUMAResource/given")
DRY_RUN: StateKey[dict[str, NodeNuma]] = StateKey("NodeNUMAResource/dry-run")


class _Stacked(NamedTuple):
    """Several equivalence classes, and what they have in common."""

    states: Sequence[CycleState]
    demanding: list[int]  # indices in `states` of classes with CPU or NUMA requests of their own
    provided: bool  # whether devices provide hints for some class


class NodeNUMAResource(PreFilter, FilterBatch, ScoreBatch, Reserve, PreBind, VictimAware, ReservationAware):
    """The extension points of NodeNUMAResource."""

    name = "NodeNUMAResource"
    scope = Scope.NODE_PODS
    reads_labels = (QOS_LABEL, PRIORITY_CLASS_LABEL)
    reads_annotations = (RESOURCE_SPEC, NUMA_TOPOLOGY_SPEC)
    has_signature = True
    acts_on = DEMAND

    def __init__(self, handle: Handle, args: NodeNUMAResourceArgs | None = None) -> None:
        args = args or NodeNUMAResourceArgs()
        self._handle = handle
        self._rules = Rules(
            args.default_cpu_bind_policy,
            (args.scoring_strategy or ScoringStrategy()).scorer(),
            (args.numa_scoring_strategy or ScoringStrategy()).scorer(),
            args.node_label_first,
        )
        self._scoring = NodeScore(handle.columns.resources, self._rules.scorer)
        self._demands: dict[Demand, Demand] = {}
        self.numa_cache = NumaCache.of(handle)
        self._reservations = ReservationCache.of(handle)

    # -- filtering ----------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        demand = demand_of(pod, self._handle.cache.classes.of(pod).requests, self._rules.default_policy)
        if isinstance(demand, Status):
            return demand
        if demand is None or (demand.plain and not self.numa_cache.nodes_affecting_plain_pods):
            return Status.skip()
        if len(self._demands) >= MAX_DEMANDS:
            self._demands.clear()
        state[DEMAND] = self._demands.setdefault(demand, demand)
        state[ALIGNER] = self
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        ways = targets_on(state, node.name)
        reasons: list[str] = []
        for way in ways:
            status = self._verdict(for_target(state, way), node)
            if status.ok:
                return SUCCESS
            reasons += [PREFIX + reason for reason in status.reasons]
        if not ways or None in ways:
            return status if ways else self._verdict(state, node)
        return Status.unschedulable(*reasons)

    def fits_in(self, state: CycleState, pod: Pod, reserved: ReservationInfo | None, node_name: str) -> Status:
        node = self._handle.cache.find(node_name)
        if DEMAND not in state or node is None:
            return SUCCESS
        return self._verdict(for_target(state, reserved), as_seen(state, node)[1])

    def worth_in(self, state: CycleState, pod: Pod, reserved: ReservationInfo, node_name: str) -> int:
        return 0  # no score of its own

    def _verdict(self, state: CycleState, node: NodeInfo) -> Status:
        demand, numa = state[DEMAND], self._state(state, node.name)
        options = numa.options
        if demand.plain and not options.affects_plain_pods:
            return SUCCESS
        policy = demand.policy_on(options.policy(label_first=self._rules.label_first))
        if isinstance(policy, Status):
            return policy
        if options.cpu_ratio != 1.0 and demand.cpu:
            status = _amplified(demand, numa, node, self._handle.columns.resources.column(CPU))
            if status is not None:
                return status
        outcome = self._outcome_on(state, demand, numa, node.name)
        return outcome if isinstance(outcome, Status) else SUCCESS

    def _outcome(self, state: CycleState, demand: Demand, numa: NumaState, name: str) -> Outcome | Status:
        """The result of `align`, computed once for each state and demand."""
        policy = demand.policy_on(numa.options.policy(label_first=self._rules.label_first))
        if isinstance(policy, Status):
            return policy
        provider = state.get(PROVIDER) if policy else None
        key = (id(self), id(demand), provider.numa_token(state, name) if provider is not None else None)
        known = numa.outcomes.get(key)
        if known is None:
            if len(numa.outcomes) >= MAX_OUTCOMES:
                numa.outcomes.clear()
            devices = _provider_devices(provider, state, name) if provider is not None else None
            known = numa.outcomes[key] = align(numa, demand, self._rules, devices), demand
        outcome: Outcome | Status = known[0]
        return outcome

    def _outcome_on(self, state: CycleState, demand: Demand, numa: NumaState, name: str) -> Outcome | Status:
        """The result of `align` for the target of the pod; what its reservation holds is used first (NUMA-R62)."""
        way = state.get(TARGET)
        if way is None or way.reserved is None:
            return self._outcome(state, demand, numa, name)
        known, own = self._known(state, name), has(way.reserved)
        if known is None or own == NOTHING:
            return self._outcome(state, demand, numa, name)
        rest = left(known, way.reserved)
        inside = numa.within(rest.cpus if own.cpus else None, rest.zones if own.zones else None)
        outcome = self._outcome(state, demand, inside, name)
        if isinstance(outcome, Outcome) or way.reserved.restricted:
            return outcome
        return self._outcome(state, demand, numa, name)

    def affinity(self, state: CycleState, node: str) -> Mask | None:
        demand, numa = state[DEMAND], self._state(state, node)
        if not (demand.numa_policy or numa.options.policy(label_first=self._rules.label_first)):
            return None
        for way in targets_on(state, node):
            inner = for_target(state, way)
            demand_outcome = self._outcome_on(inner, demand, self._state(inner, node), node)
            if isinstance(demand_outcome, Outcome):
                return demand_outcome.mask
        outcome = self._outcome_on(state, demand, numa, node)
        return None if isinstance(outcome, Status) else outcome.mask

    def _known(self, state: CycleState, name: str) -> NodeNuma | None:
        """The node, in the dry run if there is one; what is held for the pod is free."""
        dry_run = state.get(DRY_RUN)
        entry = dry_run.get(name) if dry_run is not None else None
        return entry or self.numa_cache.find(name)

    def _state(self, state: CycleState, name: str) -> NumaState:
        """The node's state for the pod's target: all other reservations hold what they have."""
        node, way = self._known(state, name), state.get(TARGET)
        if node is None or way is None:
            return node.state if node is not None else self.numa_cache.nothing
        others = [other for other in matched_on(state, name) if other is not way.reserved]
        held = [(other.uid, rest) for other in others if (rest := left(node, other)) != NOTHING]
        if not held:
            return node.state
        node = node.copy()
        for uid, rest in held:
            self.numa_cache.simulate(node, uid, rest)
        return node.state

    # -- many at once -------------------------------------------------------------------------------------------------

    def stack(self, states: Sequence[CycleState]) -> _Stacked:
        demanding = [index for index, state in enumerate(states) if not state[DEMAND].plain]
        return _Stacked(states, demanding, any(PROVIDER in state for state in states))

    def filter_batch(self, stacked: _Stacked, batch: Batch) -> Bools | None:
        ok: Bools = np.ones((len(stacked.states), batch.size), np.bool_)
        for index, place, node in self._special(stacked, batch):
            ok[index, place] = self._verdict(stacked.states[index], node).ok
        return ok

    def _special(self, stacked: _Stacked, batch: Batch) -> Iterator[tuple[int, int, NodeInfo]]:
        """Classes and batch indices that need a closer look: most pods on most nodes do not."""
        affects_plain_pods = batch.own(AFFECTS_PLAIN_PODS)
        nodes, names = self._handle.cache.nodes, batch.columns.names
        demanding = set(stacked.demanding)
        for place in np.flatnonzero(affects_plain_pods).tolist() if not demanding else range(batch.size):
            node = nodes.get(names[batch.rows[place]])
            if node is not None and node.node is not None:
                for index in range(len(stacked.states)) if affects_plain_pods[place] else stacked.demanding:
                    yield index, place, node

    def slots_signature(self, state: CycleState, node: NodeInfo) -> Hashable:
        numa = self.numa_cache.find(node.name)
        if numa is None or (state[DEMAND].plain and not numa.state.options.affects_plain_pods):
            return None
        return node.name if numa.state.options.cpu_ratio != 1.0 else numa.state

    def filter_signature(self, stacked: _Stacked, node: NodeInfo) -> Hashable:
        numa = self.numa_cache.find(node.name)
        if not stacked.demanding and (numa is None or not numa.state.options.affects_plain_pods):
            return None
        return self._signature(stacked, node, numa)

    def _signature(self, stacked: _Stacked, node: NodeInfo, numa: NodeNuma | None) -> Hashable:
        tokens: Hashable = None
        if stacked.provided:
            tokens = tuple(
                provider.numa_token(state, node.name)
                for state in stacked.states
                if (provider := state.get(PROVIDER)) is not None
            )
        if numa is None:
            return (None, tokens)
        if numa.state.options.cpu_ratio == 1.0:
            return (numa.state, tokens)
        return (numa.state, tokens, self._scoring.sums(node))

    def filter_classes_batch(self, stacked: _Stacked, node: NodeInfo) -> Bools:
        return np.array([self._verdict(state, node).ok for state in stacked.states], np.bool_)

    def reasons_batch(self, stacked: _Stacked, batch: Batch) -> tuple[Ints, Callable[[int], Status]]:
        codes = np.zeros(batch.size, np.int64)
        statuses: list[Status] = [SUCCESS]
        for _, place, node in self._special(stacked, batch):
            status = self._verdict(stacked.states[0], node)
            if not status.ok:
                if status not in statuses:
                    statuses.append(status)
                codes[place] = statuses.index(status)
        return codes, statuses.__getitem__

    # -- scoring ------------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        return DEMAND in state

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        if matched_on(state, node.name):
            state = for_target(state, state[NOMINATE](state, pod, node))
        demand, numa = state[DEMAND], self._state(state, node.name)
        if demand.plain and not numa.options.affects_plain_pods:
            return self._scoring.plain(demand, node)
        outcome = self._outcome_on(state, demand, numa, node.name)
        return 0 if isinstance(outcome, Status) else self._scoring.of(numa, outcome, node)

    def stack_scores(self, states: Sequence[CycleState]) -> _Stacked:
        return self.stack(states)

    def score_batch(self, stacked: _Stacked, batch: Batch) -> Ints | None:
        stack = np.stack([self._scoring.many(state[DEMAND], batch) for state in stacked.states])
        for index, place, node in self._special(stacked, batch):
            stack[index, place] = self.score(stacked.states[index], _NOBODY, node)
        return stack

    def score_signature(self, stacked: _Stacked, node: NodeInfo) -> Hashable:
        numa = self.numa_cache.find(node.name)
        sums = self._scoring.sums(node)
        if not stacked.demanding and (numa is None or not numa.state.options.affects_plain_pods):
            return sums
        return (sums, self._signature(stacked, node, numa))

    def score_classes_batch(self, stacked: _Stacked, node: NodeInfo) -> Ints:
        return np.array([self.score(state, _NOBODY, node) for state in stacked.states], np.int64)

    # -- settling -----------------------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        demand = state[DEMAND]
        way = for_target(state, state.get(NOMINATED)) if matched_on(state, node_name) else state
        numa = self._state(way, node_name)
        if demand.plain and not numa.options.affects_plain_pods:
            return SUCCESS
        outcome = self._outcome_on(way, demand, numa, node_name)
        if isinstance(outcome, Status):
            return outcome
        state[OUTCOME] = outcome
        if outcome.mask is not None:
            state[AFFINITY] = outcome.mask
        if outcome.allocation != NOTHING:
            self.numa_cache.assign(node_name, pod.metadata.uid, outcome.allocation)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        if DEMAND in state:
            state.discard(OUTCOME)
            state.discard(AFFINITY)
            self.numa_cache.release(node_name, pod.metadata.uid)

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> MetadataChanges:
        entry = state.get(OUTCOME)
        if entry is None or entry.allocation == NOTHING:
            return NO_METADATA_CHANGES
        annotations = {RESOURCE_STATUS: status_text(entry.allocation)}
        self.numa_cache.record_pending(pod.metadata.uid, annotations[RESOURCE_STATUS])
        if entry.need.preference is not None:
            spec = written_back(state[DEMAND], entry.need.preference)
            if spec is not None:
                annotations[RESOURCE_SPEC] = spec
        return MetadataChanges(annotations, {})

    # -- preemption ---------------------------------------------------------------------------------------------------

    def victim_removed(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        self._move_in_dry_run(state, victim, node.name, there=False)

    def victim_returned(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        self._move_in_dry_run(state, victim, node.name, there=True)

    def _move_in_dry_run(self, state: CycleState, victim: PodInfo, name: str, *, there: bool) -> None:
        real = self.numa_cache.find(name) if DEMAND in state else None
        if real is None:
            return
        allocation = real.held.get(victim.uid)
        if allocation is None and there and not victim.node_name:
            allocation = self._planned(state, victim, name)
        if allocation is None:
            return
        dry_run = state.get(DRY_RUN)
        state[DRY_RUN] = dry_run = {} if dry_run is None else dict(dry_run)
        dry_run[name] = simulated = (
            dry_run.get(name) or real
        ).copy()  # copies of the cycle state made earlier keep their dictionary
        self.numa_cache.simulate(simulated, victim.uid, allocation if there else None)
        reserved = self._reservations.holding(victim.uid)
        overlooked = (state.get(MATCHED) or {}).get(name, ())
        if reserved is not None and reserved.node == name and reserved not in overlooked and has(reserved) != NOTHING:
            # back to the reservation (NUMA-R63)
            self.numa_cache.simulate(simulated, reserved.uid, left(simulated, reserved))

    def _planned(self, state: CycleState, info: PodInfo, name: str) -> NumaAllocation | None:
        """What a pod that a dry run places here would be allocated; its devices follow (`PLANNED`)."""
        kept = self._handle.runner_of(info).class_scores(info.pod_class).state
        if DEMAND not in kept:
            return None
        own = CycleState({**state, **kept})
        for key in (MATCHED, TARGET):
            own.discard(key)
        demand, numa = own[DEMAND], self._state(own, name)
        if demand.plain and not numa.options.affects_plain_pods:
            return None
        outcome = self._outcome_on(own, demand, numa, name)
        if isinstance(outcome, Status):
            return None
        if outcome.mask is not None:
            planned = state.get(PLANNED)
            state[PLANNED] = {**(planned or {}), info.uid: outcome.mask}
        return outcome.allocation if outcome.allocation != NOTHING else None


_NOBODY = Pod()  # the demand in the state has all that is needed of the pod


def _provider_devices(provider: HintProvider, state: CycleState, name: str) -> Devices:
    return Devices(partial(provider.numa_hints, state, name), partial(provider.numa_fits, state, name))


def _amplified(demand: Demand, numa: NumaState, node: NodeInfo, column: int) -> Status | None:
    """Whether an amplified node has the CPU as a whole (NUMA-R49); bound CPUs count as real CPUs."""
    ratio = numa.options.cpu_ratio
    if ratio is None:
        return BAD_RATIO
    binding = demand.bind or bool(numa.options.bind_policy)
    cpu = amplify(demand.cpu, ratio) if binding else demand.cpu
    used, bound = node.requested[column], numa.bound * 1000
    if bound and used >= bound:
        used += amplify(bound, ratio) - bound
    return NO_AMPLIFIED if cpu > node.allocatable[column] - used else None
