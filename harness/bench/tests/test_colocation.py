"""`bench colocation`, small, on the control groups of this machine: what its figures say, and what it refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.harness.bench.colocation import ALONE, MODES, OTHERS, WITH, WITHOUT, bench_colocation, draw
from seatrial.harness.errors import UsageError
from seatrial.harness.tests.test_cli import say


def test_a_small_run(tmp_path: Path) -> None:
    """One round: all three are measured, the load runs where it should, and the picture is drawn."""
    lines: list[str] = []
    try:
        figures = bench_colocation(1, 1.5, lines.append, seed=1)
    except UsageError as error:
        pytest.skip(str(error))
    assert lines[0].startswith("round 1 of 1: p99 ")
    assert figures["modes"].keys() == MODES.keys()
    for mode, each in figures["modes"].items():
        assert 0 < each["p50_ms"]["median"] <= each["p99_ms"]["median"], mode
        assert all(value["low"] <= value["median"] <= value["high"] for value in each.values())
    cores = {mode: each["best_effort_cores"]["median"] for mode, each in figures["modes"].items()}
    assert cores[ALONE] == 0
    for mode in (WITHOUT, WITH):  # beside other programs nothing may be left for the load
        assert 0 < cores[mode] <= figures["cpus"] * 1.1 or not figures["valid"]
    assert figures["valid"] is (not figures["invalid_because"])
    of_others = [reason for reason in figures["invalid_because"] if reason.startswith("other programs")]
    assert bool(of_others) is (figures["other_programs_percent"] > 100 * OTHERS)
    draw(figures, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a mount namespace of its own")
def test_without_control_groups_it_says_what_it_needs() -> None:
    """In a mount namespace without control groups."""
    bench = f"exec {sys.executable} -m seatrial bench colocation --rounds 1 --seconds 1.5"
    command = ["unshare", "--mount", "sh", "-c", f"umount -a -t cgroup,cgroup2 && {bench}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    words = " ".join(result.stderr.split())
    assert "expected control groups that this user may make" in words
    assert "systemd-run --user" in words
    assert "Traceback" not in words


@pytest.mark.parametrize(
    "words", [("--rounds", "0"), ("--seconds", "1"), ("--seconds", "long"), ("--plot", "a.svg"), ("--plot", "no/a.png")]
)
def test_refusals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, str]) -> None:
    assert say(monkeypatch, ["bench", "colocation", *words]) != 0
    text = capsys.readouterr()
    assert words[0] in text.out + text.err
