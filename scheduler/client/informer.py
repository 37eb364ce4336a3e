"""Informer: a local copy of one kind of object by list and watch.

Handlers get `set` for each object that exists or changed, and `gone` for each deleted one, in the API server's order.
After a gap (resource version expired, or a broken stream that cannot be resumed) it lists again; known objects that are
missing from the new list are gone.

An object that cannot be decoded, or that its handler refuses, costs that object alone: it is logged with its name,
counted, and read again after growing pauses. Until then its last good version stays. An exception of a handler goes to
`on_error`, or is a fault of the object, which is read again in the same way.
"""

import logging
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Generic, Protocol, TypeVar
from urllib.parse import quote_plus, urlencode

import msgspec

from seatrial.scheduler.api.clock import Clock, Timer
from seatrial.scheduler.api.quantity import QuantityError
from seatrial.scheduler.api.transport import Request, Response, Stream, Transport
from seatrial.scheduler.api.wire import ApiStatus, ObjectMeta, RawList, Wire, decoder
from seatrial.scheduler.client.rest import refusal

log = logging.getLogger(__name__)

PAGE = 5000
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
FIRST_REREAD, LONGEST_REREAD = 1.0, 300.0  # seconds until an object that was not decoded is read again
_GONE = 410
_PRESENT = frozenset({"ADDED", "MODIFIED"})
_NOT_SHOWN = frozenset({403, 404})  # the server does not serve the kind, or denies access
_UNREADABLE = (msgspec.MsgspecError, ValueError)
_REFUSED = (msgspec.MsgspecError, QuantityError)  # raised by a handler that reads a value of the object


class Following(Protocol):
    """Any object with metadata."""

    @property
    def metadata(self) -> ObjectMeta: ...


K = TypeVar("K", bound=Following)


