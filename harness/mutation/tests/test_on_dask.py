"""A campaign on two Dask workers has the table of a campaign on this machine."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from seatrial.harness.errors import UsageError
from seatrial.harness.mutation.on_dask import run_there
from seatrial.harness.processes import stop

pytest.importorskip("distributed", reason="needs Dask: pip install 'seatrial[dask]'")

MUTANTS = ("WAS-11", "WAS-12", "WAS-14")


def started(stack: ExitStack, module: str, *flags: str) -> None:
    """A program of Dask until the end of the test."""
    command = [sys.executable, "-m", f"distributed.cli.{module}", *flags, "--no-dashboard"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(stop, process)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A Dask scheduler with two workers."""
    file = tmp_path / "scheduler.json"
    with ExitStack() as stack:
        started(stack, "dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file))
        ends = time.monotonic() + 60
        while not file.exists() or not file.read_text().endswith("}"):
            assert time.monotonic() < ends, "the Dask scheduler did not start"
            time.sleep(0.1)
        address = json.loads(file.read_text())["address"]
        for number in range(2):
            local = str(tmp_path / f"worker-{number}")
            started(stack, "dask_worker", address, "--nworkers", "1", "--nthreads", "1", "--local-directory", local)
        yield address


def mutate(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "seatrial", "mutate", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "200"})


def table(run: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    """Each mutant's result, but for its seconds."""
    results = [outcome["result"] for outcome in json.loads(run.stdout)["outcomes"]]
    return [{**result, "seconds": 0, "files": {}} for result in results]


def test_two_workers_have_the_table_of_one_machine(address: str) -> None:
    for _ in range(10):
        there = mutate(*MUTANTS, "--quick", "--json", "--on", f"dask:{address}")
        if "expected workers, found none" not in there.stderr:  # else they are on their way
            break
    here = mutate(*MUTANTS, "--quick", "--json", "--jobs", "1")

    assert there.returncode == 0, there.stderr
    assert table(there) == table(here)
    assert [each["mutant"] for each in table(here)] == list(MUTANTS)


def test_a_worker_with_other_sources_refuses() -> None:
    with pytest.raises(UsageError, match="has another version of seatrial"):
        run_there("0" * 64, "", [], "inprocess", 1.0)


@pytest.mark.parametrize(
    ("on", "problem"),
    [
        ("ray:x", "--on ray:x: expected dask:ADDRESS"),
        ("dask:", "--on dask:: expected dask:ADDRESS"),
        ("dask:127.0.0.1:1", "--on dask:127.0.0.1:1: expected a Dask scheduler, found none within 10 s"),
        ("dask:nonsense://x", "--on dask:nonsense://x: expected a Dask scheduler"),
    ],
)
def test_mistakes(on: str, problem: str) -> None:
    run = mutate("WAS-11", "--quick", "--on", on)

    assert run.returncode == 2
    assert problem in run.stderr
    assert "Traceback" not in run.stderr
