"""The scheduler of `seatrial up`: start it on a free port, and record it with its cluster."""

import os
import subprocess
from pathlib import Path

from seatrial.harness.clusters import detached
from seatrial.harness.clusters.identity import cluster_uid
from seatrial.harness.processes import die_with_parent, started_at
from seatrial.harness.subject.services import listening_socket
from seatrial.scheduler.api.clock import WallClock

SCHEDULER = "scheduler"  # name of the component


def spawn(command: list[str], log: Path, *, ours: bool, stays: bool) -> tuple["subprocess.Popen[bytes]", str]:
    """Start the scheduler; return its process and the address of its services, which is empty for a foreign binary.

    With `stays` it outlives this process.
    """
    listening, url = listening_socket() if ours else (None, "")
    try:
        passed = () if listening is None else (listening.fileno(),)
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
        try:
            process = subprocess.Popen(
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
    return process, url


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
