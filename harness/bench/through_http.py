"""`bench schedule --through http`: create → bound, with API server, scheduler and client as separate processes.

Nodes and Device objects are created without agents, so that only scheduling is measured. Without a rate, all pods are
created as fast as the API server takes them, and throughput is measured. With a rate, pods arrive independently at
that rate, and latency is measured. Each repetition starts a fresh server and a fresh scheduler.
"""

import asyncio
import gc
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import orjson
import uvloop

from seatrial.harness.apiserver import shipped
from seatrial.harness.bench.claims import before_nodes, slice_of
from seatrial.harness.bench.core import Progress, Size, nothing_placed
from seatrial.harness.bench.mixes import Mix, device_manifest, names, node_manifest
from seatrial.harness.bench.raw_http import RawClient
from seatrial.harness.bench.usage import Meter, Usage
from seatrial.harness.clusters.backends import EMBEDDED, ENVTEST
from seatrial.harness.clusters.control_plane import control_plane
from seatrial.harness.clusters.embedded import start_process
from seatrial.harness.clusters.kubeconfig import Access, load_access
from seatrial.harness.errors import ClusterError, SubjectError
from seatrial.harness.load.arrival import Arrivals
from seatrial.harness.processes import stop
from seatrial.harness.sample_statistics import percentile, percentiles, rounded, spread
from seatrial.harness.subject.foreign import foreign_command
from seatrial.harness.subject.process import ProcessSubject, our_command
from seatrial.harness.subject.protocol import OURS
from seatrial.scheduler.api.core import DEFAULT_SCHEDULER
from seatrial.scheduler.api.device import GROUP_VERSION
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.transport import MERGE_PATCH
from seatrial.scheduler.api.wire import Wire

NAMESPACE = "default"
PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
DEVICES_PATH = f"/apis/{GROUP_VERSION}/devices"
CREATORS = 16  # connections that create pods
STARTING = 60.0  # seconds for a scheduler to start and place a first pod
FIRST_POD = "first-pod"
QUIET = 3.0  # seconds without a binding, after which the remaining pods count as not placed
POLL_INTERVAL = 0.05  # seconds between two reads of the progress
MAX_LAG_MS = 20.0  # p99 of the delay of the client in a run with a rate
CLIENT_BUSY_THRESHOLD = 0.9  # share of a core; above it the client is the limit
MAX_TAIL = 0.2  # part of the interval for the last 1 % of the bindings, in a run without a rate
OTHERS_BUSY_THRESHOLD = 0.25  # share of a core; above it the machine counts as shared


class _Meta(Wire, frozen=True):
    name: str = ""


class _Spec(Wire, frozen=True):
    node_name: str = ""


class _Shown(Wire, frozen=True):
    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class PodEvent(Wire, frozen=True):
    """The fields of a watch event that are read."""

    type: str = ""
    object: _Shown = _Shown()


_decode_event = msgspec.json.Decoder(PodEvent).decode


@dataclass(slots=True)
class Repetition:
    """The observations of one repetition. Times are seconds from its start."""

    sent: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    late: list[float] = field(
        default_factory=list
    )  # with a rate: for each pod, seconds from its due time to its sending
    refused: list[int] = field(default_factory=list)  # status codes
    twice: int = 0  # pods that the watch showed on a second node
    watch_lost: bool = False
    usage: Usage = field(default_factory=lambda: Usage(1e-9, {}, 0.0))  # from the first creation to the last binding

    @property
    def pods_per_second(self) -> float:
        """Throughput from the first binding to the last; n bindings have n - 1 intervals."""
        times = sorted(self.bound.values())
        return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 and times[-1] > times[0] else 0.0

    @property
    def tail(self) -> float:
        """The part of the interval that the last 1 % of the bindings took; 0.01 for an even pace."""
        times = sorted(self.bound.values())
        if len(times) < 2 or times[-1] == times[0]:
            return 0.0
        return (times[-1] - percentile(times, 99)) / (times[-1] - times[0])

    @property
    def cpu_us_per_pod(self) -> dict[str, float]:
        """Processor time by process for each bound pod, in µs; unlike a rate it is comparable on a shared machine."""
        pods = max(1, len(self.bound))
        return {name: round(share * self.usage.seconds / pods * 1e6, 1) for name, share in self.usage.shares.items()}

    @property
    def latencies(self) -> list[float]:
        """Milliseconds from sending the create request to the watch event with the node, for each bound pod."""
        return [(when - self.sent[name]) * 1000 for name, when in self.bound.items()]


@dataclass(frozen=True, slots=True)
class Contender:
    """A scheduler: `seatrial`, or the command line of another one; and its configuration file."""

    subject: str = OURS
    config: Path | None = None

    def command(self, kubeconfig: Path, seed: int) -> list[str]:
        """How to start it."""
        if self.subject == OURS:
            return our_command(kubeconfig, seed, self.config)
        return foreign_command(self.subject, kubeconfig, self.config)


