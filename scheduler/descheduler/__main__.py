"""The program `seatrial descheduler`: the descheduler as a process, against any API server."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Annotated

import cyclopts
import uvloop

from seatrial.scheduler.api.clock import WallClock
from seatrial.scheduler.client.http import HttpTransport
from seatrial.scheduler.client.kubeconfig import KubeconfigError, load_server
from seatrial.scheduler.descheduler.app import build_routes
from seatrial.scheduler.descheduler.config import ConfigError, load
from seatrial.scheduler.descheduler.shell import Shell
from seatrial.scheduler.serving.http import serve
from seatrial.scheduler.serving.process import level_of, log_to_stderr, work

app = cyclopts.App(name="seatrial descheduler", result_action="return_value")

PAUSE_AFTER_ROUND = 1.0  # seconds until the end after the only round: its jobs are being created


@app.default
def run(
    *,
    config: Path,
    kubeconfig: Path | None = None,
    verbosity: Annotated[int, cyclopts.Parameter(name=["--v", "--verbosity"])] = 1,
    address: str = "127.0.0.1",
    port: int = 10251,
    leader_elect: bool | None = None,
) -> int:
    """Deschedule until SIGTERM or Ctrl-C, or for one round if the interval is 0.

    Args:
        config: A DeschedulerConfiguration file.
        kubeconfig: How to reach the API server; by default $KUBECONFIG, ~/.kube/config or the pod's service account.
        verbosity: 0 warnings, 1 rounds and evictions, 2 and more everything.
        address: Where health and metrics are served.
        port: At which port; 0 for none.
        leader_elect: Work only while holding a Lease; by default as in the configuration's leaderElection. Ends with
            status 1 when the Lease is lost.
    """
    log_to_stderr()
    logging.getLogger("seatrial.scheduler").setLevel(level_of(verbosity))
    try:
        configuration = load(config)
        server = load_server(kubeconfig)
    except (ConfigError, KubeconfigError) as error:
        print(f"descheduler: {error}", file=sys.stderr)  # noqa: T201
        return 2
    election = configuration.leader_election
    elect = bool(election.leader_elect if leader_elect is None else leader_elect)

    async def deschedule() -> int:
        clock = WallClock()
        transport = HttpTransport(server, clock.faults)
        ended = asyncio.Event()

        def end_after_only_round() -> None:
            if not configuration.interval:
                clock.call_later(PAUSE_AFTER_ROUND, ended.set)

        shell = Shell(configuration, transport, clock, standby=elect, on_round=end_after_only_round)
        try:
            listening = [await serve(build_routes(shell), address, port)] if port else []
        except OSError as error:
            print(f"descheduler: --address {address} --port {port}: cannot listen: {error.strerror}", file=sys.stderr)  # noqa: T201
            return 2
        status = await work(shell, transport, clock, election if elect else None, ended)
        for listener in listening:
            listener.close()
        transport.close()
        return status

    return uvloop.run(deschedule())


if __name__ == "__main__":
    sys.exit(app())
