"""The scheduling queue: pending pods that are gated, ready, in backoff after a failed binding, or unschedulable."""

from collections.abc import Iterator

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.extension_points import QueueSort
from seatrial.scheduler.queue.active import ActiveQueue, Entry
from seatrial.scheduler.queue.backoff import BackoffPolicy, BackoffQueue
from seatrial.scheduler.queue.unschedulable import ClassKey, UnschedulablePods

LEFTOVER_SECONDS = (
    300.0  # unschedulable pods are tried again after this time (upstream podMaxInUnschedulablePodsDuration)
)


class SchedulingQueue:
    """All pending pods. A pod is in exactly one part at a time."""

    def __init__(self, clock: Clock, sort: QueueSort, policy: BackoffPolicy | None = None) -> None:
        self._clock = clock
        self._sort = sort
        self._policy = policy or BackoffPolicy()
        self._gated: dict[str, Entry] = {}
        self._active = ActiveQueue()
        self.pop = self._active.pop  # the next pod to try
        self._backoff = BackoffQueue()
        self.waiting = UnschedulablePods()

    def __len__(self) -> int:
        return len(self._gated) + len(self._active) + len(self._backoff) + len(self.waiting)

    @property
    def ready(self) -> int:
        """The number of pods that are ready."""
        return len(self._active.members)

    def counts(self) -> dict[str, int]:
        """The number of pods in each part, by upstream's names of the parts."""
        return {
            "active": len(self._active),
            "backoff": len(self._backoff),
            "unschedulable": len(self.waiting),
            "gated": len(self._gated),
        }

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Every entry with the name of its part, as in `counts`."""
        yield from (("active", entry) for entry in self._active)
        yield from (("backoff", entry) for entry in self._backoff)
        yield from (("unschedulable", entry) for entry in self.waiting)
        yield from (("gated", entry) for entry in list(self._gated.values()))

    def find(self, uid: str) -> Entry | None:
        return self._active.get(uid) or self._backoff.get(uid) or self.waiting.get(uid) or self._gated.get(uid)

    def add(self, info: PodInfo, *, gated: bool = False) -> None:
        """Add a pod that is not in the queue."""
        now = self._clock.monotonic()
        entry = Entry(info, now, self._sort.sort_key(info.pod, now))
        if gated:
            self._gated[info.uid] = entry
        else:
            self._active.push(entry)

    def remove(self, uid: str) -> Entry | None:
        """Remove a pod from its part."""
        return (
            self._active.remove(uid)
            or self._backoff.remove(uid)
            or self.waiting.remove(uid)
            or self._gated.pop(uid, None)
        )

    def put_back(self, entry: Entry) -> None:
        """Put an entry in backoff. It is tried again at the end, whatever happens to nodes."""
        entry.ready_at = self._clock.monotonic() + self._policy.after(entry.attempts)
        self._backoff.push(entry)

    def wait(self, key: ClassKey, entry: Entry) -> None:
        """No node is feasible: wait in group `key` until one becomes feasible."""
        now = self._clock.monotonic()
        entry.waiting_since = now
        entry.ready_at = now + self._policy.after(entry.attempts)
        self.waiting.add(key, entry)

    def wake(self, entry: Entry) -> None:
        """Move a waiting entry to the ready ones."""
        self.waiting.remove(entry.info.uid)
        self._active.push(entry)

    def tick(self) -> None:
        """Move entries whose backoff or maximum wait has ended to the ready ones."""
        now = self._clock.monotonic()
        for entry in self._backoff.due(now):
            self._active.push(entry)
        if len(self.waiting):
            for entry in self.waiting.overdue(now - LEFTOVER_SECONDS):
                self.wake(entry)

    def retry_rejected_by_taint(self) -> None:
        """Try waiting pods that a taint rejected again after their backoff: the reason may be another one now.

        Upstream moves them on the same event (`isSchedulableAfterNodeChange` of TaintToleration).
        """
        for entry in [entry for entry in self.waiting if entry.rejected_by_taint]:
            self.waiting.remove(entry.info.uid)
            self._backoff.push(entry)

    def next_backoff(self) -> float:
        """Monotonic second at which the next backoff ends."""
        return self._backoff.next_ready()
