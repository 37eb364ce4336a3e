"""Leader election by a Lease, as in client-go: one of several schedulers is the leader, the others are standbys.

The holder of the Lease renews it. The others read it again and again: a record that has not changed for its
`leaseDurationSeconds` is free. Each measures with its own monotonic clock, so differences between clocks and changes of
their time do not matter. A holder that could not renew in time stops before another instance may begin.
"""

import logging
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import msgspec

from seatrial.scheduler.api.clock import Clock, Timer
from seatrial.scheduler.api.durations import required_duration
from seatrial.scheduler.api.transport import Request, Response, Transport
from seatrial.scheduler.api.wire import Wire, decoder, to_json
from seatrial.scheduler.client.rest import refusal

log = logging.getLogger(__name__)

JITTER = 1.2  # client-go's: the renew deadline must exceed the retry period by this factor


class LeaderElection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The part `leaderElection` of a KubeSchedulerConfiguration; durations are Go's, as `15s` or `1m30s`."""

    leader_elect: bool | None = None  # None: not set
    lease_duration: str = "15s"
    renew_deadline: str = "10s"
    retry_period: str = "2s"
    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"

    def check(self) -> None:
        """Refuse values with which two leaders could exist.

        Raises:
            ValueError: with the field, what was expected and what was found.
        """
        spans = {}
        for field in ("leaseDuration", "renewDeadline", "retryPeriod"):
            text = getattr(self, re.sub(r"[A-Z]", lambda item: "_" + item.group().lower(), field))
            try:
                spans[field] = required_duration(text)
            except ValueError as error:
                raise ValueError(f"{field}: {error}") from None
            if spans[field] <= 0:
                raise ValueError(f"{field}: expected more than 0, found {text!r}")
        if spans["leaseDuration"] <= spans["renewDeadline"]:
            raise ValueError(
                f"leaseDuration: expected more than renewDeadline ({self.renew_deadline}),"
                f" found {self.lease_duration!r}"
            )
        if spans["renewDeadline"] <= spans["retryPeriod"] * JITTER:
            raise ValueError(
                f"renewDeadline: expected more than {JITTER} times retryPeriod ({self.retry_period}),"
                f" found {self.renew_deadline!r}"
            )
        if self.resource_lock != "leases":
            raise ValueError(f"resourceLock: expected leases, found {self.resource_lock!r}")
        for field, text in (("resourceName", self.resource_name), ("resourceNamespace", self.resource_namespace)):
            if not text:
                raise ValueError(f"{field}: Required value")


