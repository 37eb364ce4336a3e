"""What one load process does and when: creations by the plan, deletions and repetitions as they come up."""

import heapq
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import orjson

from harness.load.settings import PART_LABEL, Errand, LoadSettings
from harness.load.workload import Shape, mix

_NAME = "seatrial-load-name"  # stands for the name in a rendered manifest


@dataclass(frozen=True, slots=True)
class Task:
    """One request to make at `due`, in seconds from the start of the load."""

    verb: Literal["create", "delete"]
    pod: str
    due: float
    shape: str = ""


class Agenda:
    """Tasks in the order in which they are due."""

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        self._order = itertools.count()
        self._heap = [(task.due, next(self._order), task) for task in tasks]
        heapq.heapify(self._heap)

    def add(self, task: Task) -> None:
        heapq.heappush(self._heap, (task.due, next(self._order), task))

    def take(self, now: float) -> Task | None:
        """The earliest task if it is due."""
        return heapq.heappop(self._heap)[2] if self._heap and self._heap[0][0] <= now else None

    def wait(self, now: float) -> float:
        """Seconds until something is due; infinite if nothing is planned."""
        return max(0.0, self._heap[0][0] - now) if self._heap else float("inf")

    def __len__(self) -> int:
        return len(self._heap)


def creations(errand: Errand) -> Iterator[Task]:
    """The arrivals that are this process' to submit; all processes together submit the whole plan."""
    settings = errand.settings
    due = settings.plan().times(settings.seed)
    shapes = mix(settings.mix).draw(settings.seed)
    numbered = itertools.islice(enumerate(zip(due, shapes, strict=False)), errand.part, None, settings.processes)
    return (Task("create", f"load-{number:07}", when, shape.name) for number, (when, shape) in numbered)


class Bodies:
    """The bodies of create requests: each shape is rendered once, a pod only puts its name into it."""

    def __init__(self, settings: LoadSettings, part: int) -> None:
        self._rendered = {shape.name: _rendered(shape, settings, part) for shape in mix(settings.mix).shapes}

    def body(self, shape: str, name: str) -> bytes:
        before, after = self._rendered[shape]
        return before + name.encode() + after


def _rendered(shape: Shape, settings: LoadSettings, part: int) -> tuple[bytes, bytes]:
    pod = shape.pod(_NAME).label(PART_LABEL, str(part))
    if settings.scheduler:
        pod.scheduler(settings.scheduler)
    before, _, after = orjson.dumps(pod.manifest).partition(_NAME.encode())
    return before, after
