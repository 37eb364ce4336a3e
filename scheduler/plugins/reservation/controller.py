"""Reservation controller: writes the status of reservations and expires them.

`lifecycle.py` decides what to write. This module sends it and runs timers.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from seatrial.scheduler.api.clock import Timer
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.reservation import (
    RESERVATION_ALLOCATED,
    RESERVATION_NAME,
    RESERVATIONS_PATH,
    Reservation,
    allocation,
    is_reserve_pod,
)
from seatrial.scheduler.api.transport import Done, Response
from seatrial.scheduler.api.wire import decoder
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.client.read_back import read_back, unclear
from seatrial.scheduler.client.rest import pod_path, refusal
from seatrial.scheduler.framework.controllers import ControllerContext, DecisionWriter
from seatrial.scheduler.framework.decisions import Bind, Reject
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.reservation import lifecycle
from seatrial.scheduler.plugins.reservation.args import ReservationArgs
from seatrial.scheduler.plugins.reservation.cache import ReservationCache
from seatrial.scheduler.plugins.reservation.plugin import Reservation as ReservationPlugin

log = logging.getLogger(__name__)

_decode = decoder(Reservation)

NOT_ACTIVE = "reservation is not active"
RETRY_PAUSE = 1.0  # seconds before a status or an annotation that was refused is written again


class ReservationController(DecisionWriter):
    """Writes decisions about reservations, and expires reservations."""

    def __init__(self, handle: Handle, context: ControllerContext, take_in: Callable[[Reservation], None]) -> None:
        """`take_in` is called for a reservation as an answer has it, as for one of a watch."""
        self._cache, self._book, self._args = handle.cache, ReservationCache.of(handle), _args_of(handle)
        self._rest, self._clock, self._events = context.rest, context.clock, context.events
        self._results, self._work, self._set = context.results, context.work, take_in
        self._writing: set[str] = set()
        self._timer: Timer | None = None
        self._collected = self._clock.monotonic()
        self._stopped = False

    # -- decisions ----------------------------------------------------------------------------------------------------

    def writes(self, pod: Pod) -> bool:
        """Whether the pod stands for a reservation."""
        return is_reserve_pod(pod)

    def bind(self, decision: Bind, settled: Callable[[], None]) -> None:
        """Write the node of a reservation (RSV-R41): annotations first, then the status.

        `settled` is called once, with the API server's final answer.
        """
        uid = decision.info.uid
        reservation = self._book.known.get(uid)
        if reservation is None or reservation.ended:
            self._failed(decision, NOT_ACTIVE, settled, retry=False)
            return
        version = reservation.metadata.resource_version

        def annotated(response: Response) -> None:
            if response.ok:
                self._place(decision, reservation, settled, version=_decode(response.body).metadata.resource_version)
            else:
                self._failed(decision, refusal(response), settled, retry=response.code != 404)

        if decision.annotations or decision.stale:
            body = {"metadata": {"annotations": {**dict.fromkeys(decision.stale), **decision.annotations}}}
            self._rest.merge(f"{RESERVATIONS_PATH}/{reservation.name}", body, annotated, uid=uid, version=version)
        else:
            self._place(decision, reservation, settled, version=version)

    def _place(self, decision: Bind, reservation: Reservation, settled: Callable[[], None], *, version: str) -> None:
        def written(response: Response) -> None:
            if response.ok:
                self._placed(decision, reservation, response, settled)
            elif unclear(response) or response.code == 409:  # 409: the first of several tries may have been accepted
                self._look(decision, reservation, refusal(response), settled)
            else:
                self._failed(decision, refusal(response), settled, retry=response.code != 404)

        marks = {**reservation.metadata.annotations, **decision.annotations}  # they may have its size
        marked = replace(reservation, metadata=replace(reservation.metadata, annotations=marks))
        try:
            status = lifecycle.placed(marked, decision.node, self._clock.now())
        except ValueError as error:
            self._failed(decision, str(error), settled, retry=False)
            return
        self._write(reservation, status, written, version=version)

    def _placed(
        self, decision: Bind, reservation: Reservation, response: Response, settled: Callable[[], None]
    ) -> None:
        settled()
        self._results.bound(decision.info.uid)
        self._take_in(response)
        self._hand_over(reservation)
        note = f"Successfully assigned {reservation.name} to {decision.node}"
        self._events.normal(decision.info.pod, "Scheduled", "Binding", note)
        self._work()

    def _look(self, decision: Bind, reservation: Reservation, why: str, settled: Callable[[], None]) -> None:
        """Find out whether the status was accepted; until then the reservation keeps its resources."""

        def shown(response: Response) -> None:
            if response.code == 404:
                self._failed(decision, why, settled, retry=False)
                return
            body = _decode(response.body)
            if body.metadata.uid != decision.info.uid:
                self._failed(decision, why, settled, retry=False)
            elif body.ended:
                self._failed(decision, NOT_ACTIVE, settled, retry=False)
            elif not body.status.node_name:
                self._failed(decision, why, settled, retry=True)
            elif body.status.node_name == decision.node and all(
                body.metadata.annotations.get(key) == value for key, value in decision.annotations.items()
            ):
                self._placed(decision, reservation, response, settled)
            else:
                text = f"placed on {body.status.node_name} by another scheduler"
                self._failed(decision, text, settled, retry=False)
                self._set_known(body)

        read_back(self._rest, f"{RESERVATIONS_PATH}/{reservation.name}", shown)

    def _take_in(self, response: Response) -> None:
        """Use the reservation as the API server answers it: its event may be late, and its owners may come before."""
        with suppress(msgspec.MsgspecError):
            body = _decode(response.body)
            if body.available:
                self._set_known(body)

    def _set_known(self, body: Reservation) -> None:
        """Take an answer in, unless the watch has shown the reservation's end before it."""
        if body.metadata.uid in self._book.known:
            self._set(body)

    def _hand_over(self, reservation: Reservation) -> None:
        """Write to the pods that a reservation has taken over that they are in it."""
        for info in self._book.taken_over.pop(reservation.metadata.uid, ()):
            self._mark(info, reservation)

    def _mark(self, info: PodInfo, reservation: Reservation) -> None:
        """Write to a pod that it is in the reservation, until that is accepted or refused for good."""
        uid = reservation.metadata.uid

        def patched(response: Response) -> None:
            if unclear(response) and self._book.find(uid) is not None and not self._stopped:
                self._clock.call_later(RETRY_PAUSE, partial(self._mark, info, reservation))
            elif not response.ok:
                log.warning("not taken over pod=%s why=%s", info.key, refusal(response))
                self._book.withdraw(info.uid)

        messages = {RESERVATION_ALLOCATED: allocation(reservation.name, uid)}
        self._rest.merge(pod_path(info.pod), {"metadata": {"annotations": messages}}, patched, uid=info.uid)

    def _failed(self, decision: Bind, why: str, settled: Callable[[], None], *, retry: bool) -> None:
        settled()
        log.warning("bind failed reservation=%s node=%s why=%s", _name(decision), decision.node, why)
        self._results.bind_failed(decision.info.uid, why, retry=retry)

    def reject(self, decision: Reject) -> None:
        """Write to the reservation why no node is feasible."""
        self._events.warning(decision.info.pod, "FailedScheduling", "Scheduling", decision.message)
        reservation = self._book.known.get(decision.info.uid)
        status = reservation and lifecycle.refused(reservation, decision.message, self._clock.now())
        if reservation is not None and status:
            self._write(reservation, status, lambda _: None, version=reservation.metadata.resource_version)

    # -- what happens to those that are placed ------------------------------------------------------------------------

    def work(self) -> None:
        """Write the owners of changed reservations and set the timer."""
        for uid in [uid for uid in self._book.moved if uid not in self._writing]:
            self._book.moved.discard(uid)
            self._clock.attempt("ReservationController._sync", uid, partial(self._sync, uid))
        strays, self._book.strays = self._book.strays, set()
        if self._args.clean_expired_reservation_allocated:
            for uid in strays:
                self._clock.attempt("ReservationController._disown", uid, partial(self._disown, uid))
        if self._timer is None and self._book.known and not self._stopped:
            wait = float(self._args.gc_interval_seconds)
            with self._clock.faults.guard("lifecycle.next_look"):
                wait = min(wait, lifecycle.next_look(self._book.known.values(), self._clock.now()))
            self._timer = self._clock.call_later(wait, self._sweep)

    def stop(self) -> None:
        """Stop writing."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _sync(self, uid: str) -> None:
        reserved = self._book.find(uid)
        if reserved is None or reserved.pod is not None:  # a pod in operating mode Reservation has no such status
            return
        owners = self._book.pods_in(uid)
        inside = {info.uid: reserved.owners[info.uid] for info in owners if info.uid in reserved.owners}
        gone = [owner for owner in reserved.owners if owner not in inside]
        allocated = reserved.allocated_but(gone)
        status = lifecycle.used(reserved.reservation, [info.pod for info in owners], allocated, self._clock.now())
        if status is not None:
            self._change(reserved.reservation, status)

    def _disown(self, uid: str) -> None:
        """Remove the annotation of a deleted reservation from a pod that allocated from it (RSV-R9)."""
        info = self._cache.placed(uid)
        if info is None or RESERVATION_ALLOCATED not in info.pod.metadata.annotations:
            return

        def patched(response: Response) -> None:
            if not response.ok and response.code != 404:
                log.warning("annotation not removed pod=%s why=%s", info.key, refusal(response))

        metadata = {"annotations": {RESERVATION_ALLOCATED: None}}  # a merge patch takes away what is null
        self._rest.merge(pod_path(info.pod), {"metadata": metadata}, patched, uid=uid)

    def _change(self, reservation: Reservation, status: dict[str, Any]) -> None:
        uid = reservation.metadata.uid
        self._writing.add(uid)

        def written(response: Response) -> None:
            self._writing.discard(uid)
            if not response.ok and response.code != 404:
                log.info("status not written reservation=%s why=%s", reservation.name, refusal(response))
                self._book.moved.add(uid)
                self._clock.call_later(RETRY_PAUSE, self._work)
            elif uid in self._book.moved:
                self._work()

        self._write(reservation, status, written, version=reservation.metadata.resource_version)

    def _sweep(self) -> None:
        self._timer = None
        if self._stopped:
            return
        now = self._clock.now()
        collect = self._clock.monotonic() - self._collected >= self._args.gc_interval_seconds
        if collect:
            self._collected = self._clock.monotonic()
        for reservation in list(self._book.known.values()):
            with self._clock.faults.guard("ReservationController._expire", reservation.name):
                self._expire(reservation, now, collect=collect)
        self._work()

    def _expire(self, reservation: Reservation, now: float, *, collect: bool) -> None:
        """End a reservation whose time is over or whose node is gone; with `collect` delete one that ended long ago."""
        node = reservation.status.node_name
        node_there = self._cache.find(node) is not None
        if node and not reservation.ended and (lifecycle.is_over(reservation, now) or not node_there):
            if reservation.metadata.uid not in self._writing:
                self._change(reservation, lifecycle.run_out(reservation, now))
        elif (
            collect
            and not self._args.disable_garbage_collection
            and lifecycle.is_waste(reservation, now, self._args.gc_duration_seconds, node_there=node_there)
        ):
            path = f"{RESERVATIONS_PATH}/{reservation.name}"
            self._rest.delete(path, uid=reservation.metadata.uid, done=lambda _: None)

    def _write(self, reservation: Reservation, status: dict[str, Any], done: Done, *, version: str = "") -> None:
        path = f"{RESERVATIONS_PATH}/{reservation.name}/status"
        self._rest.merge(path, {"status": status}, done, uid=reservation.metadata.uid, version=version)


def _args_of(handle: Handle) -> ReservationArgs:
    """The arguments of the first profile that has the plugin Reservation."""
    plugins = (plugin for runner in handle.runners.values() for plugin in runner.plugins)
    return next((plugin.args for plugin in plugins if isinstance(plugin, ReservationPlugin)), ReservationArgs())


def _name(decision: Bind) -> str:
    return decision.info.pod.metadata.annotations.get(RESERVATION_NAME, "")
