"""DeviceFragmentation: prefer nodes where a pod makes the least idle GPU unusable for typical pods; our own plugin.

Fragmentation gradient descent of "Beware of Fragmentation" (USENIX ATC '23). For one typical pod, the fragment of a
node is everything idle if the pod cannot run there, otherwise what is idle on cards too small for it. The node's value
is the weighted mean over the typical pods. The score is the change of this value by the placement: 0 (it grows by many
cards), 50 (no change), up to 100. The cards are those that DeviceShare would allocate.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import field

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY_RATIO
from seatrial.scheduler.api.quantity import CPU, Quantity, QuantityError, milli
from seatrial.scheduler.api.wire import Wire
from seatrial.scheduler.cache.columns import Batch, Ints
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.cache.resources import CPU_COLUMN
from seatrial.scheduler.framework.accelerations import ScoreBatch
from seatrial.scheduler.framework.extension_points import MAX_NODE_SCORE, Args, Scope
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.deviceshare.allocator import allocate
from seatrial.scheduler.plugins.deviceshare.batch_filter import WANTED
from seatrial.scheduler.plugins.deviceshare.cache import DeviceCache
from seatrial.scheduler.plugins.deviceshare.plugin import SETTLING
from seatrial.scheduler.plugins.deviceshare.states import DeviceState

CARD = 100  # percent of a card
MAX_SCORES = 1 << 17  # number of scores; beyond it all are dropped


class TypicalPod(Wire, frozen=True, forbid_unknown_fields=True):
    """A typical pod: CPU, percent of a card (above 100: whole cards), and its share of all pods."""

    gpu: int = 0
    cpu: Quantity = 0
    weight: int = 1


USUAL = tuple(TypicalPod(gpu, f"{gpu * 8 // 100}") for gpu in (50, 100, 200, 400, 800))


class DeviceFragmentationArgs(Args, frozen=True):
    """The typical pods."""

    typical_pods: tuple[TypicalPod, ...] = field(default=USUAL)
    balanced: bool = False  # idle GPU counts as lost when the idle CPU is too little for it at the typical ratio

    def check(self) -> None:
        if not self.typical_pods:
            raise ValueError("typicalPods: expected at least one typical pod, found none")
        for number, typical in enumerate(self.typical_pods):
            where = f"typicalPods[{number}]"
            if typical.gpu < 0 or (typical.gpu > CARD and typical.gpu % CARD):
                raise ValueError(f"{where}.gpu: expected 0 to 100 or a multiple of 100, found {typical.gpu}")
            if typical.weight < 1:
                raise ValueError(f"{where}.weight: expected 1 or more, found {typical.weight}")
            try:
                milli(typical.cpu)
            except QuantityError as error:
                raise ValueError(f"{where}.cpu: {error}") from error


@dataclass(frozen=True, slots=True)
class Typical:
    """A typical pod in integers: milli-CPU, percent of each card, cards."""

    cpu: int
    part: int
    cards: int
    weight: int


def fragments(cpu: int, idle: Sequence[int], pods: Sequence[Typical]) -> int:
    """Percent of a card, times the sum of weights, that typical pods cannot use of these idle amounts."""
    everything = sum(idle)
    total = 0
    for pod in pods:
        usable = [left for left in idle if left >= pod.part]
        runs = pod.cards and cpu >= pod.cpu and len(usable) >= pod.cards
        total += pod.weight * (everything - sum(usable) if runs else everything)
    return total


MILLI_CPU: StateKey[int] = StateKey("DeviceFragmentation/cpu")  # milli-CPU of the pod


class DeviceFragmentation(ScoreBatch):
    """Scores all nodes alike for a pod that requests neither CPU nor devices."""

    name = "DeviceFragmentation"
    scope = Scope.NODE_PODS
    has_signature = True

    def __init__(self, handle: Handle, args: DeviceFragmentationArgs | None = None) -> None:
        args = args or DeviceFragmentationArgs()
        self._handle = handle
        self._devices = DeviceCache.of(handle)
        self._pods = tuple(
            Typical(milli(typical.cpu), min(typical.gpu, CARD), -(-typical.gpu // CARD), typical.weight)
            for typical in args.typical_pods
        )
        self._weights = sum(pod.weight for pod in self._pods)
        cpu = sum(pod.weight * pod.cpu for pod in self._pods)
        gpu = sum(pod.weight * pod.part * pod.cards for pod in self._pods)
        self._rate = (gpu, cpu) if args.balanced and cpu else None  # percent of a card for each milli-CPU
        self._kept: dict[Hashable, int] = {}

    def pre_score(self, state: CycleState, pod: Pod) -> bool:
        requests = self._handle.cache.classes.of(pod).requests
        state[MILLI_CPU] = requests.get(CPU, 0)
        return bool(state[MILLI_CPU]) or WANTED in state

    def score(self, state: CycleState, pod: Pod, node: NodeInfo) -> int:
        devices = self._devices.find(node.name)
        if devices is None or not devices.listed:
            return MAX_NODE_SCORE // 2  # no GPU, so nothing to fragment
        left = max(node.allocatable[CPU_COLUMN] - node.requested[CPU_COLUMN], 0)
        wanted = state.get(WANTED)
        key = (devices.state, left, state[MILLI_CPU], wanted)
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= MAX_SCORES:
                self._kept.clear()
            found = self._kept[key] = self._score(devices.state, left, state)
        return found

    def _score(self, before: DeviceState, cpu: int, state: CycleState) -> int:
        after, wanted = before, state.get(WANTED)
        if wanted is not None:
            choice = allocate(before, wanted.request, state[SETTLING])
            if isinstance(choice, Status):
                return 0
            after = choice.after
        rest = max(cpu - state[MILLI_CPU], 0)
        idle, then = _idle(before), _idle(after)
        lost = fragments(rest, then, self._pods) - fragments(cpu, idle, self._pods)
        cards = lost / self._weights / CARD
        if self._rate is not None:
            gpu, per = self._rate
            stranded = max(sum(then) - rest * gpu / per, 0) - max(sum(idle) - cpu * gpu / per, 0)
            cards += stranded / CARD
        return math.floor(MAX_NODE_SCORE / (1 + math.exp(min(cards, 64.0))))

    # -- many at once -------------------------------------------------------------------------------------------------

    def score_batch(self, stacked: Sequence[CycleState], batch: Batch) -> Ints | None:
        found = np.zeros((len(stacked), batch.size), np.int64)
        nodes, names = self._handle.cache.nodes, batch.columns.names
        for place, row in enumerate(batch.rows.tolist()):
            node = nodes.get(names[row])
            if node is not None and node.node is not None:
                found[:, place] = self.score_classes_batch(stacked, node)
        return found

    def score_classes_batch(self, stacked: Sequence[CycleState], node: NodeInfo) -> Ints:
        return np.array([self.score(state, _NOBODY, node) for state in stacked], np.int64)

    def score_signature(self, stacked: object, node: NodeInfo) -> Hashable:
        devices = self._devices.find(node.name)
        if devices is None or not devices.listed:
            return None
        return devices.state, node.allocatable[CPU_COLUMN] - node.requested[CPU_COLUMN]


def _idle(state: DeviceState) -> list[int]:
    """The free percent of each GPU: of its cores or its memory, whichever is less."""
    frees = (state.frees[number] for number in state.slots("gpu"))
    return [min(free.get(GPU_CORE, CARD), free.get(GPU_MEMORY_RATIO, CARD)) if free else 0 for free in frees]


_NOBODY = Pod()  # the cycle state has all that is needed of the pod
