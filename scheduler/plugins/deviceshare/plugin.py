"""Keep pods off nodes whose accelerators cannot hold them, and settle which devices they get.

A rejection is a `Status`, worded as Koordinator words it; an exception is a bug in here.
No extension point does I/O: binding writes what `pre_bind` returns, in one patch.
Follows Koordinator `pkg/scheduler/plugins/deviceshare`; deviations are in scheduler/DESIGN.md.
"""

from collections.abc import Hashable, Iterator
from dataclasses import replace

from scheduler.api.core import Pod
from scheduler.api.device import DEVICE_ALLOCATED, GPU_ISOLATION_PROVIDER, GPU_MODEL_LABEL, GPU_VENDOR_LABEL
from scheduler.api.requests import Amounts
from scheduler.framework.handle import Handle
from scheduler.framework.nodeinfo import NodeInfo, PodInfo
from scheduler.framework.points import (
    NO_MARKS,
    ByMaximum,
    Marks,
    PreBind,
    PreFilter,
    Reserve,
    Scope,
    VictimAware,
)
from scheduler.framework.reserved import (
    IGNORED,
    NOMINATE,
    NOMINATED,
    REQUIRED,
    ReservationAware,
    Reserved,
    matched_on,
)
from scheduler.framework.state import CycleState, StateKey
from scheduler.framework.status import SUCCESS, Status
from scheduler.plugins.deviceshare import inside
from scheduler.plugins.deviceshare.adaption import Adaption
from scheduler.plugins.deviceshare.allocator import allocate, trial, verdict, weighed
from scheduler.plugins.deviceshare.args import DeviceShareArgs
from scheduler.plugins.deviceshare.candidates import selected, sums
from scheduler.plugins.deviceshare.columns import DeviceColumns
from scheduler.plugins.deviceshare.hints import ANNOTATIONS, InvalidHintError, read
from scheduler.plugins.deviceshare.imagined import imagine, imagined, view
from scheduler.plugins.deviceshare.numa import held_to, hints
from scheduler.plugins.deviceshare.request import DeviceRequest, InvalidRequestError
from scheduler.plugins.deviceshare.shares import Holding
from scheduler.plugins.deviceshare.slices import NOT_A_SIZE, SliceBook
from scheduler.plugins.deviceshare.states import SHARES, DeviceState
from scheduler.plugins.deviceshare.wanted import SETTLING, WANTED, Wanted
from scheduler.plugins.numahints import AFFINITY, ALIGNER, PROVIDER, Hints, Mask
from scheduler.plugins.reservation.book import ReservationBook

WRONG_ISOLATION = Status.unresolvable("GPUIsolationProviderHAMICore not found on the node")


GRANTED: StateKey[Holding] = StateKey("DeviceShare/granted")
ADAPTED: StateKey[Marks] = StateKey("DeviceShare/adapted")  # for the vendor's device plugin


