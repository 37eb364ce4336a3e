"""What Allure is told, and how it is called."""

import json
from pathlib import Path

import pytest

from seatrial.harness.errors import HarnessError
from seatrial.harness.results import Case, Run, RunInfo, Subject, moment, read_run
from seatrial.reports.allure import build_html, environment, labels, title, write_context
from seatrial.reports.collect import Feature, Promise
from seatrial.reports.tests.sample import sample_run
from seatrial.scheduler.api.clock import SIM_EPOCH


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return read_run(sample_run(tmp_path / "run"))


def properties(text: str) -> dict[str, str]:
    """A reader of Java properties, as far as one line a pair goes."""
    properties = {}
    for line in text.splitlines():
        raw = line.encode().decode("unicode_escape") if "\\u" in line else line
        key, _, value = raw.replace("\\ ", "\0").partition(" = ")
        properties[key.replace("\0", " ").replace("\\:", ":")] = value.replace("\0", "\\ ").replace("\\\\", "\\")
    return properties


def test_labels_of_a_case() -> None:
    case = Case("t::a", "passed", case="DS-014", features=("DEV-1", "DEV-3"), suite="allocation", severity="critical")
    case_labels = labels(case)
    assert [value for name, value in case_labels if name == "feature"] == ["DEV-1", "DEV-3"]
    assert ("suite", "allocation") in case_labels
    assert ("tag", "DS-014") in case_labels
    assert ("severity", "critical") in case_labels


def test_a_severity_that_allure_does_not_know_is_normal() -> None:
    assert ("severity", "normal") in labels(Case("t::a", "passed", severity="enormous"))


def test_context_files(run: Run) -> None:
    home = write_context(run)
    known = properties((home / "environment.properties").read_text(encoding="ascii"))
    assert known == environment(run)
    assert known["backend"] == "embedded"
    assert known["kubernetes API"] == "1.34.1"
    statuses = [category["matchedStatuses"] for category in json.loads((home / "categories.json").read_text())]
    assert statuses == [["failed"], ["broken"], ["skipped"]]
    assert json.loads((home / "executor.json").read_text())["buildName"] == run.info.id


def test_odd_values_stay_one_line_each(tmp_path: Path) -> None:
    versions = {"a: b=c": "C:\\new\nline é"}
    info = RunInfo("r", moment(SIM_EPOCH), ("seatrial",), "embedded", Subject("ours"), versions=versions)
    text = (write_context(Run(tmp_path, info, (), (), (), ())) / "environment.properties").read_text(encoding="ascii")
    assert text.splitlines()[-1] == "a\\:\\ b\\=c = C:\\\\new\\nline \\u00e9"


def with_results(run: Run) -> Run:
    home = write_context(run)
    (home / "1-result.json").write_text('{"uuid": "1", "name": "t", "status": "passed", "start": 1, "stop": 2}')
    return run


def command(folder: Path, script: str) -> str:
    path = folder / "allure"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_without_results_or_command_it_says_so(run: Run) -> None:
    assert "has no results" in str(build_html(run, which=lambda _: None))
    assert "not on PATH" in str(build_html(with_results(run), which=lambda _: None))


@pytest.mark.parametrize(
    ("version", "configured"),
    [
        pytest.param("2.34.1", False, id="allure-2-takes-another-file-there"),
        pytest.param("3.0.0", True, id="allure-3"),
        pytest.param("10.1.0", True, id="later"),
        pytest.param("who knows", False, id="no-version"),
    ],
)
def test_the_command_gets_results_output_and_configuration(
    run: Run, tmp_path: Path, version: str, configured: bool
) -> None:
    text = f'if [ "$1" = --version ]; then echo "{version}"; exit; fi; mkdir -p "$4" && echo "$@" > "$4/index.html"'
    program = command(tmp_path, text)
    results = run.folder / "allure-results"
    for _ in range(2):  # the second time it replaces its own report
        page = build_html(with_results(run), which=lambda _: program)
        assert page == run.folder / "allure-report" / "index.html"
        file = results.resolve() / "allurerc.json"
        rest = f" --config {file}" if configured else ""
        assert Path(page).read_text() == f"generate {results} --output {page.parent}{rest}\n"
        assert file.is_file()


@pytest.mark.parametrize(
    ("script", "says"),
    [
        pytest.param("echo no java >&2; exit 3", "exit status 3: no java", id="it-fails"),
        pytest.param("exit 0", "exit status 0: no output", id="it-makes-nothing"),
    ],
)
def test_a_command_that_fails_is_named(run: Run, tmp_path: Path, script: str, says: str) -> None:
    program = command(tmp_path, script)
    with pytest.raises(HarnessError, match=says):
        build_html(with_results(run), which=lambda _: program)


def test_rows_and_promises_become_features_and_stories() -> None:
    rows = {
        "A-1": Feature("A-1", "Cards", group="Devices", promises={"one": Promise("First"), "two": Promise("Second")})
    }
    case = Case("t::a", "passed", features=("A-1.one", "A-1.two", "Z-1"), severity="critical")
    case_labels = labels(case, rows)
    assert case_labels[:5] == [
        ("epic", "Devices"),
        ("feature", "A-1: Cards"),
        ("story", "A-1.one: First"),
        ("story", "A-1.two: Second"),
        ("feature", "Z-1"),
    ]
    assert ("tag", "A-1.one") in case_labels
    assert ("severity", "critical") in case_labels


@pytest.mark.parametrize(
    ("case", "want"),
    [
        pytest.param(
            Case("t", "passed", "a b (x)", "Cards are given.\n\nMore."), "Cards are given (x)", id="docstring"
        ),
        pytest.param(
            Case("t", "passed", "a b", "Two nodes lack\n    memory. Both are small."),
            "Two nodes lack memory",
            id="sentence-over-two-lines",
        ),
        pytest.param(Case("t", "passed", "a b", ""), "a b", id="no-docstring"),
    ],
)
def test_titles_are_docstrings(case: Case, want: str) -> None:
    assert title(case) == want
