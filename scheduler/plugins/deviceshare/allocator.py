"""Devices for a request in one state: which, and how much of each.

Steps for GPUs in upstream are template, partition, topology, plain list (R32); here the plain list, which ranks devices
by score and takes the first that suffice. Upstream: deviceshare/device_allocator.go, device_resources.go.
"""

from scheduler.api.device import GPU_MEMORY, GPU_MEMORY_RATIO
from scheduler.api.requests import Amounts
from scheduler.framework.status import SUCCESS, Status
from scheduler.plugins.deviceshare.request import DeviceRequest, TypeRequest
from scheduler.plugins.deviceshare.scoring import Scorer
from scheduler.plugins.deviceshare.shares import Share
from scheduler.plugins.deviceshare.states import Choice, DeviceState


def allocate(state: DeviceState, request: DeviceRequest, scorer: Scorer) -> Choice | Status:
    """Devices for every type of the request, or why not; found once for each state and request."""
    found = state.choices.get(request)
    if found is None:
        found = state.choices[request] = _allocate(state, request, scorer)
    return found


def verdict(state: DeviceState, request: DeviceRequest, scorer: Scorer) -> Status:
    """Whether `allocate` would find devices; quicker, where the plain list alone decides."""
    found = state.fits.get(request)
    if found is None:
        if len(request.types) == 1:
            found = _enough(state, request.types[0])
        else:
            choice = allocate(state, request, scorer)
            found = choice if isinstance(choice, Status) else SUCCESS
        state.fits[request] = found
    return found


def _enough(state: DeviceState, request: TypeRequest) -> Status:
    slots = state.slots(request.type)
    if not slots:
        return Status.unresolvable(f"Insufficient {request.type} devices")
    left = request.count
    for number in slots:
        free = state.frees[number]
        if free and all(free.get(name, 0) >= value for name, value in request.each):
            left -= 1
            if not left:
                return SUCCESS
    return Status.unschedulable(f"Insufficient {request.type} devices")


def _allocate(state: DeviceState, request: DeviceRequest, scorer: Scorer) -> Choice | Status:
    chosen: list[Share] = []
    for one in request.types:
        slots = state.slots(one.type)
        if not slots:
            return Status.unresolvable(f"Insufficient {one.type} devices")
        found = from_list(state, slots, one, scorer)
        if found is None:
            return Status.unschedulable(f"Insufficient {one.type} devices")
        chosen += [_share(state, number, one) for number in found]
    shares = tuple(chosen)
    return Choice(shares, state.moved(shares, 1))


def from_list(state: DeviceState, slots: list[int], request: TypeRequest, scorer: Scorer) -> list[int] | None:
    """The best `request.count` devices: highest score first, then lowest minor (R47 to R49)."""
    scores: dict[tuple[int, tuple[int, ...]], int] = {}  # devices alike score alike
    ranked: list[tuple[int, int]] = []
    for number in slots:
        alike = (id(state.template.totals[number]), state.used[number])
        score = scores.get(alike)
        if score is None:
            score = scores[alike] = _score(state, number, request, scorer)
        if score >= 0:
            ranked.append((-score, number))
    if len(ranked) < request.count:
        return None
    ranked.sort()  # slots are in the order of their minors
    return [number for _, number in ranked[: request.count]]


def _score(state: DeviceState, number: int, request: TypeRequest, scorer: Scorer) -> int:
    """How well the request suits a device; -1 if it does not fit."""
    free = state.frees[number]
    if not free or any(free.get(name, 0) < value for name, value in request.each):
        return -1
    return scorer.score(state.template.totals[number], free, request.amounts)


def _share(state: DeviceState, number: int, request: TypeRequest) -> Share:
    amounts = request.amounts
    if request.type == "gpu":
        fill_memory(amounts, state.template.totals[number])
    return Share(request.type, state.template.slots[number].minor, tuple(sorted(amounts.items())))


def fill_memory(amounts: Amounts, total: Amounts) -> None:
    """Say memory both ways, in bytes and in percent of this very card (R10)."""
    memory = total.get(GPU_MEMORY, 0)
    if GPU_MEMORY_RATIO in amounts and GPU_MEMORY not in amounts:
        amounts[GPU_MEMORY] = amounts[GPU_MEMORY_RATIO] * memory // 100
    elif GPU_MEMORY in amounts and GPU_MEMORY_RATIO not in amounts:
        amounts[GPU_MEMORY_RATIO] = int(amounts[GPU_MEMORY] / memory * 100) if memory else 0
