"""A gate that catches what got worse and does not cry wolf."""

from pathlib import Path

import numpy as np
import pytest

from seatrial.harness.results import Case, ResultsWriter, RunInfo, Subject, Verdict, moment
from seatrial.reports.collect import Collection, collect
from seatrial.reports.compare import Comparison, better, compare, median_interval
from seatrial.scheduler.api.clock import SIM_EPOCH


def side(
    folder: Path,
    verdict: Verdict | None = "passed",
    *,
    unit: str = "ms",
    samples: list[float] | None = None,
    backend: str = "embedded",
    finish: bool = True,
    valid: bool = True,
) -> Collection:
    with ResultsWriter(folder) as writer:
        writer.run(RunInfo(folder.name, moment(SIM_EPOCH), (), backend, Subject("ours")))
        writer.case(Case("t::other", "passed"))
        if verdict:
            writer.case(Case("t::a", verdict, reason="because"))
        if samples:
            writer.measure("figure", unit, values=samples, valid=valid)
        if finish:
            writer.finish()
    return collect([folder])


@pytest.mark.parametrize(
    ("base", "new", "change", "regressed"),
    [
        pytest.param("passed", "passed", None, False, id="still-passes"),
        pytest.param("passed", "failed", "regressed", True, id="fails-now"),
        pytest.param("passed", "broken", "regressed", True, id="breaks-now"),
        pytest.param("skipped", "failed", "regressed", True, id="fails-where-it-was-skipped"),
        pytest.param(None, "failed", "regressed", True, id="a-new-case-fails"),
        pytest.param("failed", "failed", None, False, id="failed-before-too"),
        pytest.param("broken", "failed", "changed", False, id="was-broken-now-fails"),
        pytest.param("failed", "passed", "fixed", False, id="fixed"),
        pytest.param("passed", "skipped", "lost", False, id="is-skipped-now"),
        pytest.param("passed", None, "lost", False, id="is-gone"),
        pytest.param("failed", None, "lost", False, id="a-failure-that-went-away-is-not-fixed"),
        pytest.param(None, "passed", "added", False, id="a-new-case-passes"),
    ],
)
def test_verdicts(
    tmp_path: Path, base: Verdict | None, new: Verdict | None, change: str | None, regressed: bool
) -> None:
    comparison = compare(side(tmp_path / "base", base), side(tmp_path / "new", new))
    assert [case.change for case in comparison.cases] == ([change] if change else [])
    assert comparison.regressed == regressed


STEADY = [10.0, 10.1, 9.9, 10.2, 9.8, 10.0, 10.1, 9.9]


@pytest.mark.parametrize(
    ("unit", "base", "new", "regressed"),
    [
        pytest.param("ms", STEADY, [1.5 * x for x in STEADY], True, id="slower-by-half"),
        pytest.param("ms", STEADY, [1.05 * x for x in STEADY], False, id="slower-within-tolerance"),
        pytest.param("ms", STEADY, [0.5 * x for x in STEADY], False, id="faster"),
        pytest.param("pods/s", STEADY, [0.5 * x for x in STEADY], True, id="half-the-rate"),
        pytest.param("pods/s", STEADY, [2 * x for x in STEADY], False, id="twice-the-rate"),
        pytest.param("ms", [5, 30, 8, 20, 11, 9, 25], [12, 6, 33, 9, 22, 14, 10], False, id="slower-within-the-noise"),
        pytest.param("%", STEADY, [0.1 * x for x in STEADY], False, id="a-unit-without-a-good-direction"),
        pytest.param("ms", [0, 0, 0], [5, 5, 5], True, id="from-nothing-to-something"),
    ],
)
def test_figures(tmp_path: Path, unit: str, base: list[float], new: list[float], regressed: bool) -> None:
    comparison = compare(side(tmp_path / "b", unit=unit, samples=base), side(tmp_path / "n", unit=unit, samples=new))
    assert comparison.regressed == regressed


def test_a_figure_is_told_with_its_ratio(tmp_path: Path) -> None:
    comparison = compare(side(tmp_path / "b", samples=[10, 20, 30]), side(tmp_path / "n", samples=[15, 30, 45]))
    assert [(figure.base, figure.new, figure.ratio) for figure in comparison.figures] == [(20, 30, 1.5)]


def test_equal_distributions_do_not_cry_wolf(tmp_path: Path) -> None:
    chance = np.random.default_rng(3)
    alarms = 0
    for round_ in range(30):
        first, second = (list(chance.lognormal(2, 0.8, 40)) for _ in range(2))
        base, new = tmp_path / f"b{round_}", tmp_path / f"n{round_}"
        alarms += compare(side(base, samples=first), side(new, samples=second)).regressed
    assert alarms == 0


def test_one_backend_a_side_is_compared_whatever_its_name(tmp_path: Path) -> None:
    comparison = compare(side(tmp_path / "b", backend="embedded"), side(tmp_path / "n", "failed", backend="kind"))
    assert [case.nodeid for case in comparison.cases] == ["t::a"]


