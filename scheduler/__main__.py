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
from scheduler.shell import Shell

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
) -> int:
    """Schedule pods until told to stop (SIGTERM or Ctrl-C).

    Args:
        kubeconfig: How to reach the API server; by default $KUBECONFIG, ~/.kube/config or the pod's service account.
        config: A KubeSchedulerConfiguration file.
        scheduler_name: Which pods are ours, where no file says so. Pods that name the default scheduler are ours too.
        seed: Decides between equal nodes.
        verbosity: 0 warnings, 1 what happens, 2 and more everything.
    """
    level = {0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG)
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname).1s %(name)s %(message)s")
    try:
        configuration = load(config) if config else default_configuration(scheduler_name)
        clock = WallClock()
        core = build_core(configuration, clock, seed=seed)
        server = load_server(kubeconfig)
    except (ConfigError, KubeconfigError) as error:
        print(f"scheduler: {error}", file=sys.stderr)  # noqa: T201
        return 2

    async def serve() -> None:
        transport = HttpTransport(server)
        shell = Shell(core, transport, clock, on_synced=spare_the_collector)
        stopped = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        shell.start()
        await stopped.wait()
        shell.stop()
        transport.close()

    uvloop.run(serve())
    return 0


if __name__ == "__main__":
    sys.exit(app())
