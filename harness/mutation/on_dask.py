"""Runs mutants on the workers of a Dask cluster."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from seatrial.harness.mutation.campaign import SUITES, RunFiles, run_here
from seatrial.harness.mutation.child import Result
from seatrial.harness.workers import dask_workers


@asynccontextmanager
async def dask_runs(on: str) -> AsyncIterator[tuple[RunFiles, int]]:
    """What runs test files on the cluster `dask:ADDRESS`, and how many of its workers' threads there are.

    Raises:
        UsageError: as `dask_workers`.
    """
    async with dask_workers(on) as (submit, threads):

        async def run(name: str, files: Sequence[Path], *, subject: str, limit: float) -> Result:
            names = [path.relative_to(SUITES).as_posix() for path in files]
            return msgspec.json.decode(await submit(run_there, name, names, subject, limit), type=Result)

        yield run, threads


def run_there(name: str, files: Sequence[str], subject: str, limit: float) -> bytes:
    """In a worker: the result of `run_here` as JSON."""
    paths = [SUITES / file for file in files]
    return msgspec.json.encode(asyncio.run(run_here(name, paths, subject=subject, limit=limit)))
