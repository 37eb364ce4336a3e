"""`bench api`: request rates of an API server, its memory for each object, and the cost of many watchers.

The server is a separate process on one core. This process is the client: raw HTTPS, one connection for each request in
flight. Each repetition starts a fresh embedded server, or fresh etcd and kube-apiserver, of which the latter is
measured; on another server, pods are created in a namespace that is deleted afterwards. Rates refer to wall time. The
processor time of the server for one request is reported as well: it is the better figure on a shared machine.
"""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import orjson
import urllib3
import uvloop

from seatrial.harness.bench.core import Progress
from seatrial.harness.bench.raw_http import RawClient
from seatrial.harness.bench.usage import Meter, spent_in_kernel
from seatrial.harness.clusters.backends import EMBEDDED, ENVTEST
from seatrial.harness.clusters.control_plane import control_plane
from seatrial.harness.clusters.embedded import start_process
from seatrial.harness.clusters.kubeconfig import Access, load_access
from seatrial.harness.errors import ClusterError
from seatrial.harness.processes import stop
from seatrial.harness.sample_statistics import rounded, spread
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.transport import MERGE_PATCH

NAMESPACE = "seatrial-bench-api"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CLIENT_BUSY_THRESHOLD = 0.9  # share of a core; above it the client is the limit
OTHERS_BUSY_THRESHOLD = 0.25  # share of a core; above it figures are marked as taken on a shared machine
DRAIN_WITHIN = 30.0  # seconds from the last creation to the last event at all watchers
LIST_OF = 500  # pods in the measured list: the page size of kubectl
OPERATIONS = ("creates", "gets", "lists", "patches")


@dataclass(frozen=True, slots=True)
class ApiSize:
    """The size of a run."""

    seconds: float  # for each kind of request, in each repetition
    pods: int  # stored when `bytes_per_pod` is measured
    nodes: int  # stored beside them
    watchers: int
    repeat: int = 3
    connections: int = 16


@dataclass(slots=True)
class Measured:
    """The figures of one kind of request in one repetition."""

    per_second: float
    server_us: float  # processor time of the server for one request; 0 if the server is on another machine
    kernel_us: float  # of that, in the kernel
    client: float  # share of a core used by the client
    others: float


@dataclass(slots=True)
class Server:
    """An API server under measurement."""

    access: Access
    pid: int = 0  # 0: not a process of this run

    def meter(self) -> Meter:
        return Meter({"client": _our_pid(), **({"server": self.pid} if self.pid else {})})

    def in_kernel(self) -> float:
        return spent_in_kernel(self.pid) if self.pid else 0.0


def bench_api(size: ApiSize, kubeconfig: Path | None, progress: Progress, *, backend: str = EMBEDDED) -> dict[str, Any]:
    """Run the benchmark and return the documented fields of `bench api`.

    Raises:
        ClusterError: the server refused a request.
    """
    by_name: dict[str, list[Measured]] = {name: [] for name in OPERATIONS}
    ratios: list[float] = []
    bytes_per_pod: list[float] = []
    resident = 0.0
    for number in range(size.repeat):
        with _server(kubeconfig, backend) as server:
            rates = uvloop.run(_rates(server, size))
        for name, measured in rates.items():
            by_name[name].append(measured)
        with _server(kubeconfig, backend) as server:
            ratios.append(uvloop.run(_fanout(server, size)))
        progress(
            f"repetition {number + 1} of {size.repeat}: {rates['creates'].per_second:,.0f} creates/s,"
            f" {size.watchers} watchers cost {ratios[-1]:.2f} times one"
        )
    if kubeconfig is None and size.pods:
        with _server(None, backend) as server:
            before = _resident(server.pid)
            uvloop.run(_fill(server, size))
            resident = _resident(server.pid) / 2**20
            bytes_per_pod.append((_resident(server.pid) - before) / size.pods)
    return _figures(size, by_name, ratios, bytes_per_pod, resident)


def _figures(
    size: ApiSize, mix: dict[str, list[Measured]], ratios: list[float], bytes_per_pod: list[float], resident: float
) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, samples in mix.items():
        figures[f"{name}_per_second"] = rounded(spread([sample.per_second for sample in samples]))
    known = {name: [sample.server_us for sample in samples if sample.server_us] for name, samples in mix.items()}
    figures["server_us"] = {name: rounded(spread(samples), 1) for name, samples in known.items() if samples}
    kernel = {name: median([sample.kernel_us for sample in samples]) for name, samples in mix.items()}
    figures["server_us_in_kernel"] = rounded({name: us for name, us in kernel.items() if known.get(name)}, 1)
    figures["fanout_cost_ratio"] = rounded(spread(ratios), 2)
    figures["fanout_by"] = "processor time of the server" if known["creates"] else "wall time"
    if bytes_per_pod:
        figures["bytes_per_pod"] = round(bytes_per_pod[0])
        figures["resident_mib"] = round(resident)
    figures |= {"pods": size.pods, "nodes": size.nodes, "watchers": size.watchers, "repeat": size.repeat}
    figures["list_of"] = LIST_OF
    limited = [
        name for name, samples in mix.items() if any(sample.client > CLIENT_BUSY_THRESHOLD for sample in samples)
    ]
    shared = [name for name, samples in mix.items() if any(sample.others > OTHERS_BUSY_THRESHOLD for sample in samples)]
    figures["client_was_the_limit_of"] = limited
    figures["machine_was_shared_during"] = shared
    return figures


