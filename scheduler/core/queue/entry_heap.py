"""A heap of entries that can be removed and added again."""

import heapq
from collections.abc import Iterator
from typing import Any

from seatrial.scheduler.core.queue.active import SLACK, Entry

Item = tuple[Any, int, Entry]  # key, order of arrival, entry


class EntryHeap:
    """Entries by key, smallest first; equal keys in order of arrival. An entry counts with its last key.

    The items of entries that were removed, or added again, are dropped when they reach the front, or when they are more
    than those that count.
    """

    def __init__(self) -> None:
        self._heap: list[Item] = []
        self.by_uid: dict[str, Item] = {}  # those that count; read-only
        self._order = 0

    def __len__(self) -> int:
        return len(self.by_uid)

    def __iter__(self) -> Iterator[Entry]:
        return (item[2] for item in self.by_uid.values())

    def get(self, uid: str) -> Entry | None:
        item = self.by_uid.get(uid)
        return None if item is None else item[2]

    def push(self, key: Any, entry: Entry) -> None:
        self._order += 1
        item = self.by_uid[entry.info.uid] = (key, self._order, entry)
        heapq.heappush(self._heap, item)
        if len(self._heap) > 2 * len(self.by_uid) + SLACK:
            self._heap = sorted(self.by_uid.values())

    def remove(self, uid: str) -> Entry | None:
        item = self.by_uid.pop(uid, None)
        return None if item is None else item[2]

    def first(self) -> Item | None:
        """The first item. It is not removed."""
        heap = self._heap
        while heap and self.by_uid.get(heap[0][2].info.uid) is not heap[0]:
            heapq.heappop(heap)
        return heap[0] if heap else None

    def pop_until(self, key: Any) -> Iterator[Entry]:
        """Remove and return the entries up to this key."""
        while (item := self.first()) is not None and item[0] <= key:
            heapq.heappop(self._heap)
            del self.by_uid[item[2].info.uid]
            yield item[2]
