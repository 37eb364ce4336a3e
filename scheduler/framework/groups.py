"""What the engine needs of pods that are placed as one decision. `coscheduling` implements it.

A group's attempt: the engine takes all pending members out of the queue, places them one after another, and then either
binds all that wait, keeps them waiting, or rolls all of them back. Nothing of a placement is visible outside before.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.domains import Domains
from seatrial.scheduler.framework.extension_points import Plugin
from seatrial.scheduler.framework.status import Status


class Attempt(ABC):
    """One attempt to place the pending members of a group."""

    key: str  # wake key of the group
    name: str  # of the group, for messages
    members: Sequence[str]  # uids of pending members, in the order in which they are placed
    ordered: bool  # the order of `members` is one that users gave; otherwise the engine may refine it
    needs_all: bool  # the group needs every one of `members`
    minimal: Sequence[str]  # the first of `members` that the group needs
    domains: Domains | None = None  # all members are placed in one of these domains; None: on any nodes
    picks: bool = False  # any of `members` that are as many as `minimal` are enough
    strict: bool  # a member that cannot be placed ends the attempt, and nothing of it stays

    satisfied: bool  # the group can be bound with the members that are placed

    def fewer(self, room: int, among: Sequence[str]) -> Sequence[str]:  # noqa: ARG002
        """The members to place together where those of `among` do not all have room; the best domain seems to have room
        for `room` of them."""
        return self.minimal

    @abstractmethod
    def placed(self, uid: str) -> bool:
        """A member is on its node and waits for the others. Returns whether the group can be bound now."""

    @abstractmethod
    def again(self) -> None:
        """All members that were placed gave their places back; other nodes are tried for them."""

    @abstractmethod
    def timeout_of(self, uid: str) -> float:
        """Seconds that a placed member may wait for the others."""

    def spares(self, failed: int) -> bool:  # noqa: ARG002
        """Whether the attempt goes on without the `failed` members that could not be placed so far."""
        return not self.strict

    @abstractmethod
    def statuses(self, failed: PodInfo | None, reason: str, spared: int = 0) -> tuple[str, Status]:
        """The words for the member that could not be placed, and the status of its peers. None: all were placed.

        `spared`: members that could not be placed before it.
        """

    def ended(self, tried: int, *, bound: bool) -> None:  # noqa: B027
        """The attempt is over: `tried` members were placed or could not be placed."""


class PodGroups(ABC):
    """The groups of all pods."""

    changed_rules: set[str]
    """Wake keys of groups whose rules changed, or that are gone. Their members give places and nominated room back and
    are tried by the present rules; the engine empties it when a gate opens."""

    @abstractmethod
    def set_pod(self, pod: Pod) -> None:
        """A member was added or changed, in any phase, or was one once."""

    @abstractmethod
    def remove_pod(self, uid: str) -> None:
        """A pod that was a member is gone or has ended."""

    @abstractmethod
    def name_of(self, pod: Pod) -> str:
        """The name of the pod's group; "" if it is in none. Called for every pod."""

    @abstractmethod
    def key_of(self, pod: Pod) -> str:
        """The wake key of the pod's group; "" if it is in none."""

    @abstractmethod
    def hold_time_of(self, pod: Pod) -> float:
        """Seconds for which nominated room is held for the pod's group."""

    @abstractmethod
    def incompleteness(self, pod: Pod) -> str:
        """What the pod's group lacks now, in words; "" if it is complete."""

    def explanation(self, pod: Pod) -> str:  # noqa: ARG002
        """More about the last attempt of the pod's group, for people; "" if there is no more."""
        return ""

    def notes(self, pod: Pod) -> Sequence[str]:  # noqa: ARG002
        """What is wrong with the rules of the pod's group, where defaults are used instead."""
        return ()

    def unit_of(self, info: PodInfo) -> Sequence[PodInfo]:  # noqa: ARG002
        """All placed pods of the group of a placed pod, if they are preempted together; otherwise none."""
        return ()

    @abstractmethod
    def begin(self, pod: Pod) -> Attempt | Status | None:
        """Open an attempt of the pod's group. Status: the group is not complete. None: place the pod alone."""

    @abstractmethod
    def released(self, uid: str) -> None:
        """A placed member gave its place back."""

    @abstractmethod
    def binding(self, uids: Sequence[str]) -> None:
        """These placed members are bound now, together."""

    @abstractmethod
    def bound(self, uid: str) -> None:
        """The API server accepted the binding of a member."""


class GroupScheduling(Plugin):
    """A plugin whose profile places the pods of groups together."""

    groups: PodGroups
