"""DeviceShare: reject nodes whose accelerators cannot serve the pod, and allocate its devices.

A rejection is a `Status`, with Koordinator's text; an exception is a bug of this plugin.
No extension point does I/O: binding writes what `pre_bind` returns, in one patch.
Follows Koordinator `pkg/scheduler/plugins/deviceshare`; deviations are in scheduler/DESIGN.md.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import DEVICE_ALLOCATED, GPU_ISOLATION_PROVIDER, GPU_MODEL_LABEL, GPU_VENDOR_LABEL
from seatrial.scheduler.api.quantity import Amounts
from seatrial.scheduler.api.reservation import RESIZE_ALLOCATABLE, is_reserve_pod
from seatrial.scheduler.cache.columns import Batch, Bools, Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.accelerations import ScoreBatch
from seatrial.scheduler.framework.extension_points import (
    NO_METADATA_CHANGES,
    ByMaximum,
    MetadataChanges,
    PreBind,
    PreFilter,
    Reserve,
    Scope,
)
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.kernel_parts import IN_PYTHON, ClassAxis, KernelPart, PartKind
from seatrial.scheduler.framework.reservation_info import (
    IGNORED,
    NOMINATE,
    NOMINATED,
    REQUIRED,
    TARGET,
    ReservationAware,
    ReservationInfo,
    for_target,
    matched_on,
)
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.plugins.deviceshare import reservation_view
from seatrial.scheduler.plugins.deviceshare.adaption import Adaption
from seatrial.scheduler.plugins.deviceshare.allocator import allocate, allocate_deciding, verdict, weighed
from seatrial.scheduler.plugins.deviceshare.args import DeviceShareArgs
from seatrial.scheduler.plugins.deviceshare.batch_filter import CLASS_REQUEST, BatchFilter, ClassRequest
from seatrial.scheduler.plugins.deviceshare.cache import (
    DIVISOR,
    FLAGS,
    FREE,
    HAS_TREE,
    HONOURS,
    LISTED,
    NO_ENTRY,
    SHOWN,
    TOTAL,
    WEIGHTS,
    DeviceCache,
    NodeDevices,
)
from seatrial.scheduler.plugins.deviceshare.candidates import selected, sums
from seatrial.scheduler.plugins.deviceshare.gpus import Policy
from seatrial.scheduler.plugins.deviceshare.hints import ANNOTATIONS, InvalidHintError, read
from seatrial.scheduler.plugins.deviceshare.numa import held_to, hints_by
from seatrial.scheduler.plugins.deviceshare.request import DeviceRequest, InvalidRequestError
from seatrial.scheduler.plugins.deviceshare.reservation_rest import size_of
from seatrial.scheduler.plugins.deviceshare.shares import Holding
from seatrial.scheduler.plugins.deviceshare.slices import NOT_A_SIZE, SliceRegistry
from seatrial.scheduler.plugins.deviceshare.states import SHARES, Choice, DeviceState
from seatrial.scheduler.plugins.deviceshare.topology import NO_CARDS
from seatrial.scheduler.plugins.numahints import AFFINITY, ALIGNER, PLANNED, PROVIDER, Hints, Mask
from seatrial.scheduler.plugins.reservation.cache import ReservationCache

WRONG_ISOLATION = Status.unresolvable("GPUIsolationProviderHAMICore not found on the node")


SETTLING: StateKey[Policy] = StateKey("DeviceShare/policy")  # the policy by which the profile chooses cards
GRANTED: StateKey[Holding] = StateKey("DeviceShare/granted")
ADAPTED: StateKey[MetadataChanges] = StateKey("DeviceShare/adapted")  # annotations for the vendor's device plugin


Enough = dict[
    int, tuple[Amounts, NDArray[np.int8]]
]  # identity of a card's free amounts → these amounts and the classes that fit
MAX_SUFFICIENT = 65536
MAX_REQUESTS = 4096  # different ones of which results are kept; then all are dropped, and computed again
MAX_CARDS = 127  # of a node that the kernel knows: NumPy counts them in 8 bits


class _Stacked(NamedTuple):
    """GPU requests of several equivalence classes."""

    shares: Ints  # what each card must have free, [share, 1, class, 1]
    counts: Ints  # the number of cards, [class, 1]
    requests: list[DeviceRequest]
    enough: Enough

    def suits(self, room: Amounts) -> NDArray[np.int8]:
        """For each class, whether a card with this room fits, [class]: 1 or 0."""
        entry = self.enough.get(id(room))
        if entry is None:
            if len(self.enough) >= MAX_SUFFICIENT:
                self.enough.clear()
            have = np.array([[room.get(name, 0)] for name in SHARES], np.int64)
            suits = np.logical_and.reduce(have >= self.shares[:, 0, :, 0]).astype(np.int8)
            entry = self.enough[id(room)] = (room, suits)
        return entry[1]


class DeviceShare(PreFilter, BatchFilter, ScoreBatch, Reserve, PreBind, ReservationAware):
    """The extension points of DeviceShare."""

    name = "DeviceShare"
    scope = Scope.NODE_PODS
    reads_labels = (GPU_ISOLATION_PROVIDER,)
    reads_annotations = ANNOTATIONS
    normalizer = ByMaximum()
    has_signature = True
    acts_on = CLASS_REQUEST

    def __init__(self, handle: Handle, args: DeviceShareArgs | None = None) -> None:
        args = args or DeviceShareArgs()
        self._policy = args.policy()
        self._unshareable = {(model.vendor, model.model) for model in args.gpu_share_unsupported_models}
        self._handle = handle
        self._aligned = not args.disable_numa_alignment
        self._resizes = args.resize_pod
        self._adaption = Adaption(handle) if args.device_plugin_adaption else None
        templates = args.gpu_shared_resource_templates_config
        self._sized = frozenset(templates.matched_resources)
        self._sizes_from = f"{templates.config_map_namespace}/{templates.config_map_name}"
        self._slices = handle.shared(SliceRegistry, SliceRegistry)
        self._slices.read.add(self._sizes_from)
        self.devices = DeviceCache.of(handle)
        self._reservation_cache = ReservationCache.of(handle)
        self._number, self._column_scorer = self.devices.weigh(self._policy.scorer)
        self._requests: dict[Hashable, DeviceRequest] = {}

    # -- extension points ---------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        try:
            request = DeviceRequest.of(self._handle.cache.classes.of(pod).requests, read(pod.metadata.annotations))
        except (InvalidRequestError, InvalidHintError) as error:
            return Status.unresolvable(str(error))
        if request is None:
            return Status.skip()
        gpu = request.get("gpu")
        if gpu is not None and gpu.shared and not self._sized.isdisjoint(gpu.amounts):
            request = replace(request, templates=self._slices.named(self._sizes_from, gpu.amounts))
            if not request.templates:
                return NOT_A_SIZE
        shared = gpu is not None and gpu.shared
        isolation = pod.metadata.labels.get(GPU_ISOLATION_PROVIDER, "") if shared else ""
        simple = None
        if (
            gpu is not None
            and len(request.types) == 1
            and request.plain
            and all(name in SHARES for name, _ in gpu.each)
        ):
            simple = tuple(gpu.amounts.get(name, 0) for name in SHARES)
        state[SETTLING] = self._policy
        if self._aligned:
            state[PROVIDER] = self
        state[CLASS_REQUEST] = ClassRequest(
            self._same(request, pod), isolation, shared and bool(self._unshareable), simple
        )
        return SUCCESS

    def _same(self, request: DeviceRequest, pod: Pod) -> DeviceRequest:
        """One object for all equal requests, so that results of one serve the others."""
        amounts = tuple((part.type, part.count, part.each, part.shared, part.everyone) for part in request.types)
        hints = tuple(pod.metadata.annotations.get(name) for name in ANNOTATIONS)
        if len(self._requests) >= MAX_REQUESTS:
            self._requests.clear()
            self.devices.forget_requests()
        return self._requests.setdefault((amounts, hints, request.templates), request)

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        target = state[CLASS_REQUEST]
        labels = node.known.metadata.labels
        if target.isolation and labels.get(GPU_ISOLATION_PROVIDER, "") != target.isolation:
            return WRONG_ISOLATION
        if target.picky:
            model = labels.get(GPU_VENDOR_LABEL, ""), labels.get(GPU_MODEL_LABEL, "")
            if model in self._unshareable:
                return Status.unresolvable(f'model "{model[1]}" of vendor "{model[0]}" does not support GPU Share')
        devices = self.devices.find(node.name)
        if devices is None or not devices.listed:
            return SUCCESS  # the kubelet's device plugin decides (DEV-R22)
        if self._mask_of(state, node.name) is not None:
            return SUCCESS  # NodeNUMAResource has tried these devices (DEV-R28)
        there = matched_on(state, node.name)
        if there:
            return reservation_view.judge(
                self._view(state, devices), there, target.request, self._policy, required=REQUIRED in state
            )
        return verdict(self._state_in_dry_run(state, devices), target.request, self._policy)

    def fits_in(self, state: CycleState, pod: Pod, reserved: ReservationInfo | None, node_name: str) -> Status:
        entry, devices = state.get(CLASS_REQUEST), self.devices.find(node_name)
        if entry is None or devices is None or not devices.listed:
            return SUCCESS
        if self._mask_of(for_target(state, reserved), node_name) is not None:
            return SUCCESS  # as in `filter`
        return reservation_view.fits(
            self._view(state, devices), matched_on(state, node_name), reserved, entry.request, self._policy
        )

    def worth_in(self, state: CycleState, pod: Pod, reserved: ReservationInfo, node_name: str) -> int:
        entry, devices = state.get(CLASS_REQUEST), self.devices.find(node_name)
        if entry is None or devices is None or not devices.listed:
            return 0
        return self._score_of(
            reservation_view.room(self._view(state, devices), matched_on(state, node_name), reserved), entry.request
        )

    def _after(self, state: CycleState, info: PodInfo, devices: NodeDevices) -> DeviceState | None:
        own = CycleState()
        self.pre_filter(own, info.pod)
        entry = own.get(CLASS_REQUEST)
        if entry is None:
            return None
        mask = (state.get(PLANNED) or {}).get(info.uid) if self._aligned else None
        there = self._state_in_dry_run(state, devices)
        allocation = allocate(there, entry.request, self._policy, held_to(there.template, mask))
        return None if isinstance(allocation, Status) else allocation.after

    def can_batch(self, state: CycleState) -> bool:
        target = state[CLASS_REQUEST]
        return target.gpu_shares is not None and not target.isolation and not target.picky

    def stack(self, states: Sequence[CycleState]) -> _Stacked:
        targets = [state[CLASS_REQUEST] for state in states]
        shares = np.array([request.gpu_shares for request in targets], np.int64).T
        requests = [request.request for request in targets]
        counts = np.array([[request.types[0].count] for request in requests], np.int64)
        return _Stacked(shares[:, None, :, None], counts, requests, {})

    def filter_batch(self, stacked: _Stacked, batch: Batch) -> Bools | None:
        shown = batch.own(SHOWN)
        # A card without free amounts (unhealthy, or padding) fits no class: every request names an amount.
        cards = shown[self.devices.first_card :]
        cards = cards.reshape(len(SHARES), len(cards) // len(SHARES), 1, batch.size)  # the batch may be empty
        suffices = cards[0] >= stacked.shares[0]
        for have, need in zip(cards[1:], stacked.shares[1:], strict=True):
            suffices &= have >= need
        ok: Bools = np.add.reduce(suffices, dtype=np.int8) >= stacked.counts
        ok |= shown[LISTED] == NO_ENTRY
        if self.devices.honouring:
            for index, place, status in self._by_table(stacked, batch):
                ok[index, place] = status.ok
        return ok

    def filter_signature(self, stacked: object, node: NodeInfo) -> Hashable:
        devices = self.devices.find(node.name)
        if devices is None or not devices.listed:
            return None
        state = devices.state
        if state.cards is None:
            state.find_signatures()
        return state if state.template.traits.honour else state.cards

    def filter_classes_batch(self, stacked: _Stacked, node: NodeInfo) -> Bools:
        devices = self.devices.find(node.name)
        if devices is None or not devices.listed:
            return np.ones(len(stacked.requests), np.bool_)
        state = devices.state
        suiting = [stacked.suits(state.rooms[number]) for number in state.slots("gpu")]
        # A card without free amounts fits no class: every request names an amount.
        ok: Bools = np.add.reduce(suiting) >= stacked.counts[:, 0] if suiting else stacked.counts[:, 0] <= 0
        if devices.state.template.traits.honour:
            for index, request in enumerate(stacked.requests):
                if not request.types[0].shared:
                    ok[index] = verdict(devices.state, request, self._policy).ok
        return ok

    def kernel_filter(self, stacked: _Stacked, axis: ClassAxis) -> KernelPart:
        arrays = axis.spread(stacked.shares[:, 0, :, 0]), axis.spread(stacked.counts[:, 0])
        return KernelPart(PartKind.CARDS, arrays, names=SHARES, argument=self._cards_of)

    def _cards_of(self, node: NodeInfo) -> object:
        """What the kernel's filter reads: room by slot, and the slots of cards; None: all pods pass."""
        devices = self.devices.find(node.name)
        if devices is None or not devices.listed:
            return None
        state = devices.state
        slots = state.slots("gpu")
        # Where the partition table is mandatory it decides about whole cards, not their number.
        return IN_PYTHON if state.template.traits.honour or len(slots) > MAX_CARDS else (state.rooms, slots)

    def _by_table(self, stacked: _Stacked, batch: Batch) -> Iterator[tuple[int, int, Status]]:
        """Results for nodes where counting cards does not decide: class, index in the batch, status."""
        whole = [(index, request) for index, request in enumerate(stacked.requests) if not request.types[0].shared]
        for place in np.flatnonzero(batch.own(SHOWN)[FLAGS] & HONOURS) if whole else ():
            devices = self.devices.find(batch.columns.names[batch.rows[place]])
            if devices is not None:
                for index, request in whole:
                    yield index, int(place), verdict(devices.state, request, self._policy)

    def reasons_batch(self, stacked: _Stacked, batch: Batch) -> tuple[Ints, Callable[[int], Status]]:
        passing = self.filter_batch(stacked, batch)
        assert passing is not None
        shown, gpu = batch.own(SHOWN), stacked.requests[0].types[0]
        insufficient = "Insufficient gpu devices"
        statuses = [SUCCESS, Status.unresolvable(insufficient), Status.unschedulable(insufficient)]
        refused = np.full(batch.size, 2, np.int64)
        if not (gpu.shared and gpu.count > 1):
            statuses.append(NO_CARDS)
            refused += (shown[FLAGS] & HAS_TREE) != 0
        codes = np.where(passing[0], 0, np.where(shown[LISTED] == 0, 1, refused))
        if self.devices.honouring:
            for _, place, status in self._by_table(stacked, batch):
                if not status.ok:
                    if status not in statuses:
                        statuses.append(status)
                    codes[place] = statuses.index(status)
        return codes, statuses.__getitem__

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        return CLASS_REQUEST in state

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        devices = self.devices.find(node.name)
        if devices is None or not devices.listed:
            return 0
        there = matched_on(state, node.name)
        if not there:
            return self._score_of(self._state_in_dry_run(state, devices), state[CLASS_REQUEST].request)
        nominated = state[NOMINATE](state, pod, node)
        return self._score_of(
            reservation_view.room(self._view(state, devices), there, nominated), state[CLASS_REQUEST].request
        )

    def _score_of(self, devices: DeviceState, request: DeviceRequest) -> int:
        """The score of a node for a request with its devices in this state (DEV-R60)."""
        known = devices.scores.get(request)
        if known is not None:
            return known
        score = 0
        for part in weighed(devices.template, request):
            total, free = sums(devices, part)
            score += self._policy.scorer.score(total, free, part.amounts)
        devices.scores[request] = score
        return score

    def can_batch_scores(self, state: CycleState) -> bool:
        return state[CLASS_REQUEST].gpu_shares is not None

    def stack_scores(self, states: Sequence[CycleState]) -> Ints:
        """The requests to score, [share, class, 1]."""
        return np.array([state[CLASS_REQUEST].gpu_shares for state in states], np.int64).T[..., None]

    def score_batch(self, stacked: Ints, batch: Batch) -> Ints | None:
        shown = batch.own(SHOWN)
        return self._column_scorer.scores(
            shown[TOTAL], shown[DIVISOR], shown[FREE], shown[WEIGHTS + self._number], stacked
        )

    def score_signature(self, stacked: Ints, node: NodeInfo) -> Hashable:
        devices = self.devices.find(node.name)
        if devices is None or not devices.listed:
            return None
        if devices.state.level is None:
            devices.state.find_signatures()
        return devices.state.level

    def score_classes_batch(self, stacked: Ints, node: NodeInfo) -> Ints:
        devices = self.devices.find(node.name)
        if devices is None or not devices.listed:
            return np.zeros(stacked.shape[1], np.int64)
        shown = self.devices.shown(devices.state)[:, None]
        return self._column_scorer.scores(
            shown[TOTAL], shown[DIVISOR], shown[FREE], shown[WEIGHTS + self._number], stacked
        )[:, 0]

    def kernel_score(self, stacked: Ints, axis: ClassAxis) -> KernelPart:
        weights = dict(self._policy.scorer.weights)
        most = int(self._policy.scorer.strategy == "MostAllocated")
        numbers = (most, *(weights.get(name, 0) for name in SHARES), 0, int(self.monotone))
        return KernelPart(PartKind.DEVICES, (axis.spread(stacked[..., 0]),), numbers, SHARES, self._sums_of)

    def _sums_of(self, node: NodeInfo) -> object:
        """What the kernel's score reads: total and free amounts of all cards; None: the node has none."""
        devices = self.devices.find(node.name)
        return devices.state.sums("gpu") if devices is not None and devices.listed else None

    @property
    def monotone(self) -> bool:
        return self._policy.scorer.strategy == "LeastAllocated"

    def kind(self, state: CycleState) -> Hashable:
        """Device types for most requests; a request that selects devices is a kind of its own."""
        request = state[CLASS_REQUEST].request
        return tuple(part.type for part in request.types) if request.plain else request

    @property
    def has_delta_bound(self) -> bool:
        return True

    def max_score_delta(self, node: NodeInfo, placed: PodInfo, kind: Hashable) -> int:
        devices = self.devices.find(node.name)
        holding = devices.held.get(placed.uid) if devices is not None else None
        if devices is None or holding is None or not devices.listed:
            return 0
        template = devices.state.template
        rise = holding.rises.get((self._number, template, kind))
        if rise is None:
            rise = 0
            for total, taken in _moved(devices.state, holding, kind):
                rise += self._policy.scorer.max_score_delta(total, taken)
            holding.rises[self._number, template, kind] = rise
        return rise

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        entry = state[CLASS_REQUEST]
        devices = self.devices.find(node_name)
        if devices is None or not devices.listed:
            return SUCCESS
        mask = held_to(devices.state.template, state.get(AFFINITY) if self._aligned else None)
        there = matched_on(state, node_name)
        if there or IGNORED in state:
            seen = self._view(state, devices)
            choice = reservation_view.choose(seen, there, state.get(NOMINATED), entry.request, self._policy, mask)
        else:
            choice = allocate(devices.state, entry.request, self._policy, mask)
        if isinstance(choice, Status):
            return choice
        if self._adaption is not None:
            marks = self._adaption.marks(entry.request, choice.holding, pod, devices)
            if isinstance(marks, Status):
                return marks
            state[ADAPTED] = marks
        state[GRANTED] = choice.holding
        if there or IGNORED in state:  # chosen from a state that the node is not in
            self.devices.assign(node_name, pod.metadata.uid, choice.holding.shares)
        else:
            self.devices.settle(devices, pod.metadata.uid, choice)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        state.discard(GRANTED)
        state.discard(ADAPTED)
        # also called when reserve never ran; releasing twice is harmless
        self.devices.release(node_name, pod.metadata.uid)

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> MetadataChanges:
        granted = state.get(GRANTED)
        devices = self.devices.find(node_name)
        if granted is None or devices is None:
            return NO_METADATA_CHANGES
        annotations = {DEVICE_ALLOCATED: granted.annotation(devices.ids)}
        self.devices.record_pending(pod.metadata.uid, annotations[DEVICE_ALLOCATED])
        if self._resizes and is_reserve_pod(pod):
            annotations[RESIZE_ALLOCATABLE] = size_of(granted)
        adapted = state.get(ADAPTED)
        if adapted is None:
            return MetadataChanges(annotations, {})
        return MetadataChanges({**annotations, **adapted.annotations}, adapted.labels, adapted.node_annotations)

    # -- NUMA nodes ---------------------------------------------------------------------------------------------------

    def _mask_of(self, state: CycleState, name: str) -> Mask | None:
        aligner = state.get(ALIGNER) if self._aligned else None
        return aligner.affinity(state, name) if aligner is not None else None

    def numa_token(self, state: CycleState, node: str) -> Hashable:
        devices = self.devices.find(node)
        if devices is None or not devices.listed:
            return None
        there, way = matched_on(state, node), state.get(TARGET)
        if not there or way is None:
            return self._state_in_dry_run(state, devices), state[CLASS_REQUEST].request
        seen = self._view(state, devices)
        own = way.reserved and (way.reserved.uid, way.reserved.restricted)
        return (
            seen.state,
            state[CLASS_REQUEST].request,
            own,
            tuple([reservation_view.left(seen, reservation) for reservation in there]),
        )

    def numa_hints(self, state: CycleState, node: str) -> Hints | Status:
        devices = self.devices.find(node)
        if devices is None or not devices.listed:
            return {}
        return hints_by(
            devices.state.template, state[CLASS_REQUEST].request, partial(self._allocation_on, state, devices)
        )

    def numa_fits(self, state: CycleState, node: str, mask: Mask) -> Status:
        devices = self.devices.find(node)
        if devices is None or not devices.listed:
            return SUCCESS
        allocation = self._allocation_on(state, devices, held_to(devices.state.template, mask))
        return allocation if isinstance(allocation, Status) else SUCCESS

    def _allocation_on(self, state: CycleState, devices: NodeDevices, mask: Mask | None) -> Choice | Status:
        """The devices that the pod gets on these NUMA nodes, in its target reservation or none."""
        there, way, request = matched_on(state, devices.name), state.get(TARGET), state[CLASS_REQUEST].request
        if not there or way is None:
            return allocate_deciding(self._state_in_dry_run(state, devices), request, self._policy, mask)
        seen = self._view(state, devices)
        return reservation_view.choose(seen, there, way.reserved, request, self._policy, mask, trying=True)


def _moved(state: DeviceState, holding: Holding, kind: Hashable) -> Iterator[tuple[Amounts, Amounts]]:
    """For each device type that a kind of request uses: the total of its devices, and the part a pod took."""
    if not isinstance(kind, DeviceRequest):
        for device_type in kind:  # type: ignore[attr-defined]
            if device_type in holding.amounts:
                yield state.sums(device_type)[0], holding.amounts[device_type]
        return
    for part in weighed(state.template, kind):
        minors = {state.template.slots[number].minor for number in selected(state.template, part)}
        taken: Amounts = {}
        for share in holding.shares:
            if share.type == part.type and share.minor in minors:
                for name, value in share.amounts:
                    taken[name] = taken.get(name, 0) + value
        yield sums(state, part)[0], taken
