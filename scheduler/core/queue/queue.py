"""The scheduling queue: pending pods that are gated, ready, in backoff after a failed binding, or unschedulable."""

from collections.abc import Iterator

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.core.queue.active import ActiveQueue, Entry
from seatrial.scheduler.core.queue.backoff import BackoffPolicy, BackoffQueue
from seatrial.scheduler.core.queue.held import UNTIL_CHANGED, HeldPods
from seatrial.scheduler.core.queue.unschedulable import ClassKey, UnschedulablePods
from seatrial.scheduler.framework.extension_points import Gate, QueueSort
from seatrial.scheduler.framework.status import Status

LEFTOVER_SECONDS = (
    300.0  # unschedulable pods are tried again after this time (upstream podMaxInUnschedulablePodsDuration)
)


class SchedulingQueue:
    """All pending pods. A pod is in exactly one part at a time."""

    def __init__(self, clock: Clock, sort: QueueSort, policy: BackoffPolicy | None = None) -> None:
        self._clock = clock
        self._sort = sort
        self.policy = policy or BackoffPolicy()
        self.held = HeldPods()
        self._active = ActiveQueue()
        self.pop = self._active.pop  # the next pod to try
        self._backoff = BackoffQueue()
        self.waiting = UnschedulablePods()
        self._parts = (self._active, self._backoff, self.waiting, self.held)

    def __len__(self) -> int:
        return len(self.held) + len(self._active) + len(self._backoff) + len(self.waiting)

    @property
    def ready(self) -> int:
        """The number of pods that are ready."""
        return len(self._active.by_uid)

    def counts(self) -> dict[str, int]:
        """The number of pods in each part, by upstream's names of the parts."""
        return {
            "active": len(self._active),
            "backoff": len(self._backoff),
            "unschedulable": len(self.waiting) + sum(entry.attempts > 0 for entry in self.held),
            "gated": sum(not entry.attempts for entry in self.held),
        }

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """Every entry with the name of its part, as in `counts`."""
        yield from (("active", entry) for entry in self._active)
        yield from (("backoff", entry) for entry in self._backoff)
        yield from (("unschedulable", entry) for entry in self.waiting)
        yield from (("unschedulable" if entry.attempts else "gated", entry) for entry in self.held)

    def find(self, uid: str) -> Entry | None:
        for part in self._parts:
            if uid in part.by_uid:
                return part.get(uid)
        return None

    def add(
        self,
        info: PodInfo,
        *,
        gates: tuple[tuple[Gate, str], ...] = (),
        held: Status | None = None,
        grouped: bool = False,
    ) -> Entry:
        """Add a pod that is not in the queue. `held`: the rejection of PreEnqueue.

        Raises:
            TypeError, ValueError: QueueSort returned a key that cannot be compared. The pod is not in the queue.
        """
        now = self._clock.monotonic()
        entry = Entry(info, now, self._sort.checked_key(info.pod, now), gates=gates, grouped=grouped)
        if held is not None:
            entry.waiting_since = now
            self.hold(held.wake_key or UNTIL_CHANGED, entry, held)
        else:
            self._active.push(entry)
        return entry

    def remove(self, uid: str) -> Entry | None:
        """Remove a pod from its part."""
        for part in self._parts:
            if uid in part.by_uid:
                return part.remove(uid)
        return None

    def put_back(self, entry: Entry) -> None:
        """Put an entry in backoff. It is tried again at the end, whatever happens to nodes."""
        entry.ready_at = self._clock.monotonic() + self.policy.after(entry.attempts)
        self._backoff.push(entry.ready_at, entry)

    def wait(self, key: ClassKey, entry: Entry) -> None:
        """No node is feasible: wait in group `key` until one becomes feasible."""
        now = self._clock.monotonic()
        entry.waiting_since = now
        entry.ready_at = now + self.policy.after(entry.attempts)
        self.waiting.add(key, entry)

    def push(self, entry: Entry) -> None:
        """Put an entry that is in no part to the ready ones."""
        entry.held = None
        self._active.push(entry)

    def hold(self, key: str, entry: Entry, status: Status) -> None:
        """PreEnqueue or a gate holds the pod back until its gate opens; after a cycle, at least for its backoff."""
        now = self._clock.monotonic()
        if entry.attempts:
            entry.ready_at = now + self.policy.after(entry.attempts)
        entry.waiting_since = now
        entry.held = status
        self.held.add(key, entry)

    def release(self, entry: Entry) -> None:
        """Move a held entry to the ready ones."""
        self.held.remove(entry.info.uid)
        entry.held = None
        self._active.push(entry)

    def wake(self, entry: Entry) -> None:
        """Move a waiting entry to the ready ones."""
        self.waiting.remove(entry.info.uid)
        self._active.push(entry)

    def tick(self) -> None:
        """Move entries whose backoff or maximum wait has ended to the ready ones."""
        now = self._clock.monotonic()
        for entry in self._backoff.pop_until(now):
            self._active.push(entry)
        if len(self.waiting):
            for entry in self.waiting.overdue(now - LEFTOVER_SECONDS):
                self.wake(entry)

    def retry_for_reason_of_nodes(self) -> None:
        """Try waiting pods that a taint rejected, or the lack of nodes, again after their backoff, as the reason may
        have changed.

        Upstream moves them on the same events (`isSchedulableAfterNodeChange` of TaintToleration; a pod that no plugin
        rejected, on every event).
        """
        for entry in [entry for entry in self.waiting if entry.reason_of_nodes]:
            self.retry_after_backoff(entry)

    def retry_after_backoff(self, entry: Entry) -> None:
        """Move a waiting entry to backoff: it is tried again at the end of its own, whatever happens to nodes."""
        self.waiting.remove(entry.info.uid)
        self._backoff.push(entry.ready_at, entry)

    def next_backoff(self) -> float:
        """Monotonic second at which the next backoff ends."""
        return self._backoff.next_ready()
