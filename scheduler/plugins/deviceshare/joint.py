"""Joint allocation: NICs on the PCIe switches of the pod's GPUs (DEV-R50 to DEV-R54)."""

from collections.abc import Iterable

from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.deviceshare.candidates import Pick, count
from seatrial.scheduler.plugins.deviceshare.hints import DeviceHints
from seatrial.scheduler.plugins.deviceshare.request import TypeRequest
from seatrial.scheduler.plugins.deviceshare.states import DeviceState

NOT_TOGETHER = Status.unschedulable("node(s) Device Joint-Allocate rules violation")


def switches(state: DeviceState, picks: Iterable[Pick]) -> frozenset[str]:
    """PCIe ids of the devices, where known."""
    places = (state.template.slots[pick.number].place for pick in picks)
    return frozenset(place.pcie for place in places if place is not None)


def desired(state: DeviceState, request: TypeRequest, near: frozenset[str], hints: DeviceHints) -> int:
    """Number of devices needed; on the switches of the primary devices, at least one for each (DEV-R52)."""
    own = count(state.template, request)
    return max(own, len(near)) if hints.same_pcie else own
