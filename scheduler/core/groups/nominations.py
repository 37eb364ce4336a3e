"""Nominated room of groups: held for all members until they are bound, and given back together when they cannot be.

Room is given back when a member leaves an incomplete group behind, when a nominated node is gone, when a more important
preemptor takes a part of it, and when the group's waiting time ends after the last victim ended. After a restart the
room of members is taken from their `status.nominatedNodeName`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from seatrial.scheduler.api.clock import Timer
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.core.outbox import Outbox
from seatrial.scheduler.framework.decisions import ClearNomination
from seatrial.scheduler.framework.handle import Handle

ADOPTION_PAUSE = 1.0  # seconds after which the PodGroups are known that the nominated members name


@dataclass(slots=True, eq=False)
class Hold:
    """The nominated room of one group."""

    key: str  # wake key of the group
    members: dict[str, PodInfo]  # by uid: those that are not bound
    nodes: frozenset[str]
    victims: frozenset[str]  # uids of the pods that were evicted for it
    seconds: float
    timer: Timer | None = None


class GroupNominations:
    """All holds."""

    def __init__(self, handle: Handle, outbox: Outbox) -> None:
        self._handle, self._nominator, self._outbox = handle, handle.nominator, outbox
        self._holds: dict[str, Hold] = {}  # by member uid
        self._nominees: dict[str, PodInfo] = {}  # nominated members from before a restart, by uid

    def __len__(self) -> int:
        return len({id(hold) for hold in self._holds.values()})

    def __contains__(self, uid: object) -> bool:
        """Whether room is held for this pod with its group."""
        return uid in self._holds

    def awaits_victims(self, uids: Iterable[str]) -> bool:
        """Whether pods that were evicted for one of these members still count on their nodes (GANG-R71)."""
        holds = {id(hold): hold for uid in uids if (hold := self._holds.get(uid)) is not None}
        return any(map(self._awaits, holds.values()))

    def _awaits(self, hold: Hold) -> bool:
        placed = self._handle.cache.placed
        return any(placed(victim) is not None for victim in hold.victims)

    def nominate(
        self, key: str, nominations: Sequence[tuple[PodInfo, str]], victims: Iterable[PodInfo], seconds: float
    ) -> list[ClearNomination]:
        """Hold the room of these nominations. Returns the nominations that end, those of an earlier plan."""
        infos = {info.uid: info for info, _ in nominations}
        ended: list[ClearNomination] = []
        for hold in {id(hold): hold for uid in infos if (hold := self._holds.get(uid)) is not None}.values():
            ended += [clear for clear in self.give_back(hold) if clear.info.uid not in infos]
        for info, node in nominations:
            self._nominator.nominate(info, node, key)
        nodes = frozenset(node for _, node in nominations)
        hold = Hold(key, infos, nodes, frozenset(victim.uid for victim in victims), seconds)
        for uid in infos:
            self._holds[uid] = hold
        self._start(hold)
        return ended

    def adopt(self, info: PodInfo) -> None:
        """A member that comes with a nomination, as after a restart of the scheduler."""
        if not self._nominees:
            self._handle.clock.call_later(ADOPTION_PAUSE, self._adopt)
        self._nominees[info.uid] = info

    def _adopt(self) -> None:
        groups = self._handle.groups
        victims, self._nominees = self._nominees, {}
        by_key: dict[str, list[PodInfo]] = {}
        for uid, info in victims.items():
            if groups is not None and uid not in self._holds and self._nominator.node_of(uid):
                by_key.setdefault(groups.key_of(info.pod), []).append(info)
        for key, infos in by_key.items():
            if groups is not None and key:
                seconds = groups.hold_time_of(infos[0].pod)
                self.nominate(key, [(info, self._nominator.node_of(info.uid)) for info in infos], (), seconds)

    def committed(self, uids: Sequence[str]) -> list[ClearNomination]:
        """These members are being bound together. Other members' nominations end: the group does not need them."""
        holds = {id(hold): hold for uid in uids if (hold := self._leave(uid)) is not None}
        return [cleared for hold in holds.values() for cleared in self.give_back(hold)]

    def bound(self, uid: str) -> None:
        """A member is bound: it needs its nomination no more."""
        hold = self._leave(uid)
        if hold is not None and not hold.members:
            self.give_back(hold)

    def left(self, uid: str) -> None:
        """A member is gone, or is being deleted: without it the others may not be a group any more."""
        hold = self._leave(uid)
        groups = self._handle.groups
        if hold is None or groups is None:
            return
        if not hold.members or groups.incompleteness(next(iter(hold.members.values())).pod):
            self._end(hold)

    def drop_if_moved(self, pod: Pod) -> None:
        """A member belongs to another group now, or to none: its own nomination ends, too."""
        uid, groups = pod.metadata.uid, self._handle.groups
        hold = self._holds[uid]
        if groups is None or groups.key_of(pod) == hold.key:
            return
        info = hold.members[uid]
        self.left(uid)
        self._nominator.forget(uid)
        self._handle.request_wake()
        self._outbox.put(ClearNomination(info))

    def rules_changed(self, key: str) -> None:
        """The rules of a group changed, or it is gone. Room is given back if its members are no complete group any
        more; otherwise it is kept, because another plan would evict other pods while the first victims terminate."""
        groups = self._handle.groups
        for hold in {id(hold): hold for hold in self._holds.values() if hold.key == key}.values():
            pods = [info.pod for info in hold.members.values()]
            if groups is None or any(groups.key_of(pod) != key or groups.incompleteness(pod) for pod in pods):
                self._end(hold)

    def node_gone(self, name: str) -> None:
        """A node is gone: members that were nominated to it need another plan, and so do the others."""
        for hold in {id(hold): hold for hold in self._holds.values() if name in hold.nodes}.values():
            self._end(hold)

    def wake(self, names: Iterable[str]) -> None:
        """Pods are gone from these nodes: groups that are nominated there and whose victims have all ended are tried.
        If their room is another's now, or a node of it is closed, they need another plan."""
        uids = [info.uid for name in names for info in self._nominator.on(name)]
        for hold in {id(hold): hold for uid in uids if (hold := self._holds.get(uid)) is not None}.values():
            if not self._awaits(hold):
                self._handle.open_gate(hold.key)

    def give_back(self, hold: Hold) -> list[ClearNomination]:
        """End a hold. Returns what is to be written to its members."""
        if hold.timer is not None:
            hold.timer.cancel()
        cleared: list[ClearNomination] = []
        for uid, info in hold.members.items():
            if self._holds.get(uid) is hold:
                del self._holds[uid]
            if self._nominator.node_of(uid):
                self._nominator.forget(uid)
                cleared.append(ClearNomination(info))
        self._handle.request_wake()
        self._handle.open_gate(hold.key)
        return cleared

    def give_back_of(self, uids: Iterable[str]) -> list[ClearNomination]:
        """End the holds of these members."""
        holds = {id(hold): hold for uid in uids if (hold := self._holds.get(uid)) is not None}
        return [cleared for hold in holds.values() for cleared in self.give_back(hold)]

    def _leave(self, uid: str) -> Hold | None:
        self._nominees.pop(uid, None)
        hold = self._holds.pop(uid, None)
        if hold is not None:
            hold.members.pop(uid, None)
        return hold

    def _end(self, hold: Hold) -> None:
        for cleared in self.give_back(hold):
            self._outbox.put(cleared)

    def _start(self, hold: Hold) -> None:
        hold.timer = self._handle.clock.call_later(hold.seconds, lambda: self._expire(hold))

    def _expire(self, hold: Hold) -> None:
        """The waiting time ended. Victims that still terminate keep the hold: without it others would be evicted."""
        hold.timer = None
        cache = self._handle.cache
        terminating = (
            pod.pod.deleting
            for name in hold.nodes
            if (node := cache.find(name)) is not None
            for pod in node.pods.values()
        )
        if any(terminating):
            self._start(hold)
        else:
            self._end(hold)
