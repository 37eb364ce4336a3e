import pytest

from seatrial.scheduler.api.clock import SimClock, from_rfc3339, rfc3339


def test_actions_run_at_their_own_moment_in_the_order_planned() -> None:
    clock, seen = SimClock(), list[tuple[str, float]]()
    clock.call_later(2, lambda: seen.append(("late", clock.monotonic())))
    clock.call_later(1, lambda: seen.append(("first", clock.monotonic())))
    clock.call_later(1, lambda: seen.append(("second", clock.monotonic())))
    clock.advance(1.5)
    assert seen == [("first", 1.0), ("second", 1.0)]
    assert clock.monotonic() == 1.5
    clock.advance(1)
    assert seen[-1] == ("late", 2.0)


def test_cancelled_action_never_runs() -> None:
    clock, seen = SimClock(), list[str]()
    clock.call_later(1, lambda: seen.append("ran")).cancel()
    assert clock.next_due() is None
    clock.advance(2)
    assert seen == []


def test_settle_runs_what_is_planned_for_now_and_lets_no_time_pass() -> None:
    clock, seen = SimClock(), list[str]()
    clock.call_soon(lambda: clock.call_soon(lambda: seen.append("second generation")))
    clock.call_later(0.1, lambda: seen.append("later"))
    clock.settle()
    assert seen == ["second generation"]
    assert clock.monotonic() == 0.0


def test_settle_says_who_is_at_fault_when_an_action_never_ends() -> None:
    clock = SimClock()

    def again() -> None:
        clock.call_soon(again)

    again()
    with pytest.raises(RuntimeError, match="keeps planning itself"):
        clock.settle(limit=100)


def test_a_jump_moves_the_wall_clock_and_no_timer() -> None:
    clock, seen = SimClock(start=1000.0), list[str]()
    clock.call_later(5, lambda: seen.append("ran"))
    clock.jump(-3600)
    assert clock.now() == -2600.0
    assert clock.monotonic() == 0.0
    clock.advance(5)
    assert seen == ["ran"]


def test_rfc3339_round_trip() -> None:
    assert rfc3339(SimClock().now()) == "2026-01-01T00:00:00Z"
    assert from_rfc3339("2026-01-01T02:00:00+02:00") == from_rfc3339("2026-01-01T00:00:00Z")
