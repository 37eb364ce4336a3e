"""A transport with fault injection: one client sees a failing API server or network.

Other clients are not affected, and the server behind the transport is the real one. A refused request does not reach
the server. A request whose answer is lost is carried out. Late effects, such as a watch whose resource version is too
old, come from the server.
"""

import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import parse_qs, parse_qsl, urlencode

import msgspec
import orjson

from seatrial.harness import apiserver
from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.transport import Done, OnLine, Request, Response, Stream, Transport

LOST = Response(0, b"connection lost")
_REASONS = {403: "Forbidden", 410: "Expired", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}

_POD_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")

Picks = Callable[[Request], bool]


def every(request: Request) -> bool:  # noqa: ARG001
    """Match all requests."""
    return True


def writes(request: Request) -> bool:
    """Match requests that may change an object."""
    return request.method != "GET"


def bindings(request: Request) -> bool:
    """Match requests that bind a pod."""
    return request.method == "POST" and request.path.endswith("/binding")


def reservation_placements(request: Request) -> bool:
    """Match writes of a reservation's status, which give it its node."""
    return request.method != "GET" and "/reservations/" in request.path and request.path.endswith("/status")


def deletions(request: Request) -> bool:
    """Match requests that delete an object."""
    return request.method == "DELETE"


def nothing(request: Request) -> bool:  # noqa: ARG001
    """Match no request."""
    return False


def volume_writes(request: Request) -> bool:
    """Match requests that change a PersistentVolume or a claim of one."""
    return request.method != "GET" and (
        "/persistentvolumes/" in request.path or "/persistentvolumeclaims/" in request.path
    )


def pod_group_writes(request: Request) -> bool:
    """Match requests that change a PodGroup or its status."""
    return request.method != "GET" and "/podgroups/" in request.path


def announced_evictions(request: Request) -> bool:
    """Match writes that give a migration job the condition with the reason Evicting."""
    return request.method != "GET" and "/podmigrationjobs/" in request.path and b'"Evicting"' in (request.body or b"")


PICKS: dict[str, Picks] = {
    pick.__name__: pick
    for pick in (
        every,
        writes,
        bindings,
        reservation_placements,
        deletions,
        nothing,
        pod_group_writes,
        volume_writes,
        announced_evictions,
    )
}


_EXPECTED = f"one of {', '.join(PICKS)}, bindings_of with a pod, or of_kind with a plural"


class BindingsOf(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="picks", tag="bindings_of"):
    """Matches bindings of pods with the name `pod`.

    Raises:
        ValueError: it is not the name of a pod.
    """

    pod: str

    def __post_init__(self) -> None:
        if not _POD_NAME.fullmatch(self.pod):
            raise ValueError(f"bindings_of: expected the name of a pod, found {self.pod!r}")

    def __call__(self, request: Request) -> bool:
        return bindings(request) and request.path.rsplit("/", 2)[1] == self.pod


class OfKind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="picks", tag="of_kind"):
    """Matches requests about objects of one kind, which `plural` names as in a path."""

    plural: str

    def __call__(self, request: Request) -> bool:
        return self.plural in request.path.partition("?")[0].split("/")


def encode_picks(picks: Picks) -> Any:
    """What another process makes the same of by `decode_picks`: a name, or an object with the name and parameters.

    Raises:
        ValueError: a function that is none of `PICKS` cannot be sent.
    """
    if isinstance(picks, BindingsOf | OfKind):
        return msgspec.to_builtins(picks)
    name = getattr(picks, "__name__", repr(picks))
    if PICKS.get(name) is not picks:
        raise ValueError(f"expected {_EXPECTED} of harness/clusters/fault_injection/transport.py, found {name}")
    return name


def decode_picks(encoded: Any) -> Picks:
    """The requests that `encode_picks` was given.

    Raises:
        ValueError: it is none of its results.
    """
    if isinstance(encoded, str) and encoded in PICKS:
        return PICKS[encoded]
    if isinstance(encoded, dict):
        try:
            return msgspec.convert(encoded, BindingsOf | OfKind)
        except msgspec.ValidationError as error:
            raise ValueError(f"picks: expected {_EXPECTED}, found {encoded!r}: {error}") from error
    raise ValueError(f"picks: expected {_EXPECTED}, found {encoded!r}")


