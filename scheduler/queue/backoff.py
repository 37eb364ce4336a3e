"""Backoff: the delay before the next attempt doubles with each failure (FWK-R42)."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.scheduler.queue.active import Entry


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """`podInitialBackoffSeconds` and `podMaxBackoffSeconds`."""

    initial: float = 1.0
    maximum: float = 10.0

    def after(self, attempts: int) -> float:
        """Backoff in seconds after attempt number 1, 2, …"""
        return min(self.initial * 2.0 ** min(attempts - 1, 62), self.maximum)


class BackoffQueue:
    """Pods that are tried again when their backoff ends."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Entry]] = []
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
        heapq.heappush(self._heap, (entry.ready_at, self._order, entry))

    def due(self, now: float) -> list[Entry]:
        """Remove and return the entries whose backoff has ended."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)[2]
            if self._members.get(entry.info.uid) is entry:
                del self._members[entry.info.uid]
                found.append(entry)
        return found

    def next_ready(self) -> float:
        """Monotonic second at which the next backoff ends; infinity if the queue is empty."""
        while self._heap and self._members.get(self._heap[0][2].info.uid) is not self._heap[0][2]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else float("inf")

    def remove(self, uid: str) -> Entry | None:
        return self._members.pop(uid, None)
