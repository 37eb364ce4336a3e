"""The program `seatrial scheduler`: the scheduler as a process, connected to an API server."""

import asyncio
import gc
import logging
import socket
import sys
from pathlib import Path
from typing import Annotated

import cyclopts
import uvloop

from seatrial.scheduler.api.clock import WallClock
from seatrial.scheduler.api.durations import required_duration
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.app import build_core, build_routes, default_configuration
from seatrial.scheduler.client.http import HttpTransport
from seatrial.scheduler.client.kubeconfig import KubeconfigError, load_server
from seatrial.scheduler.config import ConfigError, load
from seatrial.scheduler.framework.kept_decisions import KEPT_DECISIONS
from seatrial.scheduler.serving.http import serve, serve_on
from seatrial.scheduler.serving.process import level_of, log_to_stderr, work
from seatrial.scheduler.serving.routes import Routes
from seatrial.scheduler.shell.loop import Shell

log = logging.getLogger("seatrial.scheduler")

DEFAULT_PORTS = (10251, 10252)  # published examples of Koordinator's API use the second

app = cyclopts.App(name="seatrial scheduler", result_action="return_value")


# Allocations between collections of young objects, and of older ones in units of those. A collection of 20,000 young
# objects pauses for 10 ms of CPU time, one of 200,000 for 54 ms; the sum over 62,000 pods is the same.
GC_THRESHOLDS = (20_000, 500, 1000)


def freeze_heap() -> None:
    """Exclude the present objects from garbage collection, and collect less often.

    With Python's default thresholds, collection takes a seventh of the scheduler's time (docs/performance.md).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


class FlagError(ValueError):
    """A flag has an invalid value."""


def duration(flag: str, text: str) -> float:
    """A flag's duration in seconds.

    Raises:
        FlagError: it is not a duration above 0.
    """
    try:
        value = required_duration(text)
    except ValueError as error:
        raise FlagError(f"{flag}: {error}") from error
    if value <= 0:
        raise FlagError(f"{flag}: expected more than 0, found {text!r}")
    return value


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
    debug_diagnosis: Annotated[bool, cyclopts.Parameter(name=["--debug-diagnosis", "-d"], negative="")] = False,
    address: str = "127.0.0.1",
    port: int | None = None,
    listen_descriptor: int | None = None,
    leader_elect: bool | None = None,
    scheduler_monitor_period: str = "10s",
    scheduling_timeout: str = "30s",
    kept_decisions: Annotated[int, cyclopts.Parameter(validator=cyclopts.validators.Number(gte=0))] = KEPT_DECISIONS,
) -> int:
    """Schedule pods until SIGTERM or Ctrl-C.

    Args:
        kubeconfig: Access to the API server; by default $KUBECONFIG, ~/.kube/config or the pod's service account.
        config: A KubeSchedulerConfiguration file.
        scheduler_name: The profile's name if there is no file. Pods that name default-scheduler are scheduled too.
        seed: Breaks ties between equal nodes.
        verbosity: 0 warnings, 1 events, 2 and more everything.
        debug_scores: Log this number of best nodes of each decision, with their scores; slower than the decision.
        debug_filters: Log each rejected node and the plugin that rejects it; slow as well.
        debug_diagnosis: Log a diagnosis of each failed cycle as JSON; slow as well.
        address: Address of health, metrics and debug flags, served without authentication; 0.0.0.0: all interfaces.
        port: Port of these services; 0: none. By default 10251 and 10252, each only if it is free.
        listen_descriptor: Number of an inherited socket that listens already, instead of `address` and `port`.
        leader_elect: Schedule only while holding a Lease, so that one of several schedulers works; by default as in
            leaderElection of the configuration, which also names the Lease. Exit status 1 when the Lease is lost.
        scheduler_monitor_period: Interval of checks for pods whose scheduling takes too long.
        scheduling_timeout: The limit of that check, from the decision to the end of the binding.
        kept_decisions: How many of the last decisions are kept for `seatrial explain` and /debug/decisions; 0: none.
    """
    log_to_stderr()
    logging.getLogger("seatrial.scheduler").setLevel(level_of(verbosity))
    try:
        configuration = load(config) if config else default_configuration(scheduler_name)
        election = configuration.leader_election
        clock = WallClock()
        core = build_core(configuration, clock, seed=seed, kept_decisions=kept_decisions)
        debug = core.handle.debug
        debug.top_scores, debug.filter_failures, debug.diagnoses = debug_scores, debug_filters, debug_diagnosis
        server = load_server(kubeconfig)
        period = duration("--scheduler-monitor-period", scheduler_monitor_period)
        timeout = duration("--scheduling-timeout", scheduling_timeout)
    except (ConfigError, KubeconfigError, FlagError) as error:
        print(f"scheduler: {error}", file=sys.stderr)  # noqa: T201
        return 2

    async def schedule() -> int:
        transport = HttpTransport(server, clock.faults)
        elect = bool(election.leader_elect if leader_elect is None else leader_elect)
        shell = Shell(
            core,
            transport,
            clock,
            on_synced=freeze_heap,
            standby=elect,
            monitor_period=period,
            scheduling_timeout=timeout,
        )
        routes = build_routes(shell, configuration)
        try:
            listening = (
                await listen(routes, address, port)
                if listen_descriptor is None
                else [await serve_on(routes, socket.socket(fileno=listen_descriptor))]
            )
        except (OSError, ValueError) as error:  # ValueError: the descriptor is negative
            where = f"--address {address} --port {port}" if listen_descriptor is None else "--listen-descriptor"
            print(f"scheduler: {where}: cannot listen: {getattr(error, 'strerror', error)}", file=sys.stderr)  # noqa: T201
            return 2
        ended = asyncio.Event()
        status = await work(
            shell, transport, clock, election if elect else None, ended, busy=lambda: bool(shell.binder.in_flight)
        )
        for listener in listening:
            listener.close()
        transport.close()
        return status

    return uvloop.run(schedule())


async def listen(routes: Routes, address: str, port: int | None) -> list[asyncio.Server]:
    """Serve at `port`, or at the default ports that are free.

    Raises:
        OSError: `port` is not available.
    """
    if port is not None:
        return [await serve(routes, address, port)] if port else []
    listening = []
    for default in DEFAULT_PORTS:
        try:
            listening.append(await serve(routes, address, default))
        except OSError as error:
            log.warning("services not-served address=%s port=%d why=%s", address, default, error.strerror)
    return listening


if __name__ == "__main__":
    sys.exit(app())
