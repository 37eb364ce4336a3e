"""Watches: sends the changes of one collection to readers as lines.

Readers with the same namespace, selectors and response format share a channel. A channel filters and encodes each
change once, and passes all lines since the last clock turn on in one piece. Slow readers do not hold up others: a
reader that falls too far behind gets an error, is cut off and has to list again.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import orjson

from seatrial.harness.apiserver.errors import ApiStatusError, expired, too_old
from seatrial.harness.apiserver.protobuf.encoding import encode, frame
from seatrial.harness.apiserver.storage.paging import too_large_version
from seatrial.harness.apiserver.storage.selectors import Test
from seatrial.harness.apiserver.storage.store import Change, Collection, Item, Object
from seatrial.scheduler.api.clock import Clock, Timer

BOOKMARK_EVERY = 60.0  # seconds, as upstream
BACKLOG_PIECE = 256  # lines passed on at once; one piece for a large collection would be copied several times
# Calls back with the object in the version that the channel wants, or with the error of the conversion webhook.
Convert = Callable[[Item, Callable[[Item | ApiStatusError], None]], None]
Encode = Callable[[str, Item, Change], bytes]
Head = dict[str, str]  # apiVersion and kind, for bookmarks


class Reader(Protocol):
    """The consumer of a stream of lines."""

    def feed(self, data: bytes) -> bool:
        """Take complete lines; False: too far behind, the stream ends."""

    def end(self) -> None:
        """The stream has ended."""


def plain(kind: str, item: Item, change: Change) -> bytes:
    """Encode a line with the complete object, once for all channels."""
    if item is change.new or item is change.old:
        return change.line(kind, item)
    return b'{"type":"' + kind.encode() + b'","object":' + item.raw + b"}\n"


class View:
    """What the readers of a channel see: namespace, selectors, version and format of objects."""

    __slots__ = ("convert", "encode", "head", "namespace", "protobuf", "tests")

    def __init__(
        self, namespace: str | None, tests: Iterable[Test], head: Head, encode: Encode = plain, protobuf: bool = False
    ) -> None:
        self.namespace, self.tests, self.head, self.encode = namespace, tuple(tests), head, encode
        self.protobuf = protobuf
        self.convert: Convert | None = None  # None: objects are sent in their stored version

    def selects(self, item: Item | None) -> bool:
        """Whether the item is in the namespace and matches all selectors."""
        if item is None or (self.namespace is not None and item.key[0] != self.namespace):
            return False
        for test in self.tests:  # noqa: SIM110 a generator is slower, and this runs twice for each change and channel
            if not test(item.obj):
                return False
        return True

    def line(self, change: Change) -> bytes | None:
        """The change as a line; None if the readers do not see it."""
        sight = self.sight(change)
        return self.encode(sight[0], sight[1], change) if sight is not None else None

    def sight(self, change: Change) -> tuple[str, Item] | None:
        """The event type (ADDED, MODIFIED, DELETED) and object that the readers see; None if they see nothing.

        An object that enters the selection is ADDED, one that leaves it is DELETED.
        """
        if self.namespace is not None and change.key[0] != self.namespace:
            return None
        if not self.tests:
            if change.new is None:
                return "DELETED", change.old  # type: ignore[return-value]
            return "ADDED" if change.old is None else "MODIFIED", change.new
        was, is_ = self.selects(change.old), self.selects(change.new)
        if is_:
            return "MODIFIED" if was else "ADDED", change.new  # type: ignore[return-value]
        if not was:
            return None
        last = change.old
        assert last is not None
        if change.new is not None:  # left the selection: its last selected state, with the revision of the change
            metadata = {**last.obj["metadata"], "resourceVersion": str(change.version)}
            last = Item(last.key, {**last.obj, "metadata": metadata}, change.version, last.ledger)
        return "DELETED", last

    def first(self, item: Item) -> bytes:
        """The line for an object of the initial list."""
        return self.encode("ADDED", item, Change(None, item, item))

    def bookmark(self, version: int, *, initial_end: bool = False) -> bytes:
        metadata: dict[str, object] = {"resourceVersion": str(version), "creationTimestamp": None}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        return event_line("BOOKMARK", {**self.head, "metadata": metadata}, protobuf=self.protobuf)


def event_line(kind: str, obj: Object, *, protobuf: bool) -> bytes:
    """An event with an object that is not stored: a line, or a frame of protocol buffers."""
    return frame(kind, encode(obj)) if protobuf else orjson.dumps({"type": kind, "object": obj}) + b"\n"


class Channel:
    """The readers of one view."""

    def __init__(self, view: View, collection: Collection, clock: Clock, on_empty: Callable[[], None]) -> None:
        self._view, self._collection, self._clock, self._on_empty = view, collection, clock, on_empty
        self._readers: set[Subscription] = set()
        self._pending: list[bytes] = []
        self._converting: deque[list[bytes]] = deque()  # lines in conversion; each is empty until done
        self._flush_scheduled = False
        collection.listen(self._changed)

    @property
    def view(self) -> View:
        return self._view

    def join(self, subscription: "Subscription") -> None:
        """Add a reader, from the next change on."""
        self._flush()
        self._readers.add(subscription)

    def leave(self, subscription: "Subscription") -> None:
        self._readers.discard(subscription)
        if not self._readers:
            self._collection.unlisten(self._changed)
            self._pending.clear()
            self._on_empty()

    @property
    def behind(self) -> bool:
        """Whether lines are still in conversion."""
        return bool(self._converting)

    def flush(self) -> None:
        """Pass the pending lines on now."""
        self._flush()

    def _changed(self, change: Change) -> None:
        try:
            if self._view.convert is not None:
                self._convert(self._view.convert, change)
            elif (line := self._view.line(change)) is not None:
                self._add(line)
        except Exception as error:  # noqa: BLE001 the watches of other views get the change
            for reader in list(self._readers):  # clients list again; with the change left out they would be wrong
                reader.finish()
            self._clock.faults.not_repeated(error, "Channel._changed", change.key)

    def _convert(self, convert: Convert, change: Change) -> None:
        """Convert the object and send its line, in the order of the changes."""
        sight = self._view.sight(change)
        if sight is None:
            return
        kind, item = sight
        line: list[bytes] = []
        self._converting.append(line)

        def done(response: Item | ApiStatusError) -> None:
            if isinstance(response, ApiStatusError):
                line.append(event_line("ERROR", response.status(), protobuf=self._view.protobuf))
            else:
                line.append(self._view.encode(kind, response, change))
            while self._converting and self._converting[0]:
                self._add(self._converting.popleft()[0])
            if isinstance(response, ApiStatusError):
                self._flush()
                for reader in list(self._readers):  # clients list again and get the error there
                    reader.finish()

        convert(item, done)

    def _add(self, line: bytes) -> None:
        self._pending.append(line)
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._clock.call_soon(self._turn)

    def _turn(self) -> None:
        self._flush_scheduled = False
        self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        data = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
        self._pending.clear()
        for reader in list(self._readers):
            try:
                reader.feed(data)
            except Exception as error:  # noqa: BLE001 the other readers get their lines
                reader.close()
                self._clock.faults.not_repeated(error, "Subscription.feed")


class Subscription:
    """One reader of a channel, with its timeout and bookmarks."""

    def __init__(
        self, channel: Channel, reader: Reader, store_version: Callable[[], int], clock: Clock, *, bookmarks: bool
    ) -> None:
        self._channel, self._reader, self._version, self._clock = channel, reader, store_version, clock
        self._bookmarks = bookmarks
        self._next_bookmark: Timer | None = None
        self._deadline: Timer | None = None
        self._open = True

    def begin(self, backlog: list[bytes], timeout: float | None) -> None:
        """Send the backlog, then follow the channel. `timeout` in seconds."""
        for start in range(0, len(backlog), BACKLOG_PIECE):
            self.feed(b"".join(backlog[start : start + BACKLOG_PIECE]))
        if not self._open:
            return
        self._channel.join(self)
        if self._bookmarks:
            self._next_bookmark = self._clock.call_later(BOOKMARK_EVERY, self._bookmark)
        if timeout is not None:
            self._deadline = self._clock.call_later(timeout, self.finish)

    def feed(self, data: bytes) -> None:
        if self._open and not self._reader.feed(data):
            self.finish()

    def finish(self) -> None:
        """End the stream, and call `Reader.end`."""
        if self._open:
            self.close()
            self._reader.end()

    def close(self) -> None:
        """Stop without telling the reader, which is gone."""
        if not self._open:
            return
        self._open = False
        for timer in (self._next_bookmark, self._deadline):
            if timer is not None:
                timer.cancel()
        self._channel.leave(self)

    def _bookmark(self) -> None:
        if self._open:
            self._next_bookmark = self._clock.call_later(BOOKMARK_EVERY, self._bookmark)
            self._channel.flush()
            if not self._channel.behind:
                self.feed(self._channel.view.bookmark(self._version()))


def backlog(view: View, collection: Collection, version: int, newest: int) -> list[tuple[Change, str, Item]]:
    """The changes after revision `version` that the view shows, each with event type and object.

    Raises:
        ApiStatusError: 410, the revision is no longer in the history; 504 as upstream, it is above the newest revision.
    """
    if version < collection.forgotten:
        raise too_old(version, collection.forgotten)
    if version > newest:
        raise too_large_version(version, newest)
    sights = ((change, view.sight(change)) for change in collection.since(version))
    return [(change, *sight) for change, sight in sights if sight is not None]


def fell_behind(*, protobuf: bool) -> bytes:
    """The last line for a reader that is too slow."""
    return event_line("ERROR", expired("the watch fell too far behind; list again").status(), protobuf=protobuf)
