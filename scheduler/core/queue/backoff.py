"""Backoff: the delay before the next attempt doubles with each failure (FWK-R42)."""

from dataclasses import dataclass

from seatrial.scheduler.core.queue.entry_heap import EntryHeap


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """`podInitialBackoffSeconds` and `podMaxBackoffSeconds`."""

    initial: float = 1.0
    maximum: float = 10.0

    def after(self, attempts: int) -> float:
        """Backoff in seconds after attempt number 1, 2 and so on."""
        return min(self.initial * 2.0 ** min(attempts - 1, 62), self.maximum)


class BackoffQueue(EntryHeap):
    """Pods that are tried again when their backoff ends, by that monotonic second."""

    def next_ready(self) -> float:
        """When the next backoff ends; infinity if the queue is empty."""
        first = self.first()
        return float("inf") if first is None else first[0]
