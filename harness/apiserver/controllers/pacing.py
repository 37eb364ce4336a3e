"""Pacing of workload controllers: an order of two billion replicas must not take the server from other clients.

A reconciliation takes time in proportion to the pods of the workload. Beyond `FREE` pods the controllers therefore
pause between two bursts, as long as the reconciliation takes or longer. Upstream's client is limited to 20 requests per
second.
"""

from collections.abc import Hashable

FREE = 20_000  # pods of one workload that are created without pauses
_PODS_PER_SECOND = 20_000  # pods that a reconciliation visits in a second, on a slow machine


class Pacing:
    """The earliest time of the next burst of each workload."""

    def __init__(self) -> None:
        self._next: dict[Hashable, float] = {}

    def wait(self, key: Hashable, now: float) -> float:
        """Seconds that the workload must wait before it creates pods; 0 for nearly all."""
        if not self._next:
            return 0.0
        left = self._next.get(key, now) - now
        if left <= 0:
            self._next.pop(key, None)
        return max(left, 0.0)

    def after_burst(self, key: Hashable, now: float, pods: int) -> float:
        """Record a burst of a workload that has `pods` pods; returns the seconds until the next."""
        delay = max(0, pods - FREE) / _PODS_PER_SECOND
        if delay > 0:
            self._next[key] = now + delay
        return delay
