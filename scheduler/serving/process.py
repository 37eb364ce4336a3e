"""What the programs of this package share as processes: logging, signals, and work that depends on a Lease."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import uuid
from collections.abc import Callable
from typing import Protocol

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.transport import Transport
from seatrial.scheduler.client.leader import Elector, LeaderElection

HANDOVER_TIMEOUT = 5.0  # seconds for requests under way and the release of the Lease after SIGTERM
POLL_INTERVAL = 0.01  # seconds


def level_of(verbosity: int) -> int:
    """Python's log level for a klog verbosity: 0 WARNING, 1 INFO, 2 and more DEBUG."""
    return {0: logging.WARNING, 1: logging.INFO}.get(max(verbosity, 0), logging.DEBUG)


class Worker(Protocol):
    """What a program runs: the shell of the scheduler or of the descheduler."""

    def start(self) -> None: ...

    def lead(self) -> None:
        """Become the leader; called only for a worker that was made as a standby."""

    def stop(self) -> None: ...


def log_to_stderr(level: int = logging.WARNING) -> None:
    """Write log lines of `level` and above to standard error, with time, level and logger."""
    logging.basicConfig(level=level, stream=sys.stderr, format="%(asctime)s %(levelname).1s %(name)s %(message)s")


def on_end_signal(action: Callable[[], None]) -> None:
    """Call `action` in the running event loop at each SIGTERM or Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, action)


async def work(
    worker: Worker,
    transport: Transport,
    clock: Clock,
    election: LeaderElection | None,
    ended: asyncio.Event,
    *,
    busy: Callable[[], bool] = lambda: False,
) -> int:
    """Run `worker` until SIGTERM, Ctrl-C, `ended`, or the loss of its Lease.

    Args:
        worker: What runs.
        transport: Reaches the API server, for the Lease.
        clock: Real time.
        election: The Lease without which the worker may not lead; None: there is no election.
        ended: Ends the work when set.
        busy: Whether requests of the worker are under way. The Lease is released after them, so that the next leader
            sees their results.

    Returns:
        The exit status: 1 where the Lease was lost, otherwise 0.
    """
    lost = False

    def lose() -> None:
        nonlocal lost
        lost = True
        worker.stop()
        ended.set()

    elector = None
    if election is not None:
        identity = f"{socket.gethostname()}_{uuid.uuid4()}"
        elector = Elector(transport, clock, election, identity, on_leading=worker.lead, on_lost=lose)
    on_end_signal(ended.set)
    worker.start()
    if elector is not None:
        elector.start()
    await ended.wait()
    worker.stop()
    if elector is not None and not lost:
        await _release(elector, busy)
    return int(lost)


async def _release(elector: Elector, busy: Callable[[], bool]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HANDOVER_TIMEOUT):
            while busy():  # noqa: ASYNC110 for milliseconds, once in the life of a process
                await asyncio.sleep(POLL_INTERVAL)
            released = asyncio.Event()
            elector.stop(released.set)
            await released.wait()
