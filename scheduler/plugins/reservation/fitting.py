"""Arithmetic of reservations: what is left in one, what a pod in it may take from the node, and its score."""

from collections.abc import Callable, Collection, Mapping, Sequence

from seatrial.scheduler.api.quantity import Amounts
from seatrial.scheduler.framework.extension_points import MAX_NODE_SCORE
from seatrial.scheduler.framework.reservation_info import ReservationInfo

PODS = "pods"
PREFIX = "Reservation(s) "


def short(requests: Mapping[str, int], allocatable: Mapping[str, int], taken: Mapping[str, int]) -> list[str]:
    """The resources that a node lacks, in the order of the request (RSV-R29).

    `taken` are the amounts in use; `pods` in it counts all pods except the requesting one.
    """
    pods = [PODS] if taken.get(PODS, 0) + 1 > allocatable.get(PODS, 0) else []
    pods += [
        name for name, value in requests.items() if value > allocatable.get(name, 0) - taken.get(name, 0) and value
    ]
    return pods


def taken_beside(
    reserved: ReservationInfo, others: Sequence[ReservationInfo], seen: Mapping[str, int], gone: Sequence[str]
) -> Amounts:
    """The amounts in use on a node for a pod that goes into `reserved` (RSV-R29).

    `seen`: requested amounts on the node without `reserved` and `others`, which are all matching reservations there;
    what the others still hold is not available. `gone`: pods that preemption would remove.
    """
    taken = dict(seen)
    for other in others:
        if other is not reserved:
            take_left(taken, other, gone)
    left = reserved.left(gone)
    for name, value in reserved.withheld.items():
        taken[name] = taken.get(name, 0) + min(value, left.get(name, 0))
    return taken


def take_left(taken: Amounts, reserved: ReservationInfo, gone: Sequence[str]) -> None:
    """Add what a reservation still holds to the amounts in use. Its places for pods are not places on the node."""
    for name, value in reserved.left(gone).items():
        if name != PODS:
            taken[name] = taken.get(name, 0) + value


def lacking(
    requests: Mapping[str, int],
    reserved: ReservationInfo,
    gone: Sequence[str] = (),
    *,
    detailed: bool = False,
    ignores: Callable[[str], bool] = lambda _: False,
) -> list[str]:
    """Why a Restricted reservation has too little left, with Koordinator's text (RSV-R31).

    `ignores`: whether a resource is not checked by configuration.
    """
    reasons: list[str] = []
    most = reserved.allocatable.get(PODS)
    inside = sum(uid not in gone for uid in reserved.owners)
    if most is not None and inside + 1 > most:
        reasons.append(_reason("Too many pods", 1, inside, most, detailed=detailed))
    used = reserved.allocated_but(gone)
    for name in strict_names(reserved):
        request, taken = requests.get(name, 0), used.get(name, 0)
        capacity = reserved.allocatable[name] - reserved.withheld.get(name, 0)
        if request and request > capacity - taken and not ignores(name):
            reasons.append(_reason(f"Insufficient {name}", request, taken, capacity, detailed=detailed))
    return reasons


def strict_names(reserved: ReservationInfo) -> Collection[str]:
    """The resources that a Restricted reservation limits: those named, or all that it has."""
    named = [name for name in reserved.allocatable if name in reserved.strict]
    return [name for name in named or reserved.allocatable if name != PODS]


def _reason(text: str, amount: int, used: int, capacity: int, *, detailed: bool) -> str:
    more = f", requested: {amount}, used: {used}, capacity: {capacity}" if detailed else ""
    return f"{PREFIX}{text}{more}"


def shares(requests: Mapping[str, int], allocatable: Mapping[str, int]) -> bool:
    """Whether a reservation has something of what a pod asks; it has if both are empty."""
    return not requests.keys().isdisjoint(allocatable) or not (requests or allocatable)


def worth(requests: Mapping[str, int], reserved: ReservationInfo) -> int:
    """The utilisation of the reservation with the pod, 0 to 100 (RSV-R37): a tighter fit scores higher.

    A reservation without amounts, made for a pod without requests, is a place for it: it fits as tightly as can be.
    """
    capacities = {name: value for name, value in reserved.allocatable.items() if value > 0}
    if not requests or not capacities:
        return 0 if requests or capacities else MAX_NODE_SCORE
    allocated = reserved.allocated
    total = 0
    for name, capacity in capacities.items():
        amount = requests.get(name, 0) + allocated.get(name, 0)
        total += MAX_NODE_SCORE * amount // capacity if amount <= capacity else 0
    return total // len(capacities)
