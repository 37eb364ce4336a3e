"""Devices for a pod that goes into a reservation, or stays beside the reservations that match it (DEV-R62).

For matching reservations the state comes with everything they hold returned (`engine/restoring.py`). This module
takes back what the target reservation does not own.
"""

from collections.abc import Collection, Iterable, Sequence

from seatrial.scheduler.api.quantity import Amounts
from seatrial.scheduler.framework.reservation_info import ReservationInfo
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.plugins.deviceshare.allocator import allocate, allocate_deciding, allocate_preferring, verdict
from seatrial.scheduler.plugins.deviceshare.cache import NodeDevices
from seatrial.scheduler.plugins.deviceshare.gpus import Policy
from seatrial.scheduler.plugins.deviceshare.request import DeviceRequest
from seatrial.scheduler.plugins.deviceshare.reservation_rest import left_of, reserved_shares
from seatrial.scheduler.plugins.deviceshare.shares import Shares
from seatrial.scheduler.plugins.deviceshare.states import Choice, DeviceState, Template
from seatrial.scheduler.plugins.numahints import Mask

PREFIX = "Reservation(s) "


def holds_devices(reserved: ReservationInfo) -> bool:
    """Whether a reservation holds devices."""
    return bool(reserved_shares(reserved.annotation))


def room(devices: NodeDevices, there: Iterable[ReservationInfo], reserved: ReservationInfo | None) -> DeviceState:
    """The devices available to a pod that goes into `reserved`; None: into none of the matching reservations."""
    state = devices.state
    for other in there:
        if other is not reserved:
            state = state.moved(left(devices, other), 1)
    return state


def left(devices: NodeDevices, reserved: ReservationInfo, gone: Collection[str] = ()) -> Shares:
    """What the reservation still holds, without the pods `gone` that a dry run removes."""
    there = [devices.held.get(uid) for uid in reserved.owners if uid not in gone]
    return left_of(reserved_shares(reserved.annotation), there)


def within(devices: NodeDevices, state: DeviceState, reserved: ReservationInfo, *, at_most: bool) -> DeviceState:
    """`state` restricted to a reservation's devices, as for a Restricted one; with `at_most`, to the rest of them.

    Types of which the reservation has no device are unchanged. A NIC with virtual functions of its own offers no
    others (DEV-R48).
    """
    shares = reserved_shares(reserved.annotation)
    own: dict[int, Amounts | None] = {}
    caps = {(share.type, share.minor): dict(share.amounts) for share in left(devices, reserved)} if at_most else {}
    index = state.template.index
    for share in shares:
        number = index.get((share.type, share.minor))
        if number is not None:
            none_left = dict.fromkeys((name for name, _ in share.amounts), 0)
            own[number] = caps.get((share.type, share.minor), none_left) if at_most else None
    types = {share.type for share in shares}
    hidden = [number for kind in types for number in state.slots(kind) if number not in own]
    busy = _not_its_own(state.template, shares)
    return state.narrowed({number: cap for number, cap in own.items() if cap is not None}, hidden, busy)


def _not_its_own(template: Template, shares: Shares) -> list[tuple[int, str]]:
    """On NICs of which the reservation has virtual functions, all other functions."""
    has = {(share.type, share.minor, function.bus) for share in shares for function in share.functions}
    return [
        (template.index[where], function.bus)
        for share in shares
        if share.functions and (where := (share.type, share.minor)) in template.index
        for group in template.slots[template.index[where]].groups
        for function in group.functions
        if (*where, function.bus) not in has
    ]


def fits(
    devices: NodeDevices,
    there: Sequence[ReservationInfo],
    reserved: ReservationInfo | None,
    request: DeviceRequest,
    policy: Policy,
) -> Status:
    """Whether the reservation has devices for the request."""
    state = room(devices, there, reserved)
    if reserved is not None and reserved.restricted and holds_devices(reserved):
        state = within(devices, state, reserved, at_most=True)
    return verdict(state, request, policy)


def judge(
    devices: NodeDevices, there: Sequence[ReservationInfo], request: DeviceRequest, policy: Policy, *, required: bool
) -> Status:
    """Whether a matching reservation has devices, or the node beside them."""
    reasons: list[str] = []
    holding = [reserved for reserved in there if holds_devices(reserved)]
    for reserved in holding:
        status = fits(devices, there, reserved, request, policy)
        if status.ok:
            return SUCCESS
        reasons += [PREFIX + reason for reason in status.reasons]
    if holding and required:
        return Status.unschedulable(*reasons)
    return fits(devices, there, None, request, policy)


def choose(  # noqa: PLR0917 all of them make the choice
    devices: NodeDevices,
    there: Sequence[ReservationInfo],
    reserved: ReservationInfo | None,
    request: DeviceRequest,
    policy: Policy,
    numa: Mask | None = None,
    *,
    trying: bool = False,
) -> Choice | Status:
    """Devices for the request, those of the reservation first; `after` of the choice does not describe the node.

    With `numa`, all of them on these NUMA nodes; with `trying`, only the types that decide whether the node passes.
    """
    find = allocate_deciding if trying else allocate
    state = room(devices, there, reserved)
    if reserved is None or not holds_devices(reserved):
        return find(state, request, policy, numa)
    own = find(within(devices, state, reserved, at_most=reserved.restricted), request, policy, numa)
    if isinstance(own, Choice) or reserved.restricted:
        return own
    if trying:
        return allocate_deciding(state, request, policy, numa)
    preferred = frozenset((share.type, share.minor) for share in reserved_shares(reserved.annotation))
    return allocate_preferring(state, request, policy, preferred, numa)
