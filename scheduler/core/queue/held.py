"""Pods that a PreEnqueue plugin or a gate holds back, by wake key and within a key by equivalence class.

Changes of nodes do not concern them. `first_of_classes` gives the pods to ask when the gate of a key opens.
"""

from collections.abc import Iterator

from seatrial.scheduler.core.queue.active import Entry
from seatrial.scheduler.core.queue.unschedulable import ClassGroup

UNTIL_CHANGED = ""  # the key of pods that only a change of the pod itself releases


class HeldPods:
    """Entries by wake key."""

    def __init__(self) -> None:
        self._keys: dict[str, dict[int, ClassGroup]] = {}
        self.by_uid: dict[str, tuple[str, int]] = {}  # key and class; read-only
        self._tried: dict[str, Entry] = {}  # by pod uid: rejected in a cycle, the one that waits longest first

    def __len__(self) -> int:
        return len(self.by_uid)

    def __iter__(self) -> Iterator[Entry]:
        return iter([entry for groups in self._keys.values() for group in groups.values() for entry in group])

    def __contains__(self, key: object) -> bool:
        """Whether pods are held under this key."""
        return key in self._keys

    def keys(self) -> set[str]:
        return set(self._keys)

    def key_of(self, uid: str) -> str:
        """The key under which a pod is held."""
        return self.by_uid[uid][0]

    def under(self, key: str) -> list[Entry]:
        """All entries of a key."""
        return [entry for group in self._keys.get(key, {}).values() for entry in group]

    def get(self, uid: str) -> Entry | None:
        place = self.by_uid.get(uid)
        return None if place is None else self._keys[place[0]][place[1]].get(uid)

    def add(self, key: str, entry: Entry) -> None:
        shape = entry.info.pod_class.id
        self.by_uid[entry.info.uid] = (key, shape)
        groups = self._keys.setdefault(key, {})
        group = groups.get(shape)
        if group is None:
            group = groups[shape] = ClassGroup()
        group.add(entry)
        if entry.attempts:
            self._tried[entry.info.uid] = entry

    def remove(self, uid: str) -> Entry | None:
        place = self.by_uid.pop(uid, None)
        if place is None:
            return None
        self._tried.pop(uid, None)
        key, shape = place
        groups = self._keys[key]
        entry = groups[shape].remove(uid)
        if not len(groups[shape]):
            del groups[shape]
            if not groups:
                del self._keys[key]
        return entry

    def first_of_classes(self, key: str, now: float) -> list[Entry]:
        """The first entry of each class of a key that is not in backoff, in queue order. They are not removed."""
        entries = [group.first(now) for group in self._keys.get(key, {}).values()]
        return sorted((entry for entry in entries if entry is not None), key=lambda entry: entry.key)

    def next_ready(self, key: str) -> float:
        """Monotonic second at which the first backoff of a key ends; infinity if there is none."""
        return min((group.next_ready() for group in self._keys.get(key, {}).values()), default=float("inf"))

    @property
    def some_tried(self) -> bool:
        """Whether some pod was rejected in a cycle."""
        return bool(self._tried)

    def overdue(self, moment: float) -> set[str]:
        """Keys with pods that were rejected in a cycle before `moment` and wait since."""
        names: set[str] = set()
        for uid, entry in self._tried.items():
            if entry.waiting_since > moment:
                break
            names.add(self.by_uid[uid][0])
        return names
