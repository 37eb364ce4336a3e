"""Pods that are ready to be tried, the most important first."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from scheduler.framework.nodeinfo import PodInfo


@dataclass(slots=True, eq=False)
class Entry:
    """A pod in the queue, wherever in it."""

    info: PodInfo
    queued_at: float  # monotonic seconds; what equal priorities are ordered by
    key: tuple[float, ...] = ()
    attempts: int = 0
    ready_at: float = 0.0  # monotonic seconds until which it pays for its last miss
    waiting_since: float = 0.0


class ActiveQueue:
    """A heap; entries that were taken out stay in it, dead, until they surface."""

    def __init__(self) -> None:
        self._heap: list[tuple[Any, ...]] = []  # (*key, order of arrival, entry): flat tuples compare faster
        self._order = 0
        self._members: dict[str, Entry] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._members.values()))

    def get(self, uid: str) -> Entry | None:
        return self._members.get(uid)

    def push(self, entry: Entry) -> None:
        self._members[entry.info.uid] = entry
        self._order += 1
        heapq.heappush(self._heap, (*entry.key, self._order, entry))

    def pop(self) -> Entry | None:
        while self._heap:
            entry: Entry = heapq.heappop(self._heap)[-1]
            uid = entry.info.uid
            if self._members.get(uid) is entry:
                del self._members[uid]
                return entry
        return None

    def remove(self, uid: str) -> Entry | None:
        return self._members.pop(uid, None)
