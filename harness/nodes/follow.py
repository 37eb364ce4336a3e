"""One kind of object followed through the API: list, watch, and list again after a gap.

This is not the scheduler's informer: the harness that judges a scheduler does not use its code. Only names are stored;
the raw object goes to the handler, which decodes what it needs. If the handler raises, it gets the object again after
pauses that grow, and the other objects go on.
"""

import logging
from collections.abc import Callable
from functools import partial
from urllib.parse import urlencode

import msgspec

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.transport import Request, Response, Stream, Transport
from seatrial.scheduler.api.wire import ApiStatus, RawList, WatchEvent, Wire, decoder

log = logging.getLogger(__name__)

MAX_REASON = 300  # bytes of an answer in the log
PAGE = 2000
INITIAL_BACKOFF, MAX_BACKOFF = 0.2, 10.0
GONE = 410


class HeadMeta(Wire, frozen=True):
    """Metadata that is read before the rest of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None


class Head(Wire, frozen=True):
    """The metadata that every handler needs."""

    metadata: HeadMeta = HeadMeta()


OnSet = Callable[[HeadMeta, msgspec.Raw], None]
OnGone = Callable[[HeadMeta], None]

_decode_list = decoder(RawList)
_decode_event = decoder(WatchEvent)
_decode_head = decoder(Head)
_decode_status = decoder(ApiStatus)


class Follower:
    """Calls `on_set` for each object that exists or has changed and `on_gone` for each removed one, in the API's
    order."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        path: str,
        selector: dict[str, str],
        *,
        on_set: OnSet,
        on_gone: OnGone,
        on_synced: Callable[[], None] = lambda: None,
    ) -> None:
        self._transport, self._clock = transport, clock
        self._path, self._selector, self._work = path, selector, f"Follower {path}"
        self._on_set, self._on_gone, self._on_synced = on_set, on_gone, on_synced
        self._known: dict[str, HeadMeta] = {}  # by uid
        self._listed: dict[str, HeadMeta] = {}
        self._version = ""
        self._stream: Stream | None = None
        self._pause = INITIAL_BACKOFF
        self._stopped = False
        self.synced = False

    def start(self) -> None:
        self._list("")

    def stop(self) -> None:
        self._stopped = True
        if self._stream is not None:
            self._stream.close()

    def _list(self, continue_: str) -> None:
        if self._stopped:
            return
        query = {**self._selector, "limit": str(PAGE)}
        if continue_:
            query["continue"] = continue_
        else:
            self._listed = {}
        self._transport.send(Request("GET", f"{self._path}?{urlencode(query)}"), self._on_list)

    def _on_list(self, response: Response) -> None:
        if self._stopped:
            return
        if not response.ok:
            why = response.body[:MAX_REASON].decode(errors="replace")  # with code 0 why no answer came
            log.info("follow list-refused path=%s code=%d why=%s", self._path, response.code, why)
            self._again(lambda: self._list(""))
            return
        try:
            page = _decode_list(response.body)
        except msgspec.MsgspecError as error:
            log.warning("follow list-not-decoded path=%s why=%s", self._path, error)
            self._again(lambda: self._list(""))
            return
        for raw in page.items or ():
            head = _decode_head(raw).metadata
            self._listed[head.uid] = head
            self._set(head, raw)
        if page.metadata.continue_:
            self._list(page.metadata.continue_)
            return
        before, self._known, self._listed = self._known, self._listed, {}
        for uid in before.keys() - self._known.keys():
            self._gone(before[uid])
        self._version = page.metadata.resource_version
        self._pause = INITIAL_BACKOFF
        if not self.synced:
            self.synced = True
            self._on_synced()
        self._watch()

    def _watch(self) -> None:
        if self._stopped:
            return
        query = {**self._selector, "watch": "1", "allowWatchBookmarks": "true", "resourceVersion": self._version}
        request = Request("GET", f"{self._path}?{urlencode(query)}")
        self._stream = self._transport.stream(request, self._on_line, self._on_end)

    def _on_line(self, line: bytes) -> None:
        if self._stopped:
            return
        try:
            event = _decode_event(line)
        except msgspec.MsgspecError as error:
            log.warning("follow line-not-decoded path=%s why=%s", self._path, error)
            if self._stream is not None:
                self._stream.close()
            self._again(lambda: self._list(""))
            return
        if event.type == "ERROR":
            status = _decode_status(event.object)
            log.info("follow watch-error path=%s code=%d", self._path, status.code)
            if self._stream is not None:
                self._stream.close()
            self._again(lambda: self._list("") if status.code == GONE else self._watch())
            return
        head = _decode_head(event.object).metadata
        self._version = head.resource_version
        self._pause = INITIAL_BACKOFF
        if event.type == "DELETED":
            if self._known.pop(head.uid, None) is not None:
                self._gone(head)
        elif event.type != "BOOKMARK":
            self._known[head.uid] = head
            self._set(head, event.object)

    def _set(self, head: HeadMeta, raw: msgspec.Raw) -> None:
        self._clock.attempt(self._work, (head.namespace, head.name), partial(self._on_set, head, raw))

    def _gone(self, head: HeadMeta) -> None:
        self._clock.attempt(self._work, (head.namespace, head.name), partial(self._on_gone, head))

    def _on_end(self, response: Response) -> None:
        if self._stopped:
            return
        if response.code == GONE:
            self._list("")
        elif response.ok:
            self._watch()  # servers end watches after some time; the new one resumes at the version
        else:
            log.info("follow watch-broken path=%s code=%d", self._path, response.code)
            self._again(self._watch)

    def _again(self, action: Callable[[], None]) -> None:
        pause, self._pause = self._pause, min(self._pause * 2, MAX_BACKOFF)
        self._clock.call_later(pause, action)
