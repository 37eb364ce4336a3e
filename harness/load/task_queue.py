"""The queue of timed tasks of a load process: planned creations, deletions and retries."""

import heapq
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import orjson

from seatrial.harness.load.settings import PART_LABEL, LoadSettings, WorkerSettings
from seatrial.harness.load.workload import Shape, mix

_NAME = "seatrial-load-name"  # placeholder of the name in a rendered manifest


@dataclass(frozen=True, slots=True)
class Task:
    """One request, due at `due` seconds after the start of the load."""

    verb: Literal["create", "delete"]
    pod: str
    due: float
    shape: str = ""
    stay: float | None = None  # seconds from the binding to the deletion; None: as in the settings


class TaskQueue:
    """A priority queue of tasks, ordered by due time."""

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        self._order = itertools.count()
        self._heap = [(task.due, next(self._order), task) for task in tasks]
        heapq.heapify(self._heap)

    def add(self, task: Task) -> None:
        heapq.heappush(self._heap, (task.due, next(self._order), task))

    def take(self, now: float) -> Task | None:
        """Remove and return the earliest task if it is due at `now`; None otherwise."""
        return heapq.heappop(self._heap)[2] if self._heap and self._heap[0][0] <= now else None

    def wait(self, now: float) -> float:
        """Seconds until the next task is due; infinite if the queue is empty."""
        return max(0.0, self._heap[0][0] - now) if self._heap else float("inf")

    def __len__(self) -> int:
        return len(self._heap)


def creations(worker: WorkerSettings) -> Iterator[Task]:
    """The creations of this process: every `processes`-th arrival of the plan, beginning with number `part`."""
    settings = worker.settings
    if settings.locustfile:
        return iter(())
    trace = settings.recorded()
    if trace is not None:
        pods = itertools.islice(enumerate(trace.pods), worker.part, None, settings.processes)
        end = trace.seconds
        return (
            Task("create", f"load-{number:07}", pod.at, pod.shape, end - pod.at if pod.stay is None else pod.stay)
            for number, pod in pods
        )
    due = settings.plan().times(settings.seed)
    shapes = mix(settings.mix).draw(settings.seed)
    numbered = itertools.islice(enumerate(zip(due, shapes, strict=False)), worker.part, None, settings.processes)
    return (Task("create", f"load-{number:07}", when, shape.name) for number, (when, shape) in numbered)


class PodBodies:
    """PodBodies of create requests: each shape is rendered once, and the pod's name is inserted."""

    def __init__(self, settings: LoadSettings, part: int) -> None:
        self._rendered = {shape.name: _rendered(shape, settings, part) for shape in settings.demand().shapes}

    def body(self, shape: str, name: str) -> bytes:
        before, after = self._rendered[shape]
        return before + name.encode() + after


def _rendered(shape: Shape, settings: LoadSettings, part: int) -> tuple[bytes, bytes]:
    pod = shape.pod(_NAME).label(PART_LABEL, str(part))
    if settings.scheduler:
        pod.scheduler(settings.scheduler)
    before, _, after = orjson.dumps(pod.manifest).partition(_NAME.encode())
    return before, after
