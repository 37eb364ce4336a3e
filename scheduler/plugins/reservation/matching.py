"""Whether a reservation matches a pod, and the reason if not (RSV-R17 to RSV-R21)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from seatrial.scheduler.api.core import NO_EXECUTE, NO_SCHEDULE, UNSCHEDULABLE_TAINT, Node, NodeSelectorTerm, Pod, Taint
from seatrial.scheduler.api.device import RENAMED
from seatrial.scheduler.api.quantity import Amounts
from seatrial.scheduler.api.reservation import (
    EXACT_MATCH,
    RESERVATION_AFFINITY,
    ReservationAffinity,
    affinity_of,
    exact_names,
    ignores_reservations,
)
from seatrial.scheduler.framework.reservation_info import ReservationInfo
from seatrial.scheduler.plugins.node_selection import term_holds, tolerated


class Match(Enum):
    """The relation of a reservation to a pod that its owners match."""

    MATCHED = auto()
    NAME = auto()  # the pod names another reservation
    AFFINITY = auto()
    UNSCHEDULABLE = auto()
    INEXACT = auto()
    TAINT = auto()


@dataclass(frozen=True, slots=True)
class ReservationRequest:
    """A pod's requirements on reservations."""

    affinity: ReservationAffinity | None
    terms: tuple[NodeSelectorTerm, ...] | None  # required by the affinity; one of them must hold
    exact: tuple[str, ...]
    ignored: bool

    @staticmethod
    def of(pod: Pod) -> "ReservationRequest":
        """Read the pod's labels and annotations.

        Raises:
            AnnotationError: one of them cannot be understood.
        """
        affinity = affinity_of(pod)
        required = affinity.required if affinity is not None else None
        terms = None if required is None else required.terms.node_selector_terms
        return ReservationRequest(affinity, terms, exact_names(pod), ignores_reservations(pod))

    @property
    def name(self) -> str:
        return self.affinity.name if self.affinity is not None else ""


def wait_group(pod: Pod, groups: Sequence[str]) -> str:
    """The pods of one class that the same reservations suit: owners of these groups with the same requirements."""
    marks = pod.metadata.annotations
    return f"for {groups} {marks.get(RESERVATION_AFFINITY)} {marks.get(EXACT_MATCH)} {ignores_reservations(pod)}"


def judge(
    request: ReservationRequest, requests: Amounts, reserved: ReservationInfo, node: Node
) -> tuple[Match, Taint | None]:
    """Steps 3 and later of RSV-R19, for a pod that the owners match; returns also an untolerated taint."""
    reservation, affinity = reserved.reservation, request.affinity
    if request.name:
        if request.name != reserved.name:
            return Match.NAME, None
        exact = exactly(request.exact, requests, reserved.allocatable)
        return (Match.MATCHED if exact else Match.INEXACT), None
    tolerations = affinity.tolerations if affinity is not None else ()
    if (reservation.spec.unschedulable or reservation.metadata.deletion_timestamp is not None) and not tolerated(
        Taint(UNSCHEDULABLE_TAINT, effect=NO_SCHEDULE), tolerations
    ):
        return Match.UNSCHEDULABLE, None
    if affinity is not None:
        for taint in reservation.spec.taints:
            if taint.effect in {NO_SCHEDULE, NO_EXECUTE} and not tolerated(taint, tolerations):
                return Match.TAINT, taint
        if not _selected(request, affinity, reserved, node):
            return Match.AFFINITY, None
    if not exactly(request.exact, requests, reserved.allocatable):
        return Match.INEXACT, None
    return Match.MATCHED, None


def _selected(
    request: ReservationRequest, affinity: ReservationAffinity, reserved: ReservationInfo, node: Node
) -> bool:
    labels = {**node.metadata.labels, **reserved.reservation.metadata.labels}
    if any(labels.get(key) != value for key, value in affinity.reservation_selector.items()):
        return False
    return request.terms is None or any(term_holds(term, reserved.name, labels) for term in request.terms)


def exactly(names: tuple[str, ...], requests: Mapping[str, int], allocatable: Mapping[str, int]) -> bool:
    """Whether the amounts of these resources are equal, up to the first resource that neither has (RSV-R20)."""
    for spelled in names:
        name = RENAMED.get(spelled, spelled)
        if name not in requests and name not in allocatable:
            return True
        if name not in requests or name not in allocatable or requests[name] != allocatable[name]:
            return False
    return True
