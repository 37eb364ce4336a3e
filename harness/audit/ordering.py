"""Orders the events of several watches by resourceVersion.

Nodes, quotas and pods come on watches of their own. The API server does not keep an order between watches: a binding
may arrive before the change of the node that came first. The resourceVersions of all objects that are stored in one
etcd come from one counter, so they give the order.

Where a kind is stored elsewhere (an aggregated API server, or kube-apiserver with `--etcd-servers-overrides`), its
resourceVersions do not order it relative to the others. Its events are then at worst `window` seconds too early or too
late, which the grace period of the invariants (`state.GRACE`) covers. The order within one watch is never changed.
"""

import heapq
import itertools
from collections.abc import Callable

from seatrial.scheduler.api.clock import Clock

WINDOW = 0.25  # seconds for which an event is held back
EPSILON = 0.001  # seconds: a timer may be early by the rounding of floating-point numbers

Deliver = Callable[[float], None]  # gets the time at which the event arrived, of the clock


class EventOrder:
    """Holds events back for `window` seconds and delivers them by resourceVersion."""

    def __init__(self, clock: Clock, window: float) -> None:
        """`window` 0: events are delivered as they come."""
        self._clock, self._window = clock, window
        self._held: list[tuple[int, int, float, Deliver]] = []  # heap of version, order of arrival, time, event
        self._arrivals = itertools.count()
        self._last: dict[str, int] = {}  # by kind, the version of its last event
        self._highest = 0
        self._delivered_at = 0.0
        self._planned = False

    def add(self, kind: str, version: str, deliver: Deliver) -> None:
        """Take in one event. A version that is no number counts as the highest so far."""
        number = int(version) if version.isdecimal() else self._highest
        number = self._last[kind] = max(number, self._last.get(kind, 0))
        self._highest = max(self._highest, number)
        now = self._clock.monotonic()
        if self._window <= 0:
            deliver(now)
            return
        heapq.heappush(self._held, (number, next(self._arrivals), now, deliver))
        self._plan()

    def oldest(self) -> float:
        """When the oldest event arrived that is held back; the present if there is none."""
        return min((at for _, _, at, _ in self._held), default=self._clock.monotonic())

    def flush(self) -> None:
        """Deliver all that is held back."""
        while self._held:
            self._pop()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            self._clock.call_later(self.oldest() + self._window - self._clock.monotonic(), self._due)

    def _due(self) -> None:
        """Deliver events up to the highest version that was held for the whole window."""
        self._planned = False
        until = self._clock.monotonic() - self._window
        limit = max((number for number, _, at, _ in self._held if at <= until + EPSILON), default=-1)
        while self._held and self._held[0][0] <= limit:
            self._pop()
        if self._held:
            self._plan()

    def _pop(self) -> None:
        _, _, at, deliver = heapq.heappop(self._held)
        self._delivered_at = max(self._delivered_at, at)  # what is delivered later is not told to be earlier
        deliver(self._delivered_at)
