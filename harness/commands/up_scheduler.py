"""The scheduler of `seatrial up`: start it on a free port, and record it with its cluster."""

import os
import socket
import subprocess
from pathlib import Path

from seatrial.harness.clusters import detached
from seatrial.harness.clusters.identity import cluster_uid
from seatrial.harness.processes import die_with_parent, started_at
from seatrial.scheduler.api.clock import WallClock

SCHEDULER = "scheduler"  # name of the component


def spawn(command: list[str], log: Path, listening: socket.socket | None, *, stays: bool) -> "subprocess.Popen[bytes]":
    """Start a program; it inherits the socket, which is closed here. With `stays` it outlives this process."""
    try:
        passed = () if listening is None else (listening.fileno(),)
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
        try:
            return subprocess.Popen(
                [*command, *(word for number in passed for word in ("--listen-descriptor", str(number)))],
                stdin=subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                pass_fds=passed,
                start_new_session=stays,
                process_group=None if stays else 0,
                preexec_fn=None if stays else die_with_parent,  # noqa: PLW1509 one call into libc
            )
        finally:
            os.close(descriptor)
    finally:
        if listening is not None:
            listening.close()


def record(  # noqa: PLR0917
    name: str,
    backend: str,
    url: str,
    kubeconfig: Path,
    pids: list[int],
    scheduler: str,
    logs: dict[str, Path],
    *,
    removes_kubeconfig: bool = True,
    fleet: str = "",
    options: dict[str, str | int] | None = None,
) -> detached.Detached:
    """Write the state file of a cluster that answers. `scheduler` is the address of the last process's services."""
    cluster = detached.Detached(
        name,
        url,
        str(kubeconfig) if removes_kubeconfig else "",
        tuple((pid, started_at(pid)) for pid in pids),
        backend,
        cluster_uid(kubeconfig),
        scheduler,
        WallClock().timestamp(),
        tuple((component, str(log)) for component, log in logs.items()),
        fleet,
        options or {},
    )
    detached.remember(cluster)
    return cluster
