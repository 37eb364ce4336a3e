"""The commands, through the command line as a user types it."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from seatrial.harness.cli import app
from seatrial.harness.errors import UsageError
from seatrial.harness.results import Case, ResultsWriter, Run, RunInfo, Subject, Verdict, read_run
from seatrial.reports.matrix import matrix
from seatrial.reports.tests.sample import FEATURES_YAML, sample_run


@pytest.fixture(autouse=True)
def no_allure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is installed here: its command is tested elsewhere."""
    monkeypatch.setenv("PATH", "")


def seatrial(*words: object) -> object:
    return app([str(word) for word in words])


Capture = pytest.CaptureFixture[str]


def test_report_of_a_failed_run(tmp_path: Path, capsys: Capture) -> None:
    features = tmp_path / "features.yaml"
    features.write_text(FEATURES_YAML)
    run = sample_run(tmp_path / "run")
    assert seatrial("report", run, "--features", features, "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "failed"
    assert document["cases"] == {"passed": 44, "failed": 1, "broken": 1, "skipped": 4}
    assert document["requirements"]["PRE-1"] == "failed"
    assert "FAIL" in (run / "signoff.html").read_text()


def test_report_of_good_runs_goes_where_it_is_told(tmp_path: Path, capsys: Capture) -> None:
    run = sample_run(tmp_path / "run", failing=False)
    page = tmp_path / "pages" / "page.html"
    assert seatrial("report", run, "--output", page, "--title", "Release 7") == 0
    assert "<h1>Release 7</h1>" in page.read_text()
    message = capsys.readouterr().out
    assert message.startswith("PASS of what ran: ")
    assert " requirements, simulated. All 46 cases that ran passed; 4 did not run." in message


def test_a_folder_that_is_no_run_is_the_users_mistake(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "seatrial", "report", str(tmp_path / "nowhere")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)  # our own program
    assert done.returncode == 2
    assert done.stderr.startswith("seatrial: ")
    assert done.stderr.endswith("expected a run's folder with run.json in it, found nothing\n")


@pytest.mark.parametrize(
    ("changed", "status", "last"),
    [
        pytest.param({"failing": False}, 0, "no regression", id="nothing-new"),
        pytest.param({"failing": True}, 1, "REGRESSED", id="cases-fail-now"),
        pytest.param({"failing": False, "slower": 1.5}, 1, "REGRESSED", id="slower-now"),
    ],
)
def test_compare(tmp_path: Path, capsys: Capture, changed: dict[str, Any], status: int, last: str) -> None:
    base = sample_run(tmp_path / "base", failing=False)
    assert seatrial("compare", base, sample_run(tmp_path / "new", seed=9, **changed)) == status
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_compare_with_a_run_of_fewer_suites_is_short(tmp_path: Path, capsys: Capture) -> None:
    """46 cases are gone: one line and three examples of them; what failed is named whole, with its reason."""
    base = sample_run(tmp_path / "base", failing=False)
    with ResultsWriter(tmp_path / "new") as writer:
        writer.run(read_run(base).info)
        writer.case(Case("suites/own/test_a.py::test_a", "failed", suite="own", reason="no card\nat all"))
        writer.finish()
    assert seatrial("compare", base, tmp_path / "new") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "regressed  1 case failed or broke, and did not before, in suite own",
        "           - absent -> failed  suites/own/test_a.py::test_a  no card",
    ]
    suites = "allocation, faults, gang, preemption, quota, throughput, topology"
    assert lines[2] == f"lost       46 cases had a verdict and have none now: suites {suites} were not run"
    assert lines[6] == "           - and 43 more (--json names them)"
    assert lines[7] == "changed    4 cases changed (skipped -> absent) in suite isolation"


