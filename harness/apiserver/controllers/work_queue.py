"""A work queue of keys with de-duplication, delays and rate-limited retries, as client-go's `util/workqueue`."""

import math
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.faults import name_of

T = TypeVar("T", bound=Hashable)
INITIAL_BACKOFF, MAX_BACKOFF = 0.005, 1000.0  # seconds; upstream's per-key rate limiter
CHANGE_PAUSE = 1.0  # seconds until a key that failed is tried again because of a change, which may be its own write


class WorkQueue(Generic[T]):
    """Calls `work` with each queued key, in order of arrival, in later iterations of the event loop.

    What `work` raises is a fault of that key: it is tried again after pauses that grow, and the other keys go on.
    """

    MAX_PER_ITERATION = 256  # keys per loop iteration, so that requests are served in between

    def __init__(self, clock: Clock, work: Callable[[T], None], *, name: str = "") -> None:
        """`name`: the kind of work, in which its faults are counted; by default that of the method."""
        self.name = name or name_of(work)
        self._clock, self._work = clock, work
        self._failing = clock.faults.failing
        self._waiting: dict[T, None] = {}
        self._delayed: dict[T, float] = {}  # key → monotonic time at which it is due
        self._failures: dict[T, int] = {}
        self._scheduled = self._ends = False

    def end_iteration(self) -> None:
        """Leave further keys to the next iteration of the event loop: `work` has taken long."""
        self._ends = True

    def add(self, key: T) -> None:
        """Queue the key for the next iteration; a key already queued is not queued twice."""
        if self._failing and (self.name, key) in self._failing:
            self.add_after(CHANGE_PAUSE, key)
        else:
            self._add(key)

    def _add(self, key: T) -> None:
        self._waiting[key] = None
        if not self._scheduled:
            self._scheduled = True
            self._clock.call_soon(self._run)

    def add_later(self, delay: float, key: T) -> None:
        """Add the key after `delay` seconds; each call adds it, without de-duplication."""
        self._clock.call_later(delay, lambda: self.add(key))

    def add_after(self, delay: float, key: T) -> None:
        """Add the key after `delay` seconds, once for all calls meanwhile; the earliest due time counts.

        Nothing is done if the key is already queued.
        """
        due = self._clock.monotonic() + delay
        if key in self._waiting or self._delayed.get(key, math.inf) <= due:
            return
        self._delayed[key] = due
        self._clock.call_later(delay, lambda: self._due(key, due))

    def _due(self, key: T, due: float) -> None:
        if self._delayed.get(key) == due:
            del self._delayed[key]
            self._add(key)

    def add_rate_limited(self, key: T) -> None:
        """Add the key after a delay that doubles with each call until `forget`."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        self.add_after(min(MAX_BACKOFF, INITIAL_BACKOFF * 2.0 ** min(count, 40)), key)

    def forget(self, key: T) -> None:
        """Reset the retry delay of this key."""
        self._failures.pop(key, None)

    def _run(self) -> None:
        for _ in range(min(len(self._waiting), self.MAX_PER_ITERATION)):
            key = next(iter(self._waiting))
            del self._waiting[key]
            try:
                self._work(key)
            except Exception as error:  # noqa: BLE001 one key must not stop the others
                self._waiting.pop(key, None)  # queued meanwhile by its own write
                self.add_after(self._clock.faults.caught(error, self.name, key).pause, key)
            else:
                self._clock.faults.passed(self.name, key)
            if self._ends:
                break
        self._ends = False
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            self._clock.call_soon(self._run)
