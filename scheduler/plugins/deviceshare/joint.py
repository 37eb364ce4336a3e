"""Devices of several types that belong together: NICs on the PCIe switches of the pod's GPUs (R50 to R54)."""

from collections.abc import Iterable

from scheduler.framework.status import Status
from scheduler.plugins.deviceshare.candidates import Pick, count
from scheduler.plugins.deviceshare.plainlist import take
from scheduler.plugins.deviceshare.request import TypeRequest
from scheduler.plugins.deviceshare.scoring import Scorer
from scheduler.plugins.deviceshare.states import DeviceState

NOT_TOGETHER = Status.unschedulable("node(s) Device Joint-Allocate rules violation")


def switches(state: DeviceState, picks: Iterable[Pick]) -> frozenset[str]:
    """PCIe ids of devices, as far as they are known."""
    places = (state.template.slots[one.number].place for one in picks)
    return frozenset(place.pcie for place in places if place is not None)


def beside(
    state: DeviceState, leading: Iterable[Pick], request: TypeRequest, scorer: Scorer, *, same_pcie: bool
) -> list[Pick] | Status:
    """Devices for `request` near those of the leading type, one for each of its switches at best (R52).

    With `same_pcie`, on every one of these switches and on no other.
    """
    near = switches(state, leading)
    desired = count(state.template, request)
    found = take(state, request, scorer, max(desired, len(near)) if same_pcie else desired, near=near)
    if found is None:
        return Status.unschedulable(f"Insufficient {request.type} devices")
    if same_pcie and switches(state, found) != near:
        return NOT_TOGETHER
    return found
