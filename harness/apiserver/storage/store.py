"""The object store: collections of objects, their revisions, the history of changes, and listeners.

Stored objects are immutable; a write replaces the object. Each is kept decoded, for code that reads fields, and
encoded, for responses. One counter numbers the changes of all collections (`resourceVersion`).
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.patching.managed_fields import WriteLedger
from seatrial.harness.apiserver.protobuf.encoding import message as encode_message
from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.faults import name_of

Object = dict[str, Any]
Key = tuple[str, str]  # namespace ("" for cluster scope), name

MAX_BYTES = 1_572_864  # of a stored object; etcd's limit of a request, which bounds objects upstream
HISTORY = 16_384  # changes that a collection keeps at most for watches
HISTORY_BYTES = 64 << 20  # of their objects as JSON
KEPT_SECONDS = 300.0  # for which they are kept if there are more than KEPT; etcd is compacted every five minutes
KEPT = 1024
_ENCODED = 256  # changes whose lines are kept


class Item:
    """One object at one revision, with the ledger of its writes (`managedFields`)."""

    __slots__ = ("_message", "key", "ledger", "obj", "raw", "version")

    def __init__(self, key: Key, obj: Object, version: int, ledger: WriteLedger | None = None) -> None:
        self.key, self.obj, self.version, self.ledger = key, obj, version, ledger
        # orjson returns a buffer of up to four times the length of the text; the copy has the exact size.
        self.raw = bytes(memoryview(orjson.dumps(obj)))
        self._message: bytes | None = None

    def message(self, name: str) -> bytes:
        """The object as the message `name` of protocol buffers, encoded once for all lists and watches."""
        if self._message is None:
            self._message = encode_message(self.obj, name)
        return self._message


class Change:
    """One change of a collection. `new` is None for a removal, `old` for a creation.

    For a removal `old` is the object as its removal shows it, and `before` the metadata that was stored.
    """

    __slots__ = ("_lines", "at", "before", "new", "old", "size", "version")

    def __init__(self, old: Item | None, new: Item | None, last: Item, before: Object | None = None) -> None:
        self.old, self.new = old, new
        self.version, self.before, self.size = last.version, before, len(last.raw)
        self.at = 0.0  # monotonic seconds
        self._lines: dict[str, bytes] = {}

    @property
    def key(self) -> Key:
        item = self.new or self.old
        assert item is not None
        return item.key

    def line(self, kind: str, item: Item) -> bytes:
        """The change as a line of a watch, encoded once for each `kind` (ADDED, MODIFIED, DELETED)."""
        line = self._lines.get(kind)
        if line is None:
            line = self._lines[kind] = b'{"type":"' + kind.encode() + b'","object":' + item.raw + b"}\n"
        return line

    def forget_lines(self) -> None:
        """Free the encoded lines: watchers that are behind encode them again."""
        self._lines.clear()


OnChange = Callable[[Change], None]
CollectionKey = tuple[str, str]  # group, plural
OnAnyChange = Callable[[CollectionKey, Change], None]


class Collection:
    """All objects of one kind."""

    def __init__(self, store: "Store", key: CollectionKey, history: int) -> None:
        self._store, self.key = store, key
        self._items: dict[str, dict[str, Item]] = {}  # namespace → name → item
        self._count = 0
        self.history: deque[Change] = deque()
        self._longest, self._history_bytes = history, 0
        self.forgotten = 0  # newest revision that is no longer in the history
        self.changed = 0  # newest revision of this collection
        self._listeners: list[OnChange] = []

    def __len__(self) -> int:
        return self._count

    def get(self, key: Key) -> Item | None:
        names = self._items.get(key[0])
        return names.get(key[1]) if names is not None else None

    def items(self, namespace: str | None = None) -> list[Item]:
        """All items in the order of their keys, as etcd returns them."""
        if namespace is not None:
            names = self._items.get(namespace, {})
            return [names[name] for name in sorted(names)]
        return [names[name] for _, names in sorted(self._items.items()) for name in sorted(names)]

    def each(self, namespace: str | None = None) -> Iterator[Item]:
        """All items in no particular order; cheaper than `items`."""
        if namespace is not None:
            yield from self._items.get(namespace, {}).values()
            return
        for names in self._items.values():
            yield from names.values()

    def put(self, key: Key, obj: Object, ledger: WriteLedger | None = None) -> Item:
        """Store `obj` and set its resourceVersion. The caller must not change it afterwards. Ledger None: unchanged.

        Raises:
            ApiStatusError: 413, the object is too large.
        """
        version = self._store.next_version()
        obj["metadata"]["resourceVersion"] = str(version)
        names = self._items.setdefault(key[0], {})
        old = names.get(key[1])
        item = Item(key, obj, version, ledger or (old.ledger if old is not None else None))
        if len(item.raw) > MAX_BYTES and (old is None or len(item.raw) > len(old.raw)):
            raise errors.too_large(MAX_BYTES)
        names[key[1]] = item
        if old is None:
            self._count += 1
        self._record(Change(old, item, item))
        return item

    def adopt(self, change: Change) -> None:
        """Store an object as another store has created it, at the same revision: stores share what never changes."""
        item = change.new
        assert item is not None and change.old is None  # noqa: PT018
        assert item.version == self._store.next_version()
        self._items.setdefault(item.key[0], {})[item.key[1]] = item
        self._count += 1
        self._record(change)

    def remove(self, key: Key, shown: Object | None = None) -> Item | None:
        """Remove an object. The returned item carries the revision of the removal, as watchers see it.

        `shown` is the metadata that the removal shows, if it differs from what is stored.
        """
        names = self._items.get(key[0], {})
        old = names.pop(key[1], None)
        if old is None:
            return None
        if not names:
            self._items.pop(key[0], None)
        self._count -= 1
        version = self._store.next_version()
        before = old.obj["metadata"]
        metadata = {**(shown or before), "resourceVersion": str(version)}
        last = Item(key, {**old.obj, "metadata": metadata}, version, old.ledger)
        self._record(Change(last, None, last, before))
        return last

    def as_of(self, version: int) -> list[Item]:
        """All objects at revision `version`, in the order of their keys. `version` must not be below `forgotten`."""
        pods = {item.key: item for item in self.each()}
        for change in reversed(self.history):
            if change.version <= version:
                break
            if change.old is None:
                pods.pop(change.key, None)
            elif change.new is None:
                metadata = change.before or change.old.obj["metadata"]
                before = {**change.old.obj, "metadata": metadata}
                pods[change.key] = Item(change.key, before, int(metadata["resourceVersion"]), change.old.ledger)
            else:
                pods[change.key] = change.old
        return [pods[key] for key in sorted(pods)]

    def since(self, version: int) -> Iterable[Change]:
        """The changes after revision `version`, which must not be below `forgotten`."""
        history = self.history
        if not history or history[-1].version <= version:
            return ()
        recent: deque[Change] = deque()
        for change in reversed(history):
            if change.version <= version:
                break
            recent.appendleft(change)
        return recent

    def listen(self, listener: OnChange) -> None:
        """Call `listener` with every further change, from within the write. It must not write itself."""
        self._listeners.append(listener)

    def unlisten(self, listener: OnChange) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def forget_history(self) -> None:
        """Forget all changes; the objects stay. A watch from an older revision is refused."""
        if self.history:
            self.forgotten = self.history[-1].version
            self.history.clear()
            self._history_bytes = 0

    def _record(self, change: Change) -> None:
        history = self.history
        change.at = self._store.monotonic()
        self._history_bytes += change.size
        while history and (
            len(history) == self._longest
            or self._history_bytes > HISTORY_BYTES
            or (len(history) >= KEPT and history[0].at < change.at - KEPT_SECONDS)
        ):
            oldest = history.popleft()
            self._history_bytes -= oldest.size
            self.forgotten = oldest.version
        history.append(change)
        if len(history) > _ENCODED:
            history[-_ENCODED].forget_lines()
        self.changed = change.version
        faults = self._store.faults
        for listener in tuple(self._listeners):  # one that raises may end its watch
            try:
                listener(change)
            except Exception as error:  # noqa: BLE001 the others are called
                faults.not_repeated(error, name_of(listener), (*self.key, *change.key))
        for store_listener in self._store.listeners:
            try:
                store_listener(self.key, change)
            except Exception as error:  # noqa: BLE001 the others are called
                faults.not_repeated(error, name_of(store_listener), (*self.key, *change.key))


class Snapshots:
    """Snapshots of lists that clients read page by page.

    Readers of the same list at the same revision share a snapshot. A snapshot is dropped when no page was read for
    `UNREAD`, or when a limit is exceeded, least recently read first.
    """

    LIMIT = 256  # snapshots
    ITEMS = 2_000_000  # items in all snapshots
    UNREAD = 300.0  # seconds, upstream's compaction interval

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int, str], tuple[float, list[Item]]] = {}  # least recently read first
        self._items = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, collection: str, version: int, selector: str, items: list[Item], now: float) -> None:
        """Keep a snapshot; `now` in monotonic seconds."""
        self._drop((collection, version, selector))
        self._kept[collection, version, selector] = (now, items)
        self._items += len(items)
        self._evict(now)

    def after(self, collection: str, version: int, selector: str, key: Key, now: float) -> list[Item] | None:
        """The items behind `key`; None if the snapshot was dropped."""
        self._evict(now)
        mark = (collection, version, selector)
        entry = self._kept.pop(mark, None)
        if entry is None:
            return None
        items = entry[1]
        self._kept[mark] = (now, items)
        return items[bisect_right(items, key, key=_key_of) :]

    def _drop(self, mark: tuple[str, int, str]) -> None:
        old = self._kept.pop(mark, None)
        if old is not None:
            self._items -= len(old[1])

    def _evict(self, now: float) -> None:
        while self._kept:
            mark, (read, _) = next(iter(self._kept.items()))
            crowded = len(self._kept) > self.LIMIT or (self._items > self.ITEMS and len(self._kept) > 1)
            if not crowded and now - read < self.UNREAD:
                return
            self._drop(mark)


def _key_of(item: Item) -> Key:
    return item.key


class Store:
    """All collections, with one revision counter."""

    def __init__(self, clock: Clock, *, history: int = HISTORY) -> None:
        """A listener that raises is a fault of the object that changes: the others are called, and the write stays."""
        self._version = 0
        self.faults, self.monotonic = clock.faults, clock.monotonic
        self._history = history
        self._collections: dict[CollectionKey, Collection] = {}
        self.listeners: list[OnAnyChange] = []  # called with every change of every collection; must not write
        self.snapshots = Snapshots()

    @property
    def version(self) -> int:
        """The newest revision."""
        return self._version

    def next_version(self) -> int:
        self._version += 1
        return self._version

    def collection(self, key: CollectionKey) -> Collection:
        """The collection of `(group, plural)`; created on first use."""
        collection = self._collections.get(key)
        if collection is None:
            collection = self._collections[key] = Collection(self, key, self._history)
        return collection

    def forget_history(self) -> None:
        """Forget the changes of all collections, as a server does that is started again."""
        for collection in self._collections.values():
            collection.forget_history()

    def __iter__(self) -> Iterator[tuple[CollectionKey, Collection]]:
        return iter(list(self._collections.items()))
