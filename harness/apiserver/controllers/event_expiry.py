"""Removes events an hour after their last change, as kube-apiserver does (`--event-ttl`); of too many the oldest."""

from collections import deque
from typing import Final

from seatrial.harness.apiserver.storage.store import Change, CollectionKey, Key
from seatrial.harness.apiserver.verbs.objects import Objects

EVENTS: Final[CollectionKey] = ("", "events")
TTL: Final = 3600.0  # seconds
MOST: Final = 16_384  # changes of events that are followed; their events go early, as they are kept in memory
_AT_ONCE: Final = 256  # removals in one iteration of the event loop


class EventExpiry:
    """Follows the events; one timer, for the oldest."""

    def __init__(self, objects: Objects) -> None:
        self._clock = objects.clock
        self._events = objects.store.collection(EVENTS)
        self._due: deque[tuple[float, Key, int]] = deque()  # monotonic time, key and revision of each change
        self._events.listen(self._changed)

    def _changed(self, change: Change) -> None:
        if change.new is None:
            return
        self._due.append((self._clock.monotonic() + TTL, change.key, change.new.version))
        if len(self._due) == 1:
            self._clock.call_later(TTL, self._expire)
        elif len(self._due) == MOST + 1:
            self._clock.call_soon(self._expire_early)

    def _expire(self) -> None:
        for _ in range(min(_AT_ONCE, len(self._due))):
            when = self._due[0][0]
            left = when - self._clock.monotonic()
            if left > 0:
                self._clock.call_later(left, self._expire)
                return
            _, key, version = self._due.popleft()
            with self._clock.faults.guard("EventExpiry._expire", key):
                self._remove(key, version)
        if self._due:
            self._clock.call_soon(self._expire)

    def _expire_early(self) -> None:
        while len(self._due) > MOST:
            _, key, version = self._due.popleft()
            with self._clock.faults.guard("EventExpiry._expire_early", key):
                self._remove(key, version)

    def _remove(self, key: Key, version: int) -> None:
        item = self._events.get(key)
        if item is not None and item.version == version:  # otherwise it has changed since
            self._events.remove(key)
