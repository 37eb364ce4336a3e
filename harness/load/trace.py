"""A recorded trace as a load: when each pod came, what it requested, and how long it stayed.

A CSV file with the columns of the openb traces: name, cpu_milli, memory_mib, num_gpu, gpu_milli (thousandths of a
card), creation_time, deletion_time and perhaps scheduled_time (seconds). A pod stays from its binding for as long as it
stayed in the trace: from scheduled_time, or without one from creation_time, to deletion_time. Without a deletion_time
it stays until the end. GPU models are not requested, because the nodes of the measured cluster need not have them.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.harness.csv_rows import Row, rows
from seatrial.harness.errors import UsageError
from seatrial.harness.load.workload import Mix, Shape
from seatrial.scheduler.api import device

COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time", "deletion_time")
_SCHEDULED = "scheduled_time"  # the columns that a trace need not have
_CARD = 1000  # a whole card in thousandths


@dataclass(frozen=True, slots=True)
class TracePod:
    """One pod: due `at` seconds after the first, with a shape's requests, for `stay` seconds; None: to the end."""

    at: float
    shape: str
    stay: float | None


@dataclass(frozen=True, slots=True)
class Trace:
    """Pods in the order in which they came, and the shapes that they have."""

    name: str
    pods: Sequence[TracePod]
    shapes: dict[str, Shape]

    @property
    def seconds(self) -> float:
        """From the first pod that comes to the last one that comes or leaves."""
        return max(pod.at + (pod.stay or 0.0) for pod in self.pods)

    def mix(self) -> Mix:
        """The shapes, weighted by the time for which their pods are there."""
        weights: Counter[str] = Counter()
        for pod in self.pods:
            weights[pod.shape] += self._time(pod)  # type: ignore[assignment]  # a Counter of seconds
        return Mix(self.name, tuple(_weighted(shape, weights[name]) for name, shape in self.shapes.items()))

    def alive(self) -> float:
        """The mean number of pods that are there at a time."""
        return sum(self._time(pod) for pod in self.pods) / max(self.seconds, 1e-9)

    def _time(self, pod: TracePod) -> float:
        return self.seconds - pod.at if pod.stay is None else pod.stay


def load_trace(path: Path, *, speed: float = 1.0, count: int | None = None) -> Trace:
    """Read a trace. `speed`: factor by which its time passes faster; `count`: only the pods that came first.

    Raises:
        UsageError: the file cannot be read or has an invalid value; the message names file, line and column.
    """
    if not 0 < speed < float("inf"):
        raise UsageError(f"--speed: expected a number above 0, found {speed:g}")
    cames: list[tuple[int, int, Shape, int | None]] = []
    names: set[str] = set()
    shapes: dict[str, Shape] = {}
    for row in rows(path, COLUMNS):
        name = row.word("name")
        if name in names:
            raise row.refusal("name", "a name that no other line has", name)
        names.add(name)
        shape = _shape(row)
        came = row.number("creation_time")
        cames.append((came, len(cames), shapes.setdefault(shape.name, shape), _stay(row, came)))
    if not cames:
        raise UsageError(f"{path}: expected at least one pod, found none")
    cames.sort(key=lambda pod: pod[:2])
    cames = cames[:count]
    first = cames[0][0]
    pods = [
        TracePod((came - first) / speed, shape.name, None if stay is None else stay / speed)
        for came, _, shape, stay in cames
    ]
    used = {pod.shape for pod in pods}
    return Trace(path.stem, pods, {name: shape for name, shape in shapes.items() if name in used})


def _stay(row: Row, came: int) -> int | None:
    if not row.text("deletion_time"):
        return None
    began, column = came, "creation_time"
    if row.text(_SCHEDULED, absent=""):
        began, column = row.number(_SCHEDULED), _SCHEDULED
    gone = row.number("deletion_time")
    if gone < began:
        raise row.refusal("deletion_time", f"{column} ({began}) or later", str(gone))
    return gone - began


def _shape(row: Row) -> Shape:
    gpus, milli = row.number("num_gpu"), row.number("gpu_milli")
    cpu, memory = row.number("cpu_milli"), row.number("memory_mib")
    requests: dict[str, str | int] = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
    name = f"cpu-{cpu}m-memory-{memory}mi"
    if gpus == 0 and milli:
        raise row.refusal("gpu_milli", "0 for a pod without GPU", str(milli))
    if gpus == 1 and not 1 <= milli <= _CARD:
        raise row.refusal("gpu_milli", f"1 to {_CARD} for a pod with one GPU", str(milli))
    if gpus > 1 and milli != _CARD:
        raise row.refusal("gpu_milli", f"{_CARD} for a pod with {gpus} GPUs (only one card can be shared)", str(milli))
    if gpus and milli == _CARD:
        requests[device.NVIDIA_GPU] = gpus
        name += f"-gpus-{gpus}"
    elif gpus:
        percent = -(-100 * milli // _CARD)
        requests |= {device.GPU_CORE: percent, device.GPU_MEMORY_RATIO: percent}
        name += f"-share-{percent}"
    return Shape(name, requests)


def _weighted(shape: Shape, seconds: float) -> Shape:
    return Shape(shape.name, shape.requests, max(seconds, 1e-9))
