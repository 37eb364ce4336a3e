"""Runs mutants on the workers of a Dask cluster. Dask gives the mutants of a lost worker to another one."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from seatrial.harness.errors import UsageError
from seatrial.harness.mutation.campaign import SUITES, RunFiles, run_here
from seatrial.harness.mutation.child import Result
from seatrial.harness.source import source_digest

CONNECTING = 10  # seconds
PREFIX = "dask:"


@asynccontextmanager
async def dask_runs(on: str) -> AsyncIterator[tuple[RunFiles, int]]:
    """What runs test files on the cluster `dask:ADDRESS`, and how many of its workers' threads there are.

    Raises:
        UsageError: Dask is not installed, the scheduler does not answer, or it has no workers.
    """
    address = on.removeprefix(PREFIX)
    if not on.startswith(PREFIX) or not address:
        raise UsageError(f"--on {on}: expected dask:ADDRESS, as in dask:tcp://127.0.0.1:8786")
    try:
        from distributed import Client
    except ImportError as error:
        raise UsageError(f"--on {on}: expected Dask; `pip install 'seatrial[dask]'` adds it") from error
    try:
        client = await Client(address, asynchronous=True, timeout=CONNECTING, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"--on {on}: expected a Dask scheduler, found none within {CONNECTING} s ({error})") from error
    async with client:
        threads = sum((await client.ncores()).values())
        if not threads:
            raise UsageError(f"--on {on}: expected workers, found none; start them with `dask worker {address}`")

        async def run(name: str, files: Sequence[Path], *, subject: str, limit: float) -> Result:
            names = [path.relative_to(SUITES).as_posix() for path in files]
            answer = await client.submit(run_there, source_digest(), name, names, subject, limit, pure=False)
            return msgspec.json.decode(answer, type=Result)

        yield run, threads


def run_there(digest: str, name: str, files: Sequence[str], subject: str, limit: float) -> bytes:
    """In a worker: the result of `run_here` as JSON."""
    if digest != source_digest():
        raise UsageError("a Dask worker has another version of seatrial; install this one on all of them")
    paths = [SUITES / file for file in files]
    return msgspec.json.encode(asyncio.run(run_here(name, paths, subject=subject, limit=limit)))
