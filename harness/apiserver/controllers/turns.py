"""Work that waits for the clock's next turn, each piece once however often it was asked for."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from scheduler.api.clock import Clock

T = TypeVar("T", bound=Hashable)


class Turns(Generic[T]):
    """Collects keys and hands each to `work` in one of the next turns, in the order in which they came."""

    AT_ONCE = 256  # pieces of work in a turn, so that requests get theirs

    def __init__(self, clock: Clock, work: Callable[[T], None]) -> None:
        self._clock, self._work = clock, work
        self._waiting: dict[T, None] = {}
        self._planned = False

    def add(self, key: T) -> None:
        self._waiting[key] = None
        if not self._planned:
            self._planned = True
            self._clock.call_soon(self._turn)

    def later(self, delay: float, key: T) -> None:
        """Not before `delay` seconds have passed."""
        self._clock.call_later(delay, lambda: self.add(key))

    def _turn(self) -> None:
        for _ in range(min(len(self._waiting), self.AT_ONCE)):
            key = next(iter(self._waiting))
            del self._waiting[key]
            self._work(key)
        self._planned = bool(self._waiting)
        if self._planned:
            self._clock.call_soon(self._turn)
