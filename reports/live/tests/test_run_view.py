"""The rows of a run's page, while the run writes."""

from pathlib import Path

from seatrial.harness.results import Case, ResultsWriter, RunInfo, Subject, Verdict, moment
from seatrial.reports.live.run_view import RunView

FAILED = "suites/test_b.py::test_b"


def case(nodeid: str, verdict: Verdict, *, at: float) -> Case:
    return Case(nodeid, verdict, case="EX-1", reason="because", started=moment(at), seconds=2.0)


def test_cases_appear_as_they_end_with_their_evidence(tmp_path: Path) -> None:
    view = RunView(tmp_path)
    view.refresh()
    assert view.tables.rows("cases") == {}
    with ResultsWriter(tmp_path) as writer:
        writer.run(RunInfo("r1", moment(0), ("seatrial",), "virtual", Subject("ours")))
        writer.case(case("suites/test_a.py::test_a", "passed", at=1.0))
        view.refresh()
        assert [row["verdict"] for row in view.tables.changes()["cases"].values() if row] == ["passed"]
        file = writer.attach(FAILED, "log", "<script>alert(1)</script>", ".html")
        writer.case(case(FAILED, "failed", at=3.0))
        (tmp_path / "secret.txt").write_text("not evidence")
        view.refresh()
    assert set(view.tables.changes()["cases"]) == {FAILED}
    row = view.tables.rows("cases")[FAILED]
    assert (row["case"], row["reason"], row["ended"], row["evidence"]) == ("EX-1", "because", 5.0, [["log", file]])
    assert view.evidence(file) == ("text/plain; charset=utf-8", b"<script>alert(1)</script>")
    for path in ("secret.txt", "run.json", f"evidence/../{file}", "../etc/passwd"):
        assert view.evidence(path) is None
