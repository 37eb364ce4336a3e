"""The release policy, the changes since a base, the history, and the summary in Markdown."""

import json
from pathlib import Path

import pytest

from seatrial.harness.cli import app
from seatrial.harness.errors import ResultsError, UsageError
from seatrial.harness.results import Case, ResultsWriter, RunInfo, Subject, moment
from seatrial.reports.collect import Collection, collect
from seatrial.reports.policy import outcomes, read_policy
from seatrial.reports.release import release_of, trends
from seatrial.reports.signoff import signoff, stamp_of
from seatrial.reports.tests.sample import sample_run
from seatrial.scheduler.api.clock import SIM_EPOCH

FEATURES = """
- {id: DEV-1, title: Cards, promises: {whole: Whole cards, half: Halves}}
- {id: DEV-8, title: Isolation, promises: {memory: {text: Memory is limited, needs: [hardware]}}}
- {id: QUOTA-1, title: Quota}
"""


@pytest.fixture
def runs(tmp_path: Path) -> Collection:
    (tmp_path / "features.yaml").write_text(FEATURES)
    with ResultsWriter(tmp_path / "run") as writer:
        writer.run(RunInfo("r1", moment(SIM_EPOCH), ("seatrial",), "embedded", Subject("ours", "1")))
        for name, features, grades in (
            ("a", ("DEV-1.whole",), ()),
            ("b", ("DEV-1.half",), ()),
            ("c", ("DEV-8.memory",), ("hardware",)),
        ):
            writer.case(Case(f"t::{name}", "passed", features=features, grades=grades))
        for value in (40.0, 50.0, 60.0):
            writer.measure("throughput", "pods/s", value, labels={"workload": "steady"})
        writer.measure("throughput", "pods/s", 900.0, labels={"workload": "bursts"}, valid=False)
        writer.measure("create to bound", "ms", 9.0, labels={"workload": "bursts", "valid": "no"})  # as 0.1.0 wrote it
        writer.finish()
    return collect([tmp_path / "run"], features=tmp_path / "features.yaml")


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        pytest.param("rows: [{id: DEV-1}]", [("DEV-1 verified", "")], id="a-row"),
        pytest.param("rows: [{id: 'DEV-*'}]", [("DEV-1 verified", ""), ("DEV-8 verified", "")], id="a-pattern"),
        pytest.param("rows: [{id: QUOTA-1}]", [("QUOTA-1 verified", "QUOTA-1: no case")], id="no-case"),
        pytest.param(
            "rows: [{id: DEV-1, at: [hardware]}]",
            [
                (
                    "DEV-1 verified at hardware",
                    "DEV-1.whole: passed at simulated, embedded; DEV-1.half: passed at simulated, embedded",
                )
            ],
            id="too-weak-a-grade",
        ),
        pytest.param(
            "rows: [{id: DEV-8.memory, at: [hardware, embedded]}]",
            [("DEV-8.memory verified at hardware and embedded", "")],
            id="a-promise-at-a-grade",
        ),
        pytest.param(
            "figures: [{name: throughput, labels: {workload: steady}, at_least: 50, at_most: 50}]",
            [("throughput, workload steady: p50 at least 50 and at most 50", "")],
            id="a-figure-on-both-bounds",
        ),
        pytest.param(
            "figures: [{name: throughput, labels: {workload: steady}, percentile: 100, at_most: 59.9}]",
            [("throughput, workload steady: p100 at most 59.9", "measured 60 pods/s")],
            id="a-figure-that-is-too-high",
        ),
        pytest.param(
            "figures: [{name: throughput, labels: {workload: bursts}, at_least: 1}]",
            [("throughput, workload bursts: p50 at least 1", "what was measured is not valid")],
            id="figures-that-are-not-valid-meet-nothing",
        ),
        pytest.param(
            "figures: [{name: create to bound, labels: {workload: bursts}, at_most: 10}]",
            [("create to bound, workload bursts: p50 at most 10", "what was measured is not valid")],
            id="figures-with-the-label-of-older-files",
        ),
        pytest.param(
            "figures: [{name: memory, at_most: 10}]", [("memory: p50 at most 10", "not measured")], id="not-measured"
        ),
    ],
)
def test_demands(tmp_path: Path, runs: Collection, policy: str, want: list[tuple[str, str]]) -> None:
    (tmp_path / "policy.yaml").write_text(policy)
    run_outcomes = outcomes(read_policy(tmp_path / "policy.yaml"), runs)
    assert [(outcome.demand, outcome.why) for outcome in run_outcomes] == want


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        pytest.param("rows: []", "an empty policy is met by anything", id="empty"),
        pytest.param("rows: [{id: DEV-1, at: [paper]}]", "grade 'paper'", id="no-such-grade"),
        pytest.param("figures: [{name: throughput}]", "expected at_least or at_most", id="no-bound"),
        pytest.param("figures: [{name: x, at_least: 1, percentile: 101}]", "expected 0 to 100", id="no-percentile"),
        pytest.param("rows: [{row: DEV-1}]", "row", id="unknown-field"),
        pytest.param(None, "cannot be read", id="no-file"),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused(tmp_path: Path, policy: str | None, says: str) -> None:
    if policy is not None:
        (tmp_path / "policy.yaml").write_text(policy)
    with pytest.raises(UsageError, match=says):
        read_policy(tmp_path / "policy.yaml")


