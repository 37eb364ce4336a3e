"""The table of docs/subjects.md: what runs show and it does not say, and rows of cases that do not exist."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from seatrial.harness.results import Case, ResultsWriter, RunInfo, Subject, moment, read_run

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    {"subject": "a-scheduler 1.0", "cases": "GA-011, TO-020 to TO-022", "why": "it differs"},
    {"subject": "another 1.0", "cases": "GA-041", "why": "it differs"},
]


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("subject_table", ROOT / "docs" / "subject_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_run_is_compared_with_the_rows_of_its_program(check: ModuleType, tmp_path: Path) -> None:
    verdicts = {"GA-011": "failed", "TO-021": "passed", "GA-041": "broken", "GA-042": "passed", "GA-043": "skipped"}
    with ResultsWriter(tmp_path, fresh=True) as results:
        subject = Subject("./bin/a-scheduler --secure-port 0")
        results.run(RunInfo(id="r", started=moment(0.0), command=(), backend="envtest", subject=subject))
        for case, verdict in verdicts.items():
            results.case(Case(nodeid=case, verdict=verdict, case=case))  # type: ignore[arg-type]
        results.finish()
    assert list(check.differences([read_run(tmp_path)], ROWS)) == [
        "GA-041: failed, and is in no row of a-scheduler",
        "TO-021: passed, and is in a row of a-scheduler",
    ]


def test_a_row_of_no_case_and_an_old_page_are_reported(check: ModuleType) -> None:
    page = f"<!-- subjects -->\n\n{check.table(ROWS)}\n\n<!-- end -->"
    unknown = {"subject": "another 1.0", "cases": "GA-9" + "99", "why": "it differs"}
    wrong = [line.partition(":")[0] for line in check.mistakes(page, [*ROWS, unknown])]
    assert wrong == ["subjects.json", "subjects.md"]