def bench_http(
    size: Size,
    mix: Mix,
    progress: Progress,
    *,
    rate: float | None = None,
    contender: Contender = Contender(),
    beside: Sequence[str] = (),
    backend: str = EMBEDDED,
) -> dict[str, Any]:
    """Run the benchmark and return the documented fields of `bench schedule`.

    `beside`: command lines of other schedulers. Their repetitions alternate with those of `contender`, so that a change
    of the machine's speed meets all of them, and figures are given as ratios too.

    Raises:
        ClusterError: the API server did not start or refused nodes.
        SubjectError: a scheduler did not start.
    """
    contenders = [contender, *(Contender(command) for command in beside)]
    runs: list[list[Repetition]] = [[] for _ in contenders]
    for number in range(size.repeat):
        for contestant, repetitions in zip(contenders, runs, strict=True):
            name = f"{Path(contestant.subject.split()[0]).name}: " if beside else ""
            repetition = _repeat(size, mix, rate, contestant, backend)
            progress(f"{name}repetition {number + 1} of {size.repeat}: {_shown(repetition)}")
            repetitions.append(repetition)
    figures = {**_figures(size, mix, rate, contender.subject, runs[0]), "backend": backend}
    if beside:
        others = [
            _figures(size, mix, rate, contender.subject, run)
            for contender, run in zip(contenders[1:], runs[1:], strict=True)
        ]
        for other, run in zip(others, runs[1:], strict=True):
            other["ratio"] = _ratio(runs[0], run)
        figures["beside"] = others
    return figures


def _ratio(own: Sequence[Repetition], other: Sequence[Repetition]) -> dict[str, float]:
    """Our throughput divided by the other scheduler's: median, lowest and highest of the repetitions."""
    numbers = [
        value.pods_per_second / two.pods_per_second
        for value, two in zip(own, other, strict=True)
        if two.pods_per_second
    ]
    return rounded(spread(numbers), 3) if numbers else {}


def _shown(repetition: Repetition) -> str:
    p99 = percentile(sorted(repetition.latencies), 99) if repetition.bound else float("nan")
    return (
        f"{repetition.pods_per_second:,.0f} pods/s, p99 {p99:,.1f} ms,"
        f" {len(repetition.sent) - len(repetition.bound)} not placed; cores used:"
        f" {', '.join(f'{name} {share:.2f}' for name, share in repetition.usage.shares.items())},"
        f" others {repetition.usage.others:.2f}; us a pod:"
        f" {', '.join(f'{name} {used:.0f}' for name, used in repetition.cpu_us_per_pod.items())}"
    )


def _figures(
    size: Size, mix: Mix, rate: float | None, subject: str, repetitions: Sequence[Repetition]
) -> dict[str, Any]:
    because = sorted({reason for repetition in repetitions for reason in _invalid_reasons(repetition, rate)})
    bound = [latency for repetition in repetitions for latency in repetition.latencies]
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
        "pods_per_second": rounded(spread([repetition.pods_per_second for repetition in repetitions])),
        "latency_ms": percentiles(bound) if bound else {},
        "interval_s": rounded(spread([_interval(repetition) for repetition in repetitions]), 3),
        "placed": len(repetitions[-1].bound),
        "unplaced": len(repetitions[-1].sent) - len(repetitions[-1].bound),
        "limit": _limit(repetitions, rate),
        "cpu_us_per_pod": _medians([repetition.cpu_us_per_pod for repetition in repetitions]),
        "cores_used": [{**repetition.usage.shares, "others": repetition.usage.others} for repetition in repetitions],
        "valid": not because,
        "invalid_because": because,
    }


def _repeat(size: Size, mix: Mix, rate: float | None, contender: Contender, backend: str) -> Repetition:
    with private_folder() as folder, fresh_server(backend, folder, size.seed) as server:
        access = load_access(server.kubeconfig)
        uvloop.run(
            post_nodes(access, size.nodes, statuses_apart=backend == ENVTEST, claims_of=mix if mix.claims else None)
        )
        command = contender.command(server.kubeconfig, size.seed)
        with ProcessSubject(contender.subject, command, log_file=folder / "scheduler.log") as running:
            if not uvloop.run(places_pods(access, mix)):
                running.check()  # raises with the reason, if it has ended
                raise SubjectError(f"{contender.subject} placed no pod within {STARTING:.0f} s\n{running.log()}")
            meter_of = {**server.pids, "scheduler": running.pid, "client": os.getpid()}
            repetition = uvloop.run(_measure(access, size, mix, rate, meter_of))
            running.check()
            return repetition


