"""Annotations of pods and statuses of reservations, parsed by the auditor's own code, not by the scheduler's."""

import orjson

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.extension import POD_GROUP_LABEL
from seatrial.scheduler.api.podgroup import GANG_NAME, POD_GROUP_NAME_LABEL
from seatrial.scheduler.api.reservation import (
    AVAILABLE,
    RESERVATION_ALLOCATED,
    RESERVATION_IGNORED,
    RESTRICTED_OPTIONS,
    Reservation,
)


def gang_of(pod: Pod) -> str:
    """The key of the gang that the pod is a member of; "" without one."""
    labels = pod.metadata.labels
    name = labels.get(POD_GROUP_LABEL) or labels.get(POD_GROUP_NAME_LABEL) or pod.metadata.annotations.get(GANG_NAME)
    return f"{pod.metadata.namespace}/{name}" if name else ""


def reservation_uid(pod: Pod) -> str:
    """The uid of the reservation that a pod was placed in; "" if none, or if the annotation cannot be read."""
    content = pod.metadata.annotations.get(RESERVATION_ALLOCATED)
    try:
        document = orjson.loads(content) if content else {}
    except orjson.JSONDecodeError:
        return ""
    uid = document.get("uid") if isinstance(document, dict) else None
    return uid if isinstance(uid, str) else ""


def ignores_reservations(pod: Pod) -> bool:
    """Whether the pod may use what reservations hold, by label or by annotation."""
    values = (pod.metadata.labels.get(RESERVATION_IGNORED), pod.metadata.annotations.get(RESERVATION_IGNORED))
    return any(value == "true" for value in values)


def holds_resources(reservation: Reservation) -> bool:
    """Whether a reservation holds resources on a node."""
    return reservation.status.phase == AVAILABLE and reservation.status.node_name != ""


def limited_resources(reservation: Reservation) -> frozenset[str]:
    """The resources that a Restricted reservation limits: those of its annotation, or all that it has.

    As Koordinator does: names that it does not have do not count, and without any other all are limited.
    """
    content = reservation.metadata.annotations.get(RESTRICTED_OPTIONS)
    try:
        document = orjson.loads(content) if content else {}
    except orjson.JSONDecodeError:
        document = {}
    listed = document.get("resources") if isinstance(document, dict) else None
    named = {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else set()
    have = frozenset(reservation.status.allocatable)
    return have & named or have
