"""DynamicResources: the extension points (DRA-R36 to DRA-R70, upstream `plugins/dynamicresources/dynamicresources.go`).

A pod's claims that have no devices yet get them on the selected node: chosen at Reserve, written before the pod is
bound. Claims with devices restrict the nodes. For extended resources that a node does not offer itself a claim is made.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple
from uuid import NAMESPACE_OID, uuid5

import msgspec
import numpy as np

from seatrial.scheduler.api.clock import read_time
from seatrial.scheduler.api.core import Node, NodeSelector, Pod
from seatrial.scheduler.api.durations import go_duration, required_duration
from seatrial.scheduler.api.podgroup import gang_name
from seatrial.scheduler.api.resourceclaims import MAX_RESERVED, POD_GROUPS, Allocation, Consumer, ResourceClaim
from seatrial.scheduler.cache.columns import Batch, Bools, Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.cache.resources import BY_CLAIM, UNOFFERED_COLUMN
from seatrial.scheduler.framework.accelerations import FilterBatch, ScoreBatch
from seatrial.scheduler.framework.extension_points import (
    NO_LABELS,
    Args,
    ByMaximum,
    MetadataChanges,
    PostFilter,
    PreBind,
    PreEnqueue,
    PreFilter,
    Reserve,
    Scope,
    VictimAware,
)
from seatrial.scheduler.framework.fit_error import FitError
from seatrial.scheduler.framework.group_failure import GroupFailure
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.preparation import Awaited, ObjectPatch, Preparation
from seatrial.scheduler.framework.state import WAKE_GROUP, CycleState, StateKey
from seatrial.scheduler.framework.status import SUCCESS, Code, PostFilterResult, Status
from seatrial.scheduler.plugins.coscheduling.cache import GangCache
from seatrial.scheduler.plugins.dynamicresources.allocator import Search, allocation_of
from seatrial.scheduler.plugins.dynamicresources.claims import (
    ClaimKey,
    Claims,
    entries_of,
    is_made_for,
    keys_of,
    names_key,
    wake_key,
)
from seatrial.scheduler.plugins.dynamicresources.deallocation import Deallocations
from seatrial.scheduler.plugins.dynamicresources.extended import ExtendedClaim, extended_claim
from seatrial.scheduler.plugins.dynamicresources.simulation import SIMULATION, Simulation
from seatrial.scheduler.plugins.dynamicresources.verdicts import CANNOT, VerdictCache, Verdicts
from seatrial.scheduler.plugins.dynamicresources.wants import AllocationError, Want, compiled
from seatrial.scheduler.plugins.dynamicresources.writes import ClaimWriter
from seatrial.scheduler.plugins.node_selection import term_holds

STALE = Status.unresolvable("cannot schedule extended resource claim")
NOT_HERE = Status.unresolvable("resourceclaim not available on the node")
NOT_YET = Status(Code.WAIT)
IN_USE = Status.unschedulable(*CANNOT.reasons)  # with preemption: the devices may come back


class DynamicResourcesArgs(Args, frozen=True):
    """Upstream's arguments, as durations; a search is limited by its steps, not by `filterTimeout`.

    `enablePreemption` is our own: pods are evicted for the devices of their claims.
    """

    filter_timeout: str = "10s"
    binding_timeout: str = "600s"
    enable_preemption: bool = False

    def check(self) -> None:
        value, bound = go_duration(self.filter_timeout), go_duration(self.binding_timeout)
        if value is None or value < 0:
            raise ValueError(f"filterTimeout: must be zero or positive, as 10s, found {self.filter_timeout!r}")
        if bound is None or bound < 1:
            raise ValueError(f"bindingTimeout: must be at least 1 second, as 600s, found {self.binding_timeout!r}")


class _Option(NamedTuple):
    """What is to be allocated on nodes of one kind: `verdicts` None: nothing. `extended`: a claim that is made then.

    `specs`: those of all claims, as JSON.
    """

    specs: bytes
    verdicts: Verdicts | None = None
    extended: ExtendedClaim | None = None
    failure: Status | None = None  # the claims cannot be compiled

    @property
    def wants(self) -> Sequence[Want]:
        return () if self.verdicts is None else self.verdicts.wants


class _Needs(NamedTuple):
    """A pod's claims: those with devices, and those that need some, with one option for each kind of node.

    Nodes differ where they offer some of the pod's extended resources themselves. `option_of`: [row], None where there
    is one option; `stale`: the claim that an earlier attempt has left.
    """

    placed: tuple[tuple[ResourceClaim, NodeSelector | None], ...]
    open: tuple[ResourceClaim, ...]
    options: tuple[_Option, ...]
    option_of: Ints | None = None
    stale: ResourceClaim | None = None

    def option(self, row: int) -> _Option:
        return self.options[0 if self.option_of is None else int(self.option_of[row])]


NEEDS: StateKey[_Needs] = StateKey("DynamicResources/needs")
EXTENDED: StateKey[ExtendedClaim] = StateKey("DynamicResources/extended")
ABANDONED: StateKey[frozenset[str]] = StateKey("DynamicResources/abandoned")  # see `Claims.abandoned`


class DynamicResources(PreEnqueue, PreFilter, FilterBatch, VictimAware, PostFilter, ScoreBatch, Reserve, PreBind):
    """The extension points of DynamicResources."""

    name = "DynamicResources"
    scope = Scope.CLUSTER
    normalizer = ByMaximum()
    acts_on = NEEDS

    def __init__(self, handle: Handle, args: DynamicResourcesArgs | None = None) -> None:
        self._handle, self._cache, self._clock = handle, handle.cache, handle.clock
        args = args or DynamicResourcesArgs()
        self._seconds, self._preempts = required_duration(args.binding_timeout), args.enable_preemption
        self.claims = handle.shared(Claims, partial(Claims, handle))
        self._writer = ClaimWriter(self.claims)
        self._kinds = handle.shared(VerdictCache, lambda: VerdictCache(self.claims, handle))
        self._deallocations = handle.shared(Deallocations, lambda: Deallocations(self.claims))

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.spec.resource_claims) or bool(self.claims.extended and self._extended(pod))

    def _extended(self, pod: Pod) -> tuple[str, ...]:
        """The extended resources of the pod that a class serves."""
        pod_class, epoch = self._cache.classes.of(pod), self.claims.epoch
        known: Any = pod_class.facts.get(self.name)
        if known is None or known[0] != epoch:
            served = self.claims.extended
            known = epoch, tuple(name for name, amount in pod_class.requests.items() if amount and name in served)
            pod_class.facts[self.name] = known
        names: tuple[str, ...] = known[1]
        return names

    def label_keys(self, pod: Pod) -> frozenset[str]:
        return NO_LABELS

    # -- before the search --------------------------------------------------------------------------------------------

    def pre_enqueue(self, pod: Pod) -> Status:
        if not pod.spec.resource_claims:
            return SUCCESS
        claims = self._claims_of(pod)
        return claims if isinstance(claims, Status) else SUCCESS

    def _claims_of(self, pod: Pod) -> list[ResourceClaim] | Status:
        """The pod's claims, or what is wrong with one (DRA-R36)."""
        claims: list[ResourceClaim] = []
        for entry, key in keys_of(pod):
            if key is None:
                why = f'pod "{pod.metadata.key}": ResourceClaim not created yet'
                return Status.unresolvable(why).until(names_key(pod))
            claim = self.claims.find(key)
            why = self._wrong(pod, entry, key, claim)
            if why:
                return Status.unresolvable(why).until(wake_key(key))
            assert claim is not None
            claims.append(claim)
        return claims

    def _wrong(self, pod: Pod, entry: str, key: ClaimKey, claim: ResourceClaim | None) -> str:
        if claim is None:
            return f'could not find ResourceClaim "{"/".join(key)}"'
        if claim.metadata.deletion_timestamp is not None:
            return f'resourceclaim "{key[1]}" is being deleted'
        if (claim.metadata.uid, pod.metadata.uid) in self._deallocations.leaving:
            return f'resourceclaim "{key[1]}" is being given back'
        if not is_made_for(claim, pod) and not any(
            pod_resource_claim.name == entry and pod_resource_claim.resource_claim_name
            for pod_resource_claim in pod.spec.resource_claims
        ):
            group = pod.spec.scheduling_group
            why = f"neither Pod nor PodGroup {group.pod_group_name} is the owner" if group else "Pod is not owner"
            return f"ResourceClaim {'/'.join(key)} was not created for Pod {pod.metadata.key} ({why})"
        users = claim.status.reserved_for
        if len(users) >= MAX_RESERVED and all(user.uid != self._consumer(pod, claim).uid for user in users):
            return f'resourceclaim "{key[1]}" is in use by {MAX_RESERVED} pods, which is the most'
        return ""

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        claims = self._claims_of(pod)
        if isinstance(claims, Status):
            return claims
        names = self._extended(pod) if self.claims.extended else ()
        if not claims and not names:
            return Status.skip()
        placed: list[tuple[ResourceClaim, NodeSelector | None]] = []
        unplaced: list[ResourceClaim] = []
        for claim in claims:
            allocation = self.claims.allocation(claim)
            if allocation is None:
                unplaced.append(claim)
            else:
                placed.append((claim, allocation.node_selector))
        stale = self.claims.made_for(pod.metadata.uid) if names else None
        if stale is not None and self._cache.placed(pod.metadata.uid) is not None:
            stale = None  # the pod uses it: only its placement is being explained
        if stale is not None:
            self._deallocations.delete(stale)  # here, as a pod that waits is not tried while no node is feasible
        sets, option_of = self._by_claims(names) if names else ([()], None)
        options = [self._option(pod, unplaced, own) for own in sets]
        if options[0].failure is not None and len(options) == 1:
            return options[0].failure
        # Pods of one class may have claims of their own: those that have devices already are placed apart.
        apart = placed or stale is not None
        state[WAKE_GROUP] = f"claims of {pod.metadata.uid}" if apart else f"claims {[want.specs for want in options]!r}"
        state[NEEDS] = _Needs(tuple(placed), tuple(unplaced), tuple(options), option_of, stale)
        return SUCCESS

    def _by_claims(self, names: Sequence[str]) -> tuple[list[tuple[str, ...]], Ints | None]:
        """The sets of these extended resources that nodes have by claims, and which of them a node has, [row]."""
        columns = self._handle.columns
        offered = {name: columns.resources.column_of_request(name) for name in names}
        mixed = [name for name, column in offered.items() if column != UNOFFERED_COLUMN]
        if not mixed:
            return [tuple(names)], None
        columns.ensure_width()
        answer = columns.allocatable[[offered[name] for name in mixed], : columns.count] == BY_CLAIM
        codes, option_of = np.unique(np.left_shift(1, np.arange(len(mixed))) @ answer, return_inverse=True)
        sets = [
            tuple(name for name in names if name not in mixed or code >> mixed.index(name) & 1)
            for code in codes.tolist()
        ]
        return sets or [tuple(names)], option_of

    def _option(self, pod: Pod, unplaced: Sequence[ResourceClaim], names: Sequence[str]) -> _Option:
        extended = extended_claim(pod, {name: self.claims.extended[name] for name in names}) if names else None
        claims = [*unplaced, *([extended.claim] if extended is not None else [])]
        specs = msgspec.json.encode([claim.spec for claim in claims])
        if not claims:
            return _Option(specs)
        try:
            key = self.claims.epoch, specs
            classes, expressions = self.claims.classes, self.claims.expressions
            verdicts = self._kinds.of(key, lambda: [compiled(claim, classes, expressions) for claim in claims])
        except AllocationError as error:
            return _Option(specs, failure=Status.unresolvable(str(error)))
        return _Option(specs, verdicts, extended)

    # -- nodes --------------------------------------------------------------------------------------------------------

    def filter_batch(self, stacked: Any, batch: Batch) -> Bools | None:
        codes, _ = self.reasons_batch(stacked, batch)
        return np.asarray(codes == 0)[None]

    def reasons_batch(self, stacked: Any, batch: Batch) -> tuple[Ints, Callable[[int], Status]]:
        needs = stacked[0][NEEDS]
        count = self._handle.columns.count
        statuses: list[Status] = [SUCCESS]
        first = needs.options[0].verdicts
        if first is not None and needs.option_of is None and needs.stale is None and not needs.placed:
            first.refresh(count, self._node)  # as nearly always: the pod's own claims, without devices
            own = [IN_USE if self._preempts and status is CANNOT else status for status in first.statuses]
            return batch.pick(first.codes), own.__getitem__
        codes: Ints = np.zeros(count, np.int64)
        for number, option in enumerate(needs.options):
            here = np.ones(count, np.bool_) if needs.option_of is None else needs.option_of == number
            if option.failure is not None:
                codes[here] = len(statuses)
                statuses.append(option.failure)
            if option.verdicts is not None:
                option.verdicts.refresh(count, self._node)
                code = option.verdicts.codes[here]
                codes[here] = np.where(code, code + len(statuses) - 1, 0)
                own = option.verdicts.statuses[1:]
                statuses += [IN_USE if self._preempts and status is CANNOT else status for status in own]
        if needs.stale is not None:
            codes[:] = len(statuses)
            statuses.append(STALE)
        for claim, selector in needs.placed:
            codes[self._elsewhere(claim, selector, count)] = len(statuses)
        statuses.append(NOT_HERE)
        return batch.pick(codes), statuses.__getitem__

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        row = self._handle.columns.rows[node.name]
        codes, status = self.reasons_batch([state], Batch(self._handle.columns, None))
        result, simulation = status(int(codes[row])), state.get(SIMULATION)
        if simulation is None or not (result.ok or result is IN_USE):
            return result
        return self._simulated(simulation, state, node)

    def victim_removed(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        if self._preempts and NEEDS in state and self.concerns(victim.pod):
            state[SIMULATION] = (state.get(SIMULATION) or Simulation()).left_by(victim.pod)

    def victim_returned(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        if self._preempts and NEEDS in state and self.concerns(victim.pod):
            state[SIMULATION] = (state.get(SIMULATION) or Simulation()).entered_by(victim.pod)

    def _simulated(self, simulation: Simulation, state: CycleState, node: NodeInfo) -> Status:
        """Whether the node has the devices for nominated pods and this one, when some pods are gone."""
        row, wants = self._handle.columns.rows[node.name], list[Want]()
        for pod in simulation.nominated.values():
            self.pre_filter(theirs := CycleState(), pod)
            if NEEDS in theirs:
                wants += theirs[NEEDS].option(row).wants
        for info in node.pods.values() if wants else ():
            if info.pod.deleting:  # what nominated pods wait for
                simulation = simulation.left_by(info.pod)
        wants += state[NEEDS].option(row).wants
        if not wants:
            return SUCCESS
        abandoned = state.get(ABANDONED) or frozenset()
        with self.claims.ledger.without(simulation.freed(self.claims) | abandoned):
            search = Search(wants, self.claims.inventory.view(node.known), self.claims.ledger, node.name)
            try:
                return IN_USE if search.run() is None else SUCCESS
            except AllocationError as error:
                return Status.unresolvable(str(error))

    def _elsewhere(self, claim: ResourceClaim, selector: NodeSelector | None, count: int) -> Bools:
        """Where the claim's devices cannot be used, [row]."""
        if self._binding(claim, claim.status.allocation).code is Code.ERROR:
            return np.ones(count, np.bool_)
        if selector is None:
            return np.zeros(count, np.bool_)
        columns, terms = self._handle.columns, selector.node_selector_terms
        by_row = np.ones(count, np.bool_)
        if all(len(term.match_fields) == 1 and not term.match_expressions for term in terms):  # names, as nearly always
            rows = [columns.rows.get(name) for term in terms for name in term.match_fields[0].values]
            by_row[[row for row in rows if row is not None]] = False
            return by_row
        for row in range(count):
            node = self._node(row)
            if node is not None:
                by_row[row] = not any(term_holds(term, node.name, node.metadata.labels) for term in terms)
        return by_row

    def _node(self, row: int) -> Node | None:
        result = self._cache.find(self._handle.columns.names[row])
        return result.node if result is not None else None

    # -- scores -------------------------------------------------------------------------------------------------------

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        needs = state.get(NEEDS)
        return needs is not None and any(
            option.verdicts is not None and option.verdicts.has_choices for option in needs.options
        )

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        return self._preference(state[NEEDS], self._handle.columns.rows[node.name])

    def score_batch(self, stacked: Any, batch: Batch) -> Ints | None:
        needs = stacked[0][NEEDS]
        return np.array([[self._preference(needs, int(row)) for row in batch.rows]], np.int64)

    def _preference(self, needs: _Needs, row: int) -> int:
        verdicts = needs.option(row).verdicts
        return 0 if verdicts is None else verdicts.preference(row)

    # -- no node ------------------------------------------------------------------------------------------------------

    def post_filter(self, state: CycleState, info: PodInfo, failure: FitError) -> PostFilterResult:
        """Give back the devices of the claims that keep the pod from a node: the fewest there are (DRA-R65)."""
        needs = state.get(NEEDS)
        if needs is not None and self._preempts:
            state[ABANDONED] = self.claims.abandoned()
        if needs is not None and needs.stale is not None:
            return PostFilterResult(Status.unschedulable("deletion of ResourceClaim completed"))
        rows = [row for row, status in failure.overrides.items() if status.reasons == NOT_HERE.reasons]
        if needs is not None and needs.placed and rows:
            claims, count = [claim for claim, _ in needs.placed], self._handle.columns.count
            away = np.array([self._elsewhere(claim, selector, count)[rows] for claim, selector in needs.placed])
            may = np.array([self._may_lose_devices(info, claim) for claim in claims])
            costs = np.where((away & ~may[:, None]).any(0), len(claims) + 1, away.sum(0))
            at = int(costs.argmin())  # one claim at a time would do as well, but a pod is tried only when it may fit
            if costs[at] <= len(claims):
                for place in np.flatnonzero(away[:, at]).tolist():
                    self._deallocations.begin(claims[place])
                return PostFilterResult(Status.unschedulable("deallocation of ResourceClaim completed"))
        return PostFilterResult(Status.unschedulable())

    def _may_lose_devices(self, info: PodInfo, claim: ResourceClaim) -> bool:
        if self.claims.pending(claim.metadata.uid) is not None or claim.status.allocation is None:
            return False  # another pod was placed with it, or it has lost them already
        own = self._consumer(info.pod, claim).uid
        users = claim.status.reserved_for
        return all(user.uid == own for user in users) and (own == info.uid or self._all_wait(info.uid))

    def serves_group(self, pod: Pod) -> bool:
        return pod.spec.scheduling_group is not None

    def post_filter_group(self, group: GroupFailure) -> PostFilterResult:
        """The same for the members of a native group without a topology constraint (DRA-R126)."""
        for unplaced in group.unplaced if group.gather is None else ():
            result = self.post_filter(unplaced.state, unplaced.info, unplaced.failure)
            if result.status.reasons:
                return result
        return PostFilterResult(Status.unschedulable())

    def _all_wait(self, uid: str) -> bool:
        """Whether no member of the pod's native group is on a node, where it would use the group's claim."""
        gang, placed = self._handle.shared(GangCache).gang_of(uid), self._handle.cache.placed
        return gang is not None and all(placed(member) is None for member in gang.children)

    # -- reserve ------------------------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        needs, uid = state[NEEDS], pod.metadata.uid
        results = [
            (claim, pending.allocation)
            for claim, _ in needs.placed
            if (pending := self.claims.pending(claim.metadata.uid)) is not None
        ]
        columns = self._handle.columns
        row = columns.rows[node_name]
        option = needs.option(row)
        state.discard(EXTENDED)
        if option.verdicts is not None:
            option.verdicts.refresh(columns.count, self._node)
            node = self._node(row)
            solution = None if node is None else option.verdicts.solution(row, node)
            if solution is None or node is None:
                return option.verdicts.statuses[int(option.verdicts.codes[row])]
            claims = list(needs.open)
            if option.extended is not None:
                extended = state[EXTENDED] = option.extended.named(self._clock.now())
                claims.append(extended.claim)
            for claim, picks, want in zip(claims, solution, option.verdicts.wants, strict=True):
                shares = [
                    str(uuid5(NAMESPACE_OID, f"{claim.metadata.uid} {uid} {at}")) if pick.consumed is not None else ""
                    for at, pick in enumerate(picks)
                ]
                results.append((claim, allocation_of(picks, want, node, shares, self._clock.timestamp())))
        self.claims.decide(uid, results)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.claims.release(pod.metadata.uid)
        needs = state.get(NEEDS)
        for claim in () if needs is None else (*(claim for claim, _ in needs.placed), *needs.open):
            self._deallocations.take_back(claim, pod.metadata.uid)
        extended = state.get(EXTENDED)
        if extended is not None and extended.is_sent:
            self._deallocations.delete(extended.claim)

    # -- write and wait -----------------------------------------------------------------------------------------------

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> MetadataChanges:
        needs = state[NEEDS]
        pending = {item.uid: item for item in self.claims.of(pod.metadata.uid)}
        patches: list[ObjectPatch] = []
        awaited: list[Awaited] = []
        claims = [*(claim for claim, _ in needs.placed), *needs.open]
        extended = state.get(EXTENDED)
        if extended is not None:
            claims.append(extended.claim)
        for claim in claims:
            changes = self._writer.patches(claim, pending.get(claim.metadata.uid), pod, self._consumer(pod, claim))
            if extended is not None and claim is extended.claim:
                changes = self._writer.creation(extended, pending[claim.metadata.uid], pod, changes)
            patches += changes
            allocation = self.claims.allocation(claim)
            if allocation is not None and any(result.binding_conditions for result in allocation.devices.results):
                key = (claim.metadata.namespace, claim.metadata.name)
                left = max(0.0, self._ends(allocation) - self._clock.now())
                awaited.append(Awaited(partial(self._bound, key), left, _late(claim)))
        return MetadataChanges({}, {}, {}, Preparation(tuple(patches), tuple(awaited)))

    def _consumer(self, pod: Pod, claim: ResourceClaim) -> Consumer:
        """The claim's user: the pod, or its PodGroup, where both have the same entry for the claim (DRA-R124)."""
        group = None
        if pod.spec.scheduling_group is not None and self._handle.has_shared(GangCache):
            group = self._handle.shared(GangCache).native.get(f"{pod.metadata.namespace}/{gang_name(pod)}")
        if group is not None and any(entry in group.spec.resource_claims for entry in entries_of(pod, claim)):
            return Consumer(*POD_GROUPS, group.metadata.name, group.metadata.uid)
        return Consumer("", "pods", pod.metadata.name, pod.metadata.uid)

    def _bound(self, key: ClaimKey) -> Status:
        """Whether the devices of a claim are ready for the pod (DRA-R110)."""
        claim = self.claims.find(key)
        if claim is None:
            return Status.error(f"claim {'/'.join(key)} got deleted in the meantime")
        return self._binding(claim, claim.status.allocation)

    def _binding(self, claim: ResourceClaim, allocation: Allocation | None) -> Status:
        """Success, Wait, or an error where a device says that it cannot be attached, or is not ready in time."""
        if allocation is None:
            return NOT_YET
        device_statuses = {
            (device.driver, device.pool, device.device, device.share_id): device for device in claim.status.devices
        }
        waits = False
        for result in allocation.devices.results:
            if not result.binding_conditions:
                continue
            status = device_statuses.get((result.driver, result.pool, result.device, result.share_id))
            true = {
                condition.type: condition
                for condition in (status.conditions if status else ())
                if condition.status == "True"
            }
            for kind in result.binding_failure_conditions:
                if kind in true:
                    return Status.error(
                        f"device binding failed: claim={claim.metadata.key}, reason={true[kind].reason},"
                        f' message="{true[kind].message}"'
                    )
            waits = waits or not true.keys() >= set(result.binding_conditions)
        if waits and self._clock.now() >= self._ends(allocation):
            return Status.error(_late(claim))
        return NOT_YET if waits else SUCCESS

    def _ends(self, allocation: Allocation) -> float:
        """When devices of an allocation must be ready, in seconds since 1970 (DRA-R111)."""
        begun = read_time(allocation.allocation_timestamp)
        return (self._clock.now() if begun is None else begun) + self._seconds


def _late(claim: ResourceClaim) -> str:
    return f"device binding timeout: claim={claim.metadata.key}"
