"""Faults: exceptions in the work for one object, which must not stop the work for the others.

Each clock has one `Faults`, so that every program has one count, whatever loops it runs. A process logs a fault with an
ID and goes on. In virtual time, in tests and in the fuzzer a fault is raised, so that no test passes over one.
"""

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

from seatrial.scheduler.api.wrong_values import printable

if TYPE_CHECKING:
    from seatrial.scheduler.api.clock import Timer

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 300.0  # seconds before work for an object is tried again; doubled by each fault
SHOWN = 20  # objects that a health check names
REMEMBERED = 10_000  # objects whose faults that nothing repeats are counted apart
MAX_TRACEBACKS = 1000  # places in the code whose tracebacks were logged


class Failing:
    """An object whose work failed and has not passed since."""

    __slots__ = ("count", "fault", "retry")

    def __init__(self) -> None:
        self.count = 0
        self.fault = ""  # ID of the fault that was logged last
        self.retry: Timer | None = None

    @property
    def pause(self) -> float:
        """Seconds until the work is to be tried again."""
        return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(self.count - 1, 40))


class Faults:
    """Counts and logs faults, and knows which objects fail."""

    def __init__(self, *, raises: bool = False) -> None:
        """`raises`: raise each fault again instead of logging it."""
        self.raises = raises
        self.counts: Counter[str] = Counter()  # by kind of work
        self.failing: dict[tuple[str, Hashable], Failing] = {}  # by kind of work and key of the object
        self._logged: set[str] = set()
        self._seen: dict[tuple[str, Hashable], tuple[int, str]] = {}  # faults that nothing repeats: number, last ID
        self._number = 0

    def note(self, error: BaseException, work: str, key: Hashable = "", *, nth: int = 1) -> str:
        """Count a fault, and log it if it is the first, second, fourth, eighth … of its object.

        The traceback is logged the first time that its place in the code raises. Returns the ID.
        """
        self.counts[work] += 1
        self._number += 1
        fault = str(self._number)
        if is_logged(nth):
            place = _place(error)
            first = place not in self._logged and len(self._logged) < MAX_TRACEBACKS
            self._logged.add(place)
            log.error(
                "fault id=%s work=%s key=%.300s nth=%d why=%s",
                fault,
                work,
                printable(key_text(key)),
                nth,
                printable(f"{type(error).__name__}: {error!s:.300}"),
                exc_info=error if first else None,
            )
        return fault

    def not_repeated(self, error: Exception, work: str, key: Hashable = "") -> str:
        """The work for an object raised `error`, and nothing does it again for that reason. Returns the ID in the log.

        Raises:
            Exception: `error`, where faults are raised.
        """
        if self.raises:
            raise error
        if len(self._seen) >= REMEMBERED:
            self._seen.clear()
        count, fault = self._seen.get((work, key), (0, ""))
        noted = self.note(error, work, key, nth=count + 1)
        if is_logged(count + 1):
            fault = noted
        self._seen[work, key] = count + 1, fault
        return fault

    def caught(self, error: Exception, work: str, key: Hashable = "") -> Failing:
        """The work for an object raised `error`.

        Raises:
            Exception: `error`, where faults are raised.
        """
        if self.raises:
            raise error
        failing = self.failing.setdefault((work, key), Failing())
        failing.count += 1
        noted = self.note(error, work, key, nth=failing.count)
        if is_logged(failing.count):
            failing.fault = noted
        if failing.retry is not None:
            failing.retry.cancel()
        return failing

    def passed(self, work: str, key: Hashable = "") -> None:
        """The work for an object is done, or the object is gone."""
        if self.failing and (failing := self.failing.pop((work, key), None)) is not None:
            if failing.retry is not None:
                failing.retry.cancel()
            log.info("fault over id=%s work=%s key=%.300s", failing.fault, work, key_text(key))

    def guard(self, work: str, key: Hashable = "") -> "_Guard":
        """A context whose exceptions are faults of this object. For work that a later turn does again anyway."""
        return _Guard(self, work, key)

    def report(self) -> list[str]:
        """Lines for a verbose health check: the objects that fail."""
        lines = [
            f"[!]{work} {key_text(key)} failed {failing.count} times, see fault id={failing.fault} in the log"
            for (work, key), failing in list(self.failing.items())[:SHOWN]
        ]
        more = len(self.failing) - SHOWN
        return [*lines, f"[!]and {more} more"] if more > 0 else lines

    def families(self) -> Iterator[tuple[str, str, str, list[str]]]:
        """Metric families: name, kind, help, lines in Prometheus' text format."""
        name = "seatrial_faults_total"  # kinds of work are names in the code and need no escapes
        yield (
            name,
            "counter",
            "Exceptions in the work for one object, by kind of work.",
            [f'{name}{{work="{work}"}} {count}' for work, count in sorted(self.counts.items())],
        )
        name = "seatrial_failing_objects"
        words = "Objects whose work raised an exception and has not passed since."
        yield name, "gauge", words, [f"{name} {len(self.failing)}"]


class _Guard:
    __slots__ = ("_faults", "_key", "_work")

    def __init__(self, faults: Faults, work: str, key: Hashable) -> None:
        self._faults, self._work, self._key = faults, work, key

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if not isinstance(error, Exception) or self._faults.raises:
            return False
        self._faults.not_repeated(error, self._work, self._key)
        return True


def name_of(action: Callable[..., object]) -> str:
    """The class and method, or the function, of an action: the kind of work for which its faults count."""
    while isinstance(action, partial):
        action = action.func
    return getattr(action, "__qualname__", type(action).__name__)


def is_logged(nth: int) -> bool:
    """Whether the nth fault of an object is logged: the first, second, fourth, eighth and so on."""
    return nth & (nth - 1) == 0


def key_text(key: Hashable) -> str:
    """A key of an object as text."""
    return "/".join(map(key_text, key)) if isinstance(key, tuple) else str(key)


def _place(error: BaseException) -> str:
    """Type of the exception, file and line where it was raised."""
    step, place = error.__traceback__, type(error).__name__
    while step is not None:
        place, step = f"{type(error).__name__} {step.tb_frame.f_code.co_filename}:{step.tb_lineno}", step.tb_next
    return place
