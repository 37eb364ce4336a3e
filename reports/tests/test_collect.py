"""Requirements are counted honestly, over one run and over many."""

from pathlib import Path

import msgspec
import pytest

from seatrial.harness.errors import ResultsError, UsageError
from seatrial.harness.results import INVALID_LOAD, Case, ResultsWriter, RunInfo, Subject, Verdict, moment
from seatrial.reports.collect import FEATURES, collect, fingerprint, read_features, state_of
from seatrial.reports.grades import grade_of
from seatrial.reports.tests.sample import FEATURES_YAML, sample_run
from seatrial.scheduler.api.clock import SIM_EPOCH


def write(folder: Path, name: str, cases: list[Case], *, started: float = 0, backend: str = "embedded") -> Path:
    with ResultsWriter(folder / name) as writer:
        writer.run(RunInfo(name, moment(SIM_EPOCH + started), ("seatrial", "run"), backend, Subject("ours", "1")))
        for case in cases:
            writer.case(case)
        writer.finish()
    return folder / name


@pytest.mark.parametrize(
    ("verdicts", "want"),
    [
        pytest.param(["passed"], "verified", id="a-pass-verifies"),
        pytest.param(["passed", "skipped"], "verified", id="a-skip-takes-nothing-away"),
        pytest.param(["passed", "failed"], "failed", id="a-failure-outweighs-a-pass"),
        pytest.param(["passed", "broken"], "not verified", id="a-broken-case-leaves-it-open"),
        pytest.param(["broken"], "not verified", id="broken-alone-is-no-verdict"),
        pytest.param(["broken", "failed"], "failed", id="failed-and-broken-is-failed"),
        pytest.param(["skipped"], "not verified", id="skips-alone-verify-nothing"),
        pytest.param([], "not verified", id="no-case-verifies-nothing"),
    ],
)
def test_state_of_a_requirement(verdicts: list[Verdict], want: str) -> None:
    assert state_of(Case(f"t::{n}", verdict, features=("X-1",)) for n, verdict in enumerate(verdicts)) == want


def test_a_load_that_is_not_valid_leaves_its_promise_open(tmp_path: Path) -> None:
    """Unless the same case had a valid load in another run; the coverage says how many loads were not valid."""
    steady = Case("t::load[steady]", "passed", features=("X-1",))
    bursts = Case("t::load[bursts]", "skipped", features=("X-1",), reason=f"{INVALID_LOAD}: generator lag 87 ms")
    assert state_of([steady, bursts]) == "not verified"
    assert state_of([steady, bursts, msgspec.structs.replace(bursts, verdict="passed", reason="")]) == "verified"
    collection = collect([write(tmp_path, "run", [steady, bursts])])
    assert collection.coverage.endswith(", 1 of the loads not valid")
    (row,) = [entry for entry in collection.requirements if entry.feature.id == "X-1"]
    assert row.promises[0].why == bursts.reason


def test_a_run_of_some_cases_alone_says_so(tmp_path: Path) -> None:
    with ResultsWriter(tmp_path) as writer:
        made = RunInfo("r", moment(SIM_EPOCH), ("seatrial", "run"), "embedded", Subject("ours"), keyword="a or b")
        writer.run(made)
        writer.case(Case("t::a", "passed"))
        writer.finish()
    name = "r: only cases that match -k 'a or b' were run; failures of other cases would not show"
    assert name in collect([tmp_path]).notes


def test_runs_are_put_together_in_the_order_they_started(tmp_path: Path) -> None:
    write(tmp_path, "a", [Case("t::a", "passed", features=("X-1",))], started=60, backend="kind")
    write(tmp_path, "b", [Case("t::a", "failed", features=("X-1", "X-2"))])
    result = collect([tmp_path])
    assert [run.info.id for run in result.runs] == ["b", "a"]
    by_id = {requirement.feature.id: requirement for requirement in result.requirements}
    assert [by_id["X-1"].state_in(run) for run in (0, 1)] == ["failed", "verified"]
    assert by_id["X-1"].state == "failed"
    assert by_id["X-2"].state_in(1) is None
    assert result.verdict == "failed"


