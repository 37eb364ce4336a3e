"""Faults: what a program does with an exception in the work for one object, on each clock."""

import asyncio
import logging

import pytest

from seatrial.scheduler.api.clock import SimClock, WallClock
from seatrial.scheduler.api.faults import FIRST_PAUSE, SHOWN, Faults
from seatrial.scheduler.serving.exposition import exposed
from seatrial.scheduler.serving.routes import Routes, text


class Work:
    """Work for one object; it raises while `broken`."""

    def __init__(self, clock: SimClock) -> None:
        self.clock, self.broken, self.tried = clock, True, list[float]()

    def __call__(self) -> None:
        self.tried.append(self.clock.monotonic())
        if self.broken:
            raise TypeError("a fault")


def test_work_is_tried_again_after_pauses_that_grow_until_it_passes() -> None:
    clock = SimClock(faults=Faults())
    work = Work(clock)
    assert not clock.attempt("work", ("a", "b"), work)
    clock.advance(FIRST_PAUSE * 7)
    assert work.tried == pytest.approx([0.0, FIRST_PAUSE, FIRST_PAUSE * 3, FIRST_PAUSE * 7])
    assert clock.faults.report() == ["[!]work a/b failed 4 times, see fault id=4 in the log"]
    work.broken = False
    clock.advance(FIRST_PAUSE * 8)
    assert clock.faults.report() == []
    clock.advance(3600)
    assert len(work.tried) == 5


def test_a_later_attempt_replaces_the_planned_one() -> None:
    """The object changes while a retry is planned: it is tried at once, and one retry is planned."""
    clock = SimClock(faults=Faults())
    work = Work(clock)
    for _ in range(3):
        clock.attempt("work", "a", work)
    clock.advance(FIRST_PAUSE * 4)
    assert work.tried == pytest.approx([0.0] * 3 + [FIRST_PAUSE * 4])
    work.broken = False
    clock.attempt("work", "a", work)
    clock.advance(3600)
    assert len(work.tried) == 5


def test_virtual_time_raises_faults() -> None:
    """A test must not pass over a fault."""
    clock = SimClock()
    with pytest.raises(TypeError, match="a fault"):
        clock.attempt("work", "a", Work(clock))
    with pytest.raises(TypeError, match="a fault"), clock.faults.guard("work"):
        Work(clock)()
    clock.call_soon(Work(clock))
    with pytest.raises(TypeError, match="a fault"):
        clock.settle()


def test_the_log_has_an_id_one_traceback_and_fewer_lines_the_longer_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    clock = SimClock(faults=Faults())
    clock.attempt("work", "a", Work(clock))
    clock.advance(3600)
    lines = [record for record in caplog.records if record.levelno == logging.ERROR]
    numbers = [record.getMessage().split("nth=")[1].split()[0] for record in lines]
    assert numbers == ["1", "2", "4", "8", "16"]
    assert lines[0].getMessage() == "fault id=1 work=work key=a nth=1 why=TypeError: a fault"
    assert [record.exc_info is not None for record in lines] == [True, False, False, False, False]


def test_text_of_a_user_cannot_forge_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    Faults().note(ValueError("a\nE fault id=7\x1b[2J"), "work", "GET /a\rb")
    (record,) = caplog.records
    assert record.getMessage() == ("fault id=1 work=work key=GET /a\\rb nth=1 why=ValueError: a\\nE fault id=7\\x1b[2J")


def test_an_action_of_an_event_loop_that_raises_is_counted_and_the_next_one_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> tuple[WallClock, list[str]]:
        clock, done = WallClock(), list[str]()
        ended = asyncio.Event()

        def broken() -> None:
            raise TypeError("a fault")

        clock.call_soon(broken)
        clock.call_later(0.001, broken)
        clock.call_later(0.002, lambda: done.append("next"))
        clock.call_later(0.003, ended.set)
        await asyncio.wait_for(ended.wait(), 60)
        return clock, done

    clock, done = asyncio.run(run())
    assert done == ["next"]
    assert list(clock.faults.counts.values()) == [2]
    assert "fault id=1" in caplog.text


def test_health_names_a_bounded_number_of_objects_and_stays_ready() -> None:
    clock = SimClock(faults=Faults())
    for number in range(SHOWN + 2):
        clock.attempt("work", f"o{number}", Work(clock))
    ready = True
    routes = Routes(clock.faults)
    routes.add_health(lambda: ready, text("not synced", 503))
    assert routes.answer("GET", "/readyz").body == b"ok"
    lines = routes.answer("GET", "/readyz?verbose").body.decode().splitlines()
    assert lines[0] == "[!]work o0 failed 1 times, see fault id=1 in the log"
    assert lines[-2:] == ["[!]and 2 more", "ok"]
    ready = False
    assert routes.answer("GET", "/readyz").code == 503
    assert routes.answer("GET", "/livez").code == 200
    metrics = exposed(clock.faults.families()).decode()
    assert f'seatrial_faults_total{{work="work"}} {SHOWN + 2}\n' in metrics
    assert f"seatrial_failing_objects {SHOWN + 2}\n" in metrics
