"""The free part of a reservation's CPUs and NUMA nodes once pods have taken some of them (NUMA-R62)."""

from collections.abc import Iterable, Mapping

from seatrial.scheduler.framework.reservation_info import ReservationInfo
from seatrial.scheduler.plugins.nodenuma.cache import NodeNuma, allocation_of, status_text
from seatrial.scheduler.plugins.nodenuma.states import NumaAllocation

NOTHING = NumaAllocation()


def has(reserved: ReservationInfo) -> NumaAllocation:
    """Everything allocated to the reservation, used by owners or not."""
    return allocation_of(reserved.numa) or NOTHING


def left(numa: NodeNuma, reserved: ReservationInfo) -> NumaAllocation:
    """The part of the reservation that its pods on the node do not hold."""
    return left_of(has(reserved), (numa.held.get(uid) for uid in reserved.owners))


def left_of(allocation: NumaAllocation, taken: Iterable[NumaAllocation | None]) -> NumaAllocation:
    """What remains of the allocation after these parts of the same CPUs and NUMA nodes."""
    cpus, used = set(allocation.cpus), dict[tuple[int, str], int]()
    for part in taken:
        if part is not None:
            cpus -= part.cpus
            for node, amounts in part.zones:
                for name, value in amounts:
                    used[node, name] = used.get((node, name), 0) + value
    zones = (
        (node, tuple((name, rest) for name, value in amounts if (rest := value - used.get((node, name), 0)) > 0))
        for node, amounts in allocation.zones
    )
    return NumaAllocation(
        frozenset(cpus), allocation.exclusive if cpus else "", tuple(zone for zone in zones if zone[1])
    )


def still_held(annotations: Mapping[str, str], taken: Iterable[NumaAllocation | None]) -> str:
    """`left_of` as an annotation; "" if nothing remains."""
    allocation = allocation_of(annotations)
    rest = left_of(allocation, taken) if allocation is not None else NOTHING
    return status_text(rest) if rest != NOTHING else ""
