"""Unschedulable pods, grouped by class. A node that is feasible for one pod of a group is feasible for all.

Upstream moves every rejected pod on a relevant event. Here the engine records for each class whether a node became
feasible, or was left by a pod so that preemption may be enough. It wakes the first pod of the class, and the next one
when that pod is placed. The decisions are the same, and one free card does not cause an attempt for each of ten
thousand waiting pods.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import takewhile

from seatrial.scheduler.core.queue.active import Entry
from seatrial.scheduler.core.queue.backoff import BackoffQueue
from seatrial.scheduler.core.queue.entry_heap import EntryHeap

# Scheduler name, id of the equivalence class, and a mark that separates pods of one class whose placement depends on
# other pods in the cluster; "" for all others.
ClassKey = tuple[str, int, str]


class ClassGroup:
    """One group: pods that may be woken in queue order, and pods in backoff by its end."""

    def __init__(self) -> None:
        self._ready = EntryHeap()
        self._cooling = BackoffQueue()

    def __len__(self) -> int:
        return len(self._ready) + len(self._cooling)

    def __iter__(self) -> Iterator[Entry]:
        yield from self._ready
        yield from self._cooling

    def get(self, uid: str) -> Entry | None:
        return self._ready.get(uid) or self._cooling.get(uid)

    def add(self, entry: Entry) -> None:
        self._cooling.push(entry.ready_at, entry)

    def remove(self, uid: str) -> Entry | None:
        return self._ready.remove(uid) or self._cooling.remove(uid)

    def first(self, now: float, passed_over: Callable[[Entry], bool] | None = None) -> Entry | None:
        """The first entry in queue order whose backoff is over at `now`; None if there is none. It stays a member."""
        for entry in self._cooling.pop_until(now):
            self._ready.push(entry.key, entry)
        first = self._ready.first()
        if first is not None and passed_over is not None and passed_over(first[2]):
            first = min((item for item in self._ready.by_uid.values() if not passed_over(item[2])), default=None)
        return None if first is None else first[2]

    def next_ready(self) -> float:
        """When the next backoff of a member ends, on the clock of `now`; infinity if none runs."""
        return self._cooling.next_ready()


class UnschedulablePods:
    """Entries grouped by class."""

    def __init__(self) -> None:
        self._groups: dict[ClassKey, ClassGroup] = {}
        self.by_uid: dict[str, ClassKey] = {}  # in the order in which they came; read-only
        self._wide = 0  # number of groups with a mark
        self._priorities: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self.by_uid)

    def __iter__(self) -> Iterator[Entry]:
        return iter([entry for group in self._groups.values() for entry in group])

    def classes(self) -> Iterator[ClassKey]:
        return iter(list(self._groups))

    def wide_classes(self) -> list[ClassKey]:
        """The groups whose placement depends on other pods in the cluster."""
        return [key for key in self._groups if key[2]] if self._wide else []

    @property
    def empty(self) -> bool:
        return not self.by_uid

    @property
    def highest_priority(self) -> int | None:
        """The highest priority of the entries; None if there are none."""
        return max((priority for priority, count in self._priorities.items() if count), default=None)

    def has_class(self, key: ClassKey) -> bool:
        return key in self._groups

    def class_of(self, uid: str) -> ClassKey | None:
        """The key of the group of a pod; None if it does not wait here."""
        return self.by_uid.get(uid)

    def get(self, uid: str) -> Entry | None:
        key = self.by_uid.get(uid)
        return None if key is None else self._groups[key].get(uid)

    def add(self, key: ClassKey, entry: Entry) -> None:
        self.by_uid[entry.info.uid] = key
        self._priorities[entry.info.priority] += 1
        self._join(key, entry)

    def remove(self, uid: str) -> Entry | None:
        key = self.by_uid.pop(uid, None)
        if key is None:
            return None
        entry = self._leave(key, uid)
        self._priorities[entry.info.priority] -= 1
        return entry

    def regroup(self, uid: str, key: ClassKey) -> None:
        """Move an entry to another group; it keeps its place among those that wait."""
        entry = self._leave(self.by_uid[uid], uid)
        self.by_uid[uid] = key
        self._join(key, entry)

    def _join(self, key: ClassKey, entry: Entry) -> None:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = ClassGroup()
            self._wide += bool(key[2])
        group.add(entry)

    def _leave(self, key: ClassKey, uid: str) -> Entry:
        group = self._groups[key]
        entry = group.remove(uid)
        assert entry is not None
        if not len(group):
            del self._groups[key]
            self._wide -= bool(key[2])
        return entry

    def members(self, key: ClassKey) -> list[Entry]:
        """The entries of a group."""
        return list(self._groups[key])

    def example(self, key: ClassKey) -> Entry:
        """Any entry of a group that is not empty."""
        return next(iter(self._groups[key]))

    def first(self, key: ClassKey, now: float, passed_over: Callable[[Entry], bool] | None = None) -> Entry | None:
        """The first entry of a group that is not in backoff, without those passed over. It is not removed."""
        group = self._groups.get(key)
        return None if group is None else group.first(now, passed_over)

    def next_ready(self, key: ClassKey) -> float:
        """Monotonic second at which the first backoff in the group ends; infinity if there is none."""
        group = self._groups.get(key)
        return float("inf") if group is None else group.next_ready()

    @property
    def oldest(self) -> float:
        """Monotonic second since which the entry waits that waits longest; infinity if there is none."""
        return next((entry.waiting_since for entry in self._in_order()), float("inf"))

    def overdue(self, moment: float) -> list[Entry]:
        """Entries that have waited since before `moment`."""
        return list(takewhile(lambda entry: entry.waiting_since <= moment, self._in_order()))

    def _in_order(self) -> Iterator[Entry]:
        """The entries by the time since when they wait."""
        return (entry for uid in self.by_uid if (entry := self.get(uid)) is not None)
