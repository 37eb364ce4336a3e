"""The program `seatrial descheduler`: the descheduler as a process, against any API server."""

import asyncio
import logging
import signal
import socket
import sys
import uuid
from pathlib import Path
from typing import Annotated

import cyclopts
import uvloop

from seatrial.scheduler.api.clock import WallClock
from seatrial.scheduler.client.http import HttpTransport
from seatrial.scheduler.client.kubeconfig import KubeconfigError, load_server
from seatrial.scheduler.client.leader import Elector
from seatrial.scheduler.descheduler.app import build_routes
from seatrial.scheduler.descheduler.config import ConfigError, load
from seatrial.scheduler.descheduler.shell import Shell
from seatrial.scheduler.services.flags import level_of
from seatrial.scheduler.services.http import serve

app = cyclopts.App(name="seatrial descheduler", result_action="return_value")

GIVE_UP_WITHIN = 5.0  # seconds for releasing the Lease


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
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(levelname).1s %(name)s %(message)s"
    )
    logging.getLogger("seatrial.scheduler").setLevel(level_of(verbosity))
    try:
        configuration = load(config)
        server = load_server(kubeconfig)
    except (ConfigError, KubeconfigError) as error:
        print(f"descheduler: {error}", file=sys.stderr)  # noqa: T201
        return 2
    election = configuration.leader_election
    elect = bool(election.leader_elect if leader_elect is None else leader_elect)

    async def work() -> int:
        clock, transport = WallClock(), HttpTransport(server)
        stopped = asyncio.Event()
        lost = False

        def lose() -> None:
            nonlocal lost
            lost = True
            stopped.set()

        once = stopped.set if not configuration.interval else (lambda: None)
        shell = Shell(configuration, transport, clock, standby=elect, on_round=once)
        try:
            listening = [await serve(build_routes(shell), address, port)] if port else []
        except OSError as error:
            print(f"descheduler: --address {address} --port {port}: cannot listen: {error.strerror}", file=sys.stderr)  # noqa: T201
            return 2
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        elector = Elector(transport, clock, election, identity, on_leading=shell.lead, on_lost=lose)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        shell.start()
        if elect:
            elector.start()
        await stopped.wait()
        if not configuration.interval and not lost:
            await asyncio.sleep(1.0)  # jobs of the only round are being created
        shell.stop()
        if elect and not lost:
            released = asyncio.Event()
            elector.stop(released.set)
            await asyncio.wait_for(released.wait(), GIVE_UP_WITHIN)
        for listener in listening:
            listener.close()
        transport.close()
        return int(lost)

    return uvloop.run(work())


if __name__ == "__main__":
    sys.exit(app())
