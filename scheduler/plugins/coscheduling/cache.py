"""All gangs: from PodGroup objects, from annotations of pods, and from pods that name a PodGroup that is not there yet.

One object for all profiles. It receives every pod and PodGroup, and opens the gate of a gang group when the group may
have become complete.
"""

from collections.abc import Sequence

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.networktopology import demands, gather_rules
from seatrial.scheduler.api.podgroup import (
    NATIVE,
    POD_GROUP_LABEL,
    EndedMember,
    MatchPolicy,
    Mode,
    NativePodGroup,
    PodGroup,
    gang_groups,
    gang_match_policy,
    gang_minimum,
    gang_mode,
    gang_name,
    gang_total,
    gang_waiting_time,
    schedule_timeout,
    topology_index,
    topology_index_note,
)
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.groups import Attempt, PodGroups
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.plugins.coscheduling.args import CoschedulingArgs
from seatrial.scheduler.plugins.coscheduling.gang import Gang, GangGroup
from seatrial.scheduler.plugins.coscheduling.measures import FAILED, SUCCEEDED, GangMeasures
from seatrial.scheduler.plugins.coscheduling.topology.labels import LabelDomains
from seatrial.scheduler.plugins.coscheduling.topology.request import GatherRequest
from seatrial.scheduler.plugins.coscheduling.topology.tree import NetworkTopology

MAX_WAIT = 900.0  # seconds; upstream's framework cuts longer waits at Permit to this (GANG-R28)


NATIVE_WAIT = 300.0  # seconds that members of native groups wait at Permit; upstream's constant

_LISTED = 32  # gangs in a message


def _listed(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _LISTED} more" if len(ids) > _LISTED else ""
    return " ".join(ids[:_LISTED]) + more