class _Head(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class _Event(Wire, frozen=True):
    type: str
    object: msgspec.Raw


_decode_list = decoder(RawList)
_decode_event = decoder(_Event)
_decode_head = decoder(_Head)
_decode_status = decoder(ApiStatus)


@lru_cache(maxsize=256)  # the suites start a scheduler with two dozen informers for each case
def _query(parameters: tuple[tuple[str, str], ...]) -> str:
    return urlencode(parameters)


class Informer(Generic[K]):
    """Follows `path`; `decode` decodes one JSON object."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        path: str,
        decode: Callable[[bytes], K],
        *,
        on_set: Callable[[K], None],
        on_gone: Callable[[K], None],
        on_synced: Callable[[], None],
        on_batch: Callable[[], None],
        selector: dict[str, str] | None = None,
        optional: bool = False,
        errors: Counter[str] | None = None,
        on_error: Callable[[Exception, K], None] | None = None,
    ) -> None:
        """`on_batch` is called after each event and after a list. `optional`: the kind need not be served.
        `errors` counts objects that were not decoded, by `path`. `on_error` gets the exceptions of `on_set` and
        `on_gone` with the object; without it they are faults of the clock."""
        self._transport = transport
        self._clock = clock
        self._path, self._work = path, f"Informer {path}"
        self._decode = decode
        self._on_set, self._on_gone, self._on_synced, self._on_batch = on_set, on_gone, on_synced, on_batch
        self._selector = selector or {}
        self._optional = optional
        self._errors = errors if errors is not None else Counter()
        self._on_error = on_error
        self._unread: dict[str, tuple[Timer, float]] = {}  # uid → the next attempt, and the pause before it
        self._known: dict[str, K] = {}  # by uid
        self._listing: dict[str, K] = {}
        self._version = ""
        self._stream: Stream | None = None
        self._life = 0  # what was sent or planned before `catch_up` has no effect
        self._pause = FIRST_PAUSE
        self._stopped = False
        self.synced = False

    def __len__(self) -> int:
        return len(self._known)

    def start(self) -> None:
        self._list("")

    def catch_up(self) -> None:
        """List again, and call `on_set` for all objects and `on_synced`: the watch may be late, and may not show it."""
        self.synced = False
        self._life += 1
        self._pause = FIRST_PAUSE
        if self._stream is not None:
            self._stream.close()
        self._list("")

    def stop(self) -> None:
        self._stopped = True
        if self._stream is not None:
            self._stream.close()
        for timer, _ in self._unread.values():
            timer.cancel()

    # -- listing ------------------------------------------------------------------------------------------------------

    def _list(self, continue_: str) -> None:
        if self._stopped:
            return
        if not continue_:
            self._listing = {}
        query = _query((*self._selector.items(), ("limit", str(PAGE))))
        if continue_:
            query += f"&continue={quote_plus(continue_)}"
        life = self._life
        self._transport.send(Request("GET", f"{self._path}?{query}"), lambda response: self._listed(response, life))

    def _listed(self, response: Response, life: int) -> None:
        if self._stopped or life != self._life:
            return
        if not response.ok:
            self._list_refused(response)
            return
        try:
            page = _decode_list(response.body)
        except msgspec.MsgspecError as error:
            log.warning("informer list-not-decoded path=%s why=%s", self._path, error)
            self._again(lambda: self._list(""))
            return
        for raw in page.items or ():
            encoded = bytes(raw)
            try:
                listed = self._decode(encoded)
            except Exception as error:  # noqa: BLE001 one object must not stop the others
                uid = self._not_decoded(encoded, error)
                if uid in self._known:
                    self._listing[uid] = self._known[uid]
                continue
            self._listing[listed.metadata.uid] = listed
        if page.metadata.continue_:
            self._list(page.metadata.continue_)
            return
        version = page.metadata.resource_version
        if not self.synced and _is_older(version, self._version):  # the watch has shown all of the list, and more
            self._listing, version = {**self._known}, self._version
        self._take_over(version)

    def _list_refused(self, response: Response) -> None:
        if response.code in _NOT_SHOWN and self._optional and not self.synced:
            log.info("informer absent path=%s why=%s", self._path, refusal(response))
            self.synced = True
            self._on_synced()
        elif not (self._optional and response.code in _NOT_SHOWN):
            log.warning("informer list-refused path=%s why=%s", self._path, refusal(response))
        self._again(lambda: self._list(""))

    def _take_over(self, version: str) -> None:
        before, self._known, self._listing = self._known, self._listing, {}
        for uid, gone in before.items():
            if uid not in self._known:
                self._remove(gone)
        for there in list(self._known.values()):
            try:
                self._on_set(there)
            except Exception as error:  # noqa: BLE001 one object must not stop the others
                self._not_taken(there, error)
        self._version = version
        self._pause = FIRST_PAUSE
        if not self.synced:
            self.synced = True
            self._on_synced()
        self._on_batch()
        self._watch()

    # -- watching -----------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        if self._stopped:
            return
        query = _query((*self._selector.items(), ("watch", "1"), ("allowWatchBookmarks", "1")))
        request = Request("GET", f"{self._path}?{query}&resourceVersion={quote_plus(self._version)}")
        self._stream = self._transport.stream(request, self._on_line, self._ended)

    def _on_line(self, line: bytes) -> None:
        if self._stopped:
            return
        try:
            event = _decode_event(line)
        except msgspec.MsgspecError as error:
            log.warning("informer line-not-decoded path=%s why=%s", self._path, error)
            if self._stream is not None:
                self._stream.close()
            self._again(lambda: self._list(""))
            return
        if event.type == "ERROR":
            self._refused_inside(_decode_status(event.object))
            return
        self._pause = FIRST_PAUSE
        if event.type in _PRESENT:
            self._set(bytes(event.object))
            return
        try:
            head = _decode_head(event.object).metadata
        except msgspec.MsgspecError as error:
            log.warning("informer metadata-not-decoded path=%s why=%s", self._path, error)
            return
        self._version = head.resource_version
        if event.type == "DELETED":
            self._decoded(head)
            known = self._known.pop(head.uid, None)
            if known is not None:
                self._remove(known)
            self._on_batch()

    def _set(self, encoded: bytes) -> None:
        try:
            document = self._decode(encoded)
        except Exception as error:  # noqa: BLE001 one object must not stop the others
            self._not_decoded(encoded, error)
            return
        metadata = document.metadata
        self._version = metadata.resource_version
        self._known[metadata.uid] = document
        try:
            self._on_set(document)
        except Exception as error:  # noqa: BLE001 one object must not stop the others
            self._not_taken(document, error)
        else:
            if self._unread:
                self._decoded(metadata)
        self._on_batch()

    # -- handlers that fail -------------------------------------------------------------------------------------------

    def _not_taken(self, result: K, error: Exception) -> None:
        """`on_set` raised: the object is read again. Its value may be refused only now, or the handler may recover."""
        if isinstance(error, _REFUSED):
            self._failed(result.metadata, error)
            return
        if self._on_error is None:
            self._clock.faults.caught(error, self._work, result.metadata.key)
        else:
            self._on_error(error, result)
        self._read_later(result.metadata)

    def _remove(self, gone: K) -> None:
        try:
            self._on_gone(gone)
        except Exception as error:  # noqa: BLE001 one object must not stop the others
            if self._on_error is None:
                self._clock.faults.not_repeated(error, self._work, gone.metadata.key)
            else:
                self._on_error(error, gone)

    # -- objects that cannot be decoded -------------------------------------------------------------------------------

    def _not_decoded(self, encoded: bytes, error: Exception) -> str:
        """Note an object that cannot be decoded. Returns its uid, if that can be read."""
        try:
            metadata = _decode_head(encoded).metadata
        except msgspec.MsgspecError:
            self._errors[self._path] += 1
            log.warning("informer object-not-decoded path=%s object=? why=%s", self._path, error)
            return ""
        self._version = metadata.resource_version or self._version
        if not isinstance(error, _UNREADABLE):
            self._clock.faults.caught(error, self._work, metadata.key)
        self._failed(metadata, error)
        return metadata.uid

    def _failed(self, metadata: ObjectMeta, error: Exception) -> None:
        """Count and log an object that was not taken, and plan to read it again."""
        self._errors[self._path] += 1
        pause = self._read_later(metadata)
        log.warning(
            "informer object-not-decoded path=%s object=%s again-in=%.0fs why=%s",
            self._path,
            metadata.key,
            pause,
            error,
        )

    def _read_later(self, metadata: ObjectMeta) -> float:
        """Plan to read an object again; the seconds until then."""
        timer, pause = self._unread.pop(metadata.uid, (None, FIRST_REREAD))
        if timer is not None:
            timer.cancel()
        again = self._clock.call_later(pause, lambda: self._reread(metadata))
        self._unread[metadata.uid] = (again, min(pause * 2, LONGEST_REREAD))
        return pause

    def _decoded(self, metadata: ObjectMeta) -> None:
        self._clock.faults.passed(self._work, metadata.key)
        timer, _ = self._unread.pop(metadata.uid, (None, 0.0))
        if timer is not None:
            timer.cancel()

    def _reread(self, metadata: ObjectMeta) -> None:
        if not self._stopped:
            self._transport.send(
                Request("GET", self._object_path(metadata)), lambda response: self._reread_done(metadata, response)
            )

    def _reread_done(self, metadata: ObjectMeta, response: Response) -> None:
        if self._stopped or metadata.uid not in self._unread:
            return  # an event was faster
        if response.ok:
            version = self._version
            self._set(response.body)
            self._version = version  # the watch has its own position
        elif response.code == 404:
            self._decoded(metadata)
        else:
            self._failed(metadata, ValueError(refusal(response)))

    def _object_path(self, metadata: ObjectMeta) -> str:
        if not metadata.namespace or "/namespaces/" in self._path:
            return f"{self._path}/{metadata.name}"
        group, _, plural = self._path.rpartition("/")
        return f"{group}/namespaces/{metadata.namespace}/{plural}/{metadata.name}"

    def _refused_inside(self, status: ApiStatus) -> None:
        log.info("informer watch-error path=%s code=%d why=%s", self._path, status.code, status.message)
        if self._stream is not None:
            self._stream.close()
        self._again(lambda: self._list("") if status.code == _GONE else self._watch())

    def _ended(self, response: Response) -> None:
        if self._stopped:
            return
        if response.code == _GONE:
            self._list("")
        elif response.ok:
            self._watch()  # servers end watches after some time; resume from the last version
        else:
            log.info("informer watch-broken path=%s why=%s", self._path, refusal(response))
            self._again(lambda: self._list("") if response.code == 404 else self._watch())

    def _again(self, action: Callable[[], None]) -> None:
        pause, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE)
        life = self._life
        self._clock.call_later(pause, lambda: action() if life == self._life else None)


def _is_older(version: str, known: str) -> bool:
    """Whether the resource version comes before the other one; unknown ones do not."""
    return version.isdecimal() and known.isdecimal() and int(version) < int(known)
