"""Work in independent parts: one after another, on processes of this machine, or on the workers of a Dask cluster.

`--on dask:ADDRESS` names the cluster. Results are in the order of the parts. Dask gives the parts of a worker that is
lost to another one.
"""

import asyncio
import itertools
import multiprocessing
import signal
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from seatrial.harness.errors import UsageError
from seatrial.harness.processes import die_with_parent
from seatrial.harness.source import source_digest

T = TypeVar("T")
Submit = Callable[..., Awaitable[Any]]  # a function of a module with its arguments; all of them can be pickled

AHEAD = 3  # parts that are submitted, for each worker: none waits for the next one
CONNECTING = 10  # seconds
PREFIX = "dask:"


class CarriedFile(NamedTuple):
    """A file that a part of the work reads, perhaps on another machine."""

    name: str
    content: bytes

    @classmethod
    def of(cls, path: Path | None, flag: str) -> "CarriedFile | None":
        """
        Raises:
            UsageError: the file, which `flag` names, cannot be read.
        """
        try:
            return None if path is None else cls(path.name, path.read_bytes())
        except OSError as error:
            raise UsageError(f"{flag}: {path}: {error.strerror}") from error


@contextmanager
def unpacked(file: CarriedFile | None) -> Iterator[Path | None]:
    """The path of a file that was carried here, until the context is left; None for none."""
    if file is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="seatrial-work-") as folder:
        path = Path(folder) / file.name
        path.write_bytes(file.content)
        yield path


def results_of(
    function: Callable[..., T],
    parts: Iterable[tuple[Any, ...]],
    *,
    on: str = "",
    jobs: int = 1,
    done: Callable[[T], object] = lambda _: None,
) -> list[T]:
    """The results of `function` for the arguments of each part; `done` is called with each, in their order.

    `on`: a Dask cluster. Without it the parts run in `jobs` processes, or in this one if `jobs` is 1.

    Raises:
        UsageError: as `dask_workers`, or by `function`.
    """
    if on or jobs > 1:
        return asyncio.run(_results_of(function, parts, on, jobs, done))
    results = []
    for part in parts:
        results.append(function(*part))
        done(results[-1])
    return results


async def _results_of(
    function: Callable[..., T], parts: Iterable[tuple[Any, ...]], on: str, jobs: int, done: Callable[[T], object]
) -> list[T]:
    async with dask_workers(on) if on else _processes(jobs) as (submit, slots):
        left = iter(parts)
        under_way: deque[asyncio.Future[T]] = deque()
        results: list[T] = []
        try:
            while True:
                more = itertools.islice(left, AHEAD * slots - len(under_way))
                under_way.extend(asyncio.ensure_future(submit(function, *part)) for part in more)
                if not under_way:
                    return results
                results.append(await under_way.popleft())
                done(results[-1])
        finally:
            for future in under_way:
                future.cancel()


@asynccontextmanager
async def _processes(jobs: int) -> AsyncIterator[tuple[Submit, int]]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, initializer=_of_a_command) as pool:
        loop = asyncio.get_running_loop()
        try:
            yield lambda function, *part: loop.run_in_executor(pool, function, *part), jobs
        except BaseException:  # what is under way is not waited for
            for child in multiprocessing.active_children():
                child.kill()
            raise


def _of_a_command() -> None:
    """In a process of the pool: Ctrl-C is the command's, which ends this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()


@asynccontextmanager
async def dask_workers(on: str) -> AsyncIterator[tuple[Submit, int]]:
    """What submits work to the cluster `dask:ADDRESS`, and how many of its workers' threads there are.

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
        digest = source_digest()

        async def submit(function: Callable[..., Any], *part: Any) -> Any:
            return await client.submit(carried_out, digest, function, part, pure=False)

        yield submit, threads


def carried_out(digest: str, function: Callable[..., T], part: Sequence[Any]) -> T:
    """In a worker of Dask: the result.

    Raises:
        UsageError: the worker has another version of seatrial than who submitted it.
    """
    if digest != source_digest():
        raise UsageError("a Dask worker has another version of seatrial; install this one on all of them")
    return function(*part)
