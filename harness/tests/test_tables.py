"""Tables of the documentation: figures of benchmarks in them, and what runs of a subject show and they do not say."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from seatrial.harness.results import Case, ResultsWriter, RunInfo, Subject, moment, read_run

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    {"subject": "a-scheduler 1.0", "cases": "GA-011, TO-020 to TO-022", "what it does": "it differs"},
    {"subject": "another 1.0", "cases": "GA-041", "what it does": "it differs"},
]


@pytest.fixture(scope="module")
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "tables.py")
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


def test_a_row_of_no_case_and_an_old_page_are_reported(
    check: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "subjects.json"
    monkeypatch.setattr(check, "SUBJECTS", file)
    monkeypatch.setattr(check, "own_rules", lambda: {"GA-011"})
    page = f"<!-- table subjects -->\n\n{check.table(ROWS)}\n\n<!-- end -->"
    file.with_suffix(".md").write_text("| rules of ours |\n| GA-011 |\n\n" + page)
    assert list(check.mistakes(file, {"subjects": ROWS})) == []
    unknown = {"subject": "another 1.0", "cases": "GA-9" + "99", "what it does": "it differs"}
    wrong = [line.partition(":")[0] for line in check.mistakes(file, {"subjects": [*ROWS, unknown]})]
    assert wrong == ["subjects.json", "subjects.md"]
    assert list(check.mistakes(tmp_path / "subjects.json", {"subjects": ROWS, "a-table-of-no-page": ROWS}))
    monkeypatch.setattr(check, "own_rules", lambda: {"GA-041"})
    wrong = [line.split(":")[1] for line in check.mistakes(file, {"subjects": ROWS})]
    assert wrong == [" GA-011", " GA-041"]


def test_a_row_has_the_figures_of_its_command(check: ModuleType) -> None:
    row = {"what": "rate", "measured": "{rate[median]:,.0f} pods/s", "command": "seatrial bench", "figures": {}}
    taken = check.taken(row, {"rate": {"median": 12345.6}, "nodes": 5, "valid": True})
    assert taken["figures"] == {"rate": {"median": 12345.6}}
    table = "| what | measured | met |\n| --- | --- | --- |\n| rate | 12,346 pods/s | |\n| other | | yes |"
    assert check.table([taken, {"what": "other", "met": "yes"}]) == table


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({"rate": 1, "valid": False, "invalid_because": ["a busy machine"]}, "not valid: .'a busy machine'"),
        ({"nodes": 5}, "expected the fields rate, found no rate"),
    ],
)
def test_figures_that_are_not_valid_or_not_there_are_refused(check: ModuleType, output: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check.taken({"what": "rate", "measured": "{rate}", "figures": {}}, output)
