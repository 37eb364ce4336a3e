"""Pods whose binding is decided and whose result is not reported yet."""

from seatrial.scheduler.core.places import Places
from seatrial.scheduler.core.queue.active import Entry
from seatrial.scheduler.engine.runner import Runner
from seatrial.scheduler.framework.decisions import Bind
from seatrial.scheduler.framework.kept_decisions import KeptDecisions
from seatrial.scheduler.framework.state import CycleState


class Bindings:
    """Decides bindings, and takes them back."""

    def __init__(self, places: Places, kept: KeptDecisions) -> None:
        self._places, self._kept = places, kept
        self._decided: dict[str, tuple[Entry, Runner, CycleState]] = {}  # by pod uid

    def __contains__(self, uid: object) -> bool:
        """Whether the pod has been decided to be bound, and the result of that is not reported yet."""
        return uid in self._decided

    def decide(self, entry: Entry, runner: Runner, state: CycleState, node: str) -> Bind:
        """Run PreBind for a pod that is reserved and assumed on this node, and decide to bind it.

        Raises:
            Exception: a PreBind plugin raised it. The pod has given its place back.
        """
        info = entry.info
        self._decided[info.uid] = (entry, runner, state)
        try:
            marks = runner.pre_bind(state, info.pod, node)
        except Exception:
            self.cancel(info.uid)
            raise
        if self._kept.size:
            self._kept.place(info, state, node)
        return Bind(info, node, marks.annotations, marks.labels, marks.node_annotations, marks.preparation, marks.stale)

    def take(self, uid: str) -> tuple[Entry, Runner, CycleState] | None:
        """The pod whose result is known now, with the runner and the state of its cycle; None if it is gone."""
        return self._decided.pop(uid, None)

    def cancel(self, uid: str) -> None:
        """Give the place of a pod back whose decision to be bound is not carried out."""
        entry, _, state = self._decided.pop(uid)
        self._places.give_back(entry.info, state, entry.info.node_name)
