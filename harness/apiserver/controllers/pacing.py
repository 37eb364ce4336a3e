"""Pacing of workload controllers: an order of two billion replicas must not take the server from other clients.

A reconciliation takes 4 µs for each pod of the workload, and 110 µs for each pod that it creates. Bursts are therefore
small, but grow with the workload, so that a pod is visited about ten times while the workload grows. Beyond `FREE` pods
the controllers pause between two bursts, a hundred times as long as a reconciliation takes: other clients are delayed
in one percent of the time. Upstream's client is limited to 20 requests per second.
"""

from collections.abc import Hashable

FREE = 10_000  # pods of one workload that are created without pauses
SMALLEST_BURST, BURST = 100, 500  # maximum pods created in one reconciliation; the latter is upstream's value
_PODS_PER_SECOND = 2_500  # pods beyond FREE for which a reconciliation may pause one second


class Pacing:
    """The earliest time of the next burst of pods of each workload, in seconds of the clock."""

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

    @staticmethod
    def burst(pods: int) -> int:
        """The number of pods that a reconciliation of a workload with `pods` pods may create."""
        return min(BURST, max(SMALLEST_BURST, pods // 10))

    def after_burst(self, key: Hashable, now: float, pods: int) -> float:
        """Record a burst of a workload that has `pods` pods; returns the seconds until the next."""
        delay = max(0, pods - FREE) / _PODS_PER_SECOND
        if delay > 0:
            self._next[key] = now + delay
        return delay