@dataclass(frozen=True, slots=True)
class FreshServer:
    """An API server under load, and its processes by the names that figures have."""

    kubeconfig: Path
    pids: dict[str, int]


@contextmanager
def fresh_server(backend: str, folder: Path, seed: int) -> Iterator[FreshServer]:
    """A fresh API server without agents of nodes."""
    if backend == ENVTEST:
        with control_plane(folder, list(shipped()), controllers=False) as plane:
            etcd, server = plane.processes
            yield FreshServer(plane.kubeconfig, {"API server": server.pid, "etcd": etcd.pid})
        return
    kubeconfig = folder / "kubeconfig"
    process, _ = start_process(kubeconfig, fleet="", seed=seed, port=0, log=folder / "server.log")
    try:
        yield FreshServer(kubeconfig, {"API server": process.pid})
    finally:
        stop(process)


async def post_nodes(access: Access, count: int, *, statuses_apart: bool, claims_of: Mix | None = None) -> None:
    """Create all nodes and their Device objects, or for `claims_of` what its claims need.

    `statuses_apart`: kube-apiserver ignores the status of a new node.

    Raises:
        ClusterError: the server refused one.
    """
    client = RawClient(access, connections=8)
    await client.connect()
    try:
        everyone = list(names("node", count))
        claims = claims_of is not None
        nodes = (client.render("/api/v1/nodes", orjson.dumps(_ready_node(name, claims=claims))) for name in everyone)
        statuses = (
            client.render(
                f"/api/v1/nodes/{name}/status",
                orjson.dumps({"status": _ready_node(name, claims=claims)["status"]}),
                method="PATCH",
                content_type=MERGE_PATCH,
            )
            for name in (everyone if statuses_apart else ())
        )
        if claims_of is not None:
            objects: Iterable[tuple[str, Any]] = [*before_nodes(len(claims_of.shapes)), *map(slice_of, everyone)]
        else:
            objects = ((DEVICES_PATH, device_manifest(name)) for name in everyone)
        devices = (client.render(path, orjson.dumps(result)) for path, result in objects)
        for what, requests in (("nodes", nodes), ("statuses of nodes", statuses), ("devices", devices)):
            refused = [code for code in await client.send_all(requests) if code not in {200, 201}]
            if refused:
                raise ClusterError(f"{len(refused)} of {count} {what} were refused, the first with {refused[0]}")
    finally:
        await client.close()


