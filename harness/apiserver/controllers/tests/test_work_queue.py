"""Work in the clock's turns."""

import pytest

from harness.apiserver.controllers.work_queue import Turns
from scheduler.api.clock import SimClock


def turns() -> tuple[SimClock, Turns[str], list[tuple[str, float]]]:
    clock, done = SimClock(), list[tuple[str, float]]()
    return clock, Turns(clock, lambda key: done.append((key, clock.monotonic()))), done


def test_what_is_asked_for_often_is_done_once_and_not_from_within() -> None:
    clock, work, done = turns()
    for key in ("a", "b", "a"):
        work.add(key)
    assert done == []
    clock.settle()
    assert done == [("a", 0.0), ("b", 0.0)]


def test_gathered_work_is_done_once_at_the_end_of_the_first_delay() -> None:
    clock, work, done = turns()
    work.gather(1.0, "a")
    clock.advance(0.5)
    work.gather(1.0, "a")
    clock.advance(5)
    assert done == [("a", 1.0)]


def test_a_short_delay_does_not_wait_for_a_long_one() -> None:
    clock, work, done = turns()
    work.gather(100.0, "a")
    work.gather(1.0, "a")
    clock.advance(2)
    assert done == [("a", 1.0)]


def test_failures_are_tried_again_later_and_later_until_one_succeeds() -> None:
    clock, work, done = turns()
    for _ in range(12):
        work.failed("a")
        clock.advance(1000)
    gaps = [at % 1000 for _, at in done]
    assert gaps[:3] == pytest.approx([0.005, 0.01, 0.02])
    assert gaps == sorted(gaps)
    work.succeeded("a")
    work.failed("a")
    before = clock.monotonic()
    clock.advance(1)
    assert done[-1][1] - before < 0.006
