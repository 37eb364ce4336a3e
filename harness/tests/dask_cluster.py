"""A Dask cluster for the tests of what runs on one."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from seatrial.harness.processes import stop

WORKERS = 2


@contextmanager
def dask_cluster(folder: Path) -> Iterator[str]:
    """The value of `--on` for a Dask scheduler with two workers of one thread each, with their files in `folder`."""
    from distributed import Client

    file = folder / "scheduler.json"
    with ExitStack() as stack:
        _started(stack, "dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file))
        ends = time.monotonic() + 60
        while not file.exists() or not file.read_text().endswith("}"):
            assert time.monotonic() < ends, "the Dask scheduler did not start"
            time.sleep(0.1)
        address = json.loads(file.read_text())["address"]
        for number in range(WORKERS):
            local = str(folder / f"worker-{number}")
            _started(stack, "dask_worker", address, "--nworkers", "1", "--nthreads", "1", "--local-directory", local)
        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(WORKERS, timeout=60)
        yield f"dask:{address}"


def _started(stack: ExitStack, module: str, *flags: str) -> None:
    """A program of Dask until the stack is left."""
    command = [sys.executable, "-m", f"distributed.cli.{module}", *flags, "--no-dashboard"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(stop, process)
