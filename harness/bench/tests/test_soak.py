"""`bench soak`: a short run with real processes, and what fails one."""

import re

import pytest

from seatrial.harness.bench.mixes import mix
from seatrial.harness.bench.soak import Course, Load, Seen, bench_soak, figures_of

LOAD = Load(seconds=1.0, nodes=10, rate=40.0, alive=10)


def test_pods_come_and_go() -> None:
    figures = bench_soak(LOAD, mix("cpu"), lambda _: None)
    assert (figures["created"], figures["deleted"], figures["events_lost"]) == (40, 30, 0)
    assert {name: len(readings) for name, readings in figures["mib"].items()} == {"API server": 10, "scheduler": 10}
    assert 0 < figures["lag_ms"]["p50"] <= figures["lag_ms"]["p99"] <= figures["lag_ms"]["max"]
    assert figures["bound"] > 0


def _course(**changes: object) -> Course:
    """A good one: two pods, one of them deleted, seen by two watches."""
    seen = [Seen({"a", "b"}, {"a"}, {"a"}, [0.001, 0.002]) for _ in range(2)]
    course = Course(created={"a", "b"}, deleted={"a"}, watches=seen)
    for name, value in changes.items():
        setattr(course, name, value)
    return course


@pytest.mark.parametrize(
    ("course", "reason"),
    [
        pytest.param(_course(), None, id="good"),
        pytest.param(_course(created={"a", "b", "c"}), "2 events were lost", id="an-addition-lost"),
        pytest.param(_course(deleted={"a", "b"}), "2 events were lost", id="a-removal-lost"),
        pytest.param(_course(watches_lost=1), "1 watches ended", id="watch-ended"),
        pytest.param(_course(refused=[429, 0]), r"requests were refused \(429, no answer\)", id="refused"),
        pytest.param(
            _course(created=set(), deleted=set(), watches=[Seen(lags=[0.2])]), "lag is above 100 ms", id="lag"
        ),
    ],
)
def test_verdict(course: Course, reason: str | None) -> None:
    figures = figures_of(LOAD, course)
    assert figures["passed"] == (reason is None)
    assert re.search(reason or "^$", "; ".join(figures["failed_because"]))
