"""Objects and revisions: what there is, how it came about, and who wants to know of the next change.

Every stored object is immutable: a change puts a new one in its place. It is kept decoded, for whoever must look
inside, and encoded, for whoever only passes it on. One counter numbers all changes of all collections.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import orjson

from harness.apiserver.patching.managed_fields import Book

Object = dict[str, Any]
Key = tuple[str, str]  # namespace ("" for cluster scope), name

HISTORY = 16_384  # changes of one collection that a watch can go back


class Item:
    """One object at one revision."""

    __slots__ = ("book", "key", "obj", "raw", "version")

    def __init__(self, key: Key, obj: Object, version: int, book: Book | None = None) -> None:
        self.key, self.obj, self.version, self.book = key, obj, version, book
        # orjson leaves the buffer that it grew, up to four times the text: what stays for good is copied to its size.
        self.raw = bytes(memoryview(orjson.dumps(obj)))


class Change:
    """One step of a collection: `new` is None for a removal, `old` for a creation.

    The `old` of a removal is the object with the revision of its removal; `was` is the revision that it had.
    """

    __slots__ = ("_lines", "new", "old", "version", "was")

    def __init__(self, old: Item | None, new: Item | None, last: Item, was: int = 0) -> None:
        self.old, self.new = old, new
        self.version, self.was = last.version, was
        self._lines: dict[str, bytes] = {}

    @property
    def key(self) -> Key:
        item = self.new or self.old
        assert item is not None  # noqa: S101
        return item.key

    def line(self, kind: str, item: Item) -> bytes:
        """The change as a line of a watch, encoded once for everybody who sees it as `kind`."""
        line = self._lines.get(kind)
        if line is None:
            line = self._lines[kind] = b'{"type":"' + kind.encode() + b'","object":' + item.raw + b"}\n"
        return line


OnChange = Callable[[Change], None]
CollectionKey = tuple[str, str]  # group, plural
OnAnyChange = Callable[[CollectionKey, Change], None]


class Collection:
    """All objects of one kind."""

    def __init__(self, store: "Store", key: CollectionKey, history: int) -> None:
        self._store, self.key = store, key
        self._items: dict[str, dict[str, Item]] = {}  # namespace → name → item
        self._count = 0
        self.history: deque[Change] = deque(maxlen=history)
        self.forgotten = 0  # the newest revision that the history no longer has
        self.changed = 0  # the newest revision of all
        self._listeners: list[OnChange] = []

    def __len__(self) -> int:
        return self._count

    def get(self, key: Key) -> Item | None:
        names = self._items.get(key[0])
        return names.get(key[1]) if names is not None else None

    def items(self, namespace: str | None = None) -> list[Item]:
        """In the order of their keys, as etcd gives them."""
        if namespace is not None:
            names = self._items.get(namespace, {})
            return [names[name] for name in sorted(names)]
        return [names[name] for _, names in sorted(self._items.items()) for name in sorted(names)]

    def each(self, namespace: str | None = None) -> Iterator[Item]:
        """In no particular order; cheaper than `items`."""
        if namespace is not None:
            yield from self._items.get(namespace, {}).values()
            return
        for names in self._items.values():
            yield from names.values()

    def put(self, key: Key, obj: Object, book: Book | None = None) -> Item:
        """Store `obj`, which nobody may change afterwards; sets its resourceVersion. Without a `book` the old stays."""
        version = self._store.next_version()
        obj["metadata"]["resourceVersion"] = str(version)
        names = self._items.setdefault(key[0], {})
        old = names.get(key[1])
        item = Item(key, obj, version, book or (old.book if old is not None else None))
        names[key[1]] = item
        if old is None:
            self._count += 1
        self._record(Change(old, item, item))
        return item

    def remove(self, key: Key) -> Item | None:
        """Take the object away; what watchers see of it last carries the revision of its removal."""
        names = self._items.get(key[0], {})
        old = names.pop(key[1], None)
        if old is None:
            return None
        if not names:
            self._items.pop(key[0], None)
        self._count -= 1
        version = self._store.next_version()
        metadata = {**old.obj["metadata"], "resourceVersion": str(version)}
        last = Item(key, {**old.obj, "metadata": metadata}, version, old.book)
        self._record(Change(last, None, last, old.version))
        return last

    def as_of(self, version: int) -> list[Item]:
        """All objects as they were at `version`, which must not be below `forgotten`; in the order of their keys."""
        found = {item.key: item for item in self.each()}
        for change in reversed(self.history):
            if change.version <= version:
                break
            if change.old is None:
                found.pop(change.key, None)
            elif change.new is None:
                metadata = {**change.old.obj["metadata"], "resourceVersion": str(change.was)}
                before = {**change.old.obj, "metadata": metadata}
                found[change.key] = Item(change.key, before, change.was, change.old.book)
            else:
                found[change.key] = change.old
        return [found[key] for key in sorted(found)]

    def since(self, version: int) -> Iterable[Change]:
        """The changes after `version`, which must not be below `forgotten`."""
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
        """Call `listener` with every change from now on, within the write; it must not write itself."""
        self._listeners.append(listener)

    def unlisten(self, listener: OnChange) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def _record(self, change: Change) -> None:
        if len(self.history) == self.history.maxlen:
            self.forgotten = self.history[0].version
        self.history.append(change)
        self.changed = change.version
        for listener in self._listeners:
            listener(change)
        for everywhere in self._store.listeners:
            everywhere(self.key, change)


class Snapshots:
    """Lists that are being read page by page: the items as they were at the first page.

    Two readers of one list at one revision share what is kept. It goes when nobody has come for a page in a while,
    or when too much is kept, the longest unread first.
    """

    LIMIT = 256  # lists
    ITEMS = 2_000_000  # items in all of them
    UNREAD = 300.0  # seconds, upstream's time of compaction

    def __init__(self) -> None:
        self._kept: dict[tuple[str, int, str], tuple[float, list[Item]]] = {}  # the longest unread first
        self._items = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, collection: str, version: int, selector: str, items: list[Item], now: float) -> None:
        """Remember a list from `now` on (monotonic seconds)."""
        self._forget((collection, version, selector))
        self._kept[collection, version, selector] = (now, items)
        self._items += len(items)
        self._tidy(now)

    def after(self, collection: str, version: int, selector: str, key: Key, now: float) -> list[Item] | None:
        """What follows `key`; None if the list is no longer there."""
        self._tidy(now)
        mark = (collection, version, selector)
        found = self._kept.pop(mark, None)
        if found is None:
            return None
        items = found[1]
        self._kept[mark] = (now, items)
        return items[bisect_right(items, key, key=_key_of) :]

    def _forget(self, mark: tuple[str, int, str]) -> None:
        old = self._kept.pop(mark, None)
        if old is not None:
            self._items -= len(old[1])

    def _tidy(self, now: float) -> None:
        while self._kept:
            mark, (read, _) = next(iter(self._kept.items()))
            crowded = len(self._kept) > self.LIMIT or (self._items > self.ITEMS and len(self._kept) > 1)
            if not crowded and now - read < self.UNREAD:
                return
            self._forget(mark)


def _key_of(item: Item) -> Key:
    return item.key


class Store:
    """All collections under one counter of revisions."""

    def __init__(self, *, history: int = HISTORY) -> None:
        self._version = 0
        self._history = history
        self._collections: dict[CollectionKey, Collection] = {}
        self.listeners: list[OnAnyChange] = []  # told of every change of every collection; they must not write
        self.snapshots = Snapshots()

    @property
    def version(self) -> int:
        """The newest revision."""
        return self._version

    def next_version(self) -> int:
        self._version += 1
        return self._version

    def collection(self, key: CollectionKey) -> Collection:
        """Of `(group, plural)`; made when first asked for."""
        found = self._collections.get(key)
        if found is None:
            found = self._collections[key] = Collection(self, key, self._history)
        return found

    def __iter__(self) -> Iterator[tuple[CollectionKey, Collection]]:
        return iter(list(self._collections.items()))
