"""NUMA hints of a pod's devices, for the alignment of devices, CPUs and memory (DEV-R55, DEV-R56, DEV-R58)."""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

from seatrial.scheduler.api.numa import MAX_NUMA_NODES
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.deviceshare.allocator import allocate_deciding, weighed
from seatrial.scheduler.plugins.deviceshare.candidates import count, selected
from seatrial.scheduler.plugins.deviceshare.gpus import Policy
from seatrial.scheduler.plugins.deviceshare.request import DeviceRequest
from seatrial.scheduler.plugins.deviceshare.shares import Shares
from seatrial.scheduler.plugins.deviceshare.states import Choice, DeviceState, Template
from seatrial.scheduler.plugins.numahints import Hint, Mask

SAME_CARDS_SCORE = 500  # above the maximum CPU score: the same cards outweigh it

TOO_FEW_THERE = Status.unresolvable("Insufficient NUMA Scoped Devices")


def hints(state: DeviceState, request: DeviceRequest, policy: Policy) -> Mapping[str, Sequence[Hint]] | Status:
    """For each requested type, every set of NUMA nodes that has all devices of the pod, smallest first.

    Or the status, if no set does.
    """
    return hints_by(state.template, request, lambda mask: allocate_deciding(state, request, policy, mask))


def hints_by(
    template: Template, request: DeviceRequest, choose: Callable[[Mask], Choice | Status]
) -> Mapping[str, Sequence[Hint]] | Status:
    """The same with another function that chooses the devices on a set of NUMA nodes."""
    ids = sorted(numa_nodes(template))
    if not ids:
        return {}
    everywhere = _try(template, request, frozenset(ids), choose)
    if isinstance(everywhere, Status):
        return everywhere
    best = _cards(everywhere.holding.shares)
    feasible: list[tuple[Mask, int]] = []
    for size in range(1, len(ids) + 1):
        for chosen in combinations(ids, size):
            result = _try(template, request, frozenset(chosen), choose)
            if not isinstance(result, Status):
                feasible.append((frozenset(chosen), SAME_CARDS_SCORE * (_cards(result.holding.shares) == best)))
    least = len(feasible[0][0])
    listed = [Hint(mask, len(mask) == least, score) for mask, score in feasible]
    return {part.type: listed for part in weighed(template, request)}


def numa_nodes(template: Template) -> Mask:
    """The NUMA nodes of the devices, where known; none if they are more than a node can have."""
    numas = frozenset(slot.place.numa for slot in template.slots if slot.place is not None and slot.place.numa >= 0)
    return numas if len(numas) <= MAX_NUMA_NODES else frozenset()


def held_to(template: Template, mask: Mask | None) -> Mask | None:
    """The NUMA nodes that devices must be on, given the pod's affinity; None if no device has a known NUMA node."""
    return mask if mask is not None and numa_nodes(template) else None


def _try(
    template: Template, request: DeviceRequest, mask: Mask, choose: Callable[[Mask], Choice | Status]
) -> Choice | Status:
    for part in weighed(template, request):
        there = [
            number
            for number in selected(template, part)
            if (place := template.slots[number].place) is not None and place.numa in mask
        ]
        if there and len(there) < count(template, part):
            return TOO_FEW_THERE
    return choose(mask)


def _cards(shares: Shares) -> set[int]:
    return {share.minor for share in shares if share.type == "gpu"}
