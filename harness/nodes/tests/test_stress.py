"""The load of pods: real processes, which are looked at in /proc."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seatrial.harness.nodes.stress import command

Load = Callable[..., "subprocess.Popen[bytes]"]
WITHIN = 60.0  # seconds, on a busy machine


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """Starts the program of a container in `tmp_path`; it ends with its children."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*options: str) -> "subprocess.Popen[bytes]":
        started.append(subprocess.Popen(command(*options), cwd=tmp_path, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def reaches(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + WITHIN
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def children(process: "subprocess.Popen[bytes]") -> list[int]:
    return [int(word) for word in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def stat(pid: int) -> list[str]:
    """What /proc shows of a process, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def used(pid: int) -> int:
    """Ticks of CPU time."""
    return int(stat(pid)[11]) + int(stat(pid)[12])


def resident(process: "subprocess.Popen[bytes]") -> int:
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(text.partition("RssAnon:")[2].split()[0]) + int(text.partition("RssShmem:")[2].split()[0])


def test_cores_are_processes_and_the_last_one_has_the_part(load: Load) -> None:
    """1.1 cores: one process that never waits, and one that mostly does."""
    process = load("--cores", "1.1")
    assert reaches(lambda: len(children(process)) == 2)
    whole, part = children(process)
    assert reaches(lambda: used(whole) >= 100)
    assert used(part) < used(whole) / 2


def test_memory_is_touched_and_the_file_is_written(load: Load, tmp_path: Path) -> None:
    process = load("--memory", str(64 << 20), "--cache", str(3 << 20))
    assert reaches(lambda: (tmp_path / "page-cache").exists() and (tmp_path / "page-cache").stat().st_size == 3 << 20)
    assert resident(process) >= 64 << 10
    assert children(process) == []
    assert process.poll() is None, "it keeps its memory until it is ended"


def test_there_is_no_load_before_its_time(load: Load) -> None:
    idle, process = load("--cores", "1", "--memory", str(64 << 20), "--after", "3600"), load("--cores", "1")
    assert reaches(lambda: len(children(process)) == 1)
    (child,) = children(process)
    assert reaches(lambda: used(child) >= 50)
    assert children(idle) == []
    assert resident(idle) < 64 << 10


def test_a_burst_ends(load: Load) -> None:
    """Two seconds of load, and then none for an hour."""
    process = load("--cores", "1", "--burst", "2", "3600")
    assert reaches(lambda: len(children(process)) == 1)
    (child,) = children(process)
    assert reaches(lambda: used(child) >= 5 and stat(child)[0] == "S")


@pytest.mark.parametrize("words", [("--cores", "many"), ("--memory", "1Gi"), ("--burst", "1"), ("--disk", "1")])
def test_options_that_are_none(words: tuple[str, ...]) -> None:
    result = subprocess.run(command(*words), capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert words[0] in result.stderr
