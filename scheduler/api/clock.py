"""Clocks: time is passed in, never read from the system by logic.

Logic that waits, expires or stamps takes a `Clock`. A test or a simulation moves a `SimClock`; a process that serves
real clients uses a `WallClock` over its event loop. `now()` is for timestamps in objects and may jump; `monotonic()`
is for durations and never goes back.
"""

import asyncio
import heapq
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Protocol

from seatrial.scheduler.api.faults import Faults, name_of

Action = Callable[[], object]

SIM_EPOCH = 1_767_225_600.0  # 2026-01-01T00:00:00Z: a fixed start makes the output of simulated runs equal


class Timer(Protocol):
    """A planned action that has not run yet."""

    def cancel(self) -> None:
        """Do not run the action; no effect if it has run."""


class Clock(ABC):
    """Reads time and plans actions. What an action raises is a fault of that action and does not reach the others."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults

    @abstractmethod
    def now(self) -> float:
        """Seconds since 1970-01-01 UTC, for timestamps in objects."""

    @abstractmethod
    def monotonic(self) -> float:
        """Seconds since some fixed moment, for durations."""

    @abstractmethod
    def call_later(self, delay: float, action: Action) -> Timer:
        """Run `action` once after `delay` seconds; 0: after the code that is running now has returned."""

    def call_soon(self, action: Action) -> Timer:
        """Run the action in the next turn, after those that were planned for now before."""
        return self.call_later(0.0, action)

    def run(self, action: Action) -> None:
        """Run a planned action; an exception is its own fault.

        Raises:
            Exception: the action raised it, and faults are raised.
        """
        try:
            action()
        except Exception as error:  # noqa: BLE001 one action must not stop the others
            self.faults.not_repeated(error, name_of(action))

    def attempt(self, work: str, key: Hashable, action: Action) -> bool:
        """Do the work for one object now; after an exception again, after pauses that grow. Whether it passed.

        A later attempt for the same object replaces the planned one. `action` looks the object up by its key, so that
        the work passes once the object is gone.
        """
        try:
            action()
        except Exception as error:  # noqa: BLE001 one object must not stop the others
            failing = self.faults.caught(error, work, key)
            failing.retry = self.call_later(failing.pause, lambda: self.attempt(work, key, action))
            return False
        self.faults.passed(work, key)
        return True

    def timestamp(self) -> str:
        """The current time as in Kubernetes metadata: RFC 3339, UTC, whole seconds."""
        return rfc3339(self.now())

    def micro_timestamp(self) -> str:
        """The current time as a Kubernetes MicroTime."""
        second, micro = divmod(round(self.now() * 1e6), 1_000_000)
        return f"{_second(second)[:-1]}.{micro:06d}Z"


def rfc3339(seconds: float) -> str:
    """Seconds since 1970 as RFC 3339, UTC, whole seconds."""
    return _second(int(seconds))


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_rfc3339(text: str) -> float:
    """RFC 3339 as seconds since 1970.

    Raises:
        ValueError: the text is not a date and time with an offset.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC; RFC 3339 wants one, as in 2026-01-01T00:00:00Z")
    return moment.timestamp()


class _Planned:
    __slots__ = ("action",)

    def __init__(self, action: Action | None) -> None:
        self.action = action

    def cancel(self) -> None:
        self.action = None


class SimClock(Clock):
    """Virtual time: it changes only through `advance` and the like, which run due actions in order.

    Actions due at one moment run in the order in which they were planned, so a run is a function of its input alone.
    """

    def __init__(self, start: float = SIM_EPOCH, *, faults: Faults | None = None) -> None:
        """`faults`: without it, faults are raised by the call that lets time pass."""
        super().__init__(faults or Faults(raises=True))
        self._start = start
        self._elapsed = 0.0
        self._skew = 0.0
        self._order = itertools.count()
        self._planned: list[tuple[float, int, _Planned]] = []

    def now(self) -> float:
        return self._start + self._elapsed + self._skew

    def monotonic(self) -> float:
        return self._elapsed

    def call_later(self, delay: float, action: Action) -> Timer:
        planned = _Planned(action)
        heapq.heappush(self._planned, (self._elapsed + max(0.0, delay), next(self._order), planned))
        return planned

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back without any time passing, like a wrong NTP server."""
        self._skew += seconds

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass; every action due in between has run at its own moment when this returns."""
        self.run_until(self._elapsed + seconds)

    def run_until(self, moment: float) -> None:
        """Run everything due up to `moment` on the monotonic clock, and stop there."""
        while self._planned and self._planned[0][0] <= moment:
            self._step()
        self._elapsed = max(self._elapsed, moment)

    def settle(self, limit: int = 1_000_000) -> None:
        """Run what is due now, and what that plans for now, until nothing is due.

        Raises:
            RuntimeError: `limit` actions ran at one moment: some action plans itself again without delay.
        """
        for _ in range(limit):
            if not self._planned or self._planned[0][0] > self._elapsed:
                return
            self._step()
        raise RuntimeError(f"{limit} actions ran without time passing; an action keeps planning itself with delay 0")

    def next_due(self) -> float | None:
        """When the next action is due on the monotonic clock; None if nothing is planned."""
        while self._planned and self._planned[0][2].action is None:
            heapq.heappop(self._planned)
        return self._planned[0][0] if self._planned else None

    def _step(self) -> None:
        due, _, planned = heapq.heappop(self._planned)
        if planned.action is None:
            return
        self._elapsed = max(self._elapsed, due)
        action, planned.action = planned.action, None
        self.run(action)


class WallClock(Clock):
    """Real time on an asyncio event loop (the running one unless another is given)."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        super().__init__(Faults())
        self._loop = loop

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def call_later(self, delay: float, action: Action) -> Timer:
        loop = self._loop or asyncio.get_running_loop()
        if delay <= 0:
            return loop.call_soon(self.run, action)
        return loop.call_later(delay, self.run, action)
