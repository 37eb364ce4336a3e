"""The embedded cluster as a process: API over HTTPS, controllers, node agents, one event loop for all of it.

Writes its addresses to standard output, as one line of JSON. Stops on SIGTERM or SIGINT, and when the process that
started it ends.
"""

import asyncio
import contextlib
import errno
import gc
import json
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import uvloop

from seatrial.harness.apiserver import (
    ADMIN,
    SWITCH_INTERVAL,
    HttpsCaller,
    HttpServer,
    InProcessTransport,
    authenticate,
    build_server,
    in_thread,
    kubeconfig,
    make_credentials,
    publish_endpoint,
    server_context,
    set_cluster_uid,
)
from seatrial.harness.clusters.local_node import LocalNode, local_agent
from seatrial.harness.clusters.quota_webhook import GROUP, QUOTAS, QuotaWebhook
from seatrial.harness.clusters.snapshot import loaded_server
from seatrial.harness.errors import ClusterError, HarnessError
from seatrial.harness.nodes.fleet import load_fleet, node_manifest
from seatrial.harness.nodes.kwok import is_simulated
from seatrial.harness.nodes.node_agents import NodeAgents
from seatrial.scheduler.api.clock import WallClock
from seatrial.scheduler.api.private_files import private_folder, write_private
from seatrial.scheduler.api.quota import SPECIAL
from seatrial.scheduler.api.transport import MERGE_PATCH, Request

if TYPE_CHECKING:
    from seatrial.harness.nodes.local_agent import LocalAgent

LOOPBACK = "127.0.0.1"
# Stored objects are trees without cycles; with Python's defaults the garbage collector visits all of them often.
GC_THRESHOLDS = (200_000, 50, 1000)


@dataclass(frozen=True, slots=True)
class Serving:
    """Options of the server process."""

    kubeconfig: Path
    host: str = LOOPBACK
    port: int = 0
    fleet: str = ""  # empty: no nodes
    seed: int = 0
    local: LocalNode | None = None  # this machine as the only node
    snapshot: Path | None = None  # the objects to begin with, in place of a fleet
    workload_with_job: bool = False  # a feature gate


def serve(serving: Serving, ready: Callable[[str], Awaitable[None] | None]) -> None:
    """Serve until SIGTERM or SIGINT; `ready` gets the URL once everything answers.

    Raises:
        UsageError: the fleet or the snapshot cannot be used.
        ClusterError: the address cannot be had.
    """
    entries = load_fleet(serving.fleet) if serving.fleet else []
    uvloop.run(_serve(serving, entries, ready))


async def _serve(
    serving: Serving, entries: list[dict[str, object]], ready: Callable[[str], Awaitable[None] | None]
) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    clock = WallClock(loop)
    credentials = make_credentials([serving.host], clock.now())
    options: dict[str, Any] = {"authority": credentials.signer, "workload_with_job": serving.workload_with_job}
    if serving.snapshot is not None:
        server, _ = loaded_server(serving.snapshot, clock, seed=serving.seed, **options)
    else:
        server = build_server(clock, seed=serving.seed, **options)
    server.tokens.accept(credentials.token, ADMIN)
    caller = HttpsCaller()
    transport = InProcessTransport(server, clock)
    server.admission.long.start = in_thread(loop)
    sys.setswitchinterval(SWITCH_INTERVAL)
    listener = HttpServer(server, partial(authenticate, credentials, server.tokens))
    resources = contextlib.ExitStack()  # to be released at the end
    folder = resources.enter_context(private_folder())
    tls = server_context(credentials, folder)
    try:
        port = await listener.listen(serving.host, serving.port, tls)
    except OSError as error:
        resources.close()
        raise ClusterError(_cannot_listen(serving, error)) from error
    host = f"[{serving.host}]" if ":" in serving.host else serving.host
    url = f"https://{host}:{port}"
    set_cluster_uid(server.store, credentials.authority)
    publish_endpoint(server.store, serving.host, port)
    write_private(serving.kubeconfig, kubeconfig(credentials, url))
    quotas = any(item.key[1] not in SPECIAL for item in server.store.collection(QUOTAS).each())
    webhook = QuotaWebhook(caller, credentials, serving.kubeconfig, folder, quotas=quotas)
    resources.callback(webhook.close)
    server.admission.webhooks.caller = webhook
    for manifest in webhook.manifests():
        transport.call(Request("POST", f"/apis/{GROUP}/{manifest['kind'].lower()}s", orjson.dumps(manifest)))

    def widen() -> None:
        for manifest in webhook.manifests():
            path = f"/apis/{GROUP}/{manifest['kind'].lower()}s/{manifest['metadata']['name']}"
            transport.call(Request("PATCH", path, orjson.dumps(manifest), MERGE_PATCH))  # fails if the user deleted it

    webhook.on_first_quota = widen
    gc.collect()
    gc.freeze()  # objects made so far stay: the collector skips them
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        with _nodes(serving, entries, transport, clock) as agents:
            server.logs = agents.logs
            if not isinstance(agents, NodeAgents):
                server.containers = agents
            message = ready(url)
            if message is not None:
                await message
            await stopped.wait()
    finally:
        await listener.close()
        await caller.close()
        resources.close()


@contextlib.contextmanager
def _nodes(
    serving: Serving, entries: list[dict[str, object]], transport: InProcessTransport, clock: WallClock
) -> Iterator["NodeAgents | LocalAgent"]:
    """The agents, at work; simulated nodes, or this machine."""
    if serving.local is not None:
        with local_agent(serving.local, transport, clock) as agent:
            agent.start()
            yield agent
        return
    agents = NodeAgents(transport, clock, seed=serving.seed, selector="", cares_for=is_simulated)
    agents.start()
    for entry in entries:
        transport.call(Request("POST", "/api/v1/nodes", orjson.dumps(node_manifest(entry))))
    try:
        yield agents
    finally:
        agents.stop()


def _cannot_listen(serving: Serving, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {serving.port} on {serving.host} is in use;"
            " give another one with --port, or leave --port out and a free one is taken"
        )
    return f"cannot listen on {serving.host}:{serving.port}: {error.strerror or error}"


def main() -> int:
    """`python -m seatrial.harness.clusters.serve JSON`: started by `seatrial.harness.clusters.embedded`, not by
    users.
    """
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname).1s %(name)s %(message)s")
    document = json.loads(sys.argv[1])
    local = LocalNode(**document["local"]) if document.get("local") else None
    snapshot = Path(document["snapshot"]) if document.get("snapshot") else None
    serving = Serving(**{**document, "kubeconfig": Path(document["kubeconfig"]), "local": local, "snapshot": snapshot})

    def ready(url: str) -> None:
        print(json.dumps({"url": url}), flush=True)  # noqa: T201 the answer to the parent

    try:
        serve(serving, ready)
    except HarnessError as error:
        print(json.dumps({"error": str(error)}), flush=True)  # noqa: T201
        return 2
    finally:
        with contextlib.suppress(OSError):
            serving.kubeconfig.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