def _ready_node(name: str, *, claims: bool) -> dict[str, Any]:
    node = node_manifest(name, claims=claims)
    del node["metadata"]["uid"]  # the server assigns one
    node["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    return node


async def places_pods(access: Access, mix: Mix) -> bool:
    """Whether the scheduler places a first pod within STARTING seconds. The pod is deleted again.

    Other schedulers cannot be asked whether they have started, and their start must not count.
    """
    client = RawClient(access, connections=1)
    await client.connect()
    placed = asyncio.Event()
    body = orjson.dumps({"metadata": {"name": FIRST_POD}, "spec": mix.spec(0, DEFAULT_SCHEDULER)})
    try:
        watched = f"{PODS_PATH}?watch=1&resourceVersion=0&fieldSelector=spec.nodeName!%3D"
        await client.follow(watched, lambda _: placed.set())
        await client.send_all([client.render(PODS_PATH, body)])
        try:
            await asyncio.wait_for(placed.wait(), STARTING)
        except TimeoutError:
            return False
        at_once = orjson.dumps({"gracePeriodSeconds": 0})
        await client.send_all([client.render(f"{PODS_PATH}/{FIRST_POD}", at_once, method="DELETE")])
        return True
    finally:
        await client.close()


async def _measure(access: Access, size: Size, mix: Mix, rate: float | None, pids: dict[str, int]) -> Repetition:
    repetition = Repetition()
    client = RawClient(access, connections=CREATORS)
    requests = _requests(client, size, mix)
    await client.connect()
    start = time.perf_counter()
    nodes: dict[str, str] = {}

    def on_line(line: bytes) -> None:
        shown = _decode_event(line).object
        node, name = shown.spec.node_name, shown.metadata.name
        if not node:
            return
        if name not in repetition.bound:
            repetition.bound[name] = time.perf_counter() - start
            nodes[name] = node
        elif nodes[name] != node:
            repetition.twice += 1

    gc.collect()
    gc.freeze()  # the rendered requests are long-lived: the collector skips them
    gc.disable()  # a pause of the client would count as latency of the subject
    try:
        # Bound pods only: events of pods without a node would double what the client reads.
        await client.follow(f"{PODS_PATH}?watch=1&resourceVersion=0&fieldSelector=spec.nodeName!%3D", on_line)
        meter = Meter(pids)
        start = time.perf_counter()
        due = Arrivals("poisson", rate, 2 * size.pods / rate + 60).times(size.seed) if rate else None
        creating = asyncio.ensure_future(_create(client, requests, repetition, start, due))
        await _until_quiet(repetition, creating, size.pods, meter)
        repetition.watch_lost = client.watch is None or client.watch.lost
        await creating
    finally:
        await client.close()
        gc.enable()
        gc.unfreeze()
    return repetition


def _requests(client: RawClient, size: Size, mix: Mix) -> list[tuple[str, bytes]]:
    rest = [
        b'"labels":%b},"spec":%b}'
        % (orjson.dumps(mix.labels(number)), orjson.dumps(mix.spec(number, DEFAULT_SCHEDULER)))
        for number in range(len(mix.shapes))
    ]
    shapes = mix.draw(size.pods, size.seed, run=size.run)
    return [
        (name, client.render(PODS_PATH, b'{"metadata":{"name":"%b",%b' % (name.encode(), rest[shape])))
        for name, shape in zip(names("pod", size.pods), shapes, strict=True)
    ]


async def _create(
    client: RawClient,
    requests: Sequence[tuple[str, bytes]],
    repetition: Repetition,
    start: float,
    due: Iterator[float] | None,
) -> None:
    """Send all create requests, at their due times if there are any, and wait for the answers."""
    loop = asyncio.get_running_loop()
    slots = asyncio.Semaphore(CREATORS)
    answers = 0
    all_answered: asyncio.Future[None] = loop.create_future()

    def answered(code: int) -> None:
        nonlocal answers
        answers += 1
        slots.release()
        if code != 201:
            repetition.refused.append(code)
        if answers == len(requests):
            all_answered.set_result(None)

    for name, data in requests:
        if due is not None:
            when = next(due)
            await asyncio.sleep(max(0.0, when - (time.perf_counter() - start)))
            repetition.late.append(time.perf_counter() - start - when)
        await slots.acquire()  # the time of sending excludes the wait for a free connection
        repetition.sent[name] = time.perf_counter() - start
        client.send(data, answered)
    await all_answered


async def _until_quiet(repetition: Repetition, creating: "asyncio.Future[None]", pods: int, meter: Meter) -> None:
    """Wait until every pod is bound, or no pod was bound for QUIET seconds after the last creation."""
    count, since = -1, time.perf_counter()
    while count < pods:
        if len(repetition.bound) > count or not creating.done():
            count, since = len(repetition.bound), time.perf_counter()
            repetition.usage = (
                meter.read()
            )  # read at each binding, so that the wait for the last pods does not dilute it
        if time.perf_counter() - since > QUIET:
            return
        await asyncio.sleep(POLL_INTERVAL)


def _medians(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: median(row[name] for row in rows) for name in rows[0]}


def _interval(repetition: Repetition) -> float:
    return max(repetition.bound.values()) - min(repetition.bound.values()) if repetition.bound else 0.0


def _limit(repetitions: Sequence[Repetition], rate: float | None) -> str:
    """The process with the most processor time in the last repetition."""
    shares = repetitions[-1].usage.shares
    busiest = max(shares, key=lambda name: shares[name])
    text = f"{busiest} ({shares[busiest]:.0%} of a core)"
    cores = os.cpu_count() or 1
    used = sum(shares.values()) + repetitions[-1].usage.others
    if rate is not None:
        return f"the requested rate; the busiest process was the {text}"
    return f"{text}; all {cores} cores were busy" if used > 0.92 * cores else text


def _invalid_reasons(repetition: Repetition, rate: float | None) -> list[str]:
    messages = []
    if repetition.refused:
        codes = ", ".join(sorted({str(code) if code else "no answer" for code in repetition.refused}))
        messages.append(f"the API server refused pods ({codes})")
    messages += nothing_placed(len(repetition.bound), len(repetition.sent))
    if repetition.twice:
        messages.append("a pod was shown on two nodes")
    if repetition.watch_lost:
        messages.append("the watch ended before the pods were bound")
    if repetition.usage.shares.get("client", 0.0) > CLIENT_BUSY_THRESHOLD:
        messages.append(f"the client was the limit: it used more than {CLIENT_BUSY_THRESHOLD:.0%} of a core")
    if repetition.usage.others > OTHERS_BUSY_THRESHOLD:
        messages.append(f"other programs used more than {OTHERS_BUSY_THRESHOLD:.0%} of a core")
    if rate is None and repetition.tail > MAX_TAIL:
        messages.append(
            f"slow tail: the last 1% of the bindings took more than {MAX_TAIL:.0%} of the interval; the throughput is"
            " diluted by pods that were tried again"
        )
    if rate is not None and repetition.late and percentile(sorted(repetition.late), 99) * 1000 > MAX_LAG_MS:
        messages.append(f"generator lag: pods were sent more than {MAX_LAG_MS:.0f} ms late at p99")
    return messages
