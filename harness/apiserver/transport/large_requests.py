"""Serves requests with large bodies one after the other, with other requests in between.

Each takes up to 100 ms. Served as they arrive, those of many connections would delay a small request by their sum.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

LARGE_FROM = 64 * 1024  # bytes
PAUSE = 0.002  # seconds for other requests between two large ones


class Scheduler(Protocol):
    """What is needed of an event loop."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> object: ...


class LargeRequests:
    """The queue of one server."""

    def __init__(self, loop: Scheduler) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def add(self, work: Callable[[], None]) -> None:
        """Call `work` later, after those added before."""
        self._waiting.append(work)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_later(0.0, self._next)

    def _next(self) -> None:
        try:
            self._waiting.popleft()()
        finally:
            self._scheduled = bool(self._waiting)
            if self._scheduled:
                self._loop.call_later(PAUSE, self._next)
