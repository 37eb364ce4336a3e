"""The work queue of the controllers."""

import pytest

from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.scheduler.api.clock import SimClock


def queue() -> tuple[SimClock, WorkQueue[str], list[tuple[str, float]]]:
    clock, done = SimClock(), list[tuple[str, float]]()
    return clock, WorkQueue(clock, lambda key: done.append((key, clock.monotonic()))), done


def test_a_key_added_several_times_is_processed_once_and_later() -> None:
    clock, work, done = queue()
    for key in ("a", "b", "a"):
        work.add(key)
    assert done == []
    clock.settle()
    assert done == [("a", 0.0), ("b", 0.0)]


def test_delayed_keys_are_processed_once_after_the_first_delay() -> None:
    clock, work, done = queue()
    work.add_after(1.0, "a")
    clock.advance(0.5)
    work.add_after(1.0, "a")
    clock.advance(5)
    assert done == [("a", 1.0)]


def test_a_short_delay_does_not_wait_for_a_long_one() -> None:
    clock, work, done = queue()
    work.add_after(100.0, "a")
    work.add_after(1.0, "a")
    clock.advance(2)
    assert done == [("a", 1.0)]


def test_retry_delays_grow_until_success() -> None:
    clock, work, done = queue()
    for _ in range(12):
        work.add_rate_limited("a")
        clock.advance(1000)
    gaps = [at % 1000 for _, at in done]
    assert gaps[:3] == pytest.approx([0.005, 0.01, 0.02])
    assert gaps == sorted(gaps)
    work.forget("a")
    work.add_rate_limited("a")
    before = clock.monotonic()
    clock.advance(1)
    assert done[-1][1] - before < 0.006