def test_a_rule_that_matches_nothing_is_refused(tmp_path: Path, runs: Collection) -> None:
    (tmp_path / "policy.yaml").write_text("rows: [{id: DEV-99}]")
    with pytest.raises(UsageError, match="'DEV-99' is no row and no promise"):
        outcomes(read_policy(tmp_path / "policy.yaml"), runs)


def test_a_demand_that_is_not_met_fails_a_run_that_passed(tmp_path: Path, runs: Collection) -> None:
    (tmp_path / "policy.yaml").write_text("rows: [{id: DEV-1}, {id: QUOTA-1}]")
    release = release_of(runs, policy=read_policy(tmp_path / "policy.yaml"))
    assert runs.verdict == "passed"
    assert (stamp_of(runs), stamp_of(runs, release)) == ("PASS of what ran", "FAIL")
    page = signoff(runs, release=release)
    assert '<p class="stamp">FAIL</p>' in page
    assert "1 demand of the release policy is not met." in page
    assert page.index("QUOTA-1 verified") < page.index("DEV-1 verified"), "what is not met comes first"


def test_the_command_ends_with_1_for_an_unmet_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "features.yaml").write_text(FEATURES)
    run = sample_run(tmp_path / "run", failing=False)
    words = ["report", str(run), "--features", str(tmp_path / "features.yaml")]
    assert app([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unmet"] == []
    for row, status in (("QUOTA-1", 0), ("DEV-8", 1)):
        (tmp_path / "policy.yaml").write_text(f"rows: [{{id: {row}}}]")
        assert app([*words, "--require", str(tmp_path / "policy.yaml")]) == status
    assert "not met: DEV-8 verified: DEV-8.memory: no case" in capsys.readouterr().out


def test_the_page_shows_what_changed_and_how_figures_went(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        sample_run(tmp_path / "old" / f"run-{number}", seed=number, failing=False)
    new = sample_run(tmp_path / "new", seed=9)
    summary = tmp_path / "out" / "summary.md"
    words = ["--base", str(tmp_path / "old" / "run-2"), "--history", str(tmp_path / "old"), "--markdown", str(summary)]
    assert app(["report", str(new), *words]) == 1
    page = (new / "signoff.html").read_text()
    changes = page[page.index('id="h-changes"') : page.index('id="h-requirements"')]
    assert "regressed" in changes
    assert "preemption evicted 3 pods where 2 would do" in changes
    assert changes.count('<details class="change" open>') == 1, "what regressed is unfolded"
    assert '<span class="claim">4 figures within tolerance or noise</span>' in changes
    history = page[page.index('id="h-history"') : page.index('id="h-requirements"')]
    assert history.count('<tr><th scope="row">') == 3
    assert ">run</text>" in history, "the axis of the trends has a name"
    text = summary.read_text()
    assert text.startswith("## FAIL: ")
    assert "| failed | " in text
    assert "- regressed: " in text
    assert "8 skipped: needs a real GPU" not in text
    assert "4 skipped: needs a real GPU" in text


def test_markdown_lets_nothing_out_of_its_cell(tmp_path: Path) -> None:
    with ResultsWriter(tmp_path / "run") as writer:
        writer.run(RunInfo("r1", moment(SIM_EPOCH), ("seatrial",), "embedded", Subject("ours")))
        writer.case(Case("t::a", "failed", "a | b <script>", reason="`x` | <b>\nsecond line"))
        writer.finish()
    app(["report", str(tmp_path / "run"), "--markdown", str(tmp_path / "summary.md")])
    (row,) = [line for line in (tmp_path / "summary.md").read_text().splitlines() if line.startswith("| failed")]
    assert row.replace("\\|", "").count("|") == 5
    assert "<" not in row
    assert "second line" not in row


@pytest.mark.parametrize("option", ["base", "history"])
def test_a_folder_without_runs_is_named_with_its_option(tmp_path: Path, option: str) -> None:
    result = collect([sample_run(tmp_path / "run")])
    (tmp_path / "none").mkdir()
    with pytest.raises(ResultsError) as error:
        release_of(result, **{option: tmp_path / "none"})  # type: ignore[arg-type]
    assert str(error.value).startswith(f"--{option} {tmp_path / 'none'}: expected a run's folder")


def test_figures_that_are_not_valid_are_drawn_as_such(tmp_path: Path) -> None:
    """Three nights of one figure, the second of them not valid: one chart, whose line leaves the second out."""
    for night, valid in enumerate((True, False, True)):
        with ResultsWriter(tmp_path / "old" / str(night)) as writer:
            writer.run(RunInfo(str(night), moment(SIM_EPOCH + night), (), "embedded", Subject("ours")))
            writer.case(Case("t::a", "passed"))
            writer.measure("wait", "ms", values=range(1, 31), labels={"workload": "steady"}, valid=valid)
            writer.finish()
    ((title, picture, message),) = trends(collect([tmp_path / "old"]).runs)
    assert (title, message) == ("Wait, workload steady", "median 15 → 15 ms; 1 of 3 figures are not valid (hollow)")
    assert picture.count("c0 invalid") == 1
    assert picture.partition('<polyline class="line c0" points="')[2].partition('"')[0].count(",") == 2
    page = signoff(collect([tmp_path / "old" / "1"]))
    assert "workload steady, not valid: p50 15" in page
    assert 'class="line c0 invalid"' in page
    assert 'workload steady <span class="pill skipped">not valid</span>' in page


def test_the_figures_that_matter_are_charted_and_no_other_is_lost(tmp_path: Path) -> None:
    """Two nights with nine latencies, a rate, and a share: first what the policy bounds, then the rate."""
    for night in range(2):
        with ResultsWriter(tmp_path / "old" / str(night)) as writer:
            writer.run(RunInfo(str(night), moment(SIM_EPOCH + night), (), "embedded", Subject("ours")))
            writer.case(Case("t::a", "passed"))
            for number in range(9):
                writer.measure(f"a{number}", "ms", values=range(1, 101))
            writer.measure("b share", "%", 80.0)
            writer.measure("throughput", "pods/s", 40.0 + night, labels={"workload": "steady"})
            writer.finish()
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "figures: [{name: a7, percentile: 99, at_most: 120}, {name: throughput, at_least: 30},"
        " {name: a8, at_most: 900}]"
    )
    runs = collect([tmp_path / "old"])
    results = trends(runs.runs, read_policy(policy).figures)
    assert [trend.title for trend in results[:4]] == ["A7, p99", "A8", "Throughput, workload steady", "A0"]
    assert [trend.title for trend in results[-1:]] == ["B share"]
    assert trends(runs.runs)[0].title == "Throughput, workload steady", "rates are first without a policy"
    assert results[0].caption == "p99 99 → 99 ms; release policy: at most 120 ms"
    assert "<title>at most 120 ms</title>" in results[0].picture
    assert "<title>at least 30 pods/s</title>" in results[2].picture
    assert "budget" not in results[1].picture, "far above all figures"
    release = release_of(runs, policy=read_policy(policy), history=tmp_path / "old")
    page = signoff(runs, release=release)
    assert '<span class="claim">6 more figures of two runs or more</span>' in page
    assert "<li>B share: median 80 → 80 %</li>" in page


def test_figures_worse_than_the_base_fail_a_report_that_passed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half the rate and twice the latencies: in the header, in the findings, in JSON, in Markdown, in the status."""
    base = sample_run(tmp_path / "base", failing=False)
    new = sample_run(tmp_path / "new", failing=False, slower=2)
    words = ["report", str(new), "--base", str(base), "--markdown", str(tmp_path / "summary.md")]
    assert app(["report", str(new), "--base", str(tmp_path / "new")]) == 0
    capsys.readouterr()
    assert app([*words, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "failed"
    assert len(document["regressed"]) == 3
    assert app(words) == 1
    out = capsys.readouterr().out
    assert out.startswith("FAIL: ")
    assert "regressed: decisions: 31,900 -> 15,950 pods/s (0.500 of base)" in out
    page = (new / "signoff.html").read_text()
    header, _, rest = page.partition("</header>")
    assert '<p class="stamp">FAIL</p>' in header
    assert "3 figures are worse than in the base." in header
    assert "decisions: 31,900" in rest[rest.index('id="h-findings"') : rest.index('id="h-changes"')]
    text = (tmp_path / "summary.md").read_text()
    assert "Since the base: 0 changed verdicts, 3 figures are worse." in text
    assert "- regressed: decisions: 31,900" in text
