from collections import Counter
from pathlib import Path

import pytest

from seatrial.harness import csv_rows
from seatrial.harness.errors import UsageError
from seatrial.harness.replay.openb import Node, Pod, Trace, arrivals, load, preference
from seatrial.scheduler.packing.shapes import Shape

NODES = "sn,cpu_milli,memory_mib,gpu,model\nb,8000,4096,2,T4\na,4000,2048,1,P100\nnone,9000,2048,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\n"
    "p2,1000,512,1,500,T4|P100,LS\n"
    "p1,2000,1024,0,0,,BE\n"
    "p3,1000,512,2,1000,T4|T4,LS\n"
)


def files(folder: Path, nodes: str = NODES, pods: str = PODS) -> tuple[Path, Path]:
    paths = folder / "nodes.csv", folder / "pods.csv"
    for path, text in zip(paths, (nodes, pods), strict=True):
        path.write_text(text)
    return paths


def test_nodes_and_pods_are_sorted_and_nodes_without_gpu_left_out(tmp_path: Path) -> None:
    trace = load(*files(tmp_path))

    assert trace.nodes == (Node("a", 4000, 2048, 1, "P100"), Node("b", 8000, 4096, 2, "T4"))
    assert trace.pods == (
        Pod("p1", Shape(2000, 1024, 0, 0)),
        Pod("p2", Shape(1000, 512, 1, 500, ("P100", "T4"))),
        Pod("p3", Shape(1000, 512, 2, 1000, ("T4",))),
    )
    assert (trace.gpu_capacity, trace.gpu_request) == (3000, 2500)


def test_columns_are_found_by_name_and_models_are_optional(tmp_path: Path) -> None:
    nodes = "model,gpu,extra,memory_mib,cpu_milli,sn\nT4,1,x,20,10,n\n"
    pods = "gpu_milli,num_gpu,name,memory_mib,cpu_milli\n300,1,p,2,1\n"

    trace = load(*files(tmp_path, nodes, pods))

    assert trace.nodes == (Node("n", 10, 20, 1, "T4"),)
    assert trace.pods == (Pod("p", Shape(1, 2, 1, 300)),)


HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"


