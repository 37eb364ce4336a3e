"""`seatrial nightly`: real runs of one case in virtual time, on a lab of files."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from seatrial.harness.lab.lab import open_lab
from seatrial.harness.lab.ledger import PlaceRequest
from seatrial.harness.lab.tests.inventories import plain
from seatrial.harness.tests.command_line import run_command

ALLURE_HISTORY = "allure-history.jsonl"  # where the command `allure` is installed

SUITE = """
import pytest
from pathlib import Path
from seatrial.harness.lab.lab import open_lab

pytestmark = pytest.mark.feature("N-1")


@pytest.mark.case("N-001")
def test_cards_are_held() -> None:
    (lease,) = open_lab(Path({lab!r})).snapshot().ledger.leases
    assert list(lease.devices) == {devices!r}
"""
PUSH = "import pathlib, shutil, sys; shutil.copytree(sys.argv[2], pathlib.Path(sys.argv[1]) / sys.argv[3])"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "lab.yaml").write_text(yaml.safe_dump(plain()))
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / "features.yaml").write_text("- {id: N-1, title: Nights}\n")
    (folder / "test_night.py").write_text(SUITE.format(lab=str(tmp_path / "lab.yaml"), devices=["big/0", "big/1"]))
    return folder


def nightly(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "seatrial", "nightly", "--results", str(folder), *words],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_night_holds_cards_keeps_results_and_pushes_them(suite: Path, tmp_path: Path) -> None:
    results, bucket = tmp_path / "results", tmp_path / "bucket"
    for name in ("2020-01-01T010000Z", "2020-01-02T010000Z", "not-a-run"):
        (results / name).mkdir(parents=True)
    bucket.mkdir()
    lab = ["--lab", str(tmp_path / "lab.yaml"), "--place", "h100", "--cards", "2", "--wait", "0"]
    push = f"{sys.executable} -c '{PUSH}' {bucket}"
    done = nightly(results, "--keep", "2", "--push", push, *lab, "--", str(suite), "--backend", "virtual")
    assert done.returncode == 0, done.stdout + done.stderr
    first, newest, other = sorted(path.name for path in results.iterdir() if path.name != ALLURE_HISTORY)
    assert (first, other) == ("2020-01-02T010000Z", "not-a-run")
    assert [path.name for path in bucket.iterdir()] == [newest]
    assert (bucket / newest / "signoff.html").is_file()
    ledger = open_lab(tmp_path / "lab.yaml").snapshot().ledger
    assert (ledger.tokens, ledger.leases) == (1, ())


def test_a_failed_night_is_pushed_and_a_failed_push_is_reported(suite: Path, tmp_path: Path) -> None:
    """Without a place no lease is there, so the case fails."""
    done = nightly(
        tmp_path / "results",
        "--push",
        f"{sys.executable} -c 'raise SystemExit(5)'",
        "--",
        str(suite),
        "--backend",
        "virtual",
    )
    assert done.returncode in {1, 2}
    assert "ended with status 5; the results are in" in done.stderr
    (run,) = (path for path in (tmp_path / "results").iterdir() if path.name != ALLURE_HISTORY)
    assert (run / "signoff.html").is_file()


def test_a_night_without_free_cards_runs_nothing(suite: Path, tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    open_lab(path, holder="me").acquire_for(PlaceRequest("h100", 4), 3600, wait=0)
    done = nightly(tmp_path / "results", "--lab", str(path), "--place", "h100", "--wait", "0", "--", str(suite))
    assert done.returncode == 2
    assert "no place for 1 card h100 became free within 0 s; me holds" in done.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--place", "h100"], "--place h100: expected the inventory of a lab"),
        (["--window", "night"], "--window: expected --place MODEL beside it, as in --place h100; found none"),
        (["--push", "/no/such/program"], "--push: expected a program that can be started, found '/no/such/program'"),
        (["--push", "a 'b"], "--push: expected a command, found"),
    ],
)
def test_mistakes_are_refused_in_words(tmp_path: Path, words: list[str], message: str) -> None:
    done = run_command("nightly", "--results", str(tmp_path / "results"), *words)
    assert done.returncode == 2
    assert message in done.stderr
