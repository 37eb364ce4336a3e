"""Writes of those who cannot wait: controllers.

Such a write goes on by itself while its controller hears that it is pending, and comes back later as controllers do.
Until it is through, the same write is not begun a second time.
"""

from collections.abc import Callable
from typing import TypeVar

from harness.apiserver.errors import ApiStatusError
from harness.apiserver.webhooks.attempts import FIRST, Attempt, Pending
from harness.apiserver.webhooks.dispatch import Webhooks

T = TypeVar("T")
_OUTCOMES = 1024


class Parking:
    """The pending writes of one server."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks
        self._running: dict[bytes, Pending] = {}
        self._refusals: dict[bytes, ApiStatusError] = {}  # of writes that ended while nobody was there to hear it

    def carry_out(self, mark: bytes, work: Callable[[Attempt], T]) -> T:
        """What `work` returns, if no webhook has to be waited for. `mark` is the same for the same write.

        Raises:
            Pending: it goes on by itself.
            ApiStatusError: it was refused, now or since the last time.
        """
        refused = self._refusals.pop(mark, None)
        if refused is not None:
            raise refused
        running = self._running.get(mark)
        if running is not None:
            raise running
        try:
            return work(FIRST)
        except Pending as pending:
            self._go_on(mark, pending, work)
            raise

    def _go_on(self, mark: bytes, pending: Pending, work: Callable[[Attempt], T]) -> None:
        def again() -> None:
            self._running.pop(mark, None)
            try:
                work(pending.attempt)
            except Pending as further:
                self._go_on(mark, further, work)
            except ApiStatusError as refused:
                if len(self._refusals) >= _OUTCOMES:
                    self._refusals.clear()
                self._refusals[mark] = refused

        self._running[mark] = pending
        self._webhooks.fetch(pending, again)
