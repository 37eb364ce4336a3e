"""`bench schedule --trace`: pods come and leave, and who waits gets the room of those that left."""

from pathlib import Path

import pytest

from seatrial.harness import cli
from seatrial.harness.bench.mixes import device_manifest, node_manifest
from seatrial.harness.bench.trace import bench_trace, replayed
from seatrial.harness.errors import UsageError
from seatrial.harness.load.trace import load_trace
from seatrial.harness.subject.inprocess import BareCore

HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\n"


def file(folder: Path, rows: str) -> Path:
    path = folder / "mine.csv"
    path.write_text(HEADER + rows)
    return path


def test_a_pod_that_waits_is_placed_when_another_left(tmp_path: Path) -> None:
    """One node: the second pod of eight cards waits until the first has left; a third comes after both."""
    trace = load_trace(file(tmp_path, "a,1,1,8,1000,0,50\nb,1,1,8,1000,10,60\nc,1,1,8,1000,500,600\n"))
    core = BareCore()
    core.add_node(node_manifest("node-0"), device_manifest("node-0"))
    result = replayed(core, trace)
    assert (result.placed, result.left, result.most) == (3, 2, 1)
    assert len(result.decisions) == 4  # the second pod twice


def test_figures_are_of_the_whole_trace_and_repeat(tmp_path: Path) -> None:
    rows = "".join(f"p{number},1000,1024,1,{100 + number % 9 * 100},{number},{number + 40}\n" for number in range(200))
    trace = load_trace(file(tmp_path, rows))
    first, second = (bench_trace(trace, 4, lambda _: None, repeat=1, seed=3) for _ in range(2))
    assert first["digest"] == second["digest"]
    assert (first["placed"], first["unplaced"], first["shapes"]) == (200, 0, 9)
    assert 0 < first["most_at_a_time"] <= 41
    assert first["left"] >= 200 - 41


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--through", "http"], "`seatrial load --trace` runs one on a cluster", id="http"),
        pytest.param(["--mix", "whole"], "--mix whole cannot be used with --trace", id="mix"),
        pytest.param(["--run", "20"], "--run 20 cannot be used with --trace", id="run"),
        pytest.param(["--unschedulable", "5"], "--unschedulable 5 cannot be used with --trace", id="unschedulable"),
    ],
)
def test_options_that_a_trace_replaces_are_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    path = file(tmp_path, "a,1,1,8,1000,0,50\n")
    with pytest.raises(UsageError, match=message):
        cli.app(["bench", "schedule", "--trace", str(path), *arguments])