@pytest.mark.parametrize(
    ("nodes", "pods", "message"),
    [
        pytest.param("", PODS, "nodes.csv, line 1: expected columns sn, cpu", id="empty-file"),
        pytest.param("sn,gpu\nn,1\n", PODS, "cpu_milli is missing; found sn, gpu", id="column-missing"),
        pytest.param(NODES.replace("8000", "8k"), PODS, "nodes.csv, line 2, column cpu_milli: ", id="not-a-number"),
        pytest.param(NODES.replace("8000", "-8"), PODS, "whole number, 0 or more, .* found '-8'", id="negative"),
        pytest.param(NODES.replace("8000", ""), PODS, "line 2, column cpu_milli: .* found ''", id="empty-cell"),
        pytest.param(NODES.replace("8000", "8" * 13), PODS, "at most 12 digits, found '8888", id="too-large"),
        pytest.param(NODES.replace("8000", "8.5"), PODS, "found '8.5'", id="a-fraction"),
        pytest.param(NODES.replace("\nb,", "\na,"), PODS, "line 3, column sn: .* found 'a'", id="node-named-twice"),
        pytest.param(NODES.replace("P100", ""), PODS, "line 3, column model: expected a name", id="no-model"),
        pytest.param(NODES.splitlines()[0], PODS, "at least one node with a GPU, found none", id="no-nodes"),
        pytest.param(NODES, HEADER, "expected at least one pod, found none", id="no-pods"),
        pytest.param(NODES, HEADER + "p,1,1,0,0,\n", "no pod asks for a GPU", id="no-pod-with-gpu"),
        pytest.param(NODES, PODS.replace("p2", "p1"), "pods.csv, line 3, column name", id="pod-named-twice"),
        pytest.param(NODES, HEADER + "p,1,1,1,500,A100\n", r"column gpu_spec.*P100, T4.* found 'A100'", id="model"),
        pytest.param(NODES, HEADER + "p,1,1,1,500,T4|X\n", "found 'X'", id="one-of-two-models-unknown"),
        pytest.param(NODES, HEADER + "p,1,1,0,500,\n", "column gpu_milli: expected 0 for", id="part-of-no-card"),
        pytest.param(NODES, HEADER + "p,1,1,1,0,\n", "expected 1 to 1000 for a pod with one GPU", id="nothing-of-one"),
        pytest.param(NODES, HEADER + "p,1,1,1,1001,\n", "found '1001'", id="more-than-a-card"),
        pytest.param(NODES, HEADER + "p,1,1,2,500,\n", "1000 for a pod with 2 GPUs", id="parts-of-two-cards"),
        pytest.param(NODES, HEADER + "p,1,1\n", "column num_gpu: expected a value, found 'the end", id="short-line"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path: Path, nodes: str, pods: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(*files(tmp_path, nodes, pods))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.csv: expected a readable CSV file"):
        load(tmp_path / "gone.csv", tmp_path / "gone.csv")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    nodes, pods = files(tmp_path)
    pods.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=r"pods\.csv: expected a readable CSV file"):
        load(nodes, pods)


def trace_of(*requests: int, gpus: int = 4) -> Trace:
    pods = tuple(Pod(f"p{number}", Shape(number, 0, 1, milli)) for number, milli in enumerate(requests))
    return Trace((Node("n", 1, 1, gpus, "T4"),), pods)


def test_arrivals_are_all_pods_and_then_as_many_more_as_the_load_allows() -> None:
    trace = trace_of(500, 500, 500, 500)
    order = arrivals(trace, 1.3, 42)

    assert Counter(order[:4]) == Counter(pod.shape for pod in trace.pods)
    assert len(order) == 10  # 5,000 of 5,200
    assert set(order[4:]) <= set(order[:4])


def test_pods_are_left_out_when_they_ask_for_more_than_the_load() -> None:
    trace = trace_of(*[500] * 10)
    order = arrivals(trace, 0.5, 42)

    assert len(order) == 4
    assert not Counter(order) - Counter(pod.shape for pod in trace.pods)


def test_the_seed_alone_decides_the_order() -> None:
    trace = trace_of(*range(100, 150), gpus=40)
    assert arrivals(trace, 1.0, 1) == arrivals(trace, 1.0, 1)
    assert arrivals(trace, 1.0, 1) != arrivals(trace, 1.0, 2)


def test_nodes_are_preferred_in_an_order_drawn_from_the_seed() -> None:
    nodes = tuple(Node(f"n{number}", 1, 1, 1, "T4") for number in range(50))
    trace = Trace(nodes, ())
    assert preference(trace, 1) == preference(trace, 1) != preference(trace, 2)
    assert sorted(preference(trace, 1), key=nodes.index) == list(nodes)


def test_an_endless_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_rows, "MAX_ROWS", 1)
    nodes, pods = files(tmp_path)
    nodes.write_text(nodes.read_text() + nodes.read_text().partition("\n")[2])
    with pytest.raises(UsageError, match=r"nodes\.csv: expected at most 1 lines, found more"):
        load(nodes, pods)


def test_an_endless_line_is_refused(tmp_path: Path) -> None:
    """It is not read to its end, which `/dev/zero` does not have."""
    nodes, pods = files(tmp_path)
    with pytest.raises(UsageError, match=r"/dev/zero, line 1: expected at most 1000000 characters, found more"):
        load(Path("/dev/zero"), pods)
    nodes.write_text(nodes.read_text() + "x" * 1_000_001)
    with pytest.raises(UsageError, match=r"nodes\.csv, line \d+: expected at most 1000000 characters, found more"):
        load(nodes, pods)
