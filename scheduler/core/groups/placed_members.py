"""Members of groups that hold places and wait for the rest of their groups, each until its own timer.

After a timer has ended, no group takes places without the rest of its members until all are given back, and all other
pods were tried.
"""

from dataclasses import dataclass

from seatrial.scheduler.api.clock import Timer
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.durations import go_text
from seatrial.scheduler.core.outbox import Outbox
from seatrial.scheduler.core.places import Places
from seatrial.scheduler.core.queue.active import Entry
from seatrial.scheduler.core.queue.queue import SchedulingQueue
from seatrial.scheduler.core.waking import Waker
from seatrial.scheduler.framework.decisions import Reject
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState

COSCHEDULING = "Coscheduling"


@dataclass(slots=True, eq=False)
class Placed:
    """A member that is assumed on its node and waits for its group."""

    entry: Entry
    state: CycleState
    node: str
    key: str  # of the group
    timer: Timer | None = None
    waits: tuple[tuple[str, float], ...] = ()  # Permit plugins that have the member wait, with their seconds


class PlacedMembers:
    """Members with places, by pod UID and by group."""

    def __init__(self, handle: Handle, queue: SchedulingQueue, places: Places, waker: Waker, outbox: Outbox) -> None:
        self._handle, self._queue, self._places, self._waker, self._outbox = handle, queue, places, waker, outbox
        self._by_uid: dict[str, Placed] = {}
        self._by_group: dict[str, dict[str, Placed]] = {}
        self._pause: Timer | None = None  # while it runs, places are taken for whole groups only

    def __contains__(self, uid: object) -> bool:
        return uid in self._by_uid

    def __getitem__(self, uid: str) -> Placed:
        return self._by_uid[uid]

    def __len__(self) -> int:
        return len(self._by_uid)

    def of(self, key: str) -> list[Placed]:
        """The members of a group, in the order in which they were placed."""
        return list(self._by_group.get(key, {}).values())

    def add(self, placed: Placed) -> None:
        self._by_uid[placed.entry.info.uid] = placed
        self._by_group.setdefault(placed.key, {})[placed.entry.info.uid] = placed

    def remove(self, placed: Placed) -> None:
        """The member waits no more, and keeps its place."""
        uid = placed.entry.info.uid
        if placed.timer is not None:
            placed.timer.cancel()
        self._by_uid.pop(uid, None)
        group = self._by_group.get(placed.key)
        if group is not None:
            group.pop(uid, None)
            if not group:
                del self._by_group[placed.key]

    def release(self, placed: Placed) -> None:
        """Undo the placement of one member."""
        self.remove(placed)
        self._places.give_back(placed.entry.info, placed.state, placed.node)

    def drop(self, uid: str) -> None:
        """A placed member is deleted, or was bound by another scheduler."""
        placed = self._by_uid.get(uid)
        if placed is not None:
            self.release(placed)
            self._handle.request_wake()

    def drop_if_moved(self, pod: Pod) -> None:
        """A placed member that belongs to another group now, or to none, gives its place back."""
        placed, groups = self._by_uid.get(pod.metadata.uid), self._handle.groups
        if placed is not None and groups is not None and groups.key_of(pod) != placed.key:
            self.drop(pod.metadata.uid)

    def preempt(self, uid: str) -> None:
        """A more important pod takes the place of a member that waits for its group (GANG-R82)."""
        placed = self._by_uid.get(uid)
        if placed is not None:
            self.release(placed)
            self._waker.wait(placed.entry, placed.state)
            self._outbox.put(Reject(placed.entry.info, "preempted"))

    def hold(self, placed: Placed, seconds: float) -> None:
        """Have the member wait for its group so long. While other pods have their turn, it gives its place back."""
        if self._pause is not None:
            self.release(placed)
            self._waker.wait(placed.entry, placed.state)
            return
        entry, now = placed.entry, self._handle.clock.monotonic()
        if entry.hold_until <= now:  # else it had a place before a change of the rules: its time goes on
            entry.hold_until = now + seconds
        left = min(entry.hold_until - now, seconds)
        placed.timer = self._handle.clock.call_later(left, lambda: self._expire(placed, seconds))

    def _expire(self, placed: Placed, seconds: float) -> None:
        """A member waited too long for its group: it gives its place back and is tried again (GANG-R35)."""
        entry = placed.entry
        if self._by_uid.get(entry.info.uid) is not placed:
            return
        placed.timer = None
        self.release(placed)
        self._start_pause()
        self._handle.request_wake()
        text = f"rejected due to timeout after waiting {go_text(seconds)} at plugin {COSCHEDULING}"
        self._waker.wait(entry, placed.state)
        self._outbox.put(Reject(entry.info, text))

    def _start_pause(self) -> None:
        """Have the other pods tried first: their backoffs end before the pause does."""
        if self._pause is not None:
            self._pause.cancel()
        policy, held = self._queue.policy, bool(self._by_uid)
        self._pause = self._handle.clock.call_later(
            policy.maximum + policy.initial, lambda: self._end_pause(places_were_held=held)
        )

    def _end_pause(self, *, places_were_held: bool) -> None:
        if places_were_held or self._queue.ready:
            self._start_pause()
            return
        self._pause = None
        self._handle.request_wake()
        self._handle.request_cycle()
