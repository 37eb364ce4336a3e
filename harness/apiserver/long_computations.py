"""Computations that are too long for the event loop: evaluation and compilation of CEL expressions, decoding of YAML.

A computation is tried on the loop with few steps. If they do not suffice, its request becomes `Pending`: one thread
repeats the computation with upstream's patience, and the request is executed again with the result. There is one
thread, so that the event loop competes with no more than one other for the interpreter's lock. Callers that cannot wait
(controllers, servers in virtual time) get the result at once.
"""

import asyncio
import functools
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol, TypeVar

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.attempts import MAX_TRIES, Attempt, Pending, own_attempt

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
LOOP_STEPS: Final = 1_000  # steps of an evaluation on the event loop; 25 to 50 ms
_MAX_RESULTS: Final = 256
SWITCH_INTERVAL: Final = 0.001  # seconds; the longest that the event loop waits for the interpreter's lock


@functools.cache
def executor() -> ThreadPoolExecutor:
    """The one thread for long computations of this process."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="long-computations")


class NeedsThread(Exception):
    """The steps on the event loop do not suffice. Not a CEL error, since macros continue after those."""


class Compute(Protocol[T_co]):
    """A pure computation. `on_loop`: it raises NeedsThread after LOOP_STEPS."""

    def __call__(self, *, on_loop: bool) -> T_co: ...


class _Failed:
    """The error of a computation."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def in_thread(loop: asyncio.AbstractEventLoop) -> Callable[[Callable[[], None], Callable[[], None]], None]:
    """What a server on an event loop needs as `LongComputations.start`."""

    def start(work: Callable[[], None], then: Callable[[], None]) -> None:
        loop.run_in_executor(executor(), work).add_done_callback(lambda _: then())

    return start


class LongComputations:
    """The long computations of one server, and their results."""

    def __init__(self) -> None:
        self.start: Callable[[Callable[[], None], Callable[[], None]], None] | None = None
        """Runs the first function in the thread, then the second on the event loop; None: no caller can wait."""
        self._results: dict[bytes, Any] = {}

    def result(self, key: bytes, compute: "Compute[T]", attempt: Attempt | None) -> T:
        """The result of `compute`; `key` identifies the computation and its arguments.

        Raises:
            Pending: the computation continues in the thread.
        """
        if attempt is None or self.start is None:
            return compute(on_loop=False)
        digest = hashlib.blake2b(key, digest_size=16).digest()
        if digest in self._results:
            outcome = self._results[digest]
            if isinstance(outcome, _Failed):
                raise outcome.error
            result: T = outcome
            return result
        try:
            return compute(on_loop=True)
        except NeedsThread:
            pass

        if attempt.tries >= MAX_TRIES:
            raise errors.too_many("the object changes faster than its CEL rules are evaluated", retry_after=1)

        def work() -> None:
            try:
                match: Any = compute(on_loop=False)
            except Exception as error:  # noqa: BLE001 raised again on the event loop
                match = _Failed(error)
            if len(self._results) >= _MAX_RESULTS:
                self._results.clear()
            self._results[digest] = match

        raise Pending(own_attempt(attempt), {}, functools.partial(self.start, work))
