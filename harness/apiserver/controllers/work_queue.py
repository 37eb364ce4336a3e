"""Work that waits for the clock's next turn, each piece once however often it was asked for."""

import math
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from scheduler.api.clock import Clock

T = TypeVar("T", bound=Hashable)
FIRST_RETRY, LONGEST_RETRY = 0.005, 1000.0  # seconds, upstream's rate limiter for one key


class Turns(Generic[T]):
    """Collects keys and hands each to `work` in one of the next turns, in the order in which they came."""

    AT_ONCE = 256  # pieces of work in a turn, so that requests get theirs

    def __init__(self, clock: Clock, work: Callable[[T], None]) -> None:
        self._clock, self._work = clock, work
        self._waiting: dict[T, None] = {}
        self._gathering: dict[T, float] = {}  # key → when it is due, on the monotonic clock
        self._failures: dict[T, int] = {}
        self._planned = False

    def add(self, key: T) -> None:
        self._waiting[key] = None
        if not self._planned:
            self._planned = True
            self._clock.call_soon(self._turn)

    def later(self, delay: float, key: T) -> None:
        """Not before `delay` seconds have passed."""
        self._clock.call_later(delay, lambda: self.add(key))

    def gather(self, delay: float, key: T) -> None:
        """After `delay` seconds, once for all who ask meanwhile; of several delays the one that ends first counts.

        For work that asks again whenever it still has something to wait for.
        """
        due = self._clock.monotonic() + delay
        if key in self._waiting or self._gathering.get(key, math.inf) <= due:
            return
        self._gathering[key] = due
        self._clock.call_later(delay, lambda: self._gathered(key, due))

    def _gathered(self, key: T, due: float) -> None:
        if self._gathering.get(key) == due:
            del self._gathering[key]
            self.add(key)

    def failed(self, key: T) -> None:
        """Try again, after a pause that doubles with every failure."""
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        self.gather(min(LONGEST_RETRY, FIRST_RETRY * 2.0 ** min(count, 40)), key)

    def succeeded(self, key: T) -> None:
        """Forget the failures of this key."""
        self._failures.pop(key, None)

    def _turn(self) -> None:
        for _ in range(min(len(self._waiting), self.AT_ONCE)):
            key = next(iter(self._waiting))
            del self._waiting[key]
            self._work(key)
        self._planned = bool(self._waiting)
        if self._planned:
            self._clock.call_soon(self._turn)
