"""`bench schedule --through http`: create → bound, with API server, scheduler and client as processes of their own.

Nodes and Device objects are posted without agents behind them, so that nothing but scheduling happens. Without a rate,
all pods are created as fast as the API server takes them, and what counts is throughput; with one, pods arrive
independently at that rate, and what counts is latency. Each repetition has a fresh server and a fresh scheduler.
"""

import asyncio
import gc
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import orjson
import uvloop

from harness.bench.core import Progress, Size
from harness.bench.mixes import Mix, device_manifest, names, node_manifest
from harness.bench.raw_http import RawClient
from harness.bench.usage import Meter, Usage
from harness.clusters.embedded import start_process
from harness.clusters.kubeconfig import Access, load_access
from harness.errors import ClusterError
from harness.load.arrival import Arrivals
from harness.processes import stop
from harness.sample_statistics import percentile, percentiles, rounded, spread
from harness.subject.foreign import foreign_command
from harness.subject.process import ProcessSubject, our_command
from harness.subject.protocol import OURS
from scheduler.api.core import DEFAULT_SCHEDULER
from scheduler.api.device import GROUP_VERSION
from scheduler.api.wire import Wire

NAMESPACE = "default"
PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
DEVICES_PATH = f"/apis/{GROUP_VERSION}/devices"
CREATORS = 16  # connections that create pods
QUIET = 3.0  # seconds without a binding after which the rest counts as not placed
LOOK = 0.05  # seconds between two looks at how far it is
LATE_MS = 20.0  # at p99 that the client may be late in a paced run
BUSY = 0.9  # of a core: beyond it the client is the limit
TAIL = 0.2  # of the interval that the last hundredth of the bindings may take in a run without a rate
OTHERS = 0.25  # of a core that other programs may use


class _Meta(Wire, frozen=True):
    name: str = ""


class _Spec(Wire, frozen=True):
    node_name: str = ""


