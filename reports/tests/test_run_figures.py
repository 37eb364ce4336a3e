"""Figures come from samples by rules that can be checked by hand."""

from pathlib import Path

import pytest

from seatrial.harness.results import Case, ResultsWriter, Run, RunInfo, Subject, moment, read_run
from seatrial.reports.run_figures import cumulative, decades, loads_of, nice_step, series_of, short
from seatrial.scheduler.api.clock import SIM_EPOCH


def bound_at(folder: Path, moments: list[float], case: str = "t::load") -> Run:
    with ResultsWriter(folder) as writer:
        writer.run(RunInfo("r", moment(SIM_EPOCH), (), "embedded", Subject("ours")))
        for number, when in enumerate(moments):
            writer.event("bound", f"p{number}", case=case, at=SIM_EPOCH + when)
    return read_run(folder)


@pytest.mark.parametrize(
    ("least", "want"), [(0.07, 0.1), (0.1, 0.1), (0.11, 0.2), (1, 1), (3, 5), (5.1, 10), (99, 100), (1000, 1000)]
)
def test_a_step_is_nice(least: float, want: float) -> None:
    assert nice_step(least) == pytest.approx(want)


@pytest.mark.parametrize(
    ("low", "high", "want"),
    [
        pytest.param(0.8, 119, [0.5, 1, 2, 5, 10, 20, 50, 100, 200], id="over-three-decades"),
        pytest.param(1, 10, [1, 2, 5, 10], id="ends-on-ticks"),
        pytest.param(3, 3, [2, 5], id="one-value-has-a-span-too"),
        pytest.param(5, 5, [5, 10], id="one-value-on-a-tick"),
    ],
)
def test_ticks_of_a_logarithmic_axis(low: float, high: float, want: list[float]) -> None:
    assert decades(low, high) == pytest.approx(want)


def test_throughput_is_from_the_first_bind_to_the_last(tmp_path: Path) -> None:
    load = loads_of([bound_at(tmp_path, [0.5 * n for n in range(41)])])[0]
    assert load.pods == 41
    assert load.seconds == 20
    assert load.rate == 2
    assert sum(load.bound) * load.width == pytest.approx(41)


def test_few_pods_or_no_time_are_no_load(tmp_path: Path) -> None:
    assert loads_of([bound_at(tmp_path / "few", [0.1 * n for n in range(19)])]) == []
    assert loads_of([bound_at(tmp_path / "at-once", [1.0] * 50)]) == []


def test_a_case_in_virtual_time_has_no_throughput(tmp_path: Path) -> None:
    """Also in a run on the embedded cluster, whose cases in virtual time have the grade."""
    bound_at(tmp_path, [0.1 * n for n in range(30)], "t::real")
    with ResultsWriter(tmp_path) as writer:
        writer.case(Case("t::fast", "passed", grades=("virtual",)))
    run = bound_at(tmp_path, [0.1 * n for n in range(60)], "t::fast")
    assert [load.case for load in loads_of([run])] == ["t::real"]


def test_cases_are_not_mixed_on_one_time_axis(tmp_path: Path) -> None:
    bound_at(tmp_path, [0.1 * n for n in range(30)], "t::a")
    run = bound_at(tmp_path, [0.1 * n for n in range(60)], "t::b")
    assert [(load.case, load.pods) for load in loads_of([run])] == [("t::b", 60), ("t::a", 30)]


def test_measurements_of_one_thing_are_one_series(tmp_path: Path) -> None:
    with ResultsWriter(tmp_path) as writer:
        writer.run(RunInfo("r", moment(SIM_EPOCH), (), "embedded", Subject("ours")))
        writer.measure("wait", "ms", values=[3, 1], labels={"mix": "a", "size": "s"})
        writer.measure("wait", "ms", 2, labels={"size": "s", "mix": "a"})
        writer.measure("wait", "ms", 9, labels={"mix": "b"})
        writer.measure("wait", "s", 9, labels={"mix": "b"})
    samples = {(entry.unit, entry.what): entry.samples for entry in series_of([read_run(tmp_path)])}
    assert samples == {("ms", "mix a, size s"): (1, 2, 3), ("ms", "mix b"): (9,), ("s", "mix b"): (9,)}


def test_a_distribution_rises_to_all_and_keeps_its_tail() -> None:
    samples = [float(n) for n in range(10_000)]
    points = cumulative(samples)
    assert len(points) < 200
    assert points == sorted(points)
    assert points[-1][1] == 100
    assert [value for value, _ in points[-5:]] == samples[-5:]


@pytest.mark.parametrize(
    ("value", "want"),
    [(0, "0"), (7, "7"), (0.01234, "0.0123"), (8.654, "8.65"), (31.46, "31.5"), (119.4, "119"), (31_900, "31,900")],
)
def test_figures_are_short(value: float, want: str) -> None:
    assert short(value) == want
