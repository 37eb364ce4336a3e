"""The devices of a node that one part of a request may use, and whether one device fits."""

from typing import NamedTuple

from seatrial.scheduler.api.quantity import Amounts
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.deviceshare.request import TypeRequest
from seatrial.scheduler.plugins.deviceshare.shares import Function
from seatrial.scheduler.plugins.deviceshare.states import DeviceState, Slot, Template
from seatrial.scheduler.pods.selectors import selector_matches


class Pick(NamedTuple):
    """A chosen device: the number of its slot, and its virtual function if any."""

    number: int
    function: Function | None = None
    template: str = ""


def missing(template: Template, request: TypeRequest) -> Status | None:
    """Why no state of these devices can satisfy the request (DEV-R14 to DEV-R16); None if some state can."""
    slots = template.by_type.get(request.type, [])
    if not slots or not count(template, request):
        return Status.unresolvable(f"Insufficient {request.type} devices")
    if request.hint.vf_selector is not None and not any(template.slots[number].groups for number in slots):
        return Status.unresolvable(f"Insufficient {request.type} VirtualFunctions")
    return None


def count(template: Template, request: TypeRequest) -> int:
    """Number of devices needed: a number, or all that the hint selects, healthy or not (DEV-R14)."""
    return len(selected(template, request)) if request.everyone else request.count


def selected(template: Template, request: TypeRequest) -> list[int]:
    """Slots whose labels match the hint, by minor."""
    slots = template.by_type.get(request.type, [])
    selector = request.hint.selector
    if selector is None:
        return slots
    entry = template.narrowed.get(request)
    if entry is None:
        entry = template.narrowed[request] = [
            number for number in slots if selector_matches(selector, dict(template.slots[number].labels))
        ]
    return entry


def candidates(state: DeviceState, request: TypeRequest) -> list[int]:
    """`selected` on the allowed NUMA nodes; for whole PCIe switches only unused ones (DEV-R23, DEV-R24)."""
    slots = selected(state.template, request)
    if request.numa is not None:
        slots = [number for number in slots if _on(state.template.slots[number], request.numa)]
    if not request.hint.whole_switches:
        return slots
    places = [state.template.slots[number].place for number in state.slots(request.type)]
    shared = {
        place.pcie
        for number, place in zip(state.slots(request.type), places, strict=True)
        if place is not None and (state.touched(number) or not state.frees[number])
    }
    return [number for number in slots if (place := state.template.slots[number].place) and place.pcie not in shared]


def _on(slot: Slot, numa: frozenset[int]) -> bool:
    """Whether a device is on the NUMA nodes; one without a known NUMA node passes, one without topology does not."""
    return slot.place is not None and (slot.place.numa < 0 or slot.place.numa in numa)


def suits(state: DeviceState, number: int, request: TypeRequest) -> bool:
    """Whether the amounts are free on the device, and a virtual function if one is requested."""
    return has_room(state, number, request) and (
        request.hint.vf_selector is None or free_function(state, number, request) is not None
    )


def has_room(state: DeviceState, number: int, request: TypeRequest) -> bool:
    """Whether the amounts are free on a healthy device."""
    room = state.rooms[number]
    if not room:
        return False
    for name, value in request.each:  # noqa: SIM110 a generator here costs more than all the rest
        if room.get(name, 0) < value:
            return False
    return True


def free_function(state: DeviceState, number: int, request: TypeRequest) -> Function | None:
    """The free virtual function with the smallest bus address among the groups that the hint selects (DEV-R48)."""
    selector = request.hint.vf_selector
    slot: Slot = state.template.slots[number]
    if selector is None or not slot.groups:
        return None
    taken = {bus for where, bus in state.functions if where == number}
    return min(
        (
            function
            for group in slot.groups
            if selector_matches(selector, dict(group.labels))
            for function in group.functions
            if function.bus not in taken
        ),
        default=None,
    )


def pick(state: DeviceState, number: int, request: TypeRequest, template: str = "") -> Pick:
    """The choice of device `number`, with a free virtual function if the hint selects functions."""
    return Pick(
        number, free_function(state, number, request) if request.hint.vf_selector is not None else None, template
    )


def sums(state: DeviceState, request: TypeRequest) -> tuple[Amounts, Amounts]:
    """Total and free amounts of the devices that the hint selects."""
    if request.hint.selector is None:
        return state.sums(request.type)
    total: Amounts = {}
    free: Amounts = {}
    for number in selected(state.template, request):
        for name, value in state.template.totals[number].items():
            total[name] = total.get(name, 0) + value
            free[name] = free.get(name, 0) + state.frees[number][name]
    return total, free
