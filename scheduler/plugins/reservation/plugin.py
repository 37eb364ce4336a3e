"""Reservation: place pods in the reservations that match them, and keep other pods from what is reserved.

A reserve pod holds what is reserved on the node (see `cache`), so a pod that matches no reservation needs nothing of
this plugin. For other pods the plugin names the reserve pods that do not count (`overlooked`), evaluates each
reservation on a node, and nominates the one that the pod goes into.
Follows Koordinator pkg/scheduler/plugins/reservation; deviations are in scheduler/DESIGN.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.quantity import Amounts
from seatrial.scheduler.api.reservation import (
    ALIGNED,
    CLUSTER_MODE,
    PRE_ALLOCATION_REQUIRED,
    RESERVATION_AFFINITY,
    RESERVATION_ALLOCATED,
    RESERVATION_IGNORED,
    RESERVATION_NODE,
    RESTRICTED,
    AnnotationError,
    allocation,
    is_operating_reservation,
    is_reserve_pod,
)
from seatrial.scheduler.cache.columns import Batch, Bools, Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.cache.resources import PODS_COLUMN
from seatrial.scheduler.framework.accelerations import FilterBatch, ScoreBatch
from seatrial.scheduler.framework.extension_points import (
    MAX_NODE_SCORE,
    NO_METADATA_CHANGES,
    ByMaximum,
    MetadataChanges,
    PostFilter,
    PreBind,
    PreFilter,
    Reserve,
    Scope,
    Transformer,
    VictimAware,
)
from seatrial.scheduler.framework.fit_error import FitError
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.reservation_info import (
    IGNORED,
    MATCHED,
    NOMINATE,
    NOMINATED,
    REQUIRED,
    ReservationAware,
    ReservationInfo,
)
from seatrial.scheduler.framework.restored import as_seen
from seatrial.scheduler.framework.state import WAKE_GROUP, CycleState, StateKey
from seatrial.scheduler.framework.status import SUCCESS, Code, PostFilterResult, Status
from seatrial.scheduler.plugins.defaultpreemption.args import DefaultPreemptionArgs
from seatrial.scheduler.plugins.reservation.args import ReservationArgs
from seatrial.scheduler.plugins.reservation.cache import ReservationCache
from seatrial.scheduler.plugins.reservation.diagnosis import Diagnosis
from seatrial.scheduler.plugins.reservation.fitting import PODS, lacking, shares, short, take_left, taken_beside, worth
from seatrial.scheduler.plugins.reservation.matching import Match, ReservationRequest, judge, wait_group
from seatrial.scheduler.plugins.reservation.pre_allocation import (
    DISABLED,
    NO_POD_FITS,
    NO_POD_MATCHES,
    UNSUPPORTED,
    candidates,
    select,
)
from seatrial.scheduler.plugins.reservation.preemption import ReservationPreemption

NO_MATCH = Status.unresolvable("node(s) no reservations match reservation affinity")
NONE_WILL_DO = Status.unschedulable("node(s) no reservation(s) to meet the requirements")
WRONG_NODE = Status.unresolvable("node(s) didn't match the nodeName specified by reservation")
POLICY_CONFLICT = Status.unresolvable("node(s) reservation allocate policy conflict")
NONE_TO_TAKE = Status.unschedulable(NO_POD_FITS)
PREFERRED = 1000  # raw score of the node whose reservation has the smallest order


@dataclass(slots=True)
class Seen:
    """The result of matching this cycle's pod with reservations."""

    pod: Pod
    request: ReservationRequest
    requests: Amounts
    diagnosis: Diagnosis
    nominated: dict[str, ReservationInfo | None] = field(default_factory=dict)  # by node


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The pods that a reservation with preAllocation takes over, by node."""

    required: bool  # a node without such a pod is not feasible
    pods: Mapping[str, Sequence[PodInfo]]


TAKEN_OVER: StateKey[TakenOver] = StateKey("Reservation/taken-over")
SEEN: StateKey[Seen] = StateKey("Reservation/seen")
OWN: StateKey[str] = StateKey("Reservation/own")  # the pod is a reserve pod; the node that it names, or ""
OWN_POLICY: StateKey[str] = StateKey("Reservation/own-policy")  # its allocate policy
GONE: StateKey[tuple[str, ...]] = StateKey("Reservation/gone")  # uids of the pods that a dry run removes
PREFERRED_NODE: StateKey[str] = StateKey("Reservation/preferred-node")


class Reservation(PreFilter, FilterBatch, Transformer, PostFilter, ScoreBatch, Reserve, PreBind, VictimAware):
    """The extension points of Reservation."""

    name = "Reservation"
    scope = Scope.CLUSTER
    normalizer = ByMaximum()

    def __init__(self, handle: Handle, args: ReservationArgs | None = None) -> None:
        self.args = args or ReservationArgs()
        self._handle = handle
        self._classes = handle.cache.classes
        self.reservation_cache = ReservationCache.of(handle)
        self._owners = self.reservation_cache.owners
        self._index = self.reservation_cache.index(self.args.reservation_selector_index)
        self._aware_in: dict[str, list[ReservationAware]] = {}  # profile → plugins that hold something for reservations
        enough = DefaultPreemptionArgs(
            min_candidate_nodes_percentage=self.args.min_candidate_nodes_percentage,
            min_candidate_nodes_absolute=self.args.min_candidate_nodes_absolute,
        )
        self._preemption = ReservationPreemption(handle, enough) if self.args.enable_preemption else None

    def concerns(self, pod: Pod) -> bool:
        annotations = pod.metadata.annotations
        if annotations and (
            RESERVATION_AFFINITY in annotations or RESERVATION_IGNORED in annotations or is_reserve_pod(pod)
        ):
            return True
        if is_operating_reservation(pod):
            return True
        return bool(self._owners) and (self._owners.knows(pod) or RESERVATION_IGNORED in pod.metadata.labels)

    @property
    def concern_version(self) -> int:
        return self._owners.version

    # -- which nodes are seen otherwise -------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        if is_reserve_pod(pod):
            state[OWN] = pod.metadata.annotations.get(RESERVATION_NODE, "")
            state[WAKE_GROUP] = f"reservation on {state[OWN]}"
            problem = self._problem(pod)
            if problem:
                return Status.unresolvable(problem)
            known = self.reservation_cache.known[pod.metadata.uid]
            state[OWN_POLICY] = known.spec.allocate_policy
            return self._take_over(state, pod) if known.spec.pre_allocation else SUCCESS
        if is_operating_reservation(pod):
            state[OWN], state[OWN_POLICY], state[WAKE_GROUP] = "", ALIGNED, "operating as a reservation"
            return SUCCESS
        try:
            request = ReservationRequest.of(pod)
        except AnnotationError as error:
            return Status.unresolvable(str(error))
        requests = self._classes.of(pod).requests
        seen = state[SEEN] = Seen(pod, request, requests, Diagnosis(request.affinity is not None))
        groups = self._owners.groups(pod)
        state[WAKE_GROUP] = wait_group(pod, groups)
        matched: dict[str, list[ReservationInfo]] = {}
        if request.ignored:
            state[IGNORED] = True
            for reserved in self.reservation_cache:
                if reserved.open:
                    matched.setdefault(reserved.node, []).append(reserved)
        else:
            for reserved in self._candidates(request, groups):
                node = self._handle.cache.find(reserved.node)
                if node is None or not reserved.open:
                    continue
                match, taint = judge(request, requests, reserved, node.known)
                seen.diagnosis.note(reserved.node, match, taint, named=bool(request.name))
                if match is Match.MATCHED and (
                    request.affinity is not None or shares(requests, reserved.allocatable)  # RSV-R32
                ):
                    matched.setdefault(reserved.node, []).append(reserved)
        if matched:
            for found_there in matched.values():
                found_there.sort(key=lambda reserved: reserved.name)
            state[MATCHED] = matched
            state[NOMINATE] = self._nominate
        if request.affinity is not None and not request.ignored:
            state[REQUIRED] = True
            return Status.only(frozenset(matched)) if matched else NO_MATCH
        return SUCCESS

    def _candidates(self, request: ReservationRequest, groups: Sequence[str]) -> Iterator[ReservationInfo]:
        """The available reservations of these owners, without those that the index of selectors excludes."""
        affinity = request.affinity
        nodes = None
        if self._index.enabled and affinity is not None and not affinity.name:
            nodes = self._index.nodes(affinity.reservation_selector)
        if nodes is None:
            yield from self.reservation_cache.of_groups(groups)
            return
        for node in nodes:
            yield from (
                candidate for candidate in self.reservation_cache.on(node).values() if candidate.group in groups
            )

    def _problem(self, pod: Pod) -> str:
        reservation = self.reservation_cache.known.get(pod.metadata.uid)
        if reservation is None:
            return "the reservation is nil"
        if reservation.spec.pre_allocation:
            if reservation.spec.allocate_policy != RESTRICTED:
                return UNSUPPORTED
            clusterwide = reservation.spec.pre_allocation_policy.mode == CLUSTER_MODE
            if clusterwide and not self.args.pre_allocation_config.enable_cluster_mode:
                return DISABLED
        return reservation.problem

    def _take_over(self, state: CycleState, pod: Pod) -> Status:
        """Choose the running pods that a reservation with preAllocation takes over on each node (RSV-R46)."""
        reservation = self.reservation_cache.known[pod.metadata.uid]
        state[WAKE_GROUP] = f"reservation {pod.metadata.uid}"
        config, cache = self.args.pre_allocation_config, self._handle.cache
        required = reservation.metadata.labels.get(PRE_ALLOCATION_REQUIRED) == "true"
        victims = candidates(reservation, cache, config, self.reservation_cache.contains)
        if required and not victims:
            return Status.unresolvable(NO_POD_MATCHES)
        requests, selected = self._classes.of(pod).requests, dict[str, list[PodInfo]]()
        for name, infos in victims.items():
            node = cache.find(name)
            if node is None:
                continue
            has, used = self._named(node.allocatable, requests), self._named(node.requested, requests)
            free = {resource: has[resource] - used[resource] for resource in has}
            fits = all(value <= free.get(resource, 0) for resource, value in requests.items())
            if fits and not required and config.prefer_no_pre_allocated_pods:
                continue
            pods = [(info, self._classes.of(info.pod).requests) for info in infos]
            taken = select(requests, free, pods, multiple=reservation.spec.pre_allocation_policy.enable_multiple)
            if taken:
                selected[name] = taken
        state[TAKEN_OVER] = TakenOver(required, selected)
        return SUCCESS

    def overlooked(self, state: CycleState, pod: Pod) -> Mapping[str, Sequence[PodInfo]]:
        taken = state.get(TAKEN_OVER)
        if taken is not None:
            return taken.pods
        victims: dict[str, list[PodInfo]] = {}
        for name, there in (state.get(MATCHED) or {}).items():
            node = self._handle.cache.find(name)
            for reserved in there:
                holder = None if node is None else node.pods.get(reserved.uid)
                if holder is not None:
                    victims.setdefault(name, []).append(holder)
        return victims

    def chosen(self, state: CycleState, pod: Pod, node: NodeInfo) -> None:
        if IGNORED not in state and MATCHED in state:
            nominated = self._nominate(state, pod, node)
            if nominated is not None:
                state[NOMINATED] = nominated

    # -- filter -------------------------------------------------------------------------------------------------------

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        own = state.get(OWN)
        if own is not None:
            if own and own != node.name:
                return WRONG_NODE
            taken = state.get(TAKEN_OVER)
            if taken is not None and taken.required and node.name not in taken.pods:
                return NONE_TO_TAKE
            return POLICY_CONFLICT if self._conflicts(state[OWN_POLICY], node.name) else SUCCESS
        there = (state.get(MATCHED) or {}).get(node.name)
        if not there or IGNORED in state:
            return SUCCESS
        return self._filter_owner(state, pod, there, node)

    def _conflicts(self, policy: str, name: str) -> bool:
        """Whether a reservation on the node has an allocate policy that is incompatible with `policy` (RSV-R28)."""
        there = self.reservation_cache.on(name)
        return any(bool(other.reservation.spec.allocate_policy) != bool(policy) for other in there.values())

    def _filter_owner(self, state: CycleState, pod: Pod, there: Sequence[ReservationInfo], node: NodeInfo) -> Status:
        """Whether a matching reservation fits, or the node beside them (RSV-R29 to RSV-R33)."""
        required = REQUIRED in state
        by_node: dict[str, None] = {}
        by_reservation: list[str] = []
        for reserved in there:
            node_lacks, lacks = self._shortfalls(state, reserved, there, node)
            by_node.update(dict.fromkeys(node_lacks))
            by_reservation += lacks
            if node_lacks or lacks:
                continue
            refused = [status for status in self._fit_statuses(state, pod, reserved, node.name) if not status.ok]
            if not refused:
                return SUCCESS
            by_reservation += [reason for status in refused for reason in status.reasons]
        if required:
            reasons = [*(f"Insufficient {name} by node" for name in sorted(by_node)), *by_reservation]
            return Status.unschedulable(*reasons) if reasons else NONE_WILL_DO
        if not by_node:  # otherwise the node alone fails too
            by_node.update(dict.fromkeys(self._short_alone(state, there, node)))
        if by_node:
            return Status.unschedulable(*(f"Insufficient {name} by node" for name in sorted(by_node)))
        beside = (plugin.fits_in(state, pod, None, node.name) for plugin in self._aware(pod))
        return next((status for status in beside if not status.ok), SUCCESS)

    def _shortfalls(
        self, state: CycleState, reserved: ReservationInfo, there: Sequence[ReservationInfo], node: NodeInfo
    ) -> tuple[list[str], list[str]]:
        """What the node and the reservation lack together, and what a Restricted reservation lacks by itself."""
        seen, gone = state[SEEN], _gone(state)
        taken = taken_beside(reserved, there, self._named(node.requested, seen.requests), gone)
        lacks: list[str] = []
        if reserved.restricted:
            detailed = bool(seen.request.name)
            lacks = lacking(seen.requests, reserved, gone, detailed=detailed, ignores=self.args.ignores)
        return self._short(seen.requests, node, taken), lacks

    def _short_alone(self, state: CycleState, there: Sequence[ReservationInfo], node: NodeInfo) -> list[str]:
        requests = state[SEEN].requests
        taken = self._named(node.requested, requests)
        for reserved in there:
            take_left(taken, reserved, _gone(state))
        return self._short(requests, node, taken)

    def _short(self, requests: Amounts, node: NodeInfo, taken: Amounts) -> list[str]:
        """The resources that the node lacks, without those that the configuration excludes from the check."""
        names = short(requests, self._named(node.allocatable, requests), taken)
        counted = self._handle.columns.resources.part
        return [name for name in names if not self.args.ignores(name) and counted(name, 1)[1]]

    def _named(self, amounts: Sequence[int], requests: Amounts) -> Amounts:
        """The amounts of requested resources and the places for pods, from a node's amounts by column."""
        column = self._handle.columns.resources.column_of_request
        by_name = {PODS: amounts[PODS_COLUMN]}
        for name in requests:
            number = column(name)
            by_name[name] = amounts[number] if number < len(amounts) else 0
        return by_name

    def _fit_statuses(self, state: CycleState, pod: Pod, reserved: ReservationInfo, node_name: str) -> list[Status]:
        """Results of the plugins that hold something of their own for reservations."""
        return [plugin.fits_in(state, pod, reserved, node_name) for plugin in self._aware(pod)]

    def _aware(self, pod: Pod) -> list[ReservationAware]:
        name = pod.spec.scheduler_name
        if name not in self._aware_in:
            plugins = self._handle.runners[name].plugins
            self._aware_in[name] = [plugin for plugin in plugins if isinstance(plugin, ReservationAware)]
        return self._aware_in[name]

    def stack(self, states: Sequence[CycleState]) -> Sequence[CycleState]:
        return states

    def filter_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Bools | None:
        return np.stack([self.reasons_batch([state], batch)[0] == 0 for state in stacked])

    def reasons_batch(self, stacked: Sequence[CycleState], batch: Batch) -> tuple[Ints, Callable[[int], Status]]:
        """Reasons in batches: on unchanged nodes only reserve pods are evaluated here."""
        own, columns = stacked[0].get(OWN), self._handle.columns
        codes = np.zeros(columns.capacity, np.int64)
        statuses = [SUCCESS, WRONG_NODE, POLICY_CONFLICT, NONE_TO_TAKE]
        if own is not None:
            policy = stacked[0][OWN_POLICY]
            for name in self.reservation_cache.nodes():
                if name in columns.rows and self._conflicts(policy, name):
                    codes[columns.rows[name]] = 2
            taken = stacked[0].get(TAKEN_OVER)
            if taken is not None and taken.required:
                rows = [columns.rows[name] for name in taken.pods if name in columns.rows]
                codes[~np.isin(np.arange(len(codes)), rows)] = 3
            if own:
                there = columns.rows.get(own, -1)
                codes[np.arange(len(codes)) != there] = 1
        return batch.pick(codes), statuses.__getitem__

    # -- which reservation --------------------------------------------------------------------------------------------

    def _nominate(self, state: CycleState, pod: Pod, node: NodeInfo) -> ReservationInfo | None:
        """The reservation on a node that the pod goes into (RSV-R36); None if it would take none."""
        seen, there = state[SEEN], (state.get(MATCHED) or {}).get(node.name, ())
        if node.name not in seen.nominated:
            seen.nominated[node.name] = self._best(state, pod, there, node)
        return seen.nominated[node.name]

    def _best(
        self, state: CycleState, pod: Pod, there: Sequence[ReservationInfo], node: NodeInfo
    ) -> ReservationInfo | None:
        seen, required = state[SEEN], REQUIRED in state
        if len(there) == 1 and required:
            return there[0]
        left = [
            reserved
            for reserved in there
            if not any(self._shortfalls(state, reserved, there, node))
            and all(status.ok for status in self._fit_statuses(state, pod, reserved, node.name))
        ]
        if len(left) < 2:
            return left[0] if left else None
        ordered = [reserved for reserved in left if reserved.reservation.order]
        if ordered:
            return min(ordered, key=lambda reserved: (reserved.reservation.order, reserved.name))
        scores = np.array([worth(seen.requests, reserved) for reserved in left], np.int64)
        for plugin in self._aware(pod):
            raw = np.array([plugin.worth_in(state, pod, reserved, node.name) for reserved in left], np.int64)
            scores += self.normalizer.apply(raw, raw.max(keepdims=True))
        return left[int(scores.argmax())]

    def survey(self, state: CycleState, pod: Pod, nodes: Sequence[NodeInfo]) -> None:
        """Nominate a reservation on each node; prefer the node whose reservation has the smallest order (RSV-R38)."""
        orders: list[tuple[int, str, str]] = []
        for name, there in (state.get(MATCHED) or {}).items():
            if any(reserved.reservation.order for reserved in there):
                node = next((node for node in nodes if node.name == name), None)
                nominated = None if node is None else self._nominated_on(state, pod, node)
                if nominated is not None and nominated.reservation.order:
                    orders.append((nominated.reservation.order, nominated.name, name))
        state[PREFERRED_NODE] = min(orders)[2] if orders else ""

    def _nominated_on(self, state: CycleState, pod: Pod, node: NodeInfo) -> ReservationInfo | None:
        return self._nominate(*_swapped(state, pod, node))

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        return TAKEN_OVER in state or (MATCHED in state and IGNORED not in state)

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        taken = state.get(TAKEN_OVER)
        if taken is not None:  # RSV-R48: the fewer pods, the better
            count = len(taken.pods.get(node.name, ()))
            return MAX_NODE_SCORE // (1 + count) if count else MAX_NODE_SCORE
        if node.name not in (state.get(MATCHED) or {}):
            return 0
        nominated = self._nominated_on(state, pod, node)
        if nominated is None:
            return 0
        if node.name == state[PREFERRED_NODE]:
            return PREFERRED
        return worth(state[SEEN].requests, nominated)

    def score_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Ints | None:
        state, columns = stacked[0], self._handle.columns
        places = {int(row): place for place, row in enumerate(batch.rows)}
        taken = state.get(TAKEN_OVER)
        if taken is not None:
            scores = np.full((1, batch.size), MAX_NODE_SCORE, np.int64)
            for name, pods in taken.pods.items():
                place = places.get(columns.rows.get(name, -1))
                if place is not None:
                    scores[0, place] = MAX_NODE_SCORE // (1 + len(pods))
            return scores
        pod = state[SEEN].pod
        nodes = [
            node
            for name in state[MATCHED]
            if columns.rows[name] in places
            if (node := self._handle.cache.find(name)) is not None
        ]
        self.survey(state, pod, nodes)
        scores = np.zeros((1, batch.size), np.int64)
        for node in nodes:
            scores[0, places[node.row]] = self.score(state, pod, node)
        return scores

    # -- going into it ------------------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        taken = state.get(TAKEN_OVER)
        if taken is not None:
            self.reservation_cache.take_over(pod.metadata.uid, taken.pods.get(node_name, ()), node_name)
        nominated = state.get(NOMINATED)
        if nominated is not None:
            self.reservation_cache.assign(nominated.uid, pod, node_name)
        elif REQUIRED in state:
            return NO_MATCH
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.reservation_cache.withdraw(pod.metadata.uid)
        self.reservation_cache.give_back(pod.metadata.uid)

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> MetadataChanges:
        nominated = state.get(NOMINATED)
        if nominated is None:
            return NO_METADATA_CHANGES
        return MetadataChanges({RESERVATION_ALLOCATED: allocation(nominated.name, nominated.uid)}, {})

    # -- preemption ---------------------------------------------------------------------------------------------------

    def victim_removed(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        self._move_in_dry_run(state, victim, node)

    def victim_returned(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        self._move_in_dry_run(state, victim, node)

    def _move_in_dry_run(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        """Dry run: a pod of a reservation is added or removed; its part returns to the reservation."""
        reserved = self.reservation_cache.holding(victim.uid)
        if reserved is None:
            return
        gone = tuple(sorted({*_gone(state)} ^ {victim.uid}))
        state[GONE] = gone
        holder = node.pods.get(reserved.uid)
        if holder is not None:
            node.remove(holder)
            pod = self.reservation_cache.pod_without(reserved, gone)
            node.add(PodInfo(pod, self._classes.of(pod), node.name))

    def post_filter(self, state: CycleState, info: PodInfo, failure: FitError) -> PostFilterResult:
        made, clear = list[str](), False
        if self._preemption is not None:
            result = self._preemption.post_filter(state, info, failure)
            if result.status.code is not Code.UNSCHEDULABLE:
                return result
            made, clear = [*result.status.reasons], result.clear_nomination
        seen = state.get(SEEN)
        if seen is not None and not seen.request.ignored:
            rows = self._handle.columns.rows
            made += seen.diagnosis.reasons(lambda name: failure.status(rows[name]))
        return PostFilterResult(Status.unschedulable(*made), clear_nomination=clear)


def _gone(state: CycleState) -> tuple[str, ...]:
    return state.get(GONE) or ()


def _swapped(state: CycleState, pod: Pod, node: NodeInfo) -> tuple[CycleState, Pod, NodeInfo]:
    inner, seen = as_seen(state, node)
    return inner, pod, seen
