"""Choice of GPUs: by partition, then topology, then plain list; the first with a result wins (DEV-R32 to DEV-R46)."""

from dataclasses import dataclass, field

from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.deviceshare import partitions, topology
from seatrial.scheduler.plugins.deviceshare.candidates import Pick, candidates, pick, suits
from seatrial.scheduler.plugins.deviceshare.plainlist import take
from seatrial.scheduler.plugins.deviceshare.request import DeviceRequest, TypeRequest
from seatrial.scheduler.plugins.deviceshare.scoring import Scorer
from seatrial.scheduler.plugins.deviceshare.slices import NOT_A_SIZE
from seatrial.scheduler.plugins.deviceshare.states import DeviceState, Template


@dataclass(frozen=True, slots=True)
class Policy:
    """The profile's arguments that concern the choice of devices."""

    scorer: Scorer = field(default_factory=Scorer)
    lowest_partition_score_first: bool = False  # as Koordinator's code does; its documentation states the opposite


def kept_to(template: Template, request: DeviceRequest) -> bool:
    """Whether whole cards may come from the partition table only (DEV-R35)."""
    return template.traits.honour or request.hints.partition is not None


def find(state: DeviceState, request: DeviceRequest, gpu: TypeRequest, policy: Policy) -> list[Pick] | Status:
    """Choose cards for the GPU part of a request."""
    slice_name = ""
    if request.templates:
        names = [name for model, name in request.templates if model == state.template.traits.model]
        if not names:
            return NOT_A_SIZE
        if len(names) == 1:  # several partitions fit: the message names none (DEV-R45)
            slice_name = names[0]
    kept = kept_to(state.template, request)
    if not gpu.shared and (kept or state.template.table is not None):
        partition = _by_partition(state, request, gpu, policy)
        if kept or not isinstance(partition, Status):
            return partition
    by_tree = _by_tree(state, gpu, policy.scorer, slice_name)
    if by_tree is not None:
        return by_tree
    listed = take(state, gpu, policy.scorer, gpu.count, template=slice_name)
    return listed if listed is not None else Status.unschedulable("Insufficient gpu devices")


def _by_partition(state: DeviceState, request: DeviceRequest, gpu: TypeRequest, policy: Policy) -> list[Pick] | Status:
    template = state.template
    index = {template.slots[number].minor: number for number in candidates(state, gpu)}
    chosen = partitions.choose(
        template.table,
        gpu.count,
        used=frozenset(template.slots[number].minor for number in state.slots("gpu") if state.touched(number)),
        usable=lambda minor: minor in index and suits(state, index[minor], gpu),
        preference=request.hints.partition,
        lowest_score_first=policy.lowest_partition_score_first,
    )
    return chosen if isinstance(chosen, Status) else [pick(state, index[minor], gpu) for minor in chosen]


def _by_tree(state: DeviceState, gpu: TypeRequest, scorer: Scorer, slice_name: str) -> list[Pick] | Status | None:
    """Choose by topology; None: the topology does not decide and the pod does not require it."""
    template, required = state.template, gpu.hint.scope
    if template.tree is None or (gpu.shared and gpu.count > 1):
        if required is None:
            return None
        return topology.NO_TREE if template.tree is None else topology.MULTI_SHARED
    amounts = gpu.amounts

    def rank(number: int) -> tuple[int, int]:
        """The rank of a card; total and free are exchanged in the first component, as upstream (DEV-R44)."""
        total, free = template.totals[number], state.frees[number]
        return scorer.score(free, total, amounts), scorer.score(total, free, amounts)

    search = topology.Search(
        gpu.count,
        required or 0,
        frozenset(number for number in candidates(state, gpu) if suits(state, number, gpu)),
        frozenset(number for number in state.slots("gpu") if state.touched(number)),
        rank if gpu.shared else None,
    )
    cards = search.find(template.tree)
    if cards is None:
        return topology.NO_CARDS if required is None else topology.NO_SCOPE
    return [pick(state, number, gpu, slice_name) for number in cards]
