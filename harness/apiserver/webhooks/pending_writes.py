"""Pending writes of controllers, which cannot wait for webhooks.

Such a write continues in the background, and its controller gets a Pending error and retries later. The same write is
not started again until the running one has finished.
"""

from collections.abc import Callable
from typing import TypeVar

from seatrial.harness.apiserver.attempts import FIRST, Attempt, Pending
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.webhooks.dispatch import Webhooks

T = TypeVar("T")
_MAX_OUTCOMES = 1024


class PendingWrites:
    """The writes of one server that continue in the background."""

    def __init__(self, webhooks: Webhooks) -> None:
        self._webhooks = webhooks
        self._running: dict[bytes, Pending] = {}
        self._refusals: dict[bytes, ApiStatusError] = {}  # errors of background writes, raised at the next retry

    def carry_out(self, key: bytes, work: Callable[[Attempt], T]) -> T:
        """The result of `work`, if no webhook response is missing. `key` identifies the write.

        Raises:
            Pending: the write continues in the background.
            ApiStatusError: it was refused, now or in the background.
        """
        refused = self._refusals.pop(key, None)
        if refused is not None:
            raise refused
        running = self._running.get(key)
        if running is not None:
            raise running
        try:
            return work(FIRST)
        except Pending as pending:
            self._continue(key, pending, work)
            raise

    def _continue(self, key: bytes, pending: Pending, work: Callable[[Attempt], T]) -> None:
        def again() -> None:
            self._running.pop(key, None)
            try:
                work(pending.attempt)
            except Pending as further:
                self._continue(key, further, work)
            except ApiStatusError as refused:
                if len(self._refusals) >= _MAX_OUTCOMES:
                    self._refusals.clear()
                self._refusals[key] = refused

        self._running[key] = pending
        self._webhooks.fetch(pending, again)