# -- one server -------------------------------------------------------------------------------------------------------


@contextmanager
def _server(kubeconfig: Path | None, backend: str) -> Iterator[Server]:
    if kubeconfig is not None:
        access = load_access(kubeconfig)
        try:
            yield Server(access)
        finally:
            uvloop.run(_one(access, f"/api/v1/namespaces/{NAMESPACE}", b"", "DELETE"))
        return
    with private_folder() as folder:
        if backend == ENVTEST:
            with control_plane(folder, controllers=False) as plane:
                yield Server(load_access(plane.kubeconfig), plane.processes[1].pid)
            return
        path = folder / "kubeconfig"
        process, _ = start_process(path, fleet="", seed=0, port=0, log=folder / "log")
        try:
            yield Server(load_access(path), process.pid)
        finally:
            stop(process)


async def _one(access: Access, path: str, body: bytes, method: str = "POST") -> int:
    client = RawClient(access, connections=1)
    await client.connect()
    (code,) = await client.send_all([client.render(path, body, method=method)])
    await client.close()
    return code


async def _namespace(access: Access) -> None:
    """Create the namespace for the pods; if the last run's namespace is still terminating, wait for its end.

    Raises:
        ClusterError: the namespace cannot be created.
    """
    body = orjson.dumps({"metadata": {"name": NAMESPACE}})
    for _ in range(120):
        code = await _one(access, "/api/v1/namespaces", body)
        if code == 201:
            return
        if code != 409:
            break
        await asyncio.sleep(0.5)
    raise ClusterError(f"namespace {NAMESPACE}: expected that it can be created, found code {code}")