def refusal(code: int) -> Response:
    """Return the Status response of a failing API server."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": _REASONS.get(code, ""),
        "message": f"the API server is in trouble ({code})",
    }
    return Response(code, orjson.dumps(body), {"retry-after": "1"} if code == 429 else {})


def in_pages(request: Request, size: int) -> Request:
    """The request, which asks for at most `size` objects if it is a list; 0: as it is."""
    if not size or request.method != "GET":
        return request
    path, _, text = request.path.partition("?")
    query = dict(parse_qsl(text, keep_blank_values=True))
    if query.get("watch") in {"1", "true"}:
        return request
    return msgspec.structs.replace(request, path=f"{path}?{urlencode({**query, 'limit': str(size)})}")


class Expiry:
    """Collections whose history has begun anew: a watch that does not begin with a list is too old."""

    def __init__(self) -> None:
        self._listed: set[tuple[str, ...]] | None = None  # what was listed since; None: nothing has expired

    def begin(self) -> None:
        """All resource versions that the client knows are too old from now on."""
        self._listed = set()

    def concerns(self, request: Request) -> bool:
        """Whether it is a watch of what was not listed since. A list is noted."""
        if self._listed is None or request.method != "GET":
            return False
        path, _, text = request.path.partition("?")
        query = parse_qs(text)
        first = {
            name: query.get(name, [""])[0] for name in ("watch", "sendInitialEvents", "labelSelector", "fieldSelector")
        }
        collection = (path, first["labelSelector"], first["fieldSelector"])
        if first["watch"] in {"1", "true"} and first["sendInitialEvents"] not in {"1", "true"}:
            return collection not in self._listed
        self._listed.add(collection)
        return False


def expired_watch(request: Request) -> Response:
    """The whole answer to a watch that is too old: an event with a Status, as kube-apiserver sends it.

    Source: k8s.io/apiserver pkg/storage/cacher/cacher.go@v0.37.2, Cacher.Watch: once a request is admitted, errors
    are events and no refusals.
    """
    accepted = request.headers.get("accept", "")
    binary = "protobuf" in accepted and "json" not in accepted
    status = orjson.loads(refusal(410).body)
    kind = "application/vnd.kubernetes.protobuf;stream=watch" if binary else "application/json"
    return Response(200, apiserver.event_line("ERROR", status, protobuf=binary), {"content-type": kind})


class Link(Protocol):
    """Fault injection between client and API server: `FaultyTransport` in this process, `TroubledWay` in another.

    `delay` is the time each answer takes, in seconds. `refused` counts requests that did not reach the server. `lost`
    counts answers that were dropped after the server carried out their requests.
    """

    delay: float

    @property
    def answers(self) -> Counter[int]:
        """Number of answers that the client received, by status code, those of `expire_watches` as 410; 0: the
        connection was lost without an answer."""

    @property
    def refused(self) -> int: ...

    @property
    def lost(self) -> int: ...

    def refuse(self, code: int, picks: Picks = every) -> None:
        """Answer requests for which `picks` is true with this status code, until `heal`."""

    def lose_answers(self, picks: Picks = every) -> None:
        """Pass on requests for which `picks` is true, and report a broken connection to the client."""

    def cut(self) -> None:
        """Break every stream, and let nothing through until `heal`."""

    def break_streams(self) -> None:
        """Break every open stream as a lost connection does."""

    def hold_streams(self) -> None:
        """Buffer the lines of streams until `heal`; the streams stay open."""

    def expire_watches(self) -> None:
        """Break every stream, and tell watches inside of their streams that they are too old, until the client has
        listed their collections again; `heal` does not end it."""

    def cut_lists(self, size: int) -> None:
        """Answer lists in pages of at most `size` objects, until `heal`."""

    def heal(self) -> None:
        """End all faults and deliver buffered lines."""


class FaultyTransport:
    """A transport that passes requests on unless a fault is set; see `Link`. Times are seconds of `clock`."""

    def __init__(self, inner: Transport, clock: Clock) -> None:
        self._inner, self._clock = inner, clock
        self._streams: dict[_Stream, None] = {}  # in the order of their beginning
        self._refusal: tuple[int, Picks] | None = None
        self._lossy: Picks | None = None
        self._expiry = Expiry()
        self._page = 0  # objects of a list in one answer; 0: as many as are asked for
        self._cut = False
        self._dead = False
        self._lives = 0  # an answer to a client that has died since does not reach its successor
        self.holding = False
        self.delay = 0.0
        self.answers: Counter[int] = Counter()
        self.refused = self.lost = 0

    # -- trouble ------------------------------------------------------------------------------------------------------

    def refuse(self, code: int, picks: Picks = every) -> None:
        encode_picks(picks)  # what no other process could be told is refused here, too
        self._refusal = code, picks

    def lose_answers(self, picks: Picks = every) -> None:
        encode_picks(picks)
        self._lossy = picks

    def cut(self) -> None:
        self._cut = True
        self.break_streams()

    def break_streams(self) -> None:
        for stream in list(self._streams):
            stream.broken()

    def hold_streams(self) -> None:
        self.holding = True

    def expire_watches(self) -> None:
        self._expiry.begin()
        self.break_streams()

    def cut_lists(self, size: int) -> None:
        self._page = size

    def heal(self) -> None:
        self._refusal = self._lossy = None
        self._page = 0
        self._cut = self.holding = False
        for stream in list(self._streams):
            stream.catch_up()

    def die(self) -> None:
        """End the client: later requests and answers are dropped; requests that were sent before still arrive."""
        self._dead = True
        for stream in list(self._streams):
            stream.close()

    def begin_again(self) -> None:
        """Serve a new client, after `die`; faults stay as they are set."""
        self._dead = False
        self._lives += 1

    # -- Transport ----------------------------------------------------------------------------------------------------

    def send(self, request: Request, done: Done) -> None:
        if self._dead:
            return
        refused, life = self._refused(request), self._lives
        if refused is None:
            self._expiry.concerns(request)  # notes a list
        if refused is not None:
            self._clock.call_later(self.delay, lambda: self._answer(refused, done, life))
            return
        lose = self._lossy is not None and self._lossy(request)

        def answered(response: Response) -> None:
            self.lost += lose
            self._clock.call_later(self.delay, lambda: self._answer(LOST if lose else response, done, life))

        self._inner.send(in_pages(request, self._page), answered)

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> Stream:
        stream = _Stream(self, on_line, on_end)
        if self._dead:
            return stream
        refused = self._refused(request)
        if refused is not None:
            self._clock.call_later(self.delay, lambda: stream.ended(refused))
            return stream
        if self._expiry.concerns(request):
            self._clock.call_later(self.delay, lambda: self._expire(stream, request))
            return stream
        self._streams[stream] = None
        stream.source = self._inner.stream(request, stream.line, stream.ended)
        return stream

    def _expire(self, stream: "_Stream", request: Request) -> None:
        answer = expired_watch(request)
        stream.line(answer.body)
        stream.ended(Response(200))
        self.answers[410] += 1

    def _refused(self, request: Request) -> Response | None:
        if self._cut:
            return LOST
        if self._refusal is None or not self._refusal[1](request):
            return None
        self.refused += 1
        return refusal(self._refusal[0])

    def _answer(self, response: Response, done: Done, life: int) -> None:
        if not self._dead and life == self._lives:
            self.answers[response.code] += 1
            done(response)

    def forget(self, stream: "_Stream") -> None:
        """The stream is over."""
        self._streams.pop(stream, None)


class _Stream(Stream):
    """A stream that can be broken from here."""

    def __init__(self, owner: FaultyTransport, on_line: OnLine, on_end: Done) -> None:
        self._owner, self._on_line, self._on_end = owner, on_line, on_end
        self._closed = False
        self._held: list[bytes] = []
        self.source: Stream | None = None

    def line(self, line: bytes) -> None:
        if self._owner.holding:
            self._held.append(line)
        elif not self._closed:
            self._on_line(line)

    def catch_up(self) -> None:
        held, self._held = self._held, []
        for line in held:
            self.line(line)

    def ended(self, response: Response) -> None:
        if not self._closed:
            self._closed = True
            self._owner.forget(self)
            self._owner.answers[response.code] += 1
            self._on_end(response)

    def broken(self) -> None:
        if self.source is not None:
            self.source.close()
        self.ended(LOST)

    def close(self) -> None:
        self._closed = True
        self._owner.forget(self)
        if self.source is not None:
            self.source.close()