class GangCache(PodGroups):
    """Gangs by id, gang groups by id, and the gang of each member."""

    def __init__(self, handle: Handle, args: CoschedulingArgs) -> None:
        self.topology = handle.shared(NetworkTopology, lambda: NetworkTopology(handle)) if args.topology else None
        self.gangs: dict[str, Gang] = {}
        self.groups: dict[str, GangGroup] = {}
        self.objects: dict[str, PodGroup] = {}  # by namespace/name
        self.native: dict[str, NativePodGroup] = {}  # PodGroups of scheduling.k8s.io, by gang id
        self.changed: set[str] = set()  # ids of gangs whose PodGroup status may be out of date
        self.changed_rules: set[str] = set()
        self.ended: dict[str, dict[str, str]] = {}  # by gang id: phases of members that ended, by uid
        self.measures = GangMeasures()
        self.clock = handle.clock
        self._handle = handle
        self._args = args
        self._gang_of: dict[str, Gang] = {}  # by pod uid
        self.gang_of = self._gang_of.get
        self._users: dict[str, set[str]] = {}  # by gang id: ids of the groups that list it

    # -- what is there ------------------------------------------------------------------------------------------------

    name_of = staticmethod(gang_name)

    def key_of(self, pod: Pod) -> str:
        gang = self._gang_of.get(pod.metadata.uid)
        return gang.group.key if gang is not None else ""

    def hold_time_of(self, pod: Pod) -> float:
        gang = self._gang_of.get(pod.metadata.uid)
        return min(gang.wait if gang is not None and gang.initialised else self._args.timeout, MAX_WAIT)

    def unit_of(self, info: PodInfo) -> Sequence[PodInfo]:
        gang = self._gang_of.get(info.uid)
        if gang is None or not gang.whole:
            return ()
        placed = self._handle.cache.placed
        return [pod for uid in (*gang.bound, *gang.waiting) if (pod := placed(uid)) is not None]

    def gathers(self, uid: str) -> bool:
        """Whether the pod is placed with its group in one domain; a pod that comes later is placed alone."""
        gang = self._gang_of.get(uid)
        if gang is None or gang.once_satisfied:
            return False
        return any(gang_id in self.gangs and self.gangs[gang_id].gather is not None for gang_id in gang.group.ids)

    def set_pod(self, pod: Pod) -> None:
        uid, name = pod.metadata.uid, gang_name(pod)
        known = self._gang_of.get(uid)
        if not name:
            if known is not None:
                self.remove_pod(uid)
            return
        if pod.terminated:
            self.pod_ended(pod)
            return
        if pod.deleting and not pod.spec.node_name:  # a finalizer keeps it: it is never bound
            self.remove_pod(uid)
            return
        gang_id = f"{pod.metadata.namespace}/{name}"
        if known is not None and known.id != gang_id:
            self.remove_pod(uid)
            known = None
        gang = known or self.gangs.get(gang_id) or self._new(pod.metadata.namespace, name)
        self._gang_of[uid] = gang
        before = gang.children.get(uid)
        released = gang.set_member(pod)
        if before is None or before.status.phase != pod.status.phase:
            self.changed.add(gang.id)
        if pod.spec.node_name:
            if uid not in gang.bound:
                gang.pending.pop(uid, None)
                gang.waiting.pop(uid, None)
                self._set_bound(gang, uid)
        elif uid not in gang.waiting:
            gang.bound.pop(uid, None)
            gang.pending[uid] = None
        if not gang.from_object and (not gang.initialised):
            self._read_annotations(gang, pod)
        if before is None or released:
            self._open(gang)

    def pod_ended(self, pod: Pod) -> None:
        """A member succeeded or failed: it no longer counts as a child, but in the status of its PodGroup."""
        gang = self._gang_of.get(pod.metadata.uid)
        if gang is not None:
            if gang.from_object and not gang.native:
                self.ended.setdefault(gang.id, {})[pod.metadata.uid] = pod.status.phase
            self.remove_pod(pod.metadata.uid)

    def member_ended(self, pod: EndedMember) -> None:
        """A member of a PodGroup succeeded or failed; the watch of other pods only reports that it is gone."""
        uid, gang_id = pod.metadata.uid, f"{pod.metadata.namespace}/{pod.metadata.labels.get(POD_GROUP_LABEL, '')}"
        self.remove_pod(uid)
        self.ended.setdefault(gang_id, {})[uid] = pod.status.phase
        if gang_id in self.gangs:
            self.changed.add(gang_id)

    def ended_member_gone(self, pod: EndedMember) -> None:
        """A member that had ended is deleted. It counts as long as its PodGroup exists."""
        gang_id = f"{pod.metadata.namespace}/{pod.metadata.labels.get(POD_GROUP_LABEL, '')}"
        if gang_id not in self.objects:
            self.ended.pop(gang_id, None)

    def remove_pod(self, uid: str) -> None:
        gang = self._gang_of.pop(uid, None)
        if gang is None:
            return
        held_others = uid in gang.gated or bool(gang.mismatch) or (uid in gang.bound and bool(gang.topology_key))
        before = len(gang.children)
        gang.remove_member(uid)
        self.changed.add(gang.id)
        self.give_up_role(gang.group, uid)
        if gang.initialised and before == gang.minimum:
            self._handle.open_gate(gang.group.key)  # the other members say that it lacks one now
        if held_others:
            self._open(gang)
        if not gang.children and not gang.from_object:
            self._drop(gang)

    def set_object(self, pod_group: PodGroup) -> None:
        """A PodGroup was added or changed: its values replace those of the gang (GANG-R5)."""
        metadata = pod_group.metadata
        self.objects[metadata.key] = pod_group
        gang = self.gangs.get(metadata.key) or self._new(metadata.namespace, metadata.name)
        annotations = metadata.annotations
        mode, mode_note = gang_mode(annotations)
        policy, policy_note = gang_match_policy(annotations, self._args.match_policy)
        groups, groups_note = gang_groups(annotations, gang.id)
        first, before = not gang.from_object, self._rules_of(gang)
        gang.from_object = True
        gang.minimum = max(pod_group.spec.min_member, 0)
        gang.total, total_note = gang_total(annotations, gang.minimum)
        gang.mode, gang.policy = mode, policy
        gang.wait, wait_note = schedule_timeout(pod_group.spec, self._args.timeout)
        gang.created = metadata.creation_timestamp or ""
        gang.gather, gather_notes = gather_rules(annotations)
        notes = (total_note, mode_note, policy_note, wait_note, groups_note, *gather_notes)
        gang.notes = tuple(note for note in notes if note)
        if first:
            if not gang.initialised:
                gang.group.satisfied = gang.runs
            self._join(gang, groups)  # once: a later change of the list does not move the gang (GANG-R8)
        gang.initialised = True
        self.changed.add(gang.id)
        if before != self._rules_of(gang):
            for key in {before[0], gang.group.key}:
                self._rules_changed(key)
        self._open(gang)

    def set_native(self, group: NativePodGroup) -> None:
        """A PodGroup of scheduling.k8s.io was added or changed (WAS-R80)."""
        metadata, gang_id = group.metadata, group.gang_id
        self.native[gang_id] = group
        gang = self.gangs.get(gang_id) or self._new(metadata.namespace, f"{metadata.name}{NATIVE}")
        before = self._rules_of(gang)
        if not gang.initialised:
            gang.group.satisfied = gang.runs
        gang.from_object = gang.initialised = True
        gang.minimum = gang.total = group.minimum
        gang.topology_key = group.topology_key
        policy = MatchPolicy.WAITING_AND_RUNNING if gang.topology_key else MatchPolicy.ONCE_SATISFIED
        gang.mode, gang.policy, gang.wait = Mode.STRICT, policy, NATIVE_WAIT
        gang.created = metadata.creation_timestamp or ""
        gang.priority, gang.whole = group.spec.priority, group.whole
        for pod in gang.children.values():
            gang.set_member(pod)
        self.changed.add(gang.id)
        if before != self._rules_of(gang):
            self._rules_changed(gang.group.key)
        self._open(gang)

    def remove_object(self, key: str) -> None:
        """The PodGroup is gone, and its gang with it (GANG-R9). Its pods wait for a new one."""
        self.objects.pop(key, None)
        self.native.pop(key, None)
        self.ended.pop(key, None)
        gang = self.gangs.get(key)
        if gang is None or not gang.from_object:
            return
        children = list(gang.children.values())
        waiting = gang.waiting
        self._drop(gang)
        self._rules_changed(gang.group.key)
        for pod in children:
            self._gang_of.pop(pod.metadata.uid, None)
        for pod in children:
            self.set_pod(pod)
            again = self._gang_of[pod.metadata.uid]
            if pod.metadata.uid in waiting:
                again.pending.pop(pod.metadata.uid, None)
                again.waiting[pod.metadata.uid] = None

    @staticmethod
    def _rules_of(gang: Gang) -> tuple[str, object]:
        """The wake key of the gang's group, and by what its attempts place members."""
        return gang.group.key, (gang.initialised, gang.minimum, gang.mode, gang.policy, gang.gather, gang.topology_key)

    def _rules_changed(self, key: str) -> None:
        """Members that have places by the rules of before may be enough now, or may hold none (GANG-R5, GANG-R9)."""
        if self._handle.leading:
            self.changed_rules.add(key)
            self._handle.open_gate(key)

    def _new(self, namespace: str, name: str) -> Gang:
        gang_id = f"{namespace}/{name}"
        group = self.groups.setdefault(gang_id, GangGroup((gang_id,)))
        self._users.setdefault(gang_id, set()).add(gang_id)
        gang = self.gangs[gang_id] = Gang(namespace, name, group)
        return gang

    def _join(self, gang: Gang, ids: tuple[str, ...]) -> None:
        """Make the gang part of the group of these ids."""
        before = gang.group
        group = self.groups.setdefault(",".join(ids), GangGroup(ids))
        if group is not before:
            group.satisfied |= gang.runs
            gang.group = group
            self._handle.open_gate(before.key)  # pods that wait under the old key are tried again
            if not self._is_used(before):
                self._drop_group(before)
        for identifier in ids:
            self._users.setdefault(identifier, set()).add(group.id)

    def _drop(self, gang: Gang) -> None:
        self.gangs.pop(gang.id, None)
        self.changed.discard(gang.id)
        if not self._is_used(gang.group):
            self._drop_group(gang.group)

    def _is_used(self, group: GangGroup) -> bool:
        return any(gang_id in self.gangs and self.gangs[gang_id].group is group for gang_id in group.ids)

    def _drop_group(self, group: GangGroup) -> None:
        self.groups.pop(group.id, None)
        for gang_id in group.ids:
            users = self._users.get(gang_id)
            if users is not None:
                users.discard(group.id)
                if not users:
                    del self._users[gang_id]

    def _read_annotations(self, gang: Gang, pod: Pod) -> None:
        """Initialise an annotation gang from its first member with a minimum (GANG-R5)."""
        metadata = pod.metadata
        if metadata.labels.get(POD_GROUP_LABEL) or gang.native:
            return  # it needs a PodGroup
        minimum, note = gang_minimum(pod)
        if minimum is None:
            gang.notes = (note,)
            return
        annotations = metadata.annotations
        gang.minimum = minimum
        gang.total, total_note = gang_total(annotations, minimum)
        gang.mode, mode_note = gang_mode(annotations)
        gang.policy, policy_note = gang_match_policy(annotations, self._args.match_policy)
        gang.wait, wait_note = gang_waiting_time(annotations, self._args.timeout)
        groups, groups_note = gang_groups(annotations, gang.id)
        gang.created = metadata.creation_timestamp or ""
        gang.gather, gather_notes = gather_rules(annotations)
        notes = (total_note, mode_note, policy_note, wait_note, groups_note, *gather_notes)
        gang.notes = tuple(note for note in notes if note)
        self._join(gang, groups)
        gang.initialised = True

    # -- PreEnqueue ---------------------------------------------------------------------------------------------------

    def _open(self, gang: Gang) -> None:
        """A member or a gang was added: the pods of complete groups are tried again."""
        if not gang.initialised:
            return
        for group_id in self._users.get(gang.id, ()):
            group = self.groups.get(group_id)
            if group is not None and not group.representative and self.incomplete(group) is None:
                self._handle.open_gate(group.key)

    def incomplete(self, group: GangGroup) -> str | None:
        """What of GANG-M3 to GANG-M5 holds for the group; None if it is complete (GANG-R16)."""
        missing = [gang_id for gang_id in group.ids if gang_id not in self.gangs]
        raw = [gang_id for gang_id in group.ids if gang_id in self.gangs and not self.gangs[gang_id].initialised]
        short = [
            gang_id
            for gang_id in group.ids
            if (gang := self.gangs.get(gang_id)) is not None and gang.initialised and len(gang.children) < gang.minimum
        ]
        parts = []
        if missing:
            parts.append(f"memberGangs [{_listed(missing)}] doesn't exists")
        if raw:
            parts.append(f"memberGangs [{_listed(raw)}] has not init")
        if short:
            parts.append(f"memberGangs [{_listed(short)}] child pod not collect enough")
        return ", ".join(parts) or None

    def check(self, pod: Pod) -> Status:
        """GANG-R15 up to the basic check. Success: the group is complete, or the pod needs no group any more."""
        uid = pod.metadata.uid
        gang = self._gang_of.get(uid)
        if gang is None:
            return Status.unresolvable(
                f"can't find gang, gangName: {pod.metadata.namespace}/{gang_name(pod)}, podName: {pod.metadata.key}"
            )
        group = gang.group
        if gang.native:
            return self._check_native(gang, uid)
        if not gang.initialised:
            self.give_up_role(group, uid)
            text = f"gang has not init, gangName: {gang.id}, podName: {pod.metadata.key}"
            return Status.unresolvable("; ".join((text, *self._object_note(gang), *gang.notes))).until(group.key)
        if gang.once_satisfied:
            return SUCCESS
        parts = self.incomplete(group)
        if parts is None:
            return SUCCESS
        self.give_up_role(group, uid)
        text = (
            f"gangGroup [{_listed(group.ids)}] basic check: {parts}, current gang: {gang.id},"
            f" podName: {pod.metadata.key}"
        )
        counts = [
            f"{gang_id} has {len(other.children)} of {other.minimum} members"
            for gang_id in group.ids
            if (other := self.gangs.get(gang_id)) is not None and len(other.children) < other.minimum
        ]
        return Status.unresolvable("; ".join((text, *counts[:_LISTED], *gang.notes))).until(group.key)

    def _check_native(self, gang: Gang, uid: str) -> Status:
        """The same for a group of scheduling.k8s.io (WAS-R16, WAS-R17, WAS-R22)."""
        if not gang.initialised:
            text = f'waiting for pods\'s pod group "{gang.name.removesuffix(NATIVE)}" to appear in scheduling queue'
        elif gang.mismatch:
            text = gang.mismatch
        elif gang.once_satisfied:
            return SUCCESS
        elif len(gang.children) < gang.minimum:
            text = "waiting for minCount pods from a gang to appear in scheduling queue"
        elif gang.gated:
            text = f"waiting for pod {gang.children[next(iter(gang.gated))].metadata.key}, which has scheduling gates"
        else:
            return SUCCESS
        self.give_up_role(gang.group, uid)
        return Status.unresolvable(text).until(gang.group.key)

    @staticmethod
    def _object_note(gang: Gang) -> tuple[str, ...]:
        needs_object = any(pod.metadata.labels.get(POD_GROUP_LABEL) for pod in gang.children.values())
        return (f"PodGroup {gang.id} does not exist",) if needs_object and not gang.from_object else ()

    def pre_enqueue(self, pod: Pod) -> Status:
        """GANG-R15: at most one member of a group, its representative, may be in the active queue."""
        status = self.check(pod)
        if not status.ok:
            return status
        uid = pod.metadata.uid
        gang = self._gang_of[uid]
        if gang.once_satisfied:
            return SUCCESS
        group = gang.group
        if group.representative and group.representative != uid:
            return Status.unresolvable(
                f"representative pod {group.representative_key} of gangGroupID {group.id} already exists"
            ).until(group.key)
        if uid not in gang.pending:
            return Status.unresolvable(f"pod {pod.metadata.key} is not exists in gangCache").until(group.key)
        group.representative, group.representative_key = uid, pod.metadata.key
        return SUCCESS

    def give_up_role(self, group: GangGroup, uid: str) -> None:
        """Another member may be the representative if this one is."""
        if group.representative == uid:
            group.representative = group.representative_key = ""
            self._handle.open_gate(group.key)

    # -- attempts -----------------------------------------------------------------------------------------------------

    def incompleteness(self, pod: Pod) -> str:
        return self.check(pod).message

    def begin(self, pod: Pod) -> "GangAttempt | Status | None":
        status = self.check(pod)
        if not status.ok:
            return status
        gang = self._gang_of[pod.metadata.uid]
        if gang.once_satisfied:
            return None
        group = gang.group
        group.representative = group.representative_key = ""
        group.cycle += 1
        return GangAttempt(self, group, self._domains(group))

    def _domains(self, group: GangGroup) -> GatherRequest | LabelDomains | None:
        """The gather rules of a group: those of its first gang with an annotation.

        Without a tree only rules that demand something have the group wait (deviates from GANG-R20).
        """
        first = self.gangs[group.ids[0]]
        if first.topology_key:
            return LabelDomains(self._handle, first)
        if self.topology is None:
            return None
        rules = next(
            (self.gangs[gang_id].gather for gang_id in group.ids if self.gangs[gang_id].gather is not None), None
        )
        if rules is None:
            return None
        if not self.topology.ready and not any(map(demands, rules)):
            group.gathering = f"{self.topology.absence}; the gang is placed without it, as no rule demands it"
            return None
        return GatherRequest(self._handle, self.topology, rules, group)

    def explanation(self, pod: Pod) -> str:
        gang = self._gang_of.get(pod.metadata.uid)
        return gang.group.gathering if gang is not None and not gang.once_satisfied else ""

    def notes(self, pod: Pod) -> Sequence[str]:
        gang = self._gang_of.get(pod.metadata.uid)
        own = topology_index_note(pod)
        return [*(gang.notes if gang is not None else ()), *([own] if own and gang is not None else ())]

    def released(self, uid: str) -> None:
        gang = self._gang_of.get(uid)
        if gang is not None and gang.waiting.pop(uid, "") is None:
            gang.pending[uid] = None
            group = gang.group
            if not any(self.gangs[gang_id].waiting for gang_id in group.ids if gang_id in self.gangs):
                group.binding = frozenset()

    def binding(self, uids: Sequence[str]) -> None:
        gang = self._gang_of.get(uids[0]) if uids else None
        if gang is not None and not gang.group.binding:
            gang.group.binding = frozenset(uids)

    def bound(self, uid: str) -> None:
        gang = self._gang_of.get(uid)
        if gang is not None and gang.waiting.pop(uid, "") is None:
            self._set_bound(gang, uid)

    def _set_bound(self, gang: Gang, uid: str) -> None:
        group = gang.group
        self.give_up_role(group, uid)
        gang.bound[uid] = None
        self.changed.add(gang.id)
        if not any(self.gangs[gang_id].waiting for gang_id in group.ids if gang_id in self.gangs):
            group.binding = frozenset()
        if not group.satisfied and gang.runs:
            group.satisfied = True
            group.message = ""
            for group_id in self._users.get(gang.id, ()):
                self._handle.open_gate(f"gang/{group_id}")


