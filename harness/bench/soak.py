"""`bench soak`: pods come and go through the embedded API server with our scheduler, both as processes of their own.

Pods are created at an even rate; from a number of pods on, the oldest is deleted for each that comes. Several watches
of all pods run from beginning to end. Each must show the creation of every pod that was created and the deletion of
every pod that was deleted. The memory of server and scheduler is read ten times. It grows at first: the history that
watches go back to, 16,384 changes of each kind, and events, which live for an hour.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson
import uvloop

from seatrial.harness.bench.core import Progress
from seatrial.harness.bench.mixes import Mix
from seatrial.harness.bench.raw_http import RawClient
from seatrial.harness.bench.through_http import (
    PODS_PATH,
    STARTING,
    Contender,
    PodEvent,
    fresh_server,
    places_pods,
    post_nodes,
)
from seatrial.harness.bench.usage import resident
from seatrial.harness.clusters.backends import EMBEDDED
from seatrial.harness.clusters.kubeconfig import Access, load_access
from seatrial.harness.errors import SubjectError
from seatrial.harness.sample_statistics import percentile
from seatrial.harness.subject.process import ProcessSubject
from seatrial.scheduler.api.core import DEFAULT_SCHEDULER
from seatrial.scheduler.api.private_files import private_folder

WATCHES = 4
READINGS = 10
CONNECTIONS = 8
LAG_LIMIT = 0.1  # seconds; p99
LAST_READS = 100  # of the watches, every 50 ms, for the last events


_decode = msgspec.json.Decoder(PodEvent).decode


@dataclass(frozen=True, slots=True)
class Load:
    """How many pods come and go."""

    seconds: float
    nodes: int
    rate: float  # pods a second
    alive: int  # pods at a time
    seed: int = 0


@dataclass(slots=True)
class Seen:
    """What one watch has shown."""

    added: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    lags: list[float] = field(default_factory=list)  # seconds from sending a create request to its event


@dataclass(slots=True)
class Course:
    """What was ordered and seen."""

    sent: dict[str, float] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    refused: list[int] = field(default_factory=list)
    watches: list[Seen] = field(default_factory=list)
    watches_lost: int = 0
    mib: dict[str, list[float]] = field(default_factory=dict)

    @property
    def lost(self) -> int:
        """Events that a watch has not shown."""
        return sum(len(self.created - seen.added) + len(self.deleted - seen.deleted) for seen in self.watches)

    def observer(self, number: int, start: float) -> Callable[[bytes], None]:
        """Notes the lines of watch `number`; `start` is the monotonic second at which the course began."""
        seen = self.watches[number]

        def on_line(line: bytes) -> None:
            event = _decode(line)
            name = event.object.metadata.name
            if event.type == "ADDED":
                seen.added.add(name)
                if name in self.sent:
                    seen.lags.append(time.perf_counter() - start - self.sent[name])
            elif event.type == "DELETED":
                seen.deleted.add(name)
            if event.object.spec.node_name:
                seen.bound.add(name)

        return on_line


def bench_soak(load: Load, mix: Mix, progress: Progress) -> dict[str, Any]:
    """Run the benchmark and return the documented fields.

    Raises:
        ClusterError: the API server did not start or refused nodes.
        SubjectError: the scheduler did not start, or ended.
    """
    with private_folder() as folder, fresh_server(EMBEDDED, folder, load.seed) as server:
        access = load_access(server.kubeconfig)
        uvloop.run(post_nodes(access, load.nodes, statuses_apart=False))
        contender = Contender()
        command = contender.command(server.kubeconfig, load.seed)
        with ProcessSubject(contender.subject, command, log_file=folder / "scheduler.log") as running:
            if not uvloop.run(places_pods(access, mix)):
                running.check()
                raise SubjectError(f"the scheduler placed no pod within {STARTING:.0f} s\n{running.log()}")
            pids = {**server.pids, "scheduler": running.pid}
            course = uvloop.run(_churn(access, load, mix, pids, progress))
            running.check()
    return figures_of(load, course)


def figures_of(load: Load, course: Course) -> dict[str, Any]:
    """The documented fields."""
    lags = [lag for seen in course.watches for lag in seen.lags]
    last = [lag for seen in course.watches for lag in seen.lags[-max(1, len(seen.lags) // READINGS) :]]
    p99 = percentile(sorted(lags), 99) if lags else 0.0
    bound = set[str]().union(*(seen.bound for seen in course.watches))
    reasons = []
    if course.lost:
        reasons.append(f"{course.lost} events were lost")
    if course.watches_lost:
        reasons.append(f"{course.watches_lost} watches ended")
    if course.refused:
        codes = ", ".join(sorted({str(code) if code else "no answer" for code in course.refused}))
        reasons.append(f"requests were refused ({codes})")
    if p99 > LAG_LIMIT:
        reasons.append(f"p99 of the watches' lag is above {LAG_LIMIT * 1000:.0f} ms")
    return {
        "seconds": load.seconds,
        "nodes": load.nodes,
        "rate": load.rate,
        "alive": load.alive,
        "watches": len(course.watches),
        "created": len(course.created),
        "deleted": len(course.deleted),
        "bound": len(bound & course.created),
        "events_lost": course.lost,
        "lag_ms": _milliseconds(lags),
        "lag_ms_last_tenth": _milliseconds(last),
        "mib": course.mib,
        "passed": not reasons,
        "failed_because": reasons,
    }


def _milliseconds(samples: Sequence[float]) -> dict[str, float]:
    ordered = sorted(samples)
    if not ordered:
        return {}
    shares = {"p50": percentile(ordered, 50), "p99": percentile(ordered, 99), "max": ordered[-1]}
    return {name: round(value * 1000, 1) for name, value in shares.items()}


async def _churn(access: Access, load: Load, mix: Mix, pids: dict[str, int], progress: Progress) -> Course:
    course = Course(watches=[Seen() for _ in range(WATCHES)], mib={name: [] for name in pids})
    client = RawClient(access, connections=CONNECTIONS)
    watchers = [RawClient(access, connections=0) for _ in course.watches]
    await client.connect()
    start = time.perf_counter()
    try:
        for number, watcher in enumerate(watchers):
            await watcher.follow(f"{PODS_PATH}?watch=1&resourceVersion=0", course.observer(number, start))
        await _send(client, load, mix, course, start, lambda: _read_memory(pids, course, progress))
        for _ in range(LAST_READS):
            if not course.lost:
                break
            await asyncio.sleep(0.05)
        course.watches_lost = sum(watcher.watch is None or watcher.watch.lost for watcher in watchers)
    finally:
        for each in (client, *watchers):
            await each.close()
    return course


async def _send(  # noqa: PLR0917
    client: RawClient, load: Load, mix: Mix, course: Course, start: float, read: Callable[[], None]
) -> None:
    """Create and delete pods at the rate of the load, and read the memory ten times."""
    alive: deque[str] = deque()
    count = max(1, int(load.seconds * load.rate))
    shapes = mix.draw(count, load.seed)
    specs = [orjson.dumps(mix.spec(number, DEFAULT_SCHEDULER)) for number in range(len(mix.shapes))]
    open_ = 0
    idle = asyncio.Event()

    def answered(name: str, done: set[str], expected: int) -> Callable[[int], None]:
        def note(code: int) -> None:
            nonlocal open_
            open_ -= 1
            if code == expected:
                done.add(name)
            else:
                course.refused.append(code)
            if not open_:
                idle.set()

        return note

    at_once = orjson.dumps({"gracePeriodSeconds": 0})
    readings = 0
    for number in range(count):
        await asyncio.sleep(max(0.0, number / load.rate - (time.perf_counter() - start)))
        name = f"soak-{number:07}"
        body = b'{"metadata":{"name":"%b"},"spec":%b}' % (name.encode(), specs[shapes[number]])
        course.sent[name] = time.perf_counter() - start
        open_ += 1
        client.send(client.render(PODS_PATH, body), answered(name, course.created, 201))
        alive.append(name)
        if len(alive) > load.alive:
            oldest = alive.popleft()
            open_ += 1
            request = client.render(f"{PODS_PATH}/{oldest}", at_once, method="DELETE")
            client.send(request, answered(oldest, course.deleted, 200))
        if (number + 1) * READINGS // count > readings:
            readings += 1
            read()
    idle.clear()
    if open_:
        await idle.wait()


def _read_memory(pids: dict[str, int], course: Course, progress: Progress) -> None:
    for name, pid in pids.items():
        course.mib[name].append(round(resident(pid) / 2**20, 1))
    text = ", ".join(f"{name} {readings[-1]:g} MiB" for name, readings in course.mib.items())
    progress(f"{len(course.sent):,} pods: {text}")