def test_several_backends_are_kept_apart(tmp_path: Path) -> None:
    side(tmp_path / "base" / "1")
    side(tmp_path / "base" / "2", "failed", backend="kind")
    side(tmp_path / "new" / "1", "failed")
    side(tmp_path / "new" / "2", "passed", backend="kind")
    comparison: Comparison = compare(collect([tmp_path / "base"]), collect([tmp_path / "new"]))
    assert {case.nodeid: case.change for case in comparison.cases} == {
        "embedded: t::a": "regressed",
        "kind: t::a": "fixed",
    }


def test_results_that_prove_nothing_do_not_pass_a_gate(tmp_path: Path) -> None:
    assert compare(side(tmp_path / "b"), side(tmp_path / "n", finish=False)).regressed


@pytest.mark.parametrize(
    ("count", "want"),
    [
        pytest.param(1, (0, 0), id="one"),
        pytest.param(5, (0, 4), id="five-have-their-range"),
        pytest.param(6, (0, 5), id="six-are-the-first-with-an-interval"),
        pytest.param(20, (5, 14), id="twenty-as-tables-of-the-sign-test-have-it"),
        pytest.param(100, (39, 60), id="a-hundred-as-tables-have-it"),
    ],
)
def test_interval_of_a_median(count: int, want: tuple[int, int]) -> None:
    assert median_interval(tuple(map(float, range(count)))) == want


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    chance = np.random.default_rng(5)
    for count in (9, 31, 2001):
        hits = 0
        for _ in range(400):
            low, high = median_interval(tuple(sorted(chance.exponential(1.0, count))))
            hits += low <= np.log(2) <= high
        assert hits >= 0.92 * 400


@pytest.mark.parametrize(
    ("unit", "want"), [("ms", "lower"), ("s", "lower"), ("pods/s", "higher"), ("%", ""), ("pods", "")]
)
def test_direction_of_a_unit(unit: str, want: str) -> None:
    assert better(unit) == want


def test_sides_that_are_not_alike_are_said_to_be(tmp_path: Path) -> None:
    sides = []
    for name, backend, hardware in (("base", "virtual", "simulated"), ("new", "local", "stand-in a10:2")):
        with ResultsWriter(tmp_path / name) as writer:
            writer.run(RunInfo(name, moment(SIM_EPOCH), (), backend, Subject("ours", "1"), hardware=hardware))
            writer.case(Case("t::a", "passed"))
            writer.finish()
        sides.append(collect([tmp_path / name]))
    assert compare(*sides).notes == ("backend: virtual -> local", "hardware: simulated -> stand-in a10:2")


@pytest.mark.parametrize(
    ("base", "new", "result"),
    [
        pytest.param(False, False, "not valid (base and new)", id="both"),
        pytest.param(True, False, "not valid (new)", id="new"),
        pytest.param(False, True, "not valid (base)", id="base"),
    ],
)
def test_figures_that_are_not_valid_are_not_judged(tmp_path: Path, base: bool, new: bool, result: str) -> None:
    """Validity changes from one run to the next; the figure is still the same one."""
    before = side(tmp_path / "b", samples=STEADY, valid=base)
    comparison = compare(before, side(tmp_path / "n", samples=[2 * x for x in STEADY], valid=new))
    assert [figure.result for figure in comparison.figures] == [result]
    assert not comparison.regressed


def test_changes_are_grouped_with_counts(tmp_path: Path) -> None:
    """Two suites that were not run, a case that is gone from one that was, two skips for one reason, two failures."""
    before = (("gang", 3), ("quota", 2), ("faults", 1), ("core", 3), ("sums", 2))
    after: dict[tuple[str, int], tuple[Verdict, str]] = {
        ("core", 0): ("failed", "no card\nat all"),
        ("core", 1): ("broken", "etcd did not answer"),
        ("core", 2): ("passed", ""),
        ("faults", 8): ("passed", ""),
        ("sums", 0): ("skipped", "needs a GPU"),
        ("sums", 1): ("skipped", "needs a GPU"),
    }
    cases = {(suite, number): ("passed", "") for suite, count in before for number in range(count)}
    for name, result in (("base", cases), ("new", after)):
        with ResultsWriter(tmp_path / name) as writer:
            writer.run(RunInfo(name, moment(SIM_EPOCH), (), "embedded", Subject("ours")))
            for (suite, number), (verdict, reason) in result.items():
                writer.case(Case(f"{suite}::{number}", verdict, suite=suite, reason=reason))  # type: ignore[arg-type]
            writer.finish()
    changes = compare(collect([tmp_path / "base"]), collect([tmp_path / "new"]))
    assert [group.text for group in changes.groups] == [
        "2 cases failed or broke, and did not before, in suite core",
        "5 cases had a verdict and have none now: suites gang, quota were not run",
        "2 cases had a verdict and have none now: skipped: needs a GPU",
        "1 case had a verdict and has none now: not among the new results of suite faults",
        "1 case is new (absent -> passed) in suite faults",
    ]
    assert [case.nodeid for case in changes.groups[0].cases] == ["core::0", "core::1"]
