"""Samples of one load process: what happened to each pod, recorded from answers and from the watch.

Times are seconds from the start of the load; callers pass them in.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec


class Sample(msgspec.Struct, omit_defaults=True):
    """The times of one pod as the client saw them; None: it did not happen."""

    pod: str
    shape: str
    due: float  # planned time of the create request
    sent: float  # time of the create request
    answered: float | None = None
    seen: float | None = None  # first event of the watch
    bound: float | None = None  # first event with spec.nodeName
    node: str = ""
    nodes_seen: int = 0  # number of nodes that the watch showed; more than one is a double binding
    deleting: float | None = None  # time of the delete request
    deleted: float | None = None
    aside: bool = False  # it waits for something else than the scheduler: no part of latency and throughput

    @property
    def latency(self) -> float | None:
        """Seconds from the create request to the watch event with the node."""
        return None if self.bound is None else self.bound - self.sent


class Part(msgspec.Struct):
    """The result of one load process."""

    samples: list[Sample] = []
    errors: dict[str, int] = {}  # count by kind of failure
    throttled: int = 0  # number of answers with code 429
    watch_restarts: int = 0
    watch_gaps: int = 0  # restarts with a new list; changes in between were not seen
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    worker: str = ""  # which worker on which machine; empty: a process of this command
    rows: dict[str, list[float]] = {}  # durations that users measured, in seconds
    lost: bool = False  # the worker ended, or its machine was not reached any more, before its result came


class Progress(msgspec.Struct, frozen=True):
    """Counts of a load process that is running."""

    created: int = 0
    bound: int = 0
    deleted: int = 0
    errors: int = 0


class Record:
    """Collects the samples of one process."""

    def __init__(self) -> None:
        self._samples: dict[str, Sample] = {}
        self._errors: Counter[str] = Counter()
        self.rows: dict[str, list[float]] = {}
        self.throttled = self.watch_restarts = self.watch_gaps = 0
        self._created = self._bound = self._deleted = 0

    def send(self, pod: str, shape: str, *, due: float, now: float, aside: bool = False) -> None:
        """The create request is sent. A retry keeps the time of the first request: waiting after a 429 is latency."""
        if pod not in self._samples:
            self._samples[pod] = Sample(pod, shape, due, now, aside=aside)

    def created(self, pod: str, now: float) -> None:
        sample = self._samples[pod]
        if sample.answered is None:
            sample.answered = now
            self._created += 1

    def failed(self, what: str) -> None:
        """A request was refused or lost; `what` is the kind of failure, without names, so that it can be counted."""
        self._errors[what] += 1

    def never_created(self, pod: str) -> None:
        """The create request has failed and is not repeated; later watch events of the pod are ignored."""
        self._samples.pop(pod, None)

    def deleting(self, pod: str, now: float) -> None:
        self._samples[pod].deleting = now

    def event(self, kind: str, pod: Mapping[str, Any], now: float) -> str | None:
        """Process one watch event. Returns the pod's name if it is its first binding, else None."""
        name = pod["metadata"]["name"]
        sample = self._samples.get(name)
        if sample is None:
            return None  # created by another process
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

    def latency_of(self, pod: str) -> float | None:
        """Seconds from the pod's create request to its binding; None as long as it has no node."""
        return self._samples[pod].latency

    def gone(self, pod: str) -> bool:
        """Whether the watch showed the pod's end."""
        return self._samples[pod].deleted is not None

    @property
    def progress(self) -> Progress:
        return Progress(self._created, self._bound, self._deleted, self._errors.total())

    @property
    def settled(self) -> bool:
        """Every pod that was created has been bound and deleted."""
        return self._deleted >= self._created

    def part(self, *, cpu_seconds: float, wall_seconds: float) -> Part:
        """The result of this process."""
        return Part(
            list(self._samples.values()),
            dict(self._errors),
            self.throttled,
            self.watch_restarts,
            self.watch_gaps,
            cpu_seconds,
            wall_seconds,
            rows=self.rows,
        )