class _Shown(Wire, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class _Line(Wire, frozen=True):
    """A line of the watch, as far as we read it."""

    object: _Shown = _Shown()


_decode_line = msgspec.json.Decoder(_Line).decode


@dataclass(slots=True)
class Trial:
    """What one repetition saw. Times are seconds from its start."""

    sent: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    late: list[float] = field(default_factory=list)  # of each pod of a paced run, how much after its time it was sent
    refused: list[int] = field(default_factory=list)  # status codes
    twice: int = 0  # pods shown on a second node
    watch_lost: bool = False
    usage: Usage = field(default_factory=lambda: Usage(1e-9, {}, 0.0))  # from the first creation to the last binding

    @property
    def pods_per_second(self) -> float:
        """From the first binding to the last; between n bindings lie n - 1 gaps."""
        times = sorted(self.bound.values())
        return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 and times[-1] > times[0] else 0.0

    @property
    def tail(self) -> float:
        """The part of the interval that the last hundredth of the bindings took: 0.01 if the pace was even."""
        times = sorted(self.bound.values())
        if len(times) < 2 or times[-1] == times[0]:
            return 0.0
        return (times[-1] - percentile(times, 99)) / (times[-1] - times[0])

    @property
    def cpu_us_per_pod(self) -> dict[str, float]:
        """Processor time by process for each pod bound; says more than a rate where the machine was shared."""
        pods = max(1, len(self.bound))
        return {name: round(share * self.usage.seconds / pods * 1e6, 1) for name, share in self.usage.shares.items()}

    @property
    def latencies(self) -> list[float]:
        """Milliseconds from sending the creation to the watch showing the node."""
        return [(when - self.sent[name]) * 1000 for name, when in self.bound.items()]


def bench_http(
    size: Size, mix: Mix, progress: Progress, *, rate: float | None = None, subject: str = OURS
) -> dict[str, Any]:
    """The documented fields of `bench schedule`.

    Raises:
        ClusterError: the API server did not start or refused nodes.
        SubjectError: the scheduler did not start.
    """
    trials: list[Trial] = []
    for number in range(size.repeat):
        trial = _trial(size, mix, rate, subject)
        trials.append(trial)
        p99 = percentile(sorted(trial.latencies), 99) if trial.bound else float("nan")
        progress(
            f"repetition {number + 1} of {size.repeat}: {trial.pods_per_second:,.0f} pods/s, p99 {p99:,.1f} ms,"
            f" {len(trial.sent) - len(trial.bound)} not placed; cores used:"
            f" {', '.join(f'{name} {share:.2f}' for name, share in trial.usage.shares.items())},"
            f" others {trial.usage.others:.2f}; us a pod:"
            f" {', '.join(f'{name} {used:.0f}' for name, used in trial.cpu_us_per_pod.items())}"
        )
    because = sorted({reason for trial in trials for reason in _because(trial, rate)})
    bound = [one for trial in trials for one in trial.latencies]
    return {
        "through": "http",
        "subject": subject,
        "nodes": size.nodes,
        "pods": size.pods,
        "mix": mix.name,
        "shapes": len(mix.shapes),
        "run": size.run,
        "seed": size.seed,
        "repeat": size.repeat,
        "rate": rate,
        "pods_per_second": rounded(spread([trial.pods_per_second for trial in trials])),
        "latency_ms": percentiles(bound) if bound else {},
        "interval_s": rounded(spread([_interval(trial) for trial in trials]), 3),
        "placed": len(trials[-1].bound),
        "unplaced": len(trials[-1].sent) - len(trials[-1].bound),
        "limit": _limit(trials, rate),
        "cpu_us_per_pod": _medians([trial.cpu_us_per_pod for trial in trials]),
        "cores_used": [{**trial.usage.shares, "others": trial.usage.others} for trial in trials],
        "valid": not because,
        "invalid_because": because,
    }


def _trial(size: Size, mix: Mix, rate: float | None, subject: str) -> Trial:
    with tempfile.TemporaryDirectory(prefix="seatrial-bench-") as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        server, _ = start_process(kubeconfig, fleet="", seed=size.seed, port=0, log=Path(folder) / "server.log")
        try:
            access = load_access(kubeconfig)
            uvloop.run(_post_nodes(access, size.nodes))
            ours = subject == OURS
            command = our_command(kubeconfig, size.seed) if ours else foreign_command(subject, kubeconfig)
            with ProcessSubject(subject, command, log_file=Path(folder) / "scheduler.log") as running:
                meter_of = {"API server": server.pid, "scheduler": running.pid, "client": os.getpid()}
                trial = uvloop.run(_measure(access, size, mix, rate, meter_of))
                running.check()
                return trial
        finally:
            stop(server)


async def _post_nodes(access: Access, count: int) -> None:
    """
    Raises:
        ClusterError: the server refused one.
    """
    client = RawClient(access, connections=8)
    await client.connect()
    try:
        everyone = list(names("node", count))
        nodes = (client.render("/api/v1/nodes", orjson.dumps(_ready_node(name))) for name in everyone)
        devices = (client.render(DEVICES_PATH, orjson.dumps(device_manifest(name))) for name in everyone)
        for what, requests in (("nodes", nodes), ("devices", devices)):
            refused = [code for code in await client.send_all(requests) if code != 201]
            if refused:
                raise ClusterError(f"{len(refused)} of {count} {what} were refused, the first with {refused[0]}")
    finally:
        await client.close()


def _ready_node(name: str) -> dict[str, Any]:
    node = node_manifest(name)
    del node["metadata"]["uid"]  # the server gives its own
    node["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    return node


async def _measure(access: Access, size: Size, mix: Mix, rate: float | None, pids: dict[str, int]) -> Trial:
    trial = Trial()
    client = RawClient(access, connections=CREATORS)
    requests = _requests(client, size, mix)
    await client.connect()
    start = time.perf_counter()
    nodes: dict[str, str] = {}

    def on_line(line: bytes) -> None:
        shown = _decode_line(line).object
        node, name = shown.spec.node_name, shown.metadata.name
        if not node:
            return
        if name not in trial.bound:
            trial.bound[name] = time.perf_counter() - start
            nodes[name] = node
        elif nodes[name] != node:
            trial.twice += 1

    gc.collect()
    gc.freeze()  # the rendered requests stay: the collector need not look at them
    gc.disable()  # a pause of ours would count as latency of theirs
    try:
        # Bound pods only: what has no node yet says nothing, and would double what the client reads.
        await client.follow(f"{PODS_PATH}?watch=1&resourceVersion=0&fieldSelector=spec.nodeName!%3D", on_line)
        meter = Meter(pids)
        start = time.perf_counter()
        due = Arrivals("poisson", rate, 2 * size.pods / rate + 60).times(size.seed) if rate else None
        creating = asyncio.ensure_future(_create(client, requests, trial, start, due))
        await _until_quiet(trial, creating, size.pods, meter)
        trial.watch_lost = client.watch is None or client.watch.lost
        await creating
    finally:
        await client.close()
        gc.enable()
        gc.unfreeze()
    return trial


def _requests(client: RawClient, size: Size, mix: Mix) -> list[tuple[str, bytes]]:
    rest = [
        b'"labels":%b},"spec":%b}' % (orjson.dumps(mix.labels(one)), orjson.dumps(mix.spec(one, DEFAULT_SCHEDULER)))
        for one in range(len(mix.shapes))
    ]
    shapes = mix.draw(size.pods, size.seed, run=size.run)
    return [
        (name, client.render(PODS_PATH, b'{"metadata":{"name":"%b",%b' % (name.encode(), rest[shape])))
        for name, shape in zip(names("pod", size.pods), shapes, strict=True)
    ]


async def _create(
    client: RawClient,
    requests: Sequence[tuple[str, bytes]],
    trial: Trial,
    start: float,
    due: Iterator[float] | None,
) -> None:
    """Send all pods and wait for the answers."""
    loop = asyncio.get_running_loop()
    slots = asyncio.Semaphore(CREATORS)
    answers = 0
    all_answered: asyncio.Future[None] = loop.create_future()

    def answered(code: int) -> None:
        nonlocal answers
        answers += 1
        slots.release()
        if code != 201:
            trial.refused.append(code)
        if answers == len(requests):
            all_answered.set_result(None)

    for name, data in requests:
        if due is not None:
            when = next(due)
            await asyncio.sleep(max(0.0, when - (time.perf_counter() - start)))
            trial.late.append(time.perf_counter() - start - when)
        await slots.acquire()  # the time of sending is when it goes out, not when it joins a queue of ours
        trial.sent[name] = time.perf_counter() - start
        client.send(data, answered)
    await all_answered


async def _until_quiet(trial: Trial, creating: "asyncio.Future[None]", pods: int, meter: Meter) -> None:
    """Until every pod is bound, or nothing has been bound for a while although all were created."""
    count, since = -1, time.perf_counter()
    while count < pods:
        if len(trial.bound) > count or not creating.done():
            count, since = len(trial.bound), time.perf_counter()
            trial.usage = meter.read()  # again and again, so that the wait for stragglers does not dilute it
        if time.perf_counter() - since > QUIET:
            return
        await asyncio.sleep(LOOK)


def _medians(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: median(row[name] for row in rows) for name in rows[0]}


def _interval(trial: Trial) -> float:
    return max(trial.bound.values()) - min(trial.bound.values()) if trial.bound else 0.0


def _limit(trials: Sequence[Trial], rate: float | None) -> str:
    """Who used the most processor time, of the last repetition."""
    shares = trials[-1].usage.shares
    busiest = max(shares, key=lambda name: shares[name])
    said = f"{busiest} ({shares[busiest]:.0%} of a core)"
    cores = os.cpu_count() or 1
    used = sum(shares.values()) + trials[-1].usage.others
    if rate is not None:
        return f"the rate asked for; busiest was the {said}"
    return f"{said}; all {cores} cores were busy" if used > 0.92 * cores else said


def _because(trial: Trial, rate: float | None) -> list[str]:
    found = []
    if trial.refused:
        codes = ", ".join(sorted({str(code) if code else "no answer" for code in trial.refused}))
        found.append(f"pods were refused ({codes})")
    if trial.twice:
        found.append("a pod was shown on two nodes")
    if trial.watch_lost:
        found.append("the watch ended before the pods were bound")
    if trial.usage.shares.get("client", 0.0) > BUSY:
        found.append(f"the client was the limit: it used more than {BUSY:.0%} of a core")
    if trial.usage.others > OTHERS:
        found.append(f"other programs used more than {OTHERS:.0%} of a core")
    if rate is None and trial.tail > TAIL:
        found.append(
            f"stragglers: the last 1% of the bindings took more than {TAIL:.0%} of the interval; the throughput is"
            " diluted by pods that had to try again"
        )
    if rate is not None and trial.late and percentile(sorted(trial.late), 99) * 1000 > LATE_MS:
        found.append(f"generator lag: pods were sent more than {LATE_MS:.0f} ms late at p99")
    return found
