"""What DeviceFragmentation reads of pods and nodes."""

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_MODEL_LABEL, NPU_CORE
from seatrial.scheduler.api.quantity import CPU, MEMORY
from seatrial.scheduler.cache.classes import EquivalenceClass
from seatrial.scheduler.packing.shapes import CARD, Shape
from seatrial.scheduler.plugins.deviceshare.request import DeviceRequest, InvalidRequestError
from seatrial.scheduler.plugins.deviceshare.states import DeviceState
from seatrial.scheduler.plugins.fragmentation.args import PERCENT

_FACT = "DeviceFragmentation"


def shape_of(pods: EquivalenceClass, card_memory: int) -> Shape:
    """The shape of a class's pods. GPUs, NPUs and MLUs count alike.

    `card_memory`: bytes of a card; a request for bytes of GPU memory is that part of a card, rounded up.
    """
    known = pods.facts.get(_FACT)
    if isinstance(known, tuple) and known[0] == card_memory:
        shape: Shape = known[1]
        return shape
    shape = _shape(pods, card_memory)
    pods.facts[_FACT] = card_memory, shape
    return shape


def _shape(pods: EquivalenceClass, card_memory: int) -> Shape:
    requests = pods.requests
    cpu, memory = requests.get(CPU, 0), requests.get(MEMORY, 0)
    try:
        request = DeviceRequest.of(requests)
    except InvalidRequestError:
        request = None  # DeviceShare rejects the pod
    gpu = request.get("gpu") if request is not None else None
    if gpu is None:
        return Shape(cpu, memory, 0, 0)
    each = gpu.amounts
    percent = max(each.get(GPU_MEMORY_RATIO, 0), each.get(GPU_CORE, 0), each.get(NPU_CORE, 0))
    milli = max(percent * PERCENT, -(-each.get(GPU_MEMORY, 0) * CARD // max(card_memory, 1)) if card_memory else 0)
    milli = max(min(milli, CARD), 1)
    # Parts of several cards count as whole ones: the definition of fragments covers parts of one card only.
    return Shape(cpu, memory, gpu.count, milli if gpu.count == 1 else CARD, models_of(pods.example))


def models_of(pod: Pod) -> tuple[str, ...]:
    """The GPU models that the pod's node selector and required affinity allow, sorted; none: any.

    Only operator In is read. Terms are alternatives, so each of them must name models.
    """
    allowed: set[str] | None = None
    selected = pod.spec.node_selector.get(GPU_MODEL_LABEL)
    if selected is not None:
        allowed = {selected}
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    if required is not None:
        terms = [
            {value for each in named for value in each.values}
            for term in required.node_selector_terms
            if (named := [e for e in term.match_expressions if e.key == GPU_MODEL_LABEL and e.operator == "In"])
        ]
        if terms and len(terms) == len(required.node_selector_terms):
            union = set().union(*terms)
            allowed = union if allowed is None else allowed & union
    return tuple(sorted(allowed or ()))


def idle_cards(state: DeviceState) -> tuple[int, ...]:
    """Free amount of each card, in thousandths: the smaller of its free cores and its free memory."""
    frees = [state.frees[number] for number in state.slots("gpu")]
    return tuple(
        PERCENT * min(free.get(GPU_CORE, 100), free.get(GPU_MEMORY_RATIO, 100), 100) if free else 0 for free in frees
    )


def card_memory_of(state: DeviceState) -> int:
    """Bytes of memory of the node's first healthy card; 0 if it has none."""
    totals = (state.template.totals[number] for number in state.slots("gpu"))
    return next((total[GPU_MEMORY] for total in totals if total.get(GPU_MEMORY)), 0)
