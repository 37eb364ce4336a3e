"""The openb GPU-sharing traces: two CSV files, one of nodes and one of pods, and the order in which the pods arrive.

Published at github.com/alibaba/clusterdata, `cluster-trace-gpu-v2023`, with "Beware of Fragmentation: Scheduling
GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC '23). Columns are found by name. Units are those
of the files: CPU in thousandths of a core, memory in MiB, GPU in thousandths of a card.
"""

import random
from dataclasses import dataclass
from pathlib import Path

from seatrial.harness.csv_rows import Row, rows
from seatrial.harness.errors import UsageError
from seatrial.scheduler.packing.shapes import CARD, Shape

_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
_MODELS = "gpu_spec"  # the traces with more multi-GPU pods lack it


@dataclass(frozen=True, slots=True)
class Node:
    """A node with at least one GPU, all of one model."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of the trace."""

    name: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class Trace:
    """Nodes and pods, each sorted by name."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]

    @property
    def gpu_capacity(self) -> int:
        """Thousandths of a GPU over all nodes."""
        return CARD * sum(node.gpus for node in self.nodes)

    @property
    def gpu_request(self) -> int:
        """Thousandths of a GPU that all pods request."""
        return sum(pod.shape.gpu_request for pod in self.pods)


def load(nodes: Path, pods: Path) -> Trace:
    """Read both files. Nodes without a GPU are left out, as in the published replays.

    Raises:
        UsageError: a file cannot be read or has an invalid value; the message names file, line and column.
    """
    fleet = _nodes(nodes)
    known = frozenset(node.model for node in fleet)
    trace = Trace(fleet, _pods(pods, known, nodes))
    if not trace.gpu_request:
        raise UsageError(f"{pods}: no pod asks for a GPU; a replay needs at least one that does")
    return trace


def preference(trace: Trace, seed: int) -> list[Node]:
    """The nodes in the order in which they are preferred when their scores are equal.

    The published simulator takes the smallest name of equals, but has put a random number in front of each name: with
    the names as they are, whole racks of alike nodes fill up first, and results are up to 0.7 points lower.
    """
    nodes = list(trace.nodes)
    random.Random(f"{seed} nodes").shuffle(nodes)  # noqa: S311 apart from the numbers that shuffle the pods
    return nodes


def arrivals(trace: Trace, load: float, seed: int) -> list[Shape]:
    """The requests of the pods in the order of arrival.

    The pods, sorted by name, are shuffled. Then pods drawn from the sorted list are appended until the next would take
    the GPU request past `load` times the GPU capacity; if the request is above that from the start, pods drawn from the
    shuffled ones are left out until it is not.
    """
    rng = random.Random(seed)  # noqa: S311 a replay's shuffle
    order = [pod.shape for pod in trace.pods]
    rng.shuffle(order)
    target = load * trace.gpu_capacity
    request = trace.gpu_request
    if request > target:
        while request > target:
            request -= order.pop(rng.randrange(len(order))).gpu_request
        return order
    while True:
        shape = trace.pods[rng.randrange(len(trace.pods))].shape
        request += shape.gpu_request
        if request > target:
            return order
        order.append(shape)


def _nodes(path: Path) -> tuple[Node, ...]:
    nodes: dict[str, Node] = {}
    for row in rows(path, _NODE_COLUMNS):
        gpus = row.number("gpu")
        if gpus:
            node = Node(row.word("sn"), row.number("cpu_milli"), row.number("memory_mib"), gpus, row.word("model"))
            if node.name in nodes:
                raise row.refusal("sn", "a name that no other line has", node.name)
            nodes[node.name] = node
    if not nodes:
        raise UsageError(f"{path}: expected at least one node with a GPU, found none")
    return tuple(nodes[name] for name in sorted(nodes))


def _pods(path: Path, known: frozenset[str], fleet: Path) -> tuple[Pod, ...]:
    pods: dict[str, Pod] = {}
    shapes: dict[Shape, Shape] = {}  # one object for each shape: there are few
    for row in rows(path, _POD_COLUMNS):
        name = row.word("name")
        if name in pods:
            raise row.refusal("name", "a name that no other line has", name)
        gpus, milli = row.number("num_gpu"), row.number("gpu_milli")
        _check_gpus(row, gpus, milli)
        models = tuple(sorted({model for model in row.text(_MODELS, absent="").split("|") if model}))
        for model in models:
            if model not in known:
                raise row.refusal(_MODELS, f"models that {fleet} has ({', '.join(sorted(known))})", model)
        shape = Shape(row.number("cpu_milli"), row.number("memory_mib"), gpus, milli, models if gpus else ())
        pods[name] = Pod(name, shapes.setdefault(shape, shape))
    if not pods:
        raise UsageError(f"{path}: expected at least one pod, found none")
    return tuple(pods[name] for name in sorted(pods))


def _check_gpus(row: Row, gpus: int, milli: int) -> None:
    if gpus == 0:
        fits, expected = milli == 0, "0 for a pod without GPU"
    elif gpus == 1:
        fits, expected = 1 <= milli <= CARD, f"1 to {CARD} for a pod with one GPU"
    else:
        fits, expected = milli == CARD, f"{CARD} for a pod with {gpus} GPUs (only one card can be shared)"
    if not fits:
        raise row.refusal("gpu_milli", expected, str(milli))
