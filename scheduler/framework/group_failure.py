"""What PostFilter gets of a pod group that could not be placed, or of a pod without a group."""

from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.fit_error import FitError
from seatrial.scheduler.framework.state import CycleState


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A member without a node, and what its cycle found."""

    info: PodInfo
    failure: FitError
    state: CycleState


@dataclass(frozen=True, slots=True)
class GroupFailure:
    """A group that cannot be bound. Its placed members are counted on their nodes during the call."""

    name: str  # the gang group, or the pod
    trigger: PodInfo  # the member that failed first: its priority and preemption policy count for all
    unplaced: Sequence[Unplaced]  # members that the group needs, in the order in which they are placed
    placed: Sequence[PodInfo] = ()
