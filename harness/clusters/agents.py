"""Simulated nodes on any API server: the node agents as a process, with a kubelet endpoint for each node.

Prints one line of JSON when it has begun; ends on SIGTERM, and when its parent ends.
"""

import asyncio
import json
import logging
import queue
import signal
import socket
import ssl
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import uvloop

from seatrial.harness.apiserver import Authority
from seatrial.harness.clusters.kubeconfig import Access, load_access
from seatrial.harness.clusters.kubelet_endpoints import LOOPBACK, KubeletEndpoints
from seatrial.harness.clusters.leftovers import LEASE, RENEW_PERIOD, lease_body, lease_path
from seatrial.harness.clusters.remote import RemoteTransport
from seatrial.harness.clusters.run_scope import NODES_OF_NO_RUN
from seatrial.harness.errors import ClusterError, HarnessError
from seatrial.harness.nodes.fleet import SIMULATED_LABEL
from seatrial.harness.nodes.node_agents import NodeAgents
from seatrial.harness.nodes.writer import PODS
from seatrial.harness.processes import first_answer, start_child, stop
from seatrial.scheduler.api.clock import Action, WallClock
from seatrial.scheduler.api.private_files import private_folder, write_private
from seatrial.scheduler.api.transport import MERGE_PATCH, Done, Request, Response

log = logging.getLogger(__name__)

WORKERS = 8  # requests in flight
_SUBRESOURCES = frozenset({"status"})


class ThreadedTransport(RemoteTransport):
    """Sends in worker threads; all callbacks run in the event loop. Requests for one object keep their order."""

    def __init__(self, access: Access, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(access, LoopHandover(loop), connections=WORKERS)
        self._loop = loop
        self._queues = [queue.SimpleQueue[tuple[Request, Done] | None]() for _ in range(WORKERS)]
        for waiting in self._queues:
            threading.Thread(target=self._work, args=(waiting,), daemon=True, name="requests").start()

    def send(self, request: Request, done: Done) -> None:
        self._queues[zlib.crc32(object_of(request.path).encode()) % WORKERS].put((request, done))

    def _work(self, waiting: "queue.SimpleQueue[tuple[Request, Done] | None]") -> None:
        while (entry := waiting.get()) is not None:
            request, done = entry
            try:
                response = self.call(request)
            except ClusterError as error:
                response = Response(0, str(error).encode())
            if self._loop.is_closed():
                return
            self._loop.call_soon_threadsafe(done, response)

    def close(self) -> None:
        for waiting in self._queues:
            waiting.put(None)
        super().close()


class LoopHandover:
    """Runs actions of other threads in an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def hand_over(self, action: Action) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(action)

    def call_soon(self, action: Action) -> None:
        self._loop.call_soon(action)


def object_of(path: str) -> str:
    """The path of the object that a request is about, without query and subresource."""
    bare = path.partition("?")[0]
    base, _, last = bare.rpartition("/")
    return base if last in _SUBRESOURCES else bare


class RunLease:
    """Renews the Lease of a run on a shared cluster, by which others see that the run has not ended."""

    def __init__(self, transport: ThreadedTransport, clock: WallClock, run: str) -> None:
        self._transport, self._clock, self._run = transport, clock, run

    def renew(self) -> None:
        self._clock.call_later(RENEW_PERIOD, self.renew)
        body = lease_body(self._run, self._clock.timestamp())
        request = Request("PATCH", f"{lease_path(self._run)}/{LEASE}", orjson.dumps(body), MERGE_PATCH)
        self._transport.send(request, self._renewed)

    def _renewed(self, response: Response) -> None:
        if not response.ok:
            log.warning("run-lease renewal-failed run=%s code=%d", self._run, response.code)


async def _serve(kubeconfig: Path, seed: int, run: str, host: str, ready: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    clock, access = WallClock(loop), load_access(kubeconfig)
    transport = ThreadedTransport(access, loop)
    host = host or own_address(access.url)
    selector = f"{SIMULATED_LABEL}={run}" if run else NODES_OF_NO_RUN
    agents = NodeAgents(transport, clock, seed=seed, selector=selector)

    async def pods_of(node: str) -> bytes:
        answered: asyncio.Future[Response] = loop.create_future()
        transport.send(Request("GET", f"{PODS}?fieldSelector=spec.nodeName%3D{node}"), answered.set_result)
        return (await answered).body

    tls, shared = _tls(clock.now(), host), "" if host.startswith(LOOPBACK) else host
    agents.endpoints = KubeletEndpoints(agents.logs, pods_of, tls, shared)
    agents.start()
    if run:
        RunLease(transport, clock, run).renew()
    ready()
    try:
        await stopped.wait()
    finally:
        agents.stop()
        transport.close()


def own_address(url: str) -> str:
    """The address of this machine that a server at `url` can reach.

    Raises:
        ClusterError: the server's name or network is not known here.
    """
    parts = urlsplit(url)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((parts.hostname or "", parts.port or 443))  # UDP: nothing is sent
            address: str = probe.getsockname()[0]
    except OSError as error:
        raise ClusterError(f"{url}: no route to the API server: {error.strerror or error}") from error
    return address


def _tls(now: float, host: str) -> ssl.SSLContext:
    """A certificate for all endpoints; kube-apiserver checks it only with --kubelet-certificate-authority."""
    pair = Authority.fresh(now).issue("seatrial-node-agents", (), now, hosts=[host, "localhost"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with private_folder() as folder:
        chain, key = folder / "kubelet.crt", folder / "kubelet.key"
        write_private(chain, pair.certificate)
        write_private(key, pair.key)
        context.load_cert_chain(chain, key)
    return context


@contextmanager
def node_agents(kubeconfig: Path, *, seed: int, log_file: Path, run: str = "", host: str = "") -> Iterator[None]:
    """The process, while entered. With `run` it renews that run's Lease, and takes care of that run's nodes only. It
    listens on `host`, by default on the address of the route to the API server.

    Raises:
        ClusterError: it did not start; the message has its reason.
    """
    with log_file.open("ab") as sink:
        process = start_child(
            [sys.executable, "-m", "seatrial.harness.clusters.agents", str(kubeconfig), str(seed), run, host],
            stdout=subprocess.PIPE,
            stderr=sink,
        )
    try:
        answer = first_answer(process)
        if not answer.get("ready"):
            why = (
                answer.get("error")
                or log_file.read_text(errors="replace").strip()
                or "the process ended without output"
            )
            raise ClusterError(f"the agents of simulated nodes did not start: {why}")
        yield
    finally:
        stop(process)


def main() -> int:
    """`python -m seatrial.harness.clusters.agents KUBECONFIG SEED RUN HOST`: started by backends, not by users."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname).1s %(name)s %(message)s")

    def ready() -> None:
        print(json.dumps({"ready": True}), flush=True)  # noqa: T201 the answer to the parent

    try:
        uvloop.run(_serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], ready))
    except HarnessError as error:
        print(json.dumps({"error": str(error)}), flush=True)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
