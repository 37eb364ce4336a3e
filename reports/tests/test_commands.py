"""The commands, through the command line as a user types it."""

import json
from pathlib import Path

import pytest

from harness.cli import main
from reports.tests.sample import FEATURES_YAML, sample_run


def run_cli(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr("sys.argv", ["seatrial", *map(str, words)])
    monkeypatch.setenv("PATH", "")  # no Allure, whatever is installed here
    with pytest.raises(SystemExit) as stop:
        main()
    assert isinstance(stop.value.code, int)
    return stop.value.code


Capture = pytest.CaptureFixture[str]


def test_report_of_a_failed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    features = tmp_path / "features.yaml"
    features.write_text(FEATURES_YAML)
    run = sample_run(tmp_path / "run")
    assert run_cli(monkeypatch, "report", run, "--features", features, "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert said["verdict"] == "failed"
    assert said["cases"] == {"passed": 44, "failed": 1, "broken": 1, "skipped": 4}
    assert said["requirements"]["PRE-1"] == "failed"
    assert "FAIL" in (run / "signoff.html").read_text()


def test_report_of_good_runs_goes_where_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    run = sample_run(tmp_path / "run", failing=False)
    page = tmp_path / "pages" / "page.html"
    assert run_cli(monkeypatch, "report", run, "--output", page, "--title", "Release 7") == 0
    assert "<h1>Release 7</h1>" in page.read_text()
    assert capsys.readouterr().out.startswith("PASS  All 46 cases that ran passed; 4 did not run.")


def test_a_folder_that_is_no_run_is_the_users_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert run_cli(monkeypatch, "report", tmp_path / "nowhere") == 2
    assert "expected a run's folder with run.json in it, found nothing" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("failing", "slower", "status", "last"),
    [
        pytest.param(False, 1.0, 0, "no regression", id="nothing-new"),
        pytest.param(True, 1.0, 1, "REGRESSED", id="cases-fail-now"),
        pytest.param(False, 1.5, 1, "REGRESSED", id="slower-now"),
    ],
)
def test_compare(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
    failing: bool,
    slower: float,
    status: int,
    last: str,
) -> None:
    base = sample_run(tmp_path / "base", failing=False)
    new = sample_run(tmp_path / "new", seed=9, failing=failing, slower=slower)
    assert run_cli(monkeypatch, "compare", base, new) == status
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_compare_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    base, new = sample_run(tmp_path / "base", failing=False), sample_run(tmp_path / "new", slower=2)
    assert run_cli(monkeypatch, "compare", base, new, "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert said["regressed"] is True
    assert {one["change"] for one in said["cases"]} == {"regressed"}
    assert {one["name"] for one in said["figures"] if one["regressed"]} == {"create_to_bound", "decisions"}
