"""What Reservation adds to the scheduler: Reservation objects, which are scheduled as pods, a route and metrics."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.reservation import (
    RESERVATION_AFFINITY,
    RESERVATIONS_PATH,
    Reservation,
    ignores_reservations,
)
from seatrial.scheduler.framework.collaborators import Watch
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.reservation.args import SelectorIndexArgs
from seatrial.scheduler.plugins.reservation.cache import UNREADABLE, ReservationCache
from seatrial.scheduler.plugins.reservation.controller import ReservationController
from seatrial.scheduler.plugins.reservation.diagnosis import reservation_note
from seatrial.scheduler.plugins.reservation.matching import wait_group
from seatrial.scheduler.plugins.reservation.metrics import phases, resources
from seatrial.scheduler.plugins.reservation.selector_index import SelectorIndex
from seatrial.scheduler.plugins.reservation.summary import summary_of
from seatrial.scheduler.serving.exposition import Family, sample
from seatrial.scheduler.serving.routes import RequestContext, json

PLUGIN = "Reservation"


def register(handle: Handle) -> None:
    """Register watches, the controller, the route and metrics. Call after the plugins of all profiles are built."""
    book = ReservationCache.of(handle)
    take_in = partial(_set, handle, book)
    handle.control(lambda context: ReservationController(handle, context, take_in))
    handle.watch(
        Watch(
            RESERVATIONS_PATH, Reservation, take_in, lambda reservation: _remove(handle, book, reservation.metadata.uid)
        )
    )
    handle.serve(
        f"plugins/{PLUGIN}/nodeReservations/:nodeName",
        lambda request: json(summary_of(book, handle.cache, request.parameters["nodeName"])),
    )
    handle.serve(f"plugins/{PLUGIN}/reservationSelectorIndex", lambda request: json(_index_view(book, request)))
    handle.export(lambda: _families(book))
    handle.count_pods_as(lambda pod: _as_counted(handle, book, pod))
    handle.explain_rejections(_explained)
    handle.on_pod_left(book.remove_operating)


def _set(handle: Handle, book: ReservationCache, reservation: Reservation) -> None:
    """A reservation was added or changed: its reserve pod is handled like any pod."""
    uid = reservation.metadata.uid
    if _is_older(reservation, book.known.get(uid)):
        return
    before = book.find(uid)
    try:
        pod = book.set(reservation)
    except UNREADABLE as error:
        handle.complain(f"reservation {reservation.name}: {error}")
        handle.intake.remove_pod(uid)
        return
    placed = handle.cache.placed(uid)
    if placed is not None and not pod.spec.node_name and not handle.cache.is_assumed(uid):
        handle.intake.remove_pod(uid)  # its status was set back to Pending
    elif placed is not None and placed.priority != pod.spec.priority:
        handle.cache.remove_pod(uid)  # the cache counts priorities by the value that the pod was placed with
    handle.intake.set_pod(pod)
    result = book.find(uid)
    if result is not None and (before is None or before.reservation.spec != reservation.spec):
        _regroup(handle, book)


def _explained(pod: Pod, message: str) -> tuple[str, str] | None:
    """Reason and note of the event about the reservations that a rejected pod might have used."""
    note = reservation_note(message) if RESERVATION_AFFINITY in pod.metadata.annotations else ""
    return ("FailedScheduling-Reservation", note) if note else None


def _is_older(reservation: Reservation, known: Reservation | None) -> bool:
    """Whether a newer version is known, from the answer to a request of this scheduler."""
    if known is None:
        return False
    version, than = integer(reservation.metadata.resource_version), integer(known.metadata.resource_version)
    return version is not None and than is not None and version < than


def _regroup(handle: Handle, book: ReservationCache) -> None:
    """Pods that wait may match a reservation that was added, or ignore it, and match other ones than the rest of their
    class."""
    owners = book.owners

    def mark_of(pod: Pod) -> str | None:
        ignores = ignores_reservations(pod)  # what is reserved is room for it
        return wait_group(pod, owners.groups(pod)) if ignores or owners.knows(pod) else None

    handle.intake.regroup_waiting(mark_of)


def _remove(handle: Handle, book: ReservationCache, uid: str) -> None:
    """A reservation is gone. The pods that allocated from it stay."""
    book.remove(uid)
    handle.intake.remove_pod(uid)


def _as_counted(handle: Handle, book: ReservationCache, pod: Pod) -> Pod:
    """What a pod on a node counts with: one in operating mode Reservation counts without what its owners use."""
    uid = pod.metadata.uid
    before = book.find(uid)
    try:
        counted = book.set_operating(pod)
    except UNREADABLE as error:
        handle.complain(f"pod {pod.metadata.key}: {error}")
        return pod
    result = book.find(uid)
    if (before is None) != (result is None):
        _regroup(handle, book)
    return counted


def _index_view(book: ReservationCache, request: RequestContext) -> dict[str, Any]:
    """The index of the first profile that has one, else an index that is off."""
    index = next((index for index in book.indexes.values() if index.enabled), SelectorIndex(SelectorIndexArgs()))
    return index.view(detail=request.query.get("detail") == "true")


def _families(book: ReservationCache) -> Iterator[Family]:
    for name, help_, samples in (
        ("scheduler_reservation_status_phase", "Which phase each reservation is in.", phases),
        ("scheduler_reservation_resource", "How much of each available reservation is used.", resources),
    ):
        yield name, "gauge", help_, [sample(name, labels, value) for labels, value in samples(book)]
    yield from next((index.families() for index in book.indexes.values() if index.enabled), ())
