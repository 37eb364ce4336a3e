"""Work on two Dask workers has the results of one process: mutants, replays, benchmarks and suites."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.harness.errors import UsageError
from seatrial.harness.tests.dask_cluster import dask_cluster
from seatrial.harness.workers import carried_out, results_of

pytest.importorskip("distributed", reason="needs Dask: pip install 'seatrial[dask]'")

MUTANTS = ("PCK-01", "PCK-02")  # their suite is one quick file
TRACE = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\n" + "".join(
    f"p{number},1000,1024,1,500,{number},{number + 30}\n" for number in range(20)
)


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with dask_cluster(tmp_path_factory.mktemp("dask")) as on:
        yield on


def seatrial(*words: str) -> "subprocess.CompletedProcess[str]":
    """A command as a process: the loop of Dask's client is part of it."""
    command = [sys.executable, "-m", "seatrial", *words]
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)


def answer(*words: str) -> Any:
    """What a command prints with --json."""
    ended = seatrial(*words, "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def table(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Each mutant's result, but for its seconds."""
    return [{**outcome["result"], "seconds": 0, "files": {}} for outcome in document["outcomes"]]


def test_mutants_have_one_table(dask: str) -> None:
    here = table(answer("mutate", *MUTANTS, "--quick", "--jobs", "1"))
    assert table(answer("mutate", *MUTANTS, "--quick", "--on", dask)) == here
    assert [each["mutant"] for each in here] == list(MUTANTS)


def test_replays_have_one_table(dask: str, tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\na,32000,100,4,T4\nb,32000,100,2,P100\n")
    rows = [f"p{number},1000,1,1,{milli}," for number, milli in enumerate([500] * 5 + [1000] * 3)]
    pods.write_text("\n".join(["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec", *rows]))
    words = ["replay", "openb", "--nodes", str(nodes), "--pods", str(pods), "--policy", "random", "--seeds", "5"]
    one, two, there = (answer(*words, *more) for more in ([], ["--jobs", "2"], ["--on", dask]))
    for document in (one, two, there):
        del document["seconds"], document["pods_per_second"]
    assert one == two == there
    assert one["gpu_allocated_percent"]["low"] < one["gpu_allocated_percent"]["high"]


def test_benchmarks_place_the_same(dask: str, tmp_path: Path) -> None:
    trace, config = tmp_path / "trace.csv", tmp_path / "config.yaml"
    trace.write_text(TRACE)
    config.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    words = ["bench", "schedule", "--nodes", "10", "--repeat", "3"]
    for more in (["--pods", "40", "--scheduler-config", str(config)], ["--trace", str(trace)]):
        here, there = answer(*words, *more), answer(*words, *more, "--on", dask)
        assert there.keys() == here.keys()
        for field in ("repeat", "placed", "unplaced", "kernel", *(["digest"] if "--trace" in more else [])):
            assert there[field] == here[field]


def test_a_worker_with_other_sources_refuses() -> None:
    with pytest.raises(UsageError, match="has another version of seatrial"):
        carried_out("0" * 64, max, [1, 2])


@pytest.mark.parametrize("jobs", [1, 2])
def test_mistakes_in_a_part_are_told(jobs: int) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        results_of(int, [("1",), ("one",)], jobs=jobs)


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
    run = seatrial("mutate", "WAS-11", "--quick", "--on", on)
    assert run.returncode == 2
    assert problem in run.stderr
    assert "Traceback" not in run.stderr


def test_ctrl_c_ends_the_processes_of_a_command_at_once(tmp_path: Path) -> None:
    """It waits for no part; the second one would take a minute."""
    program = tmp_path / "program.py"
    program.write_text(
        "import signal, time\n"
        "from seatrial.harness.workers import results_of\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it\n"
        "    results_of(time.sleep, [(0.0,), (60.0,)], jobs=2, done=lambda _: print('one', flush=True))\n"
    )
    command = [sys.executable, str(program)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"one\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=50)
    assert process.returncode == -signal.SIGINT
