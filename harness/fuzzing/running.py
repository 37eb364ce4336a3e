"""Runs one area on random inputs: finds faults, shrinks their inputs, and describes them.

A fault is an exception that is not the area's own error, a 500, or an input that takes more than a second of processor
time. Hypothesis makes and shrinks the inputs; the seed and the number of inputs determine them.
"""

import gc
import logging
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.errors import Flaky

LIMIT: Final = 1.0  # seconds of processor time for one input
MAX_FAULTS: Final = 20  # of one area; then its run ends


class FaultError(Exception):
    """An answer or a result that must not occur."""


class TooSlow(BaseException):
    """The input has taken LIMIT. Not an Exception: servers turn those into answers."""


@dataclass(frozen=True, slots=True)
class Area:
    """What reads the inputs. `run` raises what must not occur; expected errors it handles itself."""

    name: str
    what: str
    inputs: st.SearchStrategy[Any]
    run: Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault, with the smallest input found for it."""

    area: str
    kind: str  # type of the exception and the place where it was raised
    shrunk: Any
    text: str  # traceback


def fuzz(area: Area, inputs: int, seed: int) -> tuple[int, list[Fault]]:
    """Run the area on `inputs` inputs. Returns the number that was run, and the faults, one of each kind."""
    faults: dict[str, Fault] = {}
    logging.disable()  # a fault's traceback is in the answer's place; thousands of lines would hide the figures
    try:
        return _fuzz(area, inputs, seed, faults)
    finally:
        logging.disable(logging.NOTSET)


def _fuzz(area: Area, inputs: int, seed: int, faults: dict[str, Fault]) -> tuple[int, list[Fault]]:
    count = 0
    while count < inputs and len(faults) < MAX_FAULTS:
        ran, fault = _until_fault(area, inputs - count, seed + count, frozenset(faults))
        count += max(1, ran)
        if fault is not None:
            faults[fault.kind] = fault
    return min(count, inputs), list(faults.values())


def _until_fault(area: Area, inputs: int, seed: int, known: frozenset[str]) -> tuple[int, Fault | None]:
    """The number of inputs run before shrinking, and the first fault of a new kind."""
    count = 0
    last: list[tuple[Any, BaseException]] = []

    @seeded(seed)
    @settings(
        max_examples=inputs,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(area.inputs)
    def attempt(value: Any) -> None:
        nonlocal count
        count += not last
        try:
            run_limited(area, value)
        except (Exception, TooSlow) as error:
            if kind_of(error) in known:
                return
            last.append((value, error))
            raise FaultError(kind_of(error)) from error

    try:
        attempt()
    except (FaultError, Flaky):
        value, error = last[-1]
        return count, Fault(area.name, kind_of(error), value, "".join(traceback.format_exception(error)))
    return count, None


def run_limited(area: Area, value: Any) -> None:
    """Run the area on one input.

    Raises:
        TooSlow: it takes more than LIMIT.
        Exception: a fault.
    """
    with _alarm():
        area.run(value)


@contextmanager
def _alarm() -> Iterator[None]:
    def ring(_number: int, _frame: FrameType | None) -> None:
        raise TooSlow(f"more than {LIMIT:.0f} s of processor time")

    before = signal.signal(signal.SIGVTALRM, ring)
    begin = time.process_time()
    gc.disable()  # a collection visits what Hypothesis keeps of all inputs: seconds after ten thousand
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT, LIMIT)  # again: what is raised in a callback is lost
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        gc.enable()
        signal.signal(signal.SIGVTALRM, before)
    if time.process_time() - begin > 2 * LIMIT:  # in one call to C, which no signal interrupts
        raise TooSlow(f"more than {2 * LIMIT:.0f} s of processor time")


def kind_of(error: BaseException) -> str:
    """The type of the exception and the innermost line of our code."""
    if isinstance(error, TooSlow):
        return "TooSlow"
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "seatrial" in frame.filename and "fuzzing" not in frame.filename]
    place = f"{ours[-1].filename.rpartition('seatrial/')[2]}:{ours[-1].lineno}" if ours else str(error)
    return f"{type(error).__name__} at {place}"