class GangAttempt(Attempt):
    """An attempt for one gang group. Gangs that list another group are waited for, but not placed with it."""

    def __init__(self, cache: GangCache, group: GangGroup, domains: GatherRequest | LabelDomains | None = None) -> None:
        self._cache, self.group, self.domains = cache, group, domains
        self._began = cache.clock.monotonic()
        self._gangs = [cache.gangs[gang_id] for gang_id in group.ids]
        own = [gang for gang in self._gangs if gang.group is group]
        pods = [gang.children[uid] for gang in own for uid in gang.pending]
        # GANG-D13: by index, pods without one last, then native ones by age (WAS-R21), then priority, then name.
        pods.sort(key=lambda pod: (_rank(pod), -pod.spec.priority, pod.metadata.name, pod.metadata.namespace))
        if own[0].native:  # the sort is stable
            pods.sort(key=lambda pod: (_rank(pod), pod.metadata.creation_timestamp or ""))
        self.members = [pod.metadata.uid for pod in pods]
        self.ordered = any(topology_index(pod) >= 0 for pod in pods)
        self.strict = all(gang.mode is Mode.STRICT for gang in own)
        self.picks = own[0].native
        self.needs_all = len(pods) <= len(self.minimal)
        self.again()

    def again(self) -> None:
        self._unmet = {gang.id for gang in self._gangs if not gang.valid}

    @property
    def satisfied(self) -> bool:  # type: ignore[override]
        return not self._unmet

    @property
    def minimal(self) -> Sequence[str]:  # type: ignore[override]
        """For each gang, the first members up to what its minimum lacks; where nothing lacks, the first member."""
        lacking: dict[str, int] = {}
        for gang in self._gangs:
            bound = len(gang.bound) if gang.policy is MatchPolicy.WAITING_AND_RUNNING else 0
            least = 1 if gang.native else 0  # an attempt without any member is none (WAS-R27)
            lacking[gang.id] = max(gang.minimum - len(gang.waiting) - bound, least)
        uids = []
        for uid in self.members:
            own = self._cache.gang_of(uid)
            if own is not None and lacking[own.id] > 0:
                lacking[own.id] -= 1
                uids.append(uid)
        return uids or self.members[:1]

    def fewer(self, room: int, among: Sequence[str]) -> Sequence[str]:
        return among[: max(room, len(self.minimal))] if self.picks else self.minimal

    @property
    def key(self) -> str:  # type: ignore[override]
        return self.group.key

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.group.id

    def placed(self, uid: str) -> bool:
        gang = self._cache.gang_of(uid)
        assert gang is not None
        gang.pending.pop(uid, None)
        gang.waiting[uid] = None
        if gang.id in self._unmet and gang.valid:
            self._unmet.discard(gang.id)
        return not self._unmet

    def ended(self, tried: int, *, bound: bool) -> None:
        seconds = self._cache.clock.monotonic() - self._began
        self._cache.measures.cycle(SUCCEEDED if bound else FAILED, tried, seconds)

    def timeout_of(self, uid: str) -> float:
        gang = self._cache.gang_of(uid)
        return min(gang.wait if gang is not None else 0.0, MAX_WAIT)

    def spares(self, failed: int) -> bool:
        gang = self._gangs[0]
        if not gang.native:
            return not self.strict
        return len(gang.waiting) + len(gang.bound) + len(gang.pending) - failed >= gang.minimum

    def statuses(self, failed: PodInfo | None, reason: str, spared: int = 0) -> tuple[str, Status]:
        if self._gangs[0].native:
            return "", self._native_status(self._gangs[0], failed, spared)
        waiting = sum(len(gang.waiting) for gang in self._gangs)
        if failed is None:
            short = ", ".join(
                f"{gang.id} has {len(gang.waiting)} placed and {len(gang.bound)} bound of {gang.minimum}"
                for gang in self._gangs
                if not gang.valid
            )
            text = f"{FAILED}: {short}"
            self.group.message = text
            return text, Status.unresolvable(text)
        gang = self._cache.gang_of(failed.uid)
        text = (
            f'GangGroup "{self.group.id}" gets rejected due to member Pod "{failed.key}" is unschedulable'
            f' with reason "{reason}", alreadyWaitForBound: {waiting}'
        )
        self.group.message = text
        own = f'Gang "{gang.id if gang else ""}" gets rejected due to pod is unschedulable'
        notes = self._cache.notes(failed.pod)
        return "; ".join((own, *notes)), Status.unresolvable("; ".join((text, *notes)))

    def _native_status(self, gang: Gang, failed: PodInfo | None, spared: int) -> Status:
        """What the group's condition and the members without a reason of their own say (WAS-R24, WAS-R28)."""
        if isinstance(self.domains, LabelDomains):
            return self._rejected(gang, self.domains.reason)
        scheduled = len(gang.waiting) + len(gang.bound)
        remaining = sum(failed is None or uid != failed.uid for uid in gang.pending) - spared
        verb = "cannot be" if scheduled + remaining < gang.minimum else "is not yet"
        text = f"minCount ({gang.minimum}) {verb} satisfied: {scheduled} scheduled, {remaining} remaining"
        return self._rejected(gang, text)

    def _rejected(self, gang: Gang, text: str) -> Status:
        self.group.message = text
        self._cache.changed.add(gang.id)
        return Status.unresolvable(text)


def _rank(pod: Pod) -> int:
    """The pod's index; pods without one come after all others (GANG-R64)."""
    index = topology_index(pod)
    return index if index >= 0 else 1 << 31
