"""Decisions that timers and events made, outside of a cycle."""

from seatrial.scheduler.framework.decisions import Decision, Evict
from seatrial.scheduler.framework.handle import Handle


class Outbox:
    """Keeps decisions until the driver asks for the next ones. A standby decides nothing."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.decisions: list[Decision] = []  # read-only

    def put(self, decision: Decision) -> None:
        """Have the next `decide` return this decision, unless the pod leaves the queue before."""
        if self._handle.leading:
            self.decisions.append(decision)
            self._handle.request_cycle()

    def take(self) -> list[Decision]:
        """All decisions, once."""
        decisions, self.decisions = self.decisions, []
        return decisions

    def forget(self, uid: str) -> None:
        """The pod has left the queue: nothing is said of it any more."""
        self.decisions = [each for each in self.decisions if isinstance(each, Evict) or each.info.uid != uid]