def pod_of_1_kb(name: str) -> bytes:
    """A typical pod manifest of about 1 kB of JSON."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/name": "bench", "app.kubernetes.io/part-of": "seatrial"},
            "annotations": {"seatrial.dev/note": "x" * 320},
        },
        "spec": {
            "schedulerName": "absent-scheduler",
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/team/training:1.0",
                    "command": ["python", "-m", "train", "--steps", "1000"],
                    "env": [{"name": f"SETTING_{number}", "value": "value"} for number in range(4)],
                    "resources": {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"nvidia.com/gpu": "1"}},
                }
            ],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
    }
    return orjson.dumps(body)


# -- rates ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _RequestLoop:
    """Keeps one request in flight on each connection until the time is up."""

    client: RawClient
    requests: Iterator[bytes]
    until: float
    sent: int = 0
    answered: int = 0
    refused: list[int] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        for _ in range(self.client.connections):
            self._next()
        await self.done.wait()

    def _next(self) -> None:
        data = next(self.requests, None) if time.perf_counter() < self.until else None
        if data is None:
            if self.answered == self.sent:
                self.done.set()
            return
        self.sent += 1
        self.client.send(data, self._answered)

    def _answered(self, code: int) -> None:
        self.answered += 1
        if not 200 <= code < 300:
            self.refused.append(code)
        self._next()


async def _measure(server: Server, client: RawClient, requests: Iterator[bytes], seconds: float) -> Measured:
    """Send requests for `seconds` and measure rate and processor time.

    Raises:
        ClusterError: a request was refused.
    """
    loop = _RequestLoop(client, requests, time.perf_counter() + seconds)
    meter, before = server.meter(), server.in_kernel()
    await loop.run()
    usage, kernel = meter.read(), server.in_kernel() - before
    if loop.refused:
        raise ClusterError(f"expected that every request succeeds, found code {loop.refused[0]}")
    count = max(1, loop.answered)
    spent = usage.shares.get("server", 0.0) * usage.seconds
    return Measured(
        count / usage.seconds, spent / count * 1e6, kernel / count * 1e6, usage.shares["client"], usage.others
    )


async def _rates(server: Server, size: ApiSize) -> dict[str, Measured]:
    await _namespace(server.access)
    client = RawClient(server.access, connections=size.connections)
    await client.connect()
    try:
        names = [f"pod-{number:07}" for number in range(int(size.seconds * 40_000) + LIST_OF)]
        bodies = (client.render(PODS, pod_of_1_kb(name)) for name in names)
        await client.send_all([next(bodies) for _ in range(LIST_OF)])
        some = names[:LIST_OF]
        patch = orjson.dumps
        gets = [client.render(f"{PODS}/{name}", b"", method="GET") for name in some]
        lists = [client.render(f"{PODS}?limit={LIST_OF}", b"", method="GET")]
        patches = (
            client.render(
                f"{PODS}/{some[number % LIST_OF]}",
                patch({"metadata": {"annotations": {"count": str(number)}}}),
                method="PATCH",
                content_type=MERGE_PATCH,
            )
            for number in range(10_000_000)
        )
        rates = {
            "gets": await _measure(server, client, _again(gets), size.seconds),
            "lists": await _measure(server, client, _again(lists), size.seconds),
            "patches": await _measure(server, client, patches, size.seconds),
        }
        prepared = iter([next(bodies) for _ in range(len(names) - LIST_OF)])  # rendered before the measurement
        rates["creates"] = await _measure(server, client, prepared, size.seconds)
        return rates
    finally:
        await client.close()


def _again(requests: Sequence[bytes]) -> Iterator[bytes]:
    while True:
        yield from requests


# -- fan-out ----------------------------------------------------------------------------------------------------------


async def _fanout(server: Server, size: ApiSize) -> float:
    """The cost of a creation with all watchers, divided by the cost with one watcher."""
    await _namespace(server.access)
    client = RawClient(server.access, connections=size.connections)
    await client.connect()
    numbers = iter(range(10_000_000))
    try:
        count = max(200, int(size.seconds * 1000))
        await _watched(server, client, numbers, 1, 200)  # warm
        one = await _watched(server, client, numbers, 1, count)
        many = await _watched(server, client, numbers, size.watchers, count)
        return many / one
    finally:
        await client.close()


async def _watched(server: Server, client: RawClient, numbers: Iterator[int], watchers: int, count: int) -> float:
    """Seconds for one creation: processor time of the server, or wall time if the server is on another machine.

    Raises:
        ClusterError: an event did not arrive within DRAIN_WITHIN.
    """
    seen = 0
    everything = asyncio.Event()

    def line(_: bytes) -> None:
        nonlocal seen
        seen += 1
        if seen == watchers * count:
            everything.set()

    readers = [RawClient(server.access, connections=0) for _ in range(watchers)]
    begin = await _newest(server.access)
    for reader in readers:
        await reader.follow(f"{PODS}?watch=1&resourceVersion={begin}", line)
    bodies = [client.render(PODS, pod_of_1_kb(f"fan-{next(numbers):07}")) for _ in range(count)]
    meter = server.meter()
    codes = await client.send_all(bodies)
    try:
        await asyncio.wait_for(everything.wait(), DRAIN_WITHIN)
    except TimeoutError as error:
        raise ClusterError(
            f"{watchers} watchers of {count} creations: expected {watchers * count} events, found {seen}"
        ) from error
    usage = meter.read()
    for reader in readers:
        await reader.close()
    if set(codes) != {201}:
        raise ClusterError(f"expected that every pod is created, found codes {sorted(set(codes))}")
    return usage.shares.get("server", 1.0) * usage.seconds / count


async def _newest(access: Access) -> str:
    """The current resource version, from a list."""

    def ask() -> str:
        with access.pool(connections=1) as pool:
            answer = pool.request("GET", f"{access.url}{PODS}?limit=1", headers=access.headers)
            return str(orjson.loads(answer.data)["metadata"]["resourceVersion"])

    try:
        return await asyncio.get_running_loop().run_in_executor(None, ask)
    except urllib3.exceptions.HTTPError as error:
        raise ClusterError(f"{access.url}: {error}") from error


# -- memory -----------------------------------------------------------------------------------------------------------


async def _fill(server: Server, size: ApiSize) -> None:
    """Create all pods and nodes; the nodes have no agents."""
    await _namespace(server.access)
    client = RawClient(server.access, connections=size.connections)
    await client.connect()
    try:
        for kind, count in (("pods", size.pods), ("nodes", size.nodes)):
            for start in range(0, count, 5000):
                numbers = range(start, min(start + 5000, count))
                if kind == "pods":
                    codes = await client.send_all(
                        client.render(PODS, pod_of_1_kb(f"pod-{number:07}")) for number in numbers
                    )
                else:
                    codes = await client.send_all(
                        client.render("/api/v1/nodes", _node(f"node-{number:06}")) for number in numbers
                    )
                if set(codes) != {201}:
                    raise ClusterError(f"{kind}: expected that each is created, found codes {sorted(set(codes))}")
        await asyncio.sleep(1.0)  # time for controllers to process the objects
    finally:
        await client.close()


def _node(name: str) -> bytes:
    capacity = {"cpu": "128", "memory": "1Ti", "pods": "256", "nvidia.com/gpu": "8"}
    status = {"capacity": capacity, "allocatable": capacity, "conditions": [{"type": "Ready", "status": "True"}]}
    return orjson.dumps({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": status})


def _resident(pid: int) -> float:
    """The resident memory of a process in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return float(line.split()[1]) * 1024
    return 0.0


def _our_pid() -> int:
    return os.getpid()
