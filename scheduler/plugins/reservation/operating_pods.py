"""Pods in operating mode `Reservation`: running pods whose place other pods may take (RSV-R23).

Such a pod acts as a reservation for one owner, with the policy Aligned. Follows Koordinator
pkg/scheduler/frameworkext/reservation_info.go `NewReservationInfoFromPod`.
"""

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.reservation import (
    ALIGNED,
    AVAILABLE,
    Reservation,
    ReservationSpec,
    ReservationStatus,
    is_operating_reservation,
    owners_of,
)


def offers_place(pod: Pod) -> bool:
    """Whether other pods may take the pod's place now: it runs and is Ready."""
    if not is_operating_reservation(pod) or pod.status.phase != "Running":
        return False
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)


def as_reservation(pod: Pod) -> Reservation:
    """The reservation that the pod is, with the pod's metadata.

    Raises:
        AnnotationError: its owners cannot be understood.
    """
    spec = ReservationSpec(template={}, owners=owners_of(pod), allocate_once=True, allocate_policy=ALIGNED)
    return Reservation(pod.metadata, spec, ReservationStatus(AVAILABLE, node_name=pod.spec.node_name))
