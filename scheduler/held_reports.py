"""Tells users of pods that PreEnqueue holds back, after a pause: most are released before it ends.

Upstream writes nothing for such pods. A gang that stays incomplete would be silent for ever.
"""

from typing import TYPE_CHECKING

from seatrial.scheduler.framework.decisions import Reject

if TYPE_CHECKING:
    from seatrial.scheduler.cycle import Core

PAUSE = 2.0  # seconds
GATED = "SchedulingGated"  # reason of the condition; cluster autoscalers add no nodes for it


class HeldReports:
    """One report for each pod and message."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self._due: dict[str, None] = {}  # pod uids
        self._timed = False

    def held(self, uid: str) -> None:
        """PreEnqueue rejected a pod, which waits for its gate."""
        self._due[uid] = None
        if not self._timed:
            self._timed = True
            self._core.handle.clock.call_later(PAUSE, self._report)

    def _report(self) -> None:
        self._timed = False
        due, self._due = self._due, {}
        for uid in due:
            entry = self._core.queue.held.get(uid)
            if entry is not None and entry.held is not None and not entry.attempts:
                self._core.later(Reject(entry.info, self._core.held_back(entry.info), GATED))
