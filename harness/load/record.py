"""What happened to each pod of a load: bookkeeping of one process, from answers and from its one watch.

Times are seconds from the start of the load. Nothing in here reads a clock or a socket.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec


class Sample(msgspec.Struct, omit_defaults=True):
    """The life of one pod as its client saw it; None is what has not happened."""

    pod: str
    shape: str
    due: float  # when it should have been sent
    sent: float  # when the request went out
    answered: float | None = None
    seen: float | None = None  # first shown by the watch
    bound: float | None = None  # first shown by the watch with spec.nodeName
    node: str = ""
    nodes_seen: int = 0  # how many different nodes, one after the other; more than one is a double binding
    deleting: float | None = None  # when the deletion was sent
    deleted: float | None = None

    @property
    def latency(self) -> float | None:
        """Seconds from the create request to the binding as the watch showed it."""
        return None if self.bound is None else self.bound - self.sent


class Part(msgspec.Struct):
    """What one process hands back."""

    samples: list[Sample] = []
    errors: dict[str, int] = {}  # how often, by what was refused and why
    throttled: int = 0  # answers 429
    watch_restarts: int = 0
    watch_gaps: int = 0  # restarts that had to list anew; changes in between were not seen one by one
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0


class Progress(msgspec.Struct, frozen=True):
    """How far a process is."""

    created: int = 0
    bound: int = 0
    deleted: int = 0
    errors: int = 0


class Record:
    """Collects one process' samples."""

    def __init__(self) -> None:
        self._samples: dict[str, Sample] = {}
        self._errors: Counter[str] = Counter()
        self.throttled = self.watch_restarts = self.watch_gaps = 0
        self._created = self._bound = self._deleted = 0

    def send(self, pod: str, shape: str, *, due: float, now: float) -> None:
        """The create request goes out now. A repetition keeps the first time: waiting out a 429 is latency, too."""
        if pod not in self._samples:
            self._samples[pod] = Sample(pod, shape, due, now)

    def created(self, pod: str, now: float) -> None:
        sample = self._samples[pod]
        if sample.answered is None:
            sample.answered = now
            self._created += 1

    def failed(self, what: str) -> None:
        """A request was refused or lost; `what` says which kind and why, without names, so that it can be counted."""
        self._errors[what] += 1

    def never_created(self, pod: str) -> None:
        """Its create request has finally failed; what the watch may still show of it counts for nothing."""
        self._samples.pop(pod, None)

    def deleting(self, pod: str, now: float) -> None:
        self._samples[pod].deleting = now

    def event(self, kind: str, pod: Mapping[str, Any], now: float) -> str | None:
        """One line of the watch. Returns the pod's name if this is its first binding."""
        name = pod["metadata"]["name"]
        sample = self._samples.get(name)
        if sample is None:
            return None  # not ours
        if sample.seen is None:
            sample.seen = now
        newly = self._place(sample, pod.get("spec", {}).get("nodeName", ""), now)
        if kind == "DELETED" and sample.deleted is None:
            sample.deleted = now
            self._deleted += 1
        return name if newly else None

    def _place(self, sample: Sample, node: str, now: float) -> bool:
        if not node or node == sample.node:
            return False
        sample.node = node
        sample.nodes_seen += 1
        if sample.bound is not None:
            return False
        sample.bound = now
        self._bound += 1
        return True

    @property
    def progress(self) -> Progress:
        return Progress(self._created, self._bound, self._deleted, self._errors.total())

    @property
    def settled(self) -> bool:
        """Every pod that was created has been bound and deleted."""
        return self._deleted >= self._created

    def part(self, *, cpu_seconds: float, wall_seconds: float) -> Part:
        """What to hand back."""
        return Part(
            list(self._samples.values()),
            dict(self._errors),
            self.throttled,
            self.watch_restarts,
            self.watch_gaps,
            cpu_seconds,
            wall_seconds,
        )
