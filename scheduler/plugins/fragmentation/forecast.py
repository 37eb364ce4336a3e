"""The shapes of pods that are expected: counted over the last pods that arrived."""

from collections import Counter, deque

from seatrial.scheduler.cache.classes import EquivalenceClass

FIRST = 16  # a forecast is made anew when this many pods, or as many as half of those that it counted, are new


class Window:
    """The last pods that arrived, each once, by equivalence class. After a restart these are the pods that exist."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._order: deque[tuple[str, EquivalenceClass]] = deque()
        self._known: set[str] = set()
        self.counts: Counter[EquivalenceClass] = Counter()
        self._new = 0

    def __contains__(self, uid: str) -> bool:
        return uid in self._known

    def arrived(self, uid: str, pods: EquivalenceClass) -> None:
        """A pod of this class exists; nothing happens if it is in the window already."""
        if uid in self._known:
            return
        self._known.add(uid)
        self._order.append((uid, pods))
        self.counts[pods] += 1
        self._new += 1
        if len(self._order) > self._size:
            oldest, gone = self._order.popleft()
            self._known.discard(oldest)
            self.counts[gone] -= 1
            if not self.counts[gone]:
                del self.counts[gone]

    @property
    def is_due(self) -> bool:
        """Whether enough pods are new since `taken` that a forecast should be made again."""
        return self._new >= max(FIRST, len(self._order) // 2)

    def taken(self) -> None:
        """A forecast was made from `counts`."""
        self._new = 0
