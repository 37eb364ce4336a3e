"""Choice of devices for a request in one device state, and the amount of each device.

Upstream: deviceshare/device_allocator.go.
"""

from seatrial.scheduler.api.device import GPU_MEMORY, GPU_MEMORY_RATIO
from seatrial.scheduler.api.quantity import Amounts
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.plugins.deviceshare import gpus
from seatrial.scheduler.plugins.deviceshare.candidates import Pick, missing
from seatrial.scheduler.plugins.deviceshare.gpus import Policy
from seatrial.scheduler.plugins.deviceshare.joint import NOT_TOGETHER, desired, switches
from seatrial.scheduler.plugins.deviceshare.plainlist import take
from seatrial.scheduler.plugins.deviceshare.request import DeviceRequest, TypeRequest
from seatrial.scheduler.plugins.deviceshare.shares import Share
from seatrial.scheduler.plugins.deviceshare.states import Choice, DeviceState, Template
from seatrial.scheduler.plugins.deviceshare.topology import NO_CARDS

MAX_ALLOCATIONS = 65536


def allocate(
    state: DeviceState, request: DeviceRequest, policy: Policy, numa: frozenset[int] | None = None
) -> Choice | Status:
    """Devices for every type of the request, or the reason for none; computed once for each state and request.

    With `numa`, all of them on these NUMA nodes.
    """
    key = request if numa is None else (request, numa)
    choice = state.choices.get(key)
    if choice is None:
        limited = request if numa is None else request.within(numa)
        choice = state.choices[key] = _allocate(state, limited, limited.types, policy)
    return choice


def allocate_preferring(
    state: DeviceState,
    request: DeviceRequest,
    policy: Policy,
    preferred: frozenset[tuple[str, int]],
    numa: frozenset[int] | None = None,
) -> Choice | Status:
    """`allocate`, but a plain list takes these devices (type and minor) before all others (DEV-R47)."""
    key = (request, preferred, numa)
    choice = state.choices.get(key)
    if choice is None:
        inclined = (request if numa is None else request.within(numa)).preferring(preferred)
        choice = state.choices[key] = _allocate(state, inclined, inclined.types, policy)
    return choice


def allocate_deciding(
    state: DeviceState, request: DeviceRequest, policy: Policy, numa: frozenset[int] | None = None
) -> Choice | Status:
    """`allocate` for those types that decide about a node."""
    judged = weighed(state.template, request)
    if judged is request.types:
        return allocate(state, request, policy, numa)
    limited = request if numa is None else request.within(numa)
    return _allocate(state, limited, weighed(state.template, limited), policy)


def verdict(state: DeviceState, request: DeviceRequest, policy: Policy) -> Status:
    """Whether the node passes: whether `allocate` would find devices; NICs that need no check are left out."""
    fit = state.fits.get(request)
    if fit is None:
        if counting_suffices(state.template, request):
            fit = _enough(state, request.types[0])
        else:
            choice = allocate_deciding(state, request, policy)
            fit = choice if isinstance(choice, Status) else SUCCESS
        state.fits[request] = fit
    return fit


def weighed(template: Template, request: DeviceRequest) -> tuple[TypeRequest, ...]:
    """The types that decide whether a node passes: not those that follow the GPUs on a well planned node (DEV-R58)."""
    if template.traits.planned and request.joint:
        gpu = request.get("gpu")
        if gpu is not None and not gpu.shared:
            return tuple(part for part in request.types if part.type == request.joint[0])
    return request.types


def counting_suffices(template: Template, request: DeviceRequest) -> bool:
    """Whether counting devices with enough free amounts decides the request."""
    gpu = request.types[0]
    return request.plain and len(request.types) == 1 and (gpu.type != "gpu" or gpu.shared or not template.traits.honour)


def too_few(template: Template, request: TypeRequest) -> Status:
    """The status for too few devices where `counting_suffices`."""
    if request.type == "gpu" and template.tree is not None and not (request.shared and request.count > 1):
        return NO_CARDS
    return Status.unschedulable(f"Insufficient {request.type} devices")


def _enough(state: DeviceState, request: TypeRequest) -> Status:
    slots = state.slots(request.type)
    if not slots:
        return Status.unresolvable(f"Insufficient {request.type} devices")
    left = request.count
    for number in slots:
        room = state.rooms[number]
        if room and all(room.get(name, 0) >= value for name, value in request.each):
            left -= 1
            if not left:
                return SUCCESS
    return too_few(state.template, request)


def _allocate(
    state: DeviceState, request: DeviceRequest, types: tuple[TypeRequest, ...], policy: Policy
) -> Choice | Status:
    for part in types:
        wrong = missing(state.template, part)
        if wrong is not None:
            return wrong
    together, order = list[TypeRequest](), types
    if request.joint:
        together = [part for kind in request.joint for part in types if part.type == kind]
        order = (*together, *(part for part in types if part not in together))
    picks: dict[str, list[Pick]] = {}
    for part in order:
        leading = picks[together[0].type] if part in together[1:] else None
        result = _of_type(state, request, part, leading, policy)
        if leading is not None and request.hints.same_pcie:
            if not isinstance(result, Status) and switches(state, result) != switches(state, leading):
                result = NOT_TOGETHER
            if isinstance(result, Status):
                state.unsteady = True  # the primary devices decide; after more allocations others may be primary
        if isinstance(result, Status):
            return result
        picks[part.type] = result
    shares = tuple(_share(state, part, picked) for part in types for picked in picks[part.type])
    return Choice(shares, state.moved(shares, 1))


def _of_type(
    state: DeviceState, request: DeviceRequest, part: TypeRequest, leading: list[Pick] | None, policy: Policy
) -> list[Pick] | Status:
    """Choose devices of one type; GPUs are chosen by their own method even where another type is primary (DEV-R51)."""
    if part.type == "gpu":
        return gpus.find(state, request, part, policy)
    near = switches(state, leading) if leading is not None else frozenset()
    results = take(state, part, policy.scorer, desired(state, part, near, request.hints), near=near)
    return results if results is not None else Status.unschedulable(f"Insufficient {part.type} devices")


def _share(state: DeviceState, request: TypeRequest, picked: Pick) -> Share:
    simple = request.numa is None and not request.preferred and picked.function is None and not picked.template
    devices = state.template.shares
    entry = devices.get((request, picked.number)) if simple else None
    if entry is not None:
        return entry
    amounts = request.amounts
    if request.type == "gpu":
        fill_memory(amounts, state.template.totals[picked.number])
    functions = () if picked.function is None else (picked.function,)
    minor = state.template.slots[picked.number].minor
    share = Share(request.type, minor, tuple(sorted(amounts.items())), functions, picked.template)
    if simple:
        if len(devices) >= MAX_ALLOCATIONS:
            devices.clear()
        devices[request, picked.number] = share
    return share


def fill_memory(amounts: Amounts, total: Amounts) -> None:
    """Add the other form of memory: bytes and percent of this card (DEV-R10)."""
    memory = total.get(GPU_MEMORY, 0)
    if GPU_MEMORY_RATIO in amounts and GPU_MEMORY not in amounts:
        amounts[GPU_MEMORY] = amounts[GPU_MEMORY_RATIO] * memory // 100
    elif GPU_MEMORY in amounts and GPU_MEMORY_RATIO not in amounts:
        amounts[GPU_MEMORY_RATIO] = int(amounts[GPU_MEMORY] / memory * 100) if memory else 0
