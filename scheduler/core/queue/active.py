"""Pods that are ready to be scheduled, ordered by the key of QueueSort."""

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.extension_points import Gate
from seatrial.scheduler.framework.status import Status

SLACK = 16  # entries that are gone, beyond which a heap is made anew if they are more than half


class _End:
    """The end of a key in the heap. It is less than any number, so that a key that begins another one comes first.

    `END` is compared only where keys differ in length: tuples pass over identical parts.
    """

    def __lt__(self, other: float) -> bool:
        return True

    def __gt__(self, other: float) -> bool:
        return False


END = _End()


@dataclass(slots=True, eq=False)
class Entry:
    """A pod in the queue, in any of its parts."""

    info: PodInfo
    queued_at: float  # monotonic seconds; orders pods of equal priority
    key: tuple[float, ...] = ()
    attempts: int = 0
    ready_at: float = 0.0  # monotonic second at which its backoff ends
    waiting_since: float = 0.0
    placements: int = 0  # `Cache.placement_changes` when preemption was last tried for it
    gates: tuple[tuple[Gate, str], ...] = ()  # the gates that concern the pod, with their wake keys
    last_message: str = ""  # the last message about the pod as a member of its group
    hold_until: float = 0.0  # monotonic second at which it gives back the place that it has or had in its group
    grouped: bool = False  # placed with its pod group, as one decision
    held: Status | None = None  # PreEnqueue or a gate holds the pod back
    reason_of_nodes: bool = False  # the last attempt met a taint or cordon, or no node


class ActiveQueue:
    """A queue for entries that arrive in order, and a heap for the others.

    Most pods have no higher priority than those before them. They need no heap: once it is large, each step misses
    the processor's cache. Entries that were taken out are marked, and dropped when they reach the front.
    """

    def __init__(self) -> None:
        self._line: deque[Entry] = deque()  # sorted by key; equal ones in order of arrival
        self._heap: list[tuple[Any, ...]] = []  # (*key, END, order of arrival, entry): flat tuples compare faster
        self._order = 0
        self.by_uid: dict[str, Entry] = {}  # read-only

    def __len__(self) -> int:
        return len(self.by_uid)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self.by_uid.values()))

    def get(self, uid: str) -> Entry | None:
        return self.by_uid.get(uid)

    def push(self, entry: Entry) -> None:
        self.by_uid[entry.info.uid] = entry
        if not self._line or entry.key >= self._line[-1].key:
            self._line.append(entry)
            return
        self._order += 1
        heapq.heappush(self._heap, (*entry.key, END, self._order, entry))

    def pop(self) -> Entry | None:
        line, heap = self._line, self._heap
        while line or heap:
            # What is in the heap came when a larger key was in the line, so after what equals it there.
            in_line = not heap or (line and line[0].key <= heap[0][:-3])
            entry: Entry = line.popleft() if in_line else heapq.heappop(heap)[-1]
            uid = entry.info.uid
            if self.by_uid.get(uid) is entry:
                del self.by_uid[uid]
                return entry
        return None

    def remove(self, uid: str) -> Entry | None:
        removed = self.by_uid.pop(uid, None)
        if len(self._line) + len(self._heap) > 2 * len(self.by_uid) + SLACK:
            kept: set[int] = set()  # once each: an entry may have been taken out and added again
            self._line = deque(entry for entry in self._line if self._counts(entry, kept))
            self._heap = [item for item in self._heap if self._counts(item[-1], kept)]
            heapq.heapify(self._heap)
        return removed

    def _counts(self, entry: Entry, kept: set[int]) -> bool:
        if self.by_uid.get(entry.info.uid) is not entry or id(entry) in kept:
            return False
        kept.add(id(entry))
        return True
