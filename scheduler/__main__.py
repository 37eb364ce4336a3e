"""`python -m scheduler`: the scheduler as a process, against whatever API server it is pointed to."""

import asyncio
import gc
import logging
import signal
import sys
from pathlib import Path
from typing import Annotated

import cyclopts
import uvloop

from scheduler.api.clock import WallClock
from scheduler.api.extension import KOORD_SCHEDULER
from scheduler.app import build_core, default_configuration
from scheduler.client.http import HttpTransport
from scheduler.client.kubeconfig import KubeconfigError, load_server
from scheduler.config import ConfigError, load
from scheduler.services.flags import level_of
from scheduler.services.http import serve
from scheduler.services.routes import Routes
from scheduler.services.views import routes_of
from scheduler.shell import Shell

log = logging.getLogger("scheduler")

USUAL_PORTS = (10251, 10252)  # the second is where published examples of Koordinator's API look

app = cyclopts.App(name="python -m scheduler", help=__doc__, result_action="return_value")


SELDOM = (200_000, 50, 1000)  # allocations between collections of young objects, and of older ones in units of those


def spare_the_collector() -> None:
    """What is known of the cluster stays: the garbage collector need not walk it again and again.

    At Python's own pace it takes a seventh of the scheduler's time (docs/performance.md).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*SELDOM)


@app.default
def run(
    *,
    kubeconfig: Path | None = None,
    config: Path | None = None,
    scheduler_name: str = KOORD_SCHEDULER,
    seed: int = 0,
    verbosity: Annotated[int, cyclopts.Parameter(name=["--v", "--verbosity"])] = 1,
    debug_scores: Annotated[int, cyclopts.Parameter(name=["--debug-scores", "-s"])] = 0,
    debug_filters: Annotated[bool, cyclopts.Parameter(name=["--debug-filters", "-f"], negative="")] = False,
    address: str = "127.0.0.1",
    port: int | None = None,
) -> int:
    """Schedule pods until told to stop (SIGTERM or Ctrl-C).

    Args:
        kubeconfig: How to reach the API server; by default $KUBECONFIG, ~/.kube/config or the pod's service account.
        config: A KubeSchedulerConfiguration file.
        scheduler_name: Which pods are ours, where no file says so. Pods that name the default scheduler are ours too.
        seed: Decides between equal nodes.
        verbosity: 0 warnings, 1 what happens, 2 and more everything.
        debug_scores: Log so many of the best nodes of each decision, with their scores; costs far more than deciding.
        debug_filters: Log each node that is rejected, and by whom; likewise.
        address: Where health, metrics and debug flags are served, to whoever asks; 0.0.0.0 for all of the network.
        port: At which port; 0 for none. By default 10251 and 10252, or none where others have these.
    """
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(levelname).1s %(name)s %(message)s"
    )
    logging.getLogger("scheduler").setLevel(level_of(verbosity))
    try:
        configuration = load(config) if config else default_configuration(scheduler_name)
        clock = WallClock()
        core = build_core(configuration, clock, seed=seed)
        core.handle.debug.top_scores, core.handle.debug.filter_failures = debug_scores, debug_filters
        server = load_server(kubeconfig)
    except (ConfigError, KubeconfigError) as error:
        print(f"scheduler: {error}", file=sys.stderr)  # noqa: T201
        return 2

    async def work() -> int:
        transport = HttpTransport(server)
        shell = Shell(core, transport, clock, on_synced=spare_the_collector)
        routes = routes_of(core, shell.metrics, lambda: shell.ready, logging.getLogger("scheduler"))
        try:
            listening = await listen(routes, address, port)
        except OSError as error:
            print(f"scheduler: --address {address} --port {port}: cannot listen: {error.strerror}", file=sys.stderr)  # noqa: T201
            return 2
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        shell.start()
        await stopped.wait()
        shell.stop()
        for server_ in listening:
            server_.close()
        transport.close()
        return 0

    return uvloop.run(work())


async def listen(routes: Routes, address: str, port: int | None) -> list[asyncio.Server]:
    """Serve at `port`, or at whichever of the usual ports are free.

    Raises:
        OSError: `port` cannot be had.
    """
    if port is not None:
        return [await serve(routes, address, port)] if port else []
    listening = []
    for usual in USUAL_PORTS:
        try:
            listening.append(await serve(routes, address, usual))
        except OSError as error:
            log.warning("services not-served address=%s port=%d why=%s", address, usual, error.strerror)
    return listening


if __name__ == "__main__":
    sys.exit(app())