def test_compare_as_json(tmp_path: Path, capsys: Capture) -> None:
    base, new = sample_run(tmp_path / "base", failing=False), sample_run(tmp_path / "new", slower=2)
    assert seatrial("compare", base, new, "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["regressed"] is True
    assert {case["change"] for case in document["cases"]} == {"regressed"}
    assert {figure["name"] for figure in document["figures"] if figure["regressed"]} == {"create_to_bound", "decisions"}
    assert document["lost"] == 0
    assert document["notes"] == []


def test_matrix_of_two_backends(tmp_path: Path, capsys: Capture) -> None:
    """Of three runs two have the same cases on the same backend: the newer one, in which all pass, counts."""
    older = sample_run(tmp_path / "older", seed=7)
    newer = sample_run(tmp_path / "newer", seed=8, failing=False)
    other = sample_run(tmp_path / "other", seed=7, backend="envtest")
    assert seatrial("matrix", newer, older, other) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| suite | seatrial-scheduler, embedded | seatrial-scheduler, envtest |"
    cells = {line.split(" | ")[0]: line.split(" | ")[1:] for line in lines[2 : lines.index("")]}
    assert cells["| isolation"] == ["4 skipped", "4 skipped |"]
    assert cells["| preemption"] == ["4 passed", "3 passed, 1 failed |"]
    assert cells["| topology"] == ["4 passed", "3 passed, 1 broken |"]
    against = lines[lines.index("seatrial-scheduler, envtest:") :]
    assert any(line.startswith("- failed: preemption/") and "evicted 3 pods where 2" in line for line in against)
    assert not any(line.startswith("- failed") for line in lines[: lines.index("seatrial-scheduler, envtest:")])
    assert "- 4 skipped: needs a real GPU; the embedded backend has none (--backend local on a GPU machine)" in against


def test_matrix_of_a_descheduler_and_of_another_configuration() -> None:
    """Another project's descheduler has a column of its own. What a later run skipped keeps the verdict it had."""

    def of(day: int, verdict: Verdict, **provenance: str) -> Run:
        moment = datetime(2026, 11, day, tzinfo=UTC)
        subject = Subject("/opt/x/koord-scheduler --port 0", "")
        info = RunInfo(f"run-{day}", moment, (), "envtest", subject, provenance=provenance)
        return Run(Path(), info, (Case("suites/a/test_a.py::test_b", verdict, suite="a"),), (), (), ())

    runs = [of(1, "failed"), of(2, "skipped"), of(3, "passed", descheduler="/opt/x/koord-descheduler --secure-port 0")]
    lines = matrix(runs).splitlines()
    assert lines[0] == "| suite | koord-descheduler with koord-scheduler, envtest | koord-scheduler, envtest |"
    assert lines[2] == "| a | 1 passed | 1 failed |"


def test_matrix_goes_between_the_marks_of_a_page(tmp_path: Path, capsys: Capture) -> None:
    """The table into one page and the reasons into another; what stood there goes, what is around it stays."""
    run = sample_run(tmp_path / "run", seed=7, backend="envtest")
    table, reasons = tmp_path / "table.md", tmp_path / "reasons.md"
    table.write_text("# T\n<!-- matrix: table -->\nold\n<!-- end -->\nafter\n")
    reasons.write_text("<!-- matrix: reasons -->\n<!-- end -->\n")
    for _ in range(2):  # the second time changes nothing
        assert seatrial("matrix", run, "--into", table, "--into", reasons) == 0
    assert capsys.readouterr().out == ""
    lines = table.read_text().splitlines()
    assert lines[:4] == ["# T", "<!-- matrix: table -->", "", "| suite | seatrial-scheduler, envtest |"]
    assert lines[-2:] == ["<!-- end -->", "after"]
    assert any(line.startswith("- seatrial-scheduler, envtest: 1 run, 2026-") for line in lines)
    assert "old" not in lines
    assert "- failed: preemption/" in reasons.read_text()
    assert "| suite" not in reasons.read_text()
    bare = tmp_path / "bare.md"
    bare.write_text("# No mark\n")
    with pytest.raises(UsageError, match=r"bare.md: expected <!-- matrix: table --> or .* found neither"):
        seatrial("matrix", run, "--into", bare)
    with pytest.raises(UsageError, match=r"nowhere.md: expected a page in Markdown, found .*No such file"):
        seatrial("matrix", run, "--into", tmp_path / "nowhere.md")


def test_matrix_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="expected run folders, found none"):
        seatrial("matrix")
