"""The group engine: places all pending members of a pod group in one decision.

Members are reserved and assumed one after another on the same columns that single pods use. The list of placed members
is the undo log: a rollback unreserves and forgets them in reverse order. No other pod is decided in between, and no
decision is returned for a group that is rolled back, so nothing of it is visible outside. Two groups that each fit
alone therefore never hold parts of each other's room.

Members of groups that are not strict keep their places and wait (`placed_members`).

A Strict group that failed may preempt: the members that have places keep them during the search, so that only the
others need room. Then all are rolled back and nominated (`group_nominations`).

A group that failed is parked (`parked_groups`) until it may fit.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.core.bindings import Bindings
from seatrial.scheduler.core.groups.gathering import Gathered, Gathering
from seatrial.scheduler.core.groups.nominations import GroupNominations
from seatrial.scheduler.core.groups.parked import ParkedGroups
from seatrial.scheduler.core.groups.placed_members import COSCHEDULING, Placed, PlacedMembers
from seatrial.scheduler.core.held_reports import HeldReports
from seatrial.scheduler.core.outbox import Outbox
from seatrial.scheduler.core.permit_waiters import PermitWaiters
from seatrial.scheduler.core.places import Places
from seatrial.scheduler.core.queue.active import Entry
from seatrial.scheduler.core.queue.queue import SchedulingQueue
from seatrial.scheduler.core.waking import Waker
from seatrial.scheduler.engine.runner import Runner, Runners
from seatrial.scheduler.framework.decisions import Decision, Evict, Reject
from seatrial.scheduler.framework.fit_error import FitError
from seatrial.scheduler.framework.group_failure import GatherFailure, GroupFailure, Unplaced
from seatrial.scheduler.framework.groups import Attempt
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import Code, PostFilterResult, Status

_AWAITS_VICTIMS = PostFilterResult(
    Status.unschedulable("preemption: not eligible due to terminating pod on the nominated node.")
)


@dataclass(slots=True, eq=False)
class _Failure:
    """Why a member cannot be placed."""

    reason: str  # without the words of PostFilter
    pre_filter: Status | None = None
    gate: str = ""  # wake key of the gate that held it back
    state: CycleState | None = None
    fit: FitError | None = None


@dataclass(slots=True, eq=False)
class _Plan:
    placed: list[Placed] = field(default_factory=list)
    failures: list[tuple[Entry, _Failure]] = field(default_factory=list)
    statuses: tuple[str, Status] | None = None  # of the first failure
    enough: bool = False  # with the failed members the group could be bound
    preemption: PostFilterResult | None = None
    left: Sequence[Entry] = ()  # members that were taken from the queue and have no place
    gathered: Gathered | None = None  # no domain has room for the group

    @property
    def failed(self) -> Entry | None:
        return self.failures[0][0] if self.failures else None

    @property
    def failure(self) -> _Failure | None:
        return self.failures[0][1] if self.failures else None


class GroupEngine:
    """Placed members that wait for their groups, and groups that wait for room."""

    def __init__(  # noqa: PLR0917 the parts of the core that an attempt uses
        self,
        handle: Handle,
        runners: Runners,
        queue: SchedulingQueue,
        places: Places,
        bindings: Bindings,
        permits: PermitWaiters,
        waker: Waker,
        reports: HeldReports,
        outbox: Outbox,
        preempt: Callable[[PodInfo, PostFilterResult, str], list[Decision]],
    ) -> None:
        """`preempt` nominates members, and evicts victims, for a pod and the wake key of its group."""
        self._handle, self._cache, self._runners, self._queue = handle, handle.cache, runners, queue
        self._places, self._bindings, self._permits = places, bindings, permits
        self._waker, self._reports, self._preempt = waker, reports, preempt
        self.members = PlacedMembers(handle, queue, places, waker, outbox)
        self.followed: set[str] = set()  # uids of members, and of pods that were
        self._attempt: Attempt | None = None  # the current one, or the last
        self._in_play: dict[str, Entry] = {}  # members that it took from the queue, or binds
        self.parked = ParkedGroups(handle, runners, queue)
        self.nominations = GroupNominations(handle, outbox)
        self._gathering = Gathering(handle, runners, self._place, self.members.release, _Failure)

    # -- one attempt --------------------------------------------------------------------------------------------------

    def schedule(self, entry: Entry, runner: Runner) -> list[Decision] | None:
        """One attempt for the group of this pod, which was taken from the queue. None: it is to be placed alone."""
        groups = runner.groups
        assert groups is not None
        self._in_play, self._attempt = {entry.info.uid: entry}, None
        attempt = groups.begin(entry.info.pod)
        if attempt is None:
            return None
        decisions = self._attempt_or_hold(attempt, entry, runner)
        if not self._queue.waiting.empty:
            self._wake_alike()
        return decisions

    def _wake_alike(self) -> None:
        """A change of a node wakes one waiting pod of each class, here a member of this group. Whatever came of the
        attempt: if there is still room, it is the turn of the next pod of the class, which may be in another group."""
        kinds = {(entry.info.pod.spec.scheduler_name, entry.info.pod_class.id) for entry in self._in_play.values()}
        self._waker.wake_classes([key for key in self._queue.waiting.classes() if key[:2] in kinds])

    def _attempt_or_hold(self, attempt: Attempt | Status, entry: Entry, runner: Runner) -> list[Decision]:
        if isinstance(attempt, Status):
            self._waker.hold(entry, attempt.wake_key, attempt)
            return [self._rejection(entry, attempt)]
        self._attempt = attempt
        self.parked.remove(attempt.key)
        plan = _Plan()
        if attempt.domains is not None:
            return self._gather(attempt, plan, entry)
        enough = self._plan(attempt, plan, entry, runner)
        attempt.ended(len(plan.placed) + len(plan.failures), bound=enough)
        if enough:
            rejected = [self._wait_for_room(member, failure) for member, failure in plan.failures]
            return [*rejected, *self._commit(attempt, entry)]
        if attempt.strict:
            return self._roll_back(attempt, plan, entry)
        for placed in plan.placed:
            self.members.hold(placed, attempt.timeout_of(placed.entry.info.uid))
        rejected = [self._wait_for_room(member, failure) for member, failure in plan.failures]
        self._requeue(entry)
        return rejected

    def _plan(self, attempt: Attempt, plan: _Plan, entry: Entry, runner: Runner) -> bool:
        """Place the members. Returns whether the group can be bound.

        A Strict group ends with its first failure, unless it may preempt: then the members that have room take it, so
        that others need not be evicted for them. One that can spare the failed members goes on.
        """
        preempts, spares, evictable = attempt.strict and _preempts(runner, entry.info.pod), True, True
        hopeless: dict[tuple[str, int], _Failure] = {}
        need_room: list[str] = []
        for uid in self._order(attempt, entry):
            member = self._take(uid, entry, attempt)
            if member is None:
                continue
            info = member.info
            kind = info.pod.spec.scheduler_name, info.pod_class.id
            known = hopeless.get(kind) if preempts and not self._handle.nominator.node_of(uid) else None
            result = known or self._place(member, attempt.key)
            if isinstance(result, Placed):
                plan.placed.append(result)
                if attempt.placed(uid):
                    plan.enough = True
                    return spares
                continue
            plan.failures.append((member, result))
            need_room.append(uid)
            evictable = evictable and result.fit is not None and result.fit.pre_filter is None
            spares = spares and attempt.spares(len(plan.failures))
            if spares:
                continue
            if attempt.strict and plan.statuses is None:
                plan.statuses = attempt.statuses(info, result.reason, len(plan.failures) - 1)
            if not preempts or not evictable:
                break
            if result.state is None and not info.pod.spec.affinity:
                hopeless[kind] = result
            while need_room:
                plan.enough = attempt.placed(need_room.pop())
            if plan.enough:
                break
        return False

    def _preemption(self, attempt: Attempt, plan: _Plan, first: Entry) -> PostFilterResult | None:
        """Ask PostFilter for room for all members that failed; None if it was not asked."""
        runner = self._runners.of(first.info)
        if not _preempts(runner, first.info.pod):
            return None
        if plan.gathered is not None:
            return self._gathered_preemption(attempt, plan.gathered, runner)
        if not (plan.enough and plan.failures):
            return None
        if self.nominations.awaits_victims(attempt.members):
            return _AWAITS_VICTIMS
        unplaced: list[Unplaced] = []
        for member, failure in plan.failures:
            assert failure.fit is not None
            class_scores = self._runners.of(member.info).class_scores(member.info.pod_class)
            unplaced.append(Unplaced(member.info, failure.fit, failure.state or class_scores.state))
        placed = [one.entry.info for one in plan.placed]
        return _post_filter(runner, GroupFailure(attempt.name, unplaced[0].info, unplaced, placed))

    def _gathered_preemption(self, attempt: Attempt, result: Gathered, runner: Runner) -> PostFilterResult | None:
        """The same for a group that no domain has room for; only Strict groups preempt."""
        if not attempt.strict or result.slots is None or result.failed is None or attempt.domains is None:
            return None
        if self.nominations.awaits_victims(attempt.members):
            return _AWAITS_VICTIMS
        gather = GatherFailure(attempt.domains, {kind: slots.count for kind, slots in result.slots.items()})
        unplaced = self._gathering.unplaced(result)
        return _post_filter(runner, GroupFailure(attempt.name, result.failed.info, unplaced, gather=gather))

    def _gather(self, attempt: Attempt, plan: _Plan, first: Entry) -> list[Decision]:
        """Place the whole group in one domain of the network, whatever its mode is."""
        entries = [member for uid in attempt.members if (member := self._take(uid, first, attempt)) is not None]
        result = self._gathering.gather(attempt, entries)
        attempt.ended(len(entries) - len(result.left), bound=result.failed is None and attempt.satisfied)
        if result.failed is not None:
            plan.failures.append((result.failed, result.gate or _Failure(result.reason)))
            plan.statuses = attempt.statuses(result.failed.info, result.reason)
            plan.gathered = result
        elif attempt.satisfied:
            decisions = self._commit(attempt, first)
            for entry in result.left:
                self._requeue(entry)
            return decisions
        plan.left = [*result.left, *(entry for entry in result.entries if entry is not result.failed)]
        return self._roll_back(attempt, plan, first)

    def _order(self, attempt: Attempt, first: Entry) -> Sequence[str]:
        """The members; of equal priority those first whose class has the fewest places, so that a small member does
        not take the only room of a large one."""
        if attempt.ordered:
            return attempt.members
        find = self._queue.find
        infos = {first.info.uid: first.info}
        for uid in attempt.members:
            entry = find(uid)
            if entry is not None:
                infos[uid] = entry.info
        kinds = {(info.pod.spec.scheduler_name, info.pod_class.id): info for info in infos.values()}
        if len(kinds) < 2:
            return attempt.members
        places = {}
        for (name, shape), info in kinds.items():
            class_scores = self._runners[name].class_scores(info.pod_class)
            class_scores.refresh()
            places[name, shape] = self.parked.places((name, shape), info, class_scores)

        def rank(uid: str) -> tuple[int, int]:
            info = infos[uid]
            return -info.priority, places[info.pod.spec.scheduler_name, info.pod_class.id]

        return sorted((uid for uid in attempt.members if uid in infos), key=rank)

    def _take(self, uid: str, first: Entry, attempt: Attempt) -> Entry | None:
        """Take a member out of the queue; None if something else holds it back."""
        queue = self._queue
        if uid == first.info.uid:
            return first
        entry = queue.find(uid)
        if entry is None:
            return None
        if entry.held is not None:
            key = queue.held.key_of(uid)
            if key != attempt.key and all(own != key for _, own in entry.gates):
                return None
        queue.remove(uid)
        self._in_play[uid] = entry
        entry.held = None
        entry.attempts = first.attempts
        entry.queued_at = first.queued_at
        return entry

    def _place(self, entry: Entry, key: str, within: Sequence[int] | None = None) -> Placed | _Failure:
        """Place one member, on one of the rows `within` if they are given."""
        info = entry.info
        runner = self._runners.of(info)
        for gate, gate_key in entry.gates:
            status = gate.gate(info)
            if not status.ok:
                status = status.by(gate.name)
                reason = FitError(self._cache.known_count, pre_filter=status).message()
                return _Failure(reason, status, gate_key)
        class_scores = runner.class_scores(info.pod_class)
        selection = (
            class_scores.select(info) if within is None else class_scores.select_within(info, within, COSCHEDULING)
        )
        if isinstance(selection, FitError):
            return _Failure(selection.message(), selection.pre_filter, state=selection.state, fit=selection)
        row, state = selection
        node = self._cache.columns.names[row]
        status = self._places.take(info, runner, state, node)
        if not status.ok and not status.waits:
            reason = f"0/1 nodes are available: 1 {status.message}." if status.rejected else status.message
            return _Failure(reason, state=state)
        placed = Placed(entry, state, node, key, waits=status.waits)
        self.members.add(placed)
        return placed

    def _commit(self, attempt: Attempt, first: Entry) -> list[Decision]:
        """Bind all placed members of the group."""
        placed = self.members.of(attempt.key)
        groups = self._runners.of(first.info).groups
        assert groups is not None
        groups.binding([member.entry.info.uid for member in placed])
        decisions: list[Decision] = []
        nominated = self._handle.nominator
        self._in_play.update((member.entry.info.uid, member.entry) for member in placed)
        for member in placed:
            info = member.entry.info
            self.members.remove(member)
            if nominated.nominated:
                nominated.forget(info.uid)
            runner = self._runners.of(info)
            if member.waits:
                self._permits.add(member.entry, runner, member.state, member.node, member.waits)
            else:
                decisions.append(self._bindings.decide(member.entry, runner, member.state, member.node))
        decisions += self.nominations.committed([member.entry.info.uid for member in placed])
        self._requeue(first)
        self._handle.open_gate(attempt.key)  # those that were not needed
        return decisions

    def _roll_back(self, attempt: Attempt, plan: _Plan, first: Entry) -> list[Decision]:
        failed, failure = plan.failed, plan.failure
        reason = failure.reason if failure is not None else ""
        spared = max(0, len(plan.failures) - 1)
        own, peers = plan.statuses or attempt.statuses(failed.info if failed else None, reason, spared)
        preemption = self._preemption(attempt, plan, first)
        groups = self._runners.of(first.info).groups
        assert groups is not None
        for member, _ in plan.failures:
            groups.released(member.info.uid)
        for placed in reversed(self.members.of(attempt.key)):
            self.members.release(placed)
        entries = [placed.entry for placed in plan.placed]
        entries += [member for member, _ in plan.failures]
        attempted = len(entries)
        entries += plan.left
        taken = {entry.info.uid for entry in entries}
        for uid in attempt.members:
            untried = None if uid in taken else self._take(uid, first, attempt)
            if untried is not None:
                entries.append(untried)
                taken.add(uid)
        if first.info.uid not in taken:
            entries.append(first)
        needed, enough = entries if attempt.needs_all else entries[:attempted], 0
        if attempt.picks and not attempt.needs_all:
            needed, enough = entries, max(1, len(attempt.minimal))
            if len({entry.info.pod_class for entry in entries}) == 1:
                needed, enough = entries[:enough], 0
        elif attempt.domains is not None:
            minimal = frozenset(attempt.minimal)
            needed = [entry for entry in entries if entry.info.uid in minimal]
        gate = failure.gate if failure is not None else ""
        self.parked.add(attempt.key, [entry.info for entry in needed], gate, attempt.domains, enough=enough)
        decisions: list[Decision] = []
        words = ", ".join(preemption.status.reasons) if preemption is not None else ""
        clears = preemption is not None and preemption.clear_nomination
        if clears:
            decisions += self.nominations.give_back_of(taken)
        nominated: dict[str, str] = {}
        evictions: list[Decision] = []
        if preemption is not None and preemption.status.ok and failed is not None:
            nominated = {info.uid: node for info, node in preemption.nominations}
            evictions = self._preempt(failed.info, preemption, attempt.key)
        for entry in entries:
            if entry is failed:
                text = " ".join(
                    part for part in (reason if reason[-1:] in {"", "."} else f"{reason}.", own, words) if part
                )
                status = Status.unresolvable(text)
                rejection = Reject(entry.info, text, nominated=nominated.get(entry.info.uid))
            else:
                status = peers
                rejection = replace(self._rejection(entry, peers, words), nominated=nominated.get(entry.info.uid))
            self._waker.hold(entry, attempt.key, status)
            if (
                entry.last_message != rejection.message or rejection.nominated is not None
            ):  # waiting gangs must not write at each attempt
                entry.last_message = rejection.message
                decisions.append(rejection)
        if nominated and not any(isinstance(decision, Evict) for decision in evictions):
            self._handle.open_gate(attempt.key)  # nothing to wait for
        return [*decisions, *evictions]

    def _rejection(self, entry: Entry, status: Status, words: str = "") -> Reject:
        return Reject(entry.info, FitError(self._cache.known_count, pre_filter=status).message(words))

    def _wait_for_room(self, entry: Entry, failure: _Failure) -> Decision:
        """A member of a group that is not strict waits like a pod without a group."""
        if failure.gate:
            assert failure.pre_filter is not None
            self._waker.hold(entry, failure.gate, failure.pre_filter)
        else:
            self._waker.wait(entry, failure.state)
        return Reject(entry.info, failure.reason)

    def _requeue(self, entry: Entry) -> None:
        """Ask PreEnqueue again for the member that started the attempt, if it was not tried."""
        uid = entry.info.uid
        if self._queue.find(uid) is None and self._cache.placed(uid) is None:
            self._waker.requeue(entry)

    def abandon(self, first: Entry) -> list[Entry]:
        """A plugin raised in the attempt of this member's group: all members give their places back.

        Returns the members that had places or were taken from the queue.
        """
        entries = self._in_play
        entries.setdefault(first.info.uid, first)
        groups = self._runners.of(first.info).groups
        key = "" if groups is None else groups.key_of(first.info.pod)
        for placed in self.members.of(key):
            entries.setdefault(placed.entry.info.uid, placed.entry)
        if self._attempt is not None:
            for uid in self._attempt.members:
                if uid not in entries:
                    self._take(uid, first, self._attempt)
        for uid in reversed(entries):
            if uid in self.members:
                self.members.release(self.members[uid])
            elif self._permits.get(uid) is not None:
                self._permits.drop(uid)
            elif uid in self._bindings:
                self._bindings.cancel(uid)
            elif groups is not None:
                groups.released(uid)
        self._handle.request_wake()
        self._in_play, self._attempt = {}, None
        return list(entries.values())

    # -- events (`PodListener`) and waking (`WaitingGroups`) ----------------------------------------------------------

    def pod_changed(self, pod: Pod) -> None:
        """A pod was added or changed."""
        uid, groups = pod.metadata.uid, self._handle.groups
        assert groups is not None
        self.followed.add(uid)
        groups.set_pod(pod)
        if uid in self.members and (pod.spec.node_name or pod.deleting):
            self.members.drop(uid)
        elif uid in self.members:
            self.members.drop_if_moved(pod)
        if pod.spec.node_name:
            self.nominations.bound(uid)
        elif uid in self.nominations and pod.metadata.deletion_timestamp:
            self.nominations.left(uid)
        elif uid in self.nominations:
            self.nominations.drop_if_moved(pod)

    def pod_ended(self, pod: Pod) -> None:
        """A terminated pod is deleted; this is its last state."""
        groups = self._handle.groups
        assert groups is not None
        groups.set_pod(pod)

    def pod_left(self, uid: str) -> None:
        """A pod is gone or has ended."""
        groups = self._handle.groups
        assert groups is not None
        self.followed.discard(uid)
        self.members.drop(uid)
        groups.remove_pod(uid)
        self.nominations.left(uid)

    def places(self, pod: Pod) -> bool:
        """Whether the pod is placed with its group: it is a member, and its profile places groups."""
        groups = self._runners[pod.spec.scheduler_name].groups
        return groups is not None and bool(groups.name_of(pod))

    def pod_nominated(self, info: PodInfo) -> None:
        """A pod comes with a nomination, as after a restart of the scheduler."""
        if self.places(info.pod):
            self.nominations.adopt(info)

    def node_gone(self, name: str) -> None:
        """A node is gone."""
        self.nominations.node_gone(name)

    def behind(self, gates: set[str]) -> set[str]:
        """Wake keys of the parked groups of which a member was held back by one of these gates."""
        return self.parked.behind(gates) if self.parked else set()

    def wake(self) -> None:
        """Open the gates of parked groups that may fit now."""
        if self.parked:
            self.parked.wake()

    def wake_nominated_to(self, names: Iterable[str]) -> None:
        """Open the gates of groups with nominations to one of these nodes, if all their victims have ended."""
        self.nominations.wake(names)

    def apply_changed_rules(self) -> None:
        """Members of groups whose rules changed give their places back and are tried anew.

        Otherwise a member would hold its place for the rest of its waiting time, although the group needs it no more,
        or is not the group any more that it would be bound with.
        """
        groups = self._handle.groups
        assert groups is not None
        if not groups.changed_rules:
            return
        changed, groups.changed_rules = groups.changed_rules, set()
        for key in sorted(changed):
            members = self.members.of(key)
            for placed in reversed(members):
                self.members.release(placed)
            for placed in members:
                self._waker.requeue(placed.entry)
                self._reports.changed(placed.entry.info.uid)
            self.nominations.rules_changed(key)
            if members:
                self._handle.request_wake()


def _preempts(runner: Runner, member: Pod) -> bool:
    """Whether a plugin may make room for the group of this member."""
    return any(plugin.serves_group(member) for plugin in runner.profile.post_filter)


def _post_filter(runner: Runner, group: GroupFailure) -> PostFilterResult | None:
    result = None
    for plugin in runner.profile.post_filter:
        if plugin.serves_group(group.trigger.pod):
            result = plugin.post_filter_group(group)
            if result.status.code is not Code.UNSCHEDULABLE:
                break
    return result
