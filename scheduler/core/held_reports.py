"""Reports pods that PreEnqueue holds back to users, after a pause: most are released before it ends.

Upstream writes nothing for such pods. A gang that stays incomplete would never get a message.

For a pod that waits for a gate, such as its quota, a changed reason is reported again, but only after a longer pause:
the figures in it change with each pod that comes or goes.
"""

from collections.abc import Callable

from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.core.outbox import Outbox
from seatrial.scheduler.core.queue.queue import SchedulingQueue
from seatrial.scheduler.framework.decisions import Reject
from seatrial.scheduler.framework.fit_error import FitError
from seatrial.scheduler.framework.handle import Handle

PAUSE = 2.0  # seconds
CHANGE_PAUSE = 10.0
GATED = "SchedulingGated"  # reason of the condition; cluster autoscalers add no nodes for it


class HeldReports:
    """One report for each pod and message."""

    def __init__(
        self, handle: Handle, queue: SchedulingQueue, outbox: Outbox, reason_of: Callable[[PodInfo], str]
    ) -> None:
        """`reason_of`: why a pod of the queue is held back."""
        self._clock, self._cache, self._queue = handle.clock, handle.cache, queue
        self._outbox, self._reason_of = outbox, reason_of
        self._due: dict[str, None] = {}  # pod uids
        self._timed = False
        self._changed: dict[str, None] = {}  # pod uids
        self._change_timed = False

    def changed(self, uid: str) -> None:
        """A gate rejected a held pod again, for another reason than before."""
        self._changed[uid] = None
        if not self._change_timed:
            self._change_timed = True
            self._clock.call_later(CHANGE_PAUSE, self._report_changes)

    def _report_changes(self) -> None:
        self._change_timed = False
        changed, self._changed = self._changed, {}
        for uid in changed:
            entry = self._queue.held.get(uid)
            if entry is None or entry.held is None or not entry.attempts:
                continue
            message = FitError(self._cache.known_count, pre_filter=entry.held).message()
            if entry.last_message != message:
                entry.last_message = message
                self._outbox.put(Reject(entry.info, message))

    def held(self, uid: str) -> None:
        """PreEnqueue rejected a pod, which waits for its gate."""
        self._due[uid] = None
        if not self._timed:
            self._timed = True
            self._clock.call_later(PAUSE, self._report)

    def _report(self) -> None:
        self._timed = False
        due, self._due = self._due, {}
        for uid in due:
            entry = self._queue.held.get(uid)
            if entry is not None and entry.held is not None and not entry.attempts:
                with self._clock.faults.guard("HeldReports._report", entry.info.key):
                    self._outbox.put(Reject(entry.info, self._reason_of(entry.info), GATED))
