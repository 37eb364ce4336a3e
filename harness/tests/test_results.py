"""What is written is read back; what is damaged is named."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.harness.errors import ResultsError
from seatrial.harness.results import (
    Case,
    DeviceState,
    Evidence,
    NodeState,
    ResultsWriter,
    RunInfo,
    Share,
    Subject,
    Verdict,
    moment,
    read_run,
)
from seatrial.scheduler.api.clock import SIM_EPOCH, SimClock

INFO = RunInfo("r1", moment(SIM_EPOCH), ("seatrial", "run"), "embedded", Subject("ours", "0.1.0"), seed=7)


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def writer(tmp_path: Path, clock: SimClock) -> ResultsWriter:
    writer = ResultsWriter(tmp_path / "run", clock=clock)
    writer.run(INFO)
    return writer


def test_a_run_comes_back_as_it_was_written(writer: ResultsWriter, clock: SimClock) -> None:
    case = Case(
        "t.py::test_a", "failed", "A", "What A claims.", "DS-1", ("DEV-1",), "allocation", "critical", "no", seconds=0.5
    )
    node = NodeState("n1", {"pool": "a"}, (DeviceState("gpu", 0, "a10", 1, "ok", 50, 25, ("default/p",)),))
    writer.attach("t.py::test_a", "pod events", "scheduled\n", ".log")
    clock.advance(1.25)
    writer.event("bound", "default/p", node="n1", devices={"gpu": [Share(0, 50, 25)]}, case="t.py::test_a")
    writer.measure("create_to_bound", "ms", values=[1, 2.5], labels={"mix": "shared"})
    writer.measure("pods_per_second", "pods/s", 31000)
    writer.case(case)
    writer.fleet([node])
    writer.finish()

    run = read_run(writer.folder)

    assert run.info.finished == moment(SIM_EPOCH + 1.25)
    assert run.cases[0].evidence[0].name == "pod events"
    assert (run.folder / run.cases[0].evidence[0].file).read_text() == "scheduled\n"
    assert run.cases[0].reason == "no"
    assert run.cases[0].features == ("DEV-1",)
    assert run.timeline[0].at == moment(SIM_EPOCH + 1.25)
    assert run.timeline[0].devices["gpu"] == (Share(0, 50, 25),)
    assert [m.samples() for m in run.measurements] == [(1.0, 2.5), (31000.0,)]
    assert run.fleet == (node,)
    assert run.notes == ()


@pytest.mark.parametrize(
    ("verdicts", "finished", "want"),
    [
        pytest.param(["passed", "skipped"], True, "passed", id="a-skip-does-not-fail-a-run"),
        pytest.param(["passed", "failed"], True, "failed", id="one-failure-fails-it"),
        pytest.param(["passed", "broken"], True, "failed", id="a-broken-test-fails-it"),
        pytest.param(["skipped"], True, "incomplete", id="skips-alone-prove-nothing"),
        pytest.param([], True, "incomplete", id="no-tests-prove-nothing"),
        pytest.param(["passed"], False, "incomplete", id="a-run-that-was-cut-short-proves-nothing"),
        pytest.param(["failed"], False, "failed", id="a-failure-stands-even-if-cut-short"),
    ],
)
def test_verdict_of_a_run(writer: ResultsWriter, verdicts: list[Verdict], finished: bool, want: str) -> None:
    for number, verdict in enumerate(verdicts):
        writer.case(Case(f"t.py::test_{number}", verdict))
    if finished:
        writer.finish()
    assert read_run(writer.folder).verdict == want


def test_an_interrupted_run_is_incomplete(writer: ResultsWriter) -> None:
    writer.case(Case("t.py::a", "passed"))
    writer.finish(interrupted=True)
    assert read_run(writer.folder).verdict == "incomplete"


def test_workers_write_at_the_same_time(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with ResultsWriter(folder, fresh=True) as first:
        first.run(INFO)
    program = (
        "import sys\nfrom harness.results import *\n"
        "w = ResultsWriter(sys.argv[1], worker=sys.argv[2])\n"
        "for n in range(200):\n"
        "    w.attach(f't.py::{sys.argv[2]}-{n}', 'log', 'x' * 10)\n"
        "    w.case(Case(f't.py::{sys.argv[2]}-{n}', 'passed', reason='y' * 5000))\n"
    )
    workers = [subprocess.Popen([sys.executable, "-c", program, folder, name]) for name in ("gw0", "gw1")]
    assert [worker.wait(120) for worker in workers] == [0, 0]
    run = read_run(folder)
    assert len(run.cases) == 400
    assert all(len(case.evidence) == 1 for case in run.cases)


def test_a_torn_last_line_is_left_out_with_a_note(writer: ResultsWriter) -> None:
    writer.case(Case("t.py::a", "passed"))
    with (writer.folder / "cases.jsonl").open("ab") as file:
        file.write(b'{"nodeid": "t.py::b", "verd')
    run = read_run(writer.folder)
    assert [case.nodeid for case in run.cases] == ["t.py::a"]
    assert run.notes == ("cases.jsonl line 2: left out, it ends in the middle (the run was cut off)",)


def test_a_writer_that_comes_back_cuts_what_its_predecessor_tore(writer: ResultsWriter) -> None:
    writer.case(Case("t.py::a", "passed"))
    with (writer.folder / "cases.jsonl").open("ab") as file:
        file.write(b'{"nodeid": "t.py::b", "verd')
    ResultsWriter(writer.folder).case(Case("t.py::c", "passed"))
    run = read_run(writer.folder)
    assert [case.nodeid for case in run.cases] == ["t.py::a", "t.py::c"]
    assert run.notes == ()


def test_a_case_that_ran_again_counts_as_it_ended_last(writer: ResultsWriter) -> None:
    writer.case(Case("t.py::a", "passed", started=moment(SIM_EPOCH + 9)))
    writer.case(Case("t.py::a", "failed", started=moment(SIM_EPOCH + 3)))
    run = read_run(writer.folder)
    assert [case.verdict for case in run.cases] == ["passed"]
    assert "1 earlier results" in run.notes[0]


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        pytest.param(
            "cases.jsonl",
            '{"nodeid": "a", "verdict": "passed"}\n{"nodeid": 3, "verdict": "passed"}\n',
            'cases.jsonl line 2: expected a text, got a whole number - at `$.nodeid`, found \'{"nodeid": 3',
            id="wrong-type",
        ),
        pytest.param(
            "cases.jsonl",
            '{"nodeid": "a", "verdict": "fine"}\n',
            "line 1: expected JSON as in docs/results.md (Invalid enum value 'fine' - at `$.verdict`)",
            id="unknown-verdict",
        ),
        pytest.param("cases.jsonl", "garbage\n{}\n", "cases.jsonl line 1: expected JSON", id="not-json-in-the-middle"),
        pytest.param(
            "timeline.jsonl",
            '{"at": "2026-01-01T00:00:00", "event": "bound", "pod": "p"}\n',
            "timeline.jsonl line 1: expected `datetime` with a timezone component - at `$.at`",
            id="moment-without-offset",
        ),
        pytest.param(
            "measurements-gw1.jsonl",
            '{"name": "x", "unit": "ms"}\n',
            "measurements-gw1.jsonl line 1: expected JSON as in docs/results.md (Object missing required field `at`)",
            id="missing-field",
        ),
        pytest.param("run.json", '{"format": "other/9"}', "missing required field `id`", id="run-of-another-shape"),
        pytest.param("fleet.json", "[{}]", "missing required field `name` - at `$[0]`", id="fleet-without-a-name"),
    ],
)
def test_damage_is_named(writer: ResultsWriter, file: str, content: str, says: str) -> None:
    (writer.folder / file).write_text(content)
    with pytest.raises(ResultsError, match=re.escape(says)):
        read_run(writer.folder)


def test_another_version_of_the_format_is_refused(writer: ResultsWriter) -> None:
    path = writer.folder / "run.json"
    path.write_text(path.read_text().replace("seatrial-run/1", "seatrial-run/2"))
    with pytest.raises(ResultsError, match=re.escape("expected format 'seatrial-run/1', found 'seatrial-run/2'")):
        read_run(writer.folder)


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(ResultsError, match=r"with run.json in it, found a folder with thesis.tex"):
        read_run(tmp_path)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("names", [["thesis.tex"], ["thesis.tex", "cases.jsonl"], ["thesis.tex", "evidence"]])
def test_a_strangers_folder_stays_as_it_is(tmp_path: Path, names: list[str], fresh: bool) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(ResultsError, match="expected a new or empty folder"):
        ResultsWriter(tmp_path, fresh=fresh)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_fresh_removes_what_an_earlier_run_left_and_nothing_else(writer: ResultsWriter) -> None:
    writer.attach("t.py::a", "log", "x")
    writer.case(Case("t.py::a", "failed"))
    writer.fleet([])
    for name in ("my notes.txt", "my subject.log", "subject.log", "subject-gw10.log"):
        (writer.folder / name).touch()
    ResultsWriter(writer.folder, fresh=True)
    assert sorted(path.name for path in writer.folder.iterdir()) == [
        ".run.lock",
        "cases.jsonl",
        "my notes.txt",
        "my subject.log",
    ]
    assert (writer.folder / "cases.jsonl").read_bytes() == b""


def test_evidence_of_one_name_is_kept_apart(writer: ResultsWriter) -> None:
    nodeid = "suites/a.py::test_x[../../etc é]"
    files = [writer.attach(nodeid, "log", text) for text in ("one", "two")]
    assert len(set(files)) == 2
    assert [(writer.folder / file).read_text() for file in files] == ["one", "two"]
    assert all((writer.folder / file).resolve().is_relative_to(writer.folder.resolve()) for file in files)
    writer.case(Case(nodeid, "failed"))
    assert read_run(writer.folder).cases[0].evidence == (Evidence("log", files[0]), Evidence("log", files[1]))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_a_measurement_has_finite_figures(writer: ResultsWriter, value: float | None) -> None:
    with pytest.raises(ValueError, match="expected finite figures"):
        writer.measure("x", "ms", value)


def test_the_documented_examples_are_a_run(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "results.md").read_text()
    examples = re.findall(r"^```json (\S+)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    for name, content in examples:
        (tmp_path / name).write_text(content)
    run = read_run(tmp_path)
    assert len(examples) == 5
    assert (run.verdict, len(run.measurements), run.fleet[0].devices[0].model) == ("failed", 2, "H100-SXM5-80GB")
    assert run.timeline[0].case == run.cases[0].nodeid


def test_one_run_has_one_folder(tmp_path: Path) -> None:
    with ResultsWriter(tmp_path, fresh=True) as first:
        first.case(Case("t.py::a", "passed"))
        with pytest.raises(ResultsError, match=rf"has not ended writes to it \(process {os.getpid()}\)"):
            ResultsWriter(tmp_path, fresh=True)
        with ResultsWriter(tmp_path, worker="gw0") as worker:
            worker.case(Case("t.py::b", "passed"))
        assert len((tmp_path / "cases.jsonl").read_text().splitlines()) == 1, "the refused run removed nothing"
    ResultsWriter(tmp_path, fresh=True).close()
    assert (tmp_path / "cases.jsonl").read_text() == ""
    assert not (tmp_path / "cases-gw0.jsonl").exists()


def test_the_lock_of_a_killed_run_is_gone_with_it(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom seatrial.harness.results import ResultsWriter\n"
        "writer = ResultsWriter(sys.argv[1], fresh=True)\nos.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)  # our own program
    assert done.returncode == -9
    ResultsWriter(tmp_path, fresh=True).close()
