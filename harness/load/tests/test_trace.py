"""A recorded trace as a load: arrivals, requests, durations, and what is refused."""

from pathlib import Path

import pytest

from seatrial.harness import cli
from seatrial.harness.errors import UsageError
from seatrial.harness.load.settings import LoadSettings, WorkerSettings
from seatrial.harness.load.task_queue import Task, creations
from seatrial.harness.load.trace import TracePod, load_trace
from seatrial.scheduler.api import device

HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\n"
ROWS = (
    "late,4000,1024,2,1000,130,190,150\n"  # stayed 40 s of the 60 that it existed
    "first,500,512,1,455,100,120,\n"
    "stays,1000,2048,0,0,110,,110\n"
)


def file(folder: Path, text: str = HEADER + ROWS) -> Path:
    path = folder / "mine.csv"
    path.write_text(text)
    return path


def test_pods_come_in_the_order_of_their_creation_and_stay_as_long_as_they_ran(tmp_path: Path) -> None:
    trace = load_trace(file(tmp_path))
    assert [(pod.at, pod.stay) for pod in trace.pods] == [(0, 20), (10, None), (30, 40)]
    assert trace.seconds == 70
    requests = [trace.shapes[pod.shape].requests for pod in trace.pods]
    assert requests == [
        {"cpu": "500m", "memory": "512Mi", device.GPU_CORE: 46, device.GPU_MEMORY_RATIO: 46},  # rounded up
        {"cpu": "1000m", "memory": "2048Mi"},
        {"cpu": "4000m", "memory": "1024Mi", device.NVIDIA_GPU: 2},
    ]
    assert trace.alive() == (20 + 60 + 40) / 70
    assert [shape.weight for shape in trace.mix().shapes] == [40, 20, 60]


def test_speed_and_count(tmp_path: Path) -> None:
    trace = load_trace(file(tmp_path), speed=10, count=2)
    assert trace.pods == [TracePod(0, trace.pods[0].shape, 2), TracePod(1, trace.pods[1].shape, None)]
    assert len(trace.shapes) == 2


@pytest.mark.parametrize("processes", [1, 2])
def test_load_processes_share_the_trace(tmp_path: Path, processes: int) -> None:
    settings = LoadSettings(trace=str(file(tmp_path)), speed=10, processes=processes)
    tasks = [task for part in range(processes) for task in creations(WorkerSettings(settings, "", "", "", part))]
    first, stays, late = (pod.shape for pod in load_trace(file(tmp_path)).pods)
    assert sorted(tasks, key=lambda task: task.due) == [
        Task("create", "load-0000000", 0.0, first, 2.0),
        Task("create", "load-0000001", 1.0, stays, 6.0),  # until the end of the trace
        Task("create", "load-0000002", 3.0, late, 4.0),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("name,cpu_milli\n", "line 1: expected columns .*; memory_mib is missing", id="columns"),
        pytest.param(HEADER, "expected at least one pod, found none", id="no-pod"),
        pytest.param(HEADER + ROWS + ROWS, "line 5, column name: expected a name that no other line", id="twice"),
        pytest.param(HEADER + "p,1,1,0,0,9,8,\n", "expected creation_time (9) or later, found '8'", id="gone-before"),
        pytest.param(HEADER + "p,1,1,0,0,1,8,9\n", "expected scheduled_time (9) or later, found '8'", id="scheduled"),
        pytest.param(HEADER + "p,1,1,0,0,soon,8,9\n", "column creation_time: expected a whole number", id="no-number"),
        pytest.param(HEADER + "p,1,1,2,500,1,2,\n", "expected 1000 for a pod with 2 GPUs", id="parts-of-two-cards"),
        pytest.param(HEADER + "p,1,1,1,0,1,2,\n", "expected 1 to 1000 for a pod with one GPU", id="nothing-of-a-card"),
        pytest.param(HEADER + "p,1,1,0,7,1,2,\n", "expected 0 for a pod without GPU, found '7'", id="part-of-none"),
    ],
)
def test_a_mistake_is_refused_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        load_trace(file(tmp_path, text))
    assert all(part in str(refused.value) for part in ("mine.csv", *message.split(".*"))), str(refused.value)


def test_a_speed_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--speed: expected a number above 0, found 0"):
        LoadSettings(trace=str(file(tmp_path)), speed=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--rate", "5"], "--rate 5.0 cannot be used with --trace", id="rate"),
        pytest.param(["--hold", "5"], "--hold 5.0 cannot be used with --trace", id="hold"),
        pytest.param(["--speed", "0"], "--speed: expected a number above 0, found 0", id="speed"),
    ],
)
def test_options_that_a_trace_replaces_are_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        cli.app(["load", "--trace", str(file(tmp_path)), *arguments])


def test_options_of_a_trace_need_one() -> None:
    with pytest.raises(UsageError, match="--pods 5 needs --trace"):
        cli.app(["load", "--pods", "5"])