def test_listed_features_come_first_and_unlisted_ones_are_kept(tmp_path: Path) -> None:
    features = tmp_path / "features.yaml"
    features.write_text("[{id: B-1, title: Bees, group: Insects}, {id: A-1}]")
    run = write(
        tmp_path, "a", [Case("t::a", "passed", features=("Z-10",)), Case("t::b", "passed", features=("Z-9", "A-1"))]
    )
    result = collect([run], features=features)
    assert [requirement.feature.id for requirement in result.requirements] == ["B-1", "A-1", "Z-9", "Z-10"]
    assert [requirement.state for requirement in result.requirements] == [
        "not verified",
        "verified",
        "verified",
        "verified",
    ]
    assert result.requirements[0].feature.title == "Bees"
    assert result.requirements[3].feature.title == ""


def test_the_suites_own_feature_list_is_read(tmp_path: Path) -> None:
    one, two = "NUMA-3.scores", "NUMA-3.configuration-numa-scoring"
    result = collect([write(tmp_path, "a", [Case("t::a", "passed", features=(one, two))])])
    assert {requirement.feature.id for requirement in result.requirements if requirement.state == "verified"} == {
        "NUMA-3"
    }
    assert {promise.id for promise in result.promises if promise.state == "verified"} == {one, two}
    assert len(result.requirements) == len(read_features(FEATURES)) > 50
    assert all(requirement.feature.title for requirement in result.requirements)


PROMISES = """
- {id: A-1, promises: {one: First, two: {text: Second, needs: [hardware]}}}
- {id: B-1, promises: {big: {text: Big, needs: [stand-in, kubelet]}}}
- {id: C-1, bare: true, promises: {only: Only}}
"""


@pytest.mark.parametrize(
    ("cases", "state", "kept", "why"),
    [
        pytest.param([("passed", "A-1.one", ())], "not verified", 1, "no case", id="one-of-two"),
        pytest.param(
            [("passed", "A-1.one", ()), ("passed", "A-1.two", ())],
            "not verified",
            1,
            "needs hardware, passed at simulated, embedded",
            id="too-weak-a-grade",
        ),
        pytest.param(
            [("passed", "A-1.one", ()), ("passed", "A-1.two", ("hardware",))], "verified", 2, "", id="all-of-them"
        ),
        pytest.param(
            [("passed", "A-1.one", ()), ("failed", "A-1.two", ())], "failed", 1, "a case failed", id="one-fails"
        ),
        pytest.param(
            [("passed", "A-1.one", ()), ("passed", "A-1.two", ("hardware",)), ("broken", "A-1.two", ())],
            "not verified",
            1,
            "a case broke",
            id="one-breaks",
        ),
        pytest.param([("skipped", "A-1.two", ())], "not verified", 0, "no card", id="a-skip-says-why"),
        pytest.param([("passed", "A-1", ())], "not verified", 0, "no case", id="the-row-alone-verifies-nothing"),
        pytest.param([("failed", "A-1", ())], "failed", 0, "no case", id="the-row-alone-can-fail"),
    ],
)
def test_a_row_is_verified_when_each_promise_is(
    tmp_path: Path, cases: list[tuple[Verdict, str, tuple[str, ...]]], state: str, kept: int, why: str
) -> None:
    features = tmp_path / "features.yaml"
    features.write_text(PROMISES)
    made = [
        Case(f"t::{number}", verdict, features=(name,), grades=grades, reason="no card" * (verdict == "skipped"))
        for number, (verdict, name, grades) in enumerate(cases)
    ]
    result = collect([write(tmp_path, "a", made)], features=features)
    row = result.requirements[0]
    assert (row.state, row.kept, len(row.promises)) == (state, kept, 2)
    assert row.promises[1].why == why
    assert row.state_in(0) == state
    assert row.kept_in(0) == kept
    assert len(result.requirements) == 3, "no row is invented for a promise"


def test_evidence_of_one_case_has_to_suffice(tmp_path: Path) -> None:
    features = tmp_path / "features.yaml"
    features.write_text(PROMISES)
    apart = [Case("t::a", "passed", features=("B-1.big",), grades=("stand-in",))]
    other = [Case("t::b", "passed", features=("B-1.big",), grades=("kubelet",))]
    both = [Case("t::c", "passed", features=("B-1.big",), grades=("hardware", "kubelet"))]
    runs = [write(tmp_path, "a", apart), write(tmp_path, "b", other, started=1)]
    row = collect(runs, features=features).requirements[1]
    assert row.state == "not verified"
    assert row.promises[0].why == ("needs stand-in and kubelet, passed at simulated, kubelet; stand-in, embedded")
    runs.append(write(tmp_path, "c", both, started=2))
    row = collect(runs, features=features).requirements[1]
    assert row.state == "verified"
    assert [row.kept_in(run) for run in range(3)] == [0, 0, 1]