class DeviceShare(PreFilter, DeviceColumns, Reserve, PreBind, VictimAware, ReservationAware):
    name = "DeviceShare"
    scope = Scope.NODE_PODS
    reads_labels = (GPU_ISOLATION_PROVIDER,)
    reads_annotations = ANNOTATIONS
    normalizer = ByMaximum()

    def __init__(self, handle: Handle, args: DeviceShareArgs | None = None) -> None:
        args = args or DeviceShareArgs()
        self._unshareable = {(one.vendor, one.model) for one in args.gpu_share_unsupported_models}
        self._handle = handle
        self._aligned = not args.disable_numa_alignment
        self._adaption = Adaption(handle) if args.device_plugin_adaption else None
        templates = args.gpu_shared_resource_templates_config
        self._sized = frozenset(templates.matched_resources)
        self._sizes_from = f"{templates.config_map_namespace}/{templates.config_map_name}"
        self._slices = handle.shared(SliceBook, SliceBook)
        self._slices.read.add(self._sizes_from)
        super().__init__(handle, args.policy())
        self._book = ReservationBook.of(handle)
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
        state[WANTED] = Wanted(self._same(request, pod), isolation, shared and bool(self._unshareable), simple)
        return SUCCESS

    def _same(self, request: DeviceRequest, pod: Pod) -> DeviceRequest:
        """One object for all requests that ask the same, so that what is worked out for one serves the others."""
        amounts = tuple((one.type, one.count, one.each, one.shared, one.everyone) for one in request.types)
        words = tuple(pod.metadata.annotations.get(name) for name in ANNOTATIONS)
        return self._requests.setdefault((amounts, words, request.templates), request)

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        wanted = state[WANTED]
        labels = node.known.metadata.labels
        if wanted.isolation and labels.get(GPU_ISOLATION_PROVIDER, "") != wanted.isolation:
            return WRONG_ISOLATION
        if wanted.picky:
            model = labels.get(GPU_VENDOR_LABEL, ""), labels.get(GPU_MODEL_LABEL, "")
            if model in self._unshareable:
                return Status.unresolvable(f'model "{model[1]}" of vendor "{model[0]}" does not support GPU Share')
        devices = self.devices.find(node.name)
        if devices is None or not devices.listed:
            return SUCCESS  # the kubelet's own device plugin is left to decide (R22)
        if self._mask_of(state, node.name) is not None:
            return SUCCESS  # whoever aligns pods has tried these very devices (R28)
        there = matched_on(state, node.name)
        if there:
            return inside.judge(view(state, devices), there, wanted.request, self._policy, required=REQUIRED in state)
        return verdict(imagined(state, devices), wanted.request, self._policy)

    def fits_in(self, state: CycleState, pod: Pod, reserved: Reserved | None, node_name: str) -> Status:
        wanted, devices = state.get(WANTED), self.devices.find(node_name)
        if wanted is None or devices is None or not devices.listed:
            return SUCCESS
        return inside.fits(view(state, devices), matched_on(state, node_name), reserved, wanted.request, self._policy)

    def worth_in(self, state: CycleState, pod: Pod, reserved: Reserved, node_name: str) -> int:
        wanted, devices = state.get(WANTED), self.devices.find(node_name)
        if wanted is None or devices is None or not devices.listed:
            return 0
        return self._worth(inside.room(view(state, devices), matched_on(state, node_name), reserved), wanted.request)

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        return WANTED in state

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        devices = self.devices.find(node.name)
        if devices is None or not devices.listed:
            return 0
        there = matched_on(state, node.name)
        if not there:
            return self._worth(imagined(state, devices), state[WANTED].request)
        nominated = state[NOMINATE](state, pod, node)
        return self._worth(inside.room(view(state, devices), there, nominated), state[WANTED].request)

    def _worth(self, devices: DeviceState, request: DeviceRequest) -> int:
        """What a node is worth to a request with its devices in this state (R60)."""
        known = devices.scores.get(request)
        if known is not None:
            return known
        score = 0
        for one in weighed(devices.template, request):
            total, free = sums(devices, one)
            score += self._policy.scorer.score(total, free, one.amounts)
        devices.scores[request] = score
        return score

    @property
    def falls(self) -> bool:
        return self._policy.scorer.strategy == "LeastAllocated"

    def kind(self, state: CycleState) -> Hashable:
        """Device types for most pods; a request that looks at some devices only is a kind of its own."""
        request = state[WANTED].request
        return tuple(one.type for one in request.types) if request.plain else request

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
            for total, taken in _moved(devices.state, holding, kind):
                found += self._policy.scorer.rise(total, taken)
            holding.rises[self._number, template, kind] = found
        return found

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        wanted = state.get(WANTED)
        devices = self.devices.find(node_name)
        if wanted is None or devices is None or not devices.listed:
            return SUCCESS
        mask = held_to(devices.state.template, state.get(AFFINITY) if self._aligned else None)
        there = matched_on(state, node_name)
        if mask is None and (there or IGNORED in state):
            seen = view(state, devices)
            found = inside.choose(seen, there, state.get(NOMINATED), wanted.request, self._policy)
        else:
            found = allocate(devices.state, wanted.request, self._policy, mask)
        if isinstance(found, Status):
            return found
        if self._adaption is not None:
            marks = self._adaption.marks(wanted.request, found.holding, pod, devices)
            if isinstance(marks, Status):
                return marks
            state[ADAPTED] = marks
        state[GRANTED] = found.holding
        if there or IGNORED in state:  # what it was chosen from is not the state that the node is in
            self.devices.book(node_name, pod.metadata.uid, found.holding.shares)
        else:
            self.devices.settle(devices, pod.metadata.uid, found)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        state.discard(GRANTED)
        state.discard(ADAPTED)
        if self._adaption is not None:
            self._adaption.give_back(node_name, pod)
        self.devices.release(node_name, pod.metadata.uid)  # also called when reserve never ran: twice is fine

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> Marks:
        granted = state.get(GRANTED)
        devices = self.devices.find(node_name)
        if granted is None or devices is None:
            return NO_MARKS
        annotations = {DEVICE_ALLOCATED: granted.annotation(devices.ids)}
        self.devices.promise(pod.metadata.uid, annotations[DEVICE_ALLOCATED])
        adapted = state.get(ADAPTED)
        if adapted is None:
            return Marks(annotations, {})
        return Marks({**annotations, **adapted.annotations}, adapted.labels, adapted.node_annotations)

    # -- NUMA nodes ---------------------------------------------------------------------------------------------------

    def _mask_of(self, state: CycleState, name: str) -> Mask | None:
        aligner = state.get(ALIGNER) if self._aligned else None
        return aligner.affinity(state, name) if aligner is not None else None

    def numa_token(self, state: CycleState, node: str) -> Hashable:
        devices = self.devices.find(node)
        if devices is None or not devices.listed:
            return None
        return imagined(state, devices), state[WANTED].request

    def numa_hints(self, state: CycleState, node: str) -> Hints | Status:
        devices = self.devices.find(node)
        if devices is None or not devices.listed:
            return {}
        return hints(imagined(state, devices), state[WANTED].request, self._policy)

    def numa_fits(self, state: CycleState, node: str, mask: Mask) -> Status:
        devices = self.devices.find(node)
        if devices is None or not devices.listed:
            return SUCCESS
        held = held_to(devices.state.template, mask)
        found = trial(imagined(state, devices), state[WANTED].request, self._policy, held)
        return found if isinstance(found, Status) else SUCCESS

    # -- preemption ---------------------------------------------------------------------------------------------------

    def victim_removed(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        devices = self.devices.find(node.name)
        if devices is not None and WANTED in state:
            imagine(state, devices, self._book, victim.uid, -1)

    def victim_returned(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        devices = self.devices.find(node.name)
        if devices is not None and WANTED in state:
            imagine(state, devices, self._book, victim.uid, 1)


def _moved(state: DeviceState, holding: Holding, kind: Hashable) -> Iterator[tuple[Amounts, Amounts]]:
    """For each device type that a kind of request looks at: the total of its devices, and what a pod took of them."""
    if not isinstance(kind, DeviceRequest):
        for device_type in kind:  # type: ignore[attr-defined]
            if device_type in holding.amounts:
                yield state.sums(device_type)[0], holding.amounts[device_type]
        return
    for one in weighed(state.template, kind):
        minors = {state.template.slots[number].minor for number in selected(state.template, one)}
        taken: Amounts = {}
        for share in holding.shares:
            if share.type == one.type and share.minor in minors:
                for name, value in share.amounts:
                    taken[name] = taken.get(name, 0) + value
        yield sums(state, one)[0], taken
