"""Status changes of reservations: placed, unschedulable, used, expired. Pure functions (RSV-R1 to RSV-R8).

Each returns the fields of `status` to write as a merge patch, or None if nothing changes. Times are seconds since
1970; conditions have whole seconds.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from seatrial.scheduler.api.clock import read_time, rfc3339
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.durations import go_duration
from seatrial.scheduler.api.quantity import Amounts, quantities
from seatrial.scheduler.api.reservation import (
    AVAILABLE,
    DEFAULT_TTL,
    EXPIRED,
    FAILED,
    READY,
    SCHEDULED,
    SUCCEEDED,
    UNSCHEDULABLE,
    Reservation,
    ReservationCondition,
)
from seatrial.scheduler.api.wire import to_plain
from seatrial.scheduler.plugins.reservation.reserve_pods import template_requests

Status = dict[str, Any]
SOONEST, LATEST = 3.0, 15.0  # seconds until a live reservation is checked again


def placed(reservation: Reservation, node: str, now: float) -> Status:
    """The reservation has a node (RSV-R2).

    Raises:
        ValueError: its template is none.
    """
    stamp = rfc3339(now)
    return {
        "phase": AVAILABLE,
        "nodeName": node,
        "allocatable": quantities(template_requests(reservation)),
        "conditions": _plain(
            [
                ReservationCondition(SCHEDULED, "True", SCHEDULED, "", stamp, stamp),
                ReservationCondition(READY, "True", AVAILABLE, "", stamp, stamp),
            ]
        ),
    }


def refused(reservation: Reservation, message: str, now: float) -> Status | None:
    """No node fits (RSV-R3)."""
    stamp = rfc3339(now)
    before = reservation.status.condition(SCHEDULED)
    if before is not None and before.status == "True":
        after = replace(before, last_probe_time=stamp)
    elif before is None:
        after = ReservationCondition(SCHEDULED, "False", UNSCHEDULABLE, message, stamp, stamp)
    else:
        if (before.status, before.reason, before.message) == ("False", UNSCHEDULABLE, message):
            return None
        since = before.last_transition_time if before.status == "False" else stamp
        after = ReservationCondition(SCHEDULED, "False", UNSCHEDULABLE, message, stamp, since)
    return {"conditions": _with(reservation, after)}


def run_out(reservation: Reservation, now: float) -> Status:
    """The reservation expired, used or not (RSV-R6)."""
    stamp = rfc3339(now)
    before = reservation.status.condition(READY)
    if before is not None and before.status == "False":
        after = replace(before, reason=EXPIRED, last_probe_time=stamp)
    else:
        after = ReservationCondition(READY, "False", EXPIRED, "", stamp, stamp)
    return {"phase": FAILED, "conditions": _with(reservation, after)}


def used(reservation: Reservation, owners: Sequence[Pod], allocated: Amounts, now: float) -> Status | None:
    """The owners changed (RSV-R7); `owners` by uid. An allocateOnce reservation succeeds with the first change."""
    status = reservation.status
    results = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.metadata.namespace,
            "name": pod.metadata.name,
            "uid": pod.metadata.uid,
        }
        for pod in owners
    ]
    amounts_now = quantities(allocated)
    if [owner.uid for owner in status.current_owners] == [
        entry["uid"] for entry in results
    ] and amounts_now == status.allocated:
        return None
    gone = dict.fromkeys(status.allocated.keys() - amounts_now.keys())  # null removes a field in a merge patch
    fields: Status = {"currentOwners": results, "allocated": {**amounts_now, **gone}}
    if reservation.spec.allocate_once:
        stamp = rfc3339(now)
        before = status.condition(READY)
        since = before.last_transition_time if before is not None else stamp
        after = ReservationCondition(READY, "False", SUCCEEDED, "", stamp, since)
        fields |= {"phase": SUCCEEDED, "conditions": _with(reservation, after)}
    return fields


def is_over(reservation: Reservation, now: float) -> bool:
    """Whether the reservation has expired (RSV-R4)."""
    ends = end_of(reservation)
    return not reservation.ended and ends is not None and now > ends


def end_of(reservation: Reservation) -> float | None:
    """The time of expiry; None: never. A ttl of 0 overrides `expires`; what cannot be read counts as absent."""
    spec = reservation.spec
    ttl = go_duration(spec.ttl) if spec.ttl is not None else None
    if ttl == 0:
        return None
    created, expires = read_time(reservation.metadata.creation_timestamp), read_time(spec.expires)
    ends = [] if created is None else [created + (DEFAULT_TTL if ttl is None else ttl)]
    return min(ends if expires is None else [*ends, expires], default=None)


def next_look(reservations: Iterable[Reservation], now: float) -> float:
    """Seconds until the next check of these reservations (RSV-R5)."""
    ends = [end for reservation in reservations if not reservation.ended and (end := end_of(reservation)) is not None]
    return min(max(min(ends, default=now + LATEST) - now, SOONEST), LATEST)


def is_waste(reservation: Reservation, now: float, keep: float, *, node_there: bool) -> bool:
    """Whether an ended reservation can be deleted (RSV-R8); `keep` in seconds."""
    if not (reservation.expired or reservation.status.phase == SUCCEEDED):
        return False
    if not node_there:
        return True
    ready = reservation.status.condition(READY)
    if ready is None:
        return False
    since = read_time(ready.last_transition_time if reservation.expired else ready.last_probe_time)
    return since is not None and now - since > keep


def _with(reservation: Reservation, changed: ReservationCondition) -> list[Any]:
    """All conditions with one of them replaced or added."""
    others = [condition for condition in reservation.status.conditions if condition.type != changed.type]
    if len(others) == len(reservation.status.conditions):
        return _plain([*others, changed])
    return _plain(
        [changed if condition.type == changed.type else condition for condition in reservation.status.conditions]
    )


def _plain(conditions: Iterable[ReservationCondition]) -> list[Any]:
    results: list[Any] = to_plain(list(conditions))
    return results