@pytest.mark.parametrize(
    ("hardware", "backend", "want"),
    [
        pytest.param("simulated", "virtual", "simulated, virtual", id="virtual"),
        pytest.param("simulated", "embedded", "simulated, embedded", id="embedded"),
        pytest.param("stand-in dgx-h100", "local", "stand-in, embedded", id="stand-in"),
        pytest.param("this machine's", "local", "hardware, embedded", id="machine"),
        pytest.param("", "kind", "simulated, api-server", id="kind"),
    ],
)
def test_the_grade_of_a_run(hardware: str, backend: str, want: str) -> None:
    info = RunInfo("r", moment(SIM_EPOCH), (), backend, Subject("ours"), hardware=hardware)
    assert str(grade_of(info)) == want


def test_a_case_that_names_a_feature_twice_counts_once(tmp_path: Path) -> None:
    result = collect([write(tmp_path, "a", [Case("t::a", "passed", features=("X-1", "X-1"))])])
    assert {requirement.feature.id: len(requirement.cases) for requirement in result.requirements}["X-1"] == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param("{DEV-1: Devices}", "expected a list of", id="a-mapping"),
        pytest.param("[{title: no id}]", "missing required field `id`", id="no-id"),
        pytest.param("[{id: A-1}, {id: A-1}]", "A-1 is listed twice", id="twice"),
        pytest.param("[{id: A-1, promises: {one: {text: x, needs: [paper]}}}]", "A-1.one: needs 'paper'", id="a-grade"),
        pytest.param("[{id: A-1, promises: {One Two: x}}]", "promise 'One Two'", id="a-name"),
        pytest.param("[unclosed", "expected a list of", id="not-yaml"),
        pytest.param(None, "cannot be read", id="no-such-file"),
    ],
)
def test_a_feature_list_that_cannot_be_used_is_named(tmp_path: Path, content: str | None, says: str) -> None:
    path = tmp_path / "features.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=f"features.yaml.*{says}"):
        read_features(path)


def test_a_folder_without_runs_is_named(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ResultsError, match=r"found a folder with thesis\.tex"):
        collect([tmp_path])


def test_what_a_reader_must_know_is_noted(tmp_path: Path) -> None:
    run = write(tmp_path, "a", [Case("t::a", "skipped")])
    other = ResultsWriter(tmp_path / "b")
    other.run(RunInfo("b", moment(SIM_EPOCH + 5), (), "kind", Subject("theirs", "2")))
    result = collect([run, tmp_path / "b"])
    assert result.verdict == "incomplete"
    assert result.notes[0] == "a: no case passed; nothing is verified"
    assert "b: the run has no end time" in result.notes[1]
    assert "different subjects (ours 1, theirs 2)" in result.notes[2]


def test_the_sample_counts_as_it_was_made(tmp_path: Path) -> None:
    features = tmp_path / "features.yaml"
    features.write_text(FEATURES_YAML)
    result = collect([sample_run(tmp_path / "run")], features=features)
    assert [result.count(verdict) for verdict in ("passed", "failed", "broken", "skipped")] == [44, 1, 1, 4]
    states = {requirement.feature.id: requirement.state for requirement in result.requirements}
    assert {name for name, state in states.items() if state == "failed"} == {"PRE-1"}
    assert {name for name, state in states.items() if state == "not verified"} == {"DEV-7", "DEV-8", "NUMA-1"}


def test_a_fingerprint_changes_with_any_of_the_files(tmp_path: Path) -> None:
    run = collect([sample_run(tmp_path / "run")]).runs[0]
    before = fingerprint(run)
    assert fingerprint(run) == before
    evidence = next((tmp_path / "run" / "evidence").rglob("*.log"))
    evidence.write_text(evidence.read_text().replace("n03", "n04"))
    assert fingerprint(run) != before
