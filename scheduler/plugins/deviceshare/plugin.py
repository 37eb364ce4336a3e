"""Keep pods off nodes whose accelerators cannot hold them, and settle which devices they get.

A rejection is a `Status`, worded as Koordinator words it; an exception is a bug in here.
No extension point does I/O: binding writes what `pre_bind` returns, in one patch.
Follows Koordinator `pkg/scheduler/plugins/deviceshare`; deviations are in scheduler/DESIGN.md.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from scheduler.api.core import Pod
from scheduler.api.device import DEVICE_ALLOCATED, GPU_ISOLATION_PROVIDER
from scheduler.api.wire import Wire
from scheduler.cache.columns import Batch, Bools, Ints
from scheduler.framework.handle import Handle
from scheduler.framework.nodeinfo import NodeInfo, PodInfo
from scheduler.framework.points import (
    NO_MARKS,
    Args,
    ByMaximum,
    FilterColumns,
    Marks,
    PreBind,
    PreFilter,
    Reserve,
    Scope,
    ScoreColumns,
    VictimAware,
)
from scheduler.framework.state import CycleState, StateKey
from scheduler.framework.status import SUCCESS, Status
from scheduler.plugins.deviceshare.allocator import allocate, verdict
from scheduler.plugins.deviceshare.cache import (
    DIVISOR,
    FREE,
    LISTED,
    NO_ENTRY,
    SHOWN,
    TOTAL,
    WEIGHTS,
    DeviceCache,
    NodeDevices,
)
from scheduler.plugins.deviceshare.request import DeviceRequest, InvalidRequestError, TypeRequest
from scheduler.plugins.deviceshare.scoring import DEFAULT_WEIGHTS, Scorer, StrategyType
from scheduler.plugins.deviceshare.shares import Holding
from scheduler.plugins.deviceshare.states import SHARES
from scheduler.plugins.noderesources.fit import WeightedResource

WRONG_ISOLATION = Status.unresolvable("GPUIsolationProviderHAMICore not found on the node")


class ScoringStrategy(Wire, frozen=True, forbid_unknown_fields=True):
    type: str = "LeastAllocated"
    resources: tuple[WeightedResource, ...] = tuple(WeightedResource(*item) for item in DEFAULT_WEIGHTS.items())


class DeviceShareArgs(Args, frozen=True):
    scoring_strategy: ScoringStrategy | None = ScoringStrategy()
    allocator: str = ""  # accepted, unused, as upstream

    def check(self) -> None:
        if self.scoring_strategy is None:
            raise ValueError("scoring strategy not specified")
        if self.scoring_strategy.type not in {"LeastAllocated", "MostAllocated"}:
            raise ValueError(f"scoring strategy {self.scoring_strategy.type} is not supported")

    def scorer(self) -> Scorer:
        strategy = self.scoring_strategy or ScoringStrategy()
        kind: StrategyType = "MostAllocated" if strategy.type == "MostAllocated" else "LeastAllocated"
        return Scorer(kind, tuple((resource.name, resource.weight or 1) for resource in strategy.resources))


@dataclass(frozen=True, slots=True)
class _Wanted:
    request: DeviceRequest
    isolation: str  # the provider that shared cards must be behind; "" if the pod does not mind
    gpu_shares: tuple[int, ...] | None  # by `SHARES`, where cards alone decide; None: only the plain way can tell


WANTED: StateKey[_Wanted] = StateKey("DeviceShare/wanted")
GRANTED: StateKey[Holding] = StateKey("DeviceShare/granted")
TRIAL: StateKey[dict[str, NodeDevices]] = StateKey("DeviceShare/trial")


class DeviceShare(PreFilter, FilterColumns, ScoreColumns, Reserve, PreBind, VictimAware):
    name = "DeviceShare"
    scope = Scope.NODE_PODS
    reads_labels = (GPU_ISOLATION_PROVIDER,)
    normalizer = ByMaximum()

    def __init__(self, handle: Handle, args: DeviceShareArgs | None = None) -> None:
        self._scorer = (args or DeviceShareArgs()).scorer()
        self._handle = handle
        self.devices = DeviceCache.of(handle)
        self._number, self._column_scorer = self.devices.weigh(self._scorer)
        self._requests: dict[tuple[TypeRequest, ...], DeviceRequest] = {}

    # -- extension points ---------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        try:
            request = DeviceRequest.of(self._handle.cache.classes.of(pod).requests)
        except InvalidRequestError as error:
            return Status.unresolvable(str(error))
        if request is None:
            return Status.skip()
        gpu = request.get("gpu")
        isolation = pod.metadata.labels.get(GPU_ISOLATION_PROVIDER, "") if gpu is not None and gpu.shared else ""
        simple = None
        if gpu is not None and len(request.types) == 1 and all(name in SHARES for name, _ in gpu.each):
            simple = tuple(gpu.amounts.get(name, 0) for name in SHARES)
        state[WANTED] = _Wanted(self._same(request), isolation, simple)
        return SUCCESS

    def _same(self, request: DeviceRequest) -> DeviceRequest:
        """One object for all requests that ask the same, so that what is worked out for one serves the others."""
        return self._requests.setdefault(request.types, request)

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        wanted = state[WANTED]
        if wanted.isolation and node.known.metadata.labels.get(GPU_ISOLATION_PROVIDER, "") != wanted.isolation:
            return WRONG_ISOLATION
        devices = self._view(state, node.name)
        if devices is None or not devices.listed:
            return SUCCESS  # the kubelet's own device plugin is left to decide (R22)
        return verdict(devices.state, wanted.request, self._scorer)

    def columnar(self, state: CycleState) -> bool:
        wanted = state[WANTED]
        return wanted.gpu_shares is not None and not wanted.isolation

    def stack(self, states: Sequence[CycleState]) -> tuple[Ints, Ints]:
        """What each card must have, [share, 1, class, 1], and of how many cards, [class, 1]."""
        wanted = [state[WANTED] for state in states]
        shares = np.array([one.gpu_shares for one in wanted], np.int64).T
        return shares[:, None, :, None], np.array([[one.request.types[0].count] for one in wanted], np.int64)

    def passing(self, stacked: tuple[Ints, Ints], batch: Batch) -> Bools | None:
        shares, counts = stacked
        shown = batch.own(SHOWN)
        # A card with nothing in it (unhealthy, or a filler) suffices for nobody: every request names an amount.
        cards = shown[self.devices.first_card :].reshape(len(SHARES), -1, 1, batch.size)
        suffices = cards[0] >= shares[0]
        for have, need in zip(cards[1:], shares[1:], strict=True):
            suffices &= have >= need
        ok = np.add.reduce(suffices, dtype=np.int8) >= counts
        ok |= shown[LISTED] == NO_ENTRY
        return ok

    def rejections(self, stacked: tuple[Ints, Ints], batch: Batch) -> tuple[Ints, Callable[[int], Status]]:
        passing = self.passing(stacked, batch)
        assert passing is not None  # noqa: S101
        codes = np.where(passing[0], 0, np.where(batch.own(SHOWN)[LISTED] == 0, 2, 1))
        text = "Insufficient gpu devices"
        return codes, lambda code: Status.unresolvable(text) if code == 2 else Status.unschedulable(text)

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        return WANTED in state

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        devices = self.devices.find(node.name)
        if devices is None or not devices.listed:
            return 0
        score = 0
        request = state[WANTED].request
        known = devices.state.scores.get(request)
        if known is not None:
            return known
        for one in request.types:
            total, free = devices.state.sums(one.type)
            score += self._scorer.score(total, free, one.amounts)
        devices.state.scores[request] = score
        return score

    def columnar_scores(self, state: CycleState) -> bool:
        return state[WANTED].gpu_shares is not None

    def stack_scores(self, states: Sequence[CycleState]) -> Ints:
        """What each card must have, [share, class, 1]."""
        return np.array([state[WANTED].gpu_shares for state in states], np.int64).T[..., None]

    def scores(self, stacked: Ints, batch: Batch) -> Ints | None:
        shown = batch.own(SHOWN)
        return self._column_scorer.scores(
            shown[TOTAL], shown[DIVISOR], shown[FREE], shown[WEIGHTS + self._number], stacked
        )

    def kind(self, state: CycleState) -> Hashable:
        return tuple(one.type for one in state[WANTED].request.types)

    @property
    def bounded(self) -> bool:
        return True

    def rise(self, node: NodeInfo, placed: PodInfo, kind: Hashable) -> int:
        devices = self.devices.find(node.name)
        holding = devices.held.get(placed.uid) if devices is not None else None
        if devices is None or holding is None or not devices.listed:
            return 0
        template = devices.state.template
        found = holding.rises.get((self._number, template, kind))
        if found is None:
            found = 0
            for device_type in kind:  # type: ignore[attr-defined]
                taken = holding.amounts.get(device_type)
                if taken is not None:
                    found += self._scorer.rise(devices.state.sums(device_type)[0], taken)
            holding.rises[self._number, template, kind] = found
        return found

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        wanted = state.get(WANTED)
        devices = self.devices.find(node_name)
        if wanted is None or devices is None or not devices.listed:
            return SUCCESS
        found = allocate(devices.state, wanted.request, self._scorer)
        if isinstance(found, Status):
            return found
        state[GRANTED] = found.holding
        self.devices.settle(devices, pod.metadata.uid, found)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        state.discard(GRANTED)
        self.devices.release(node_name, pod.metadata.uid)  # also called when reserve never ran: twice is fine

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Marks:
        granted = state.get(GRANTED)
        devices = self.devices.find(node_name)
        if granted is None or devices is None:
            return NO_MARKS
        return Marks({DEVICE_ALLOCATED: granted.annotation(devices.ids)}, {})

    # -- preemption ---------------------------------------------------------------------------------------------------

    def victim_removed(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        if WANTED in state:
            trial = self._trial(state, node.name)
            if trial is not None:
                trial.give_back(victim.uid)

    def victim_returned(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        if WANTED in state:
            trial, real = self._trial(state, node.name), self.devices.find(node.name)
            if trial is not None and real is not None:
                holding = real.held.get(victim.uid)
                if holding is not None:
                    trial.take(victim.uid, holding)

    def _view(self, state: CycleState, name: str) -> NodeDevices | None:
        """The node's devices, as preemption imagines them if it does."""
        trials = state.get(TRIAL)
        return trials[name] if trials is not None and name in trials else self.devices.find(name)

    def _trial(self, state: CycleState, name: str) -> NodeDevices | None:
        """This cycle's own copy of a node's devices."""
        real = self.devices.find(name)
        if real is None:
            return None
        trials = state.get(TRIAL)
        state[TRIAL] = trials = {} if trials is None else dict(trials)
        trials[name] = (trials.get(name) or real).copy()  # states that were forked earlier keep theirs
        return trials[name]