class _LeaseSpec(Wire, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Lease(Wire, frozen=True):
    metadata: dict[str, Any]  # unchanged, because it is written back
    spec: _LeaseSpec = _LeaseSpec()


_decode = decoder(_Lease)


class Elector:
    """One candidate. `on_leading` is called when it is elected, `on_lost` when it has to stop; it ends with that."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        settings: LeaderElection,
        identity: str,
        *,
        on_leading: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        """`identity` must be unique, also among earlier runs on this machine."""
        self._transport, self._clock, self._identity = transport, clock, identity
        self._on_leading, self._on_lost = on_leading, on_lost
        self._holds_for = required_duration(settings.lease_duration)
        self._deadline = required_duration(settings.renew_deadline)
        self._retry = required_duration(settings.retry_period)
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{quote(settings.resource_namespace)}/leases"
        self._name = settings.resource_name
        self._path = f"{self._collection}/{quote(self._name)}"
        self._seen: _LeaseSpec | None = None  # the record as last read, and since when it is unchanged
        self._seen_at = 0.0
        self._known: _Lease | None = None  # the record that we wrote, until another candidate writes
        self._attempt = 0  # number of the attempt; responses to earlier ones are ignored
        self._next: Timer | None = None
        self._limit: Timer | None = None
        self._stopped = False
        self.leading = False

    def start(self) -> None:
        self._try()

    def stop(self, done: Callable[[], None] = lambda: None) -> None:
        """Stop. A leader releases the Lease. `done` is called in any case.

        If a renewal is under way, its response is not awaited: the release then conflicts, and is written again on the
        Lease as it is now.
        """
        self._stopped = True
        for timer in (self._next, self._limit):
            if timer is not None:
                timer.cancel()
        if not self.leading:
            self._clock.call_soon(done)
            return
        self.leading = False
        if self._known is not None:
            self._release(self._known, done)
        else:
            self._read_and_release(done)

    def _release(self, lease: _Lease, done: Callable[[], None]) -> None:
        now = self._clock.micro_timestamp()
        free = _LeaseSpec("", 1, now, now, lease.spec.lease_transitions)
        self._put(lease, free, lambda response: self._read_and_release(done) if response.code == 409 else done())

    def _read_and_release(self, done: Callable[[], None]) -> None:
        def read(response: Response) -> None:
            body = _decode(response.body) if response.ok else None
            if body is not None and body.spec.holder_identity == self._identity:
                self._release(body, done)
            else:
                done()

        self._transport.send(Request("GET", self._path), read)

    # -- attempts -----------------------------------------------------------------------------------------------------

    def _try(self) -> None:
        """Try to acquire or renew the Lease. The next attempt follows after a pause."""
        if self._stopped:
            return
        self._attempt += 1
        attempt, began = self._attempt, self._clock.monotonic()
        self._next = self._clock.call_later(self._retry, self._try)
        if self.leading and self._known is not None:
            self._write(self._known, attempt, began)
        else:
            self._transport.send(Request("GET", self._path), lambda response: self._read(response, attempt, began))

    def _read(self, response: Response, attempt: int, began: float) -> None:
        if self._stopped or attempt != self._attempt:
            return
        if response.code == 404:
            self._create(attempt, began)
            return
        if not response.ok:
            log.warning("leader lease-unread name=%s why=%s", self._name, refusal(response))
            return
        body = _decode(response.body)
        if body.spec != self._seen:
            self._seen, self._seen_at = body.spec, self._clock.monotonic()
        holder = body.spec.holder_identity
        promised = float(body.spec.lease_duration_seconds or 0)
        if holder and holder != self._identity and self._clock.monotonic() < self._seen_at + promised:
            return
        self._write(body, attempt, began)

    def _create(self, attempt: int, began: float) -> None:
        now = self._clock.micro_timestamp()
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name},
            "spec": _LeaseSpec(self._identity, self._whole_seconds, now, now, 0),
        }
        self._transport.send(
            Request("POST", self._collection, to_json(body)), lambda response: self._written(response, attempt, began)
        )

    def _write(self, lease: _Lease, attempt: int, began: float) -> None:
        spec, now = lease.spec, self._clock.micro_timestamp()
        ours = spec.holder_identity == self._identity
        changes = (spec.lease_transitions or 0) + (not ours)
        since = spec.acquire_time if ours else now
        record = _LeaseSpec(self._identity, self._whole_seconds, since, now, changes)
        self._put(lease, record, lambda response: self._written(response, attempt, began))

    def _put(self, lease: _Lease, spec: _LeaseSpec, done: Callable[[Response], None]) -> None:
        """Replace the record if it has not changed."""
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": lease.metadata, "spec": spec}
        self._transport.send(Request("PUT", self._path, to_json(body)), done)

    @property
    def _whole_seconds(self) -> int:
        return max(1, int(self._holds_for))

    def _written(self, response: Response, attempt: int, began: float) -> None:
        if self._stopped or attempt != self._attempt:
            return
        if not response.ok:
            self._known = None  # another candidate wrote, or our write had no response: read again
            log.info("leader lease-unwritten name=%s why=%s", self._name, refusal(response))
            return
        self._known = _decode(response.body)
        self._seen, self._seen_at = self._known.spec, began
        if self._limit is not None:
            self._limit.cancel()
        # Counted from the request, because other candidates count from a later moment.
        left = began + self._deadline - self._clock.monotonic()
        self._limit = self._clock.call_later(left, self._give_up)
        if not self.leading and left > 0:
            self.leading = True
            log.info("leader elected lease=%s identity=%s", self._name, self._identity)
            self._on_leading()

    def _give_up(self) -> None:
        """The Lease was not renewed in time: another candidate may soon become the leader. This one has ended."""
        if self._stopped or not self.leading:
            return
        self.leading = False
        self._stopped = True
        log.error("leader lost lease=%s identity=%s", self._name, self._identity)
        self._on_lost()
