"""Clocks: time is passed in, never read from the system by logic.

Logic that waits, expires or stamps takes a `Clock`. A test or a simulation moves a `SimClock`; a process that serves
real clients uses a `WallClock` over its event loop. `now()` is for timestamps in objects and may jump; `monotonic()`
is for durations and never goes back.
"""

import asyncio
import heapq
import itertools
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Protocol

from seatrial.scheduler.api.faults import Faults, name_of
from seatrial.scheduler.api.wrong_values import shown

Action = Callable[[], object]

SIM_EPOCH = 1_767_225_600.0  # 2026-01-01T00:00:00Z: a fixed start makes the output of simulated runs equal
_EPOCH = date(1970, 1, 1).toordinal()
_MAX_LENGTH = 64  # characters of a time
_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,](?P<fraction>\d+))?"
    r"(?:Z|(?P<sign>[+-])(?P<hours>\d\d):(?P<minutes>\d\d))",
    re.ASCII,
)


class TimeError(ValueError):
    """The text is not a time as RFC 3339 and the calendar have it."""

    def __init__(self, text: str) -> None:
        super().__init__(f"expected a time such as 2026-01-01T00:00:00Z, found {shown(text)}")


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


@lru_cache(maxsize=16384)  # pods created together share timestamps
def from_rfc3339(text: str) -> float:
    """RFC 3339 as seconds since 1970, read as Go's `time.Parse(time.RFC3339)` does: the years are 0 to 9999.

    Raises:
        TimeError: the text is not a date and time with an offset, or the calendar does not have it.
    """
    match = _RFC3339.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise TimeError(text)
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    hours, minutes = int(match["hours"] or 0), int(match["minutes"] or 0)
    if hour > 23 or minute > 59 or second > 59 or hours > 24 or minutes > 60:  # Go accepts offsets up to +24:60
        raise TimeError(text)
    try:
        days = date(year or 400, month, day).toordinal() - _EPOCH - (0 if year else 146_097)  # days of 400 years
    except ValueError:
        raise TimeError(text) from None
    offset = 60 * (60 * hours + minutes)
    local = 86_400 * days + 3600 * hour + 60 * minute + second + float(f"0.{match['fraction'] or 0}")
    return local + offset if match["sign"] == "-" else local - offset


def read_time(text: str | None) -> float | None:
    """A time in an object as seconds since 1970; None if there is none, or it cannot be read."""
    try:
        return from_rfc3339(text) if text else None
    except TimeError:
        return None


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
