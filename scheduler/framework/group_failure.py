"""What PostFilter gets of a pod group that could not be placed, or of a pod without a group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seatrial.scheduler.cache.columns import Ints
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.domains import Domains
from seatrial.scheduler.framework.fit_error import FitError
from seatrial.scheduler.framework.state import CycleState


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A member without a node, and what its cycle found."""

    info: PodInfo
    failure: FitError
    state: CycleState

    @property
    def kind(self) -> tuple[str, int]:
        """The scheduler name and the class: members of one kind fit on the same nodes."""
        return self.info.pod.spec.scheduler_name, self.info.pod_class.id


@dataclass(frozen=True, slots=True)
class GatherFailure:
    """No domain has room for a group that is placed in one domain.

    `slots`: by kind of members, how many fit on each node now, [node].
    """

    domains: Domains
    slots: Mapping[tuple[str, int], Ints]


@dataclass(frozen=True, slots=True)
class GroupFailure:
    """A group that cannot be bound. Its placed members are counted on their nodes during the call."""

    name: str  # the gang group, or the pod
    trigger: PodInfo  # the member that failed first: its priority and preemption policy count for all
    unplaced: Sequence[Unplaced]  # members that the group needs, in the order in which they are placed
    placed: Sequence[PodInfo] = ()
    gather: GatherFailure | None = None  # None: members may be on any nodes
