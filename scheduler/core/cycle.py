"""The core of the scheduler: events in, decisions out. No I/O and no threads; the clock is handed in.

`decide` schedules one pod and returns decisions. The caller carries them out and reports the result of each binding.
Until then the pod is assumed to be on its node.
"""

import logging
from collections.abc import Mapping

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.core.diagnosis import DiagnosisLog, diagnosis_of
from seatrial.scheduler.core.groups.engine import GroupEngine
from seatrial.scheduler.core.held_reports import HeldReports
from seatrial.scheduler.core.intake import Intake
from seatrial.scheduler.core.permit_waiters import PermitWaiters
from seatrial.scheduler.core.queue.active import Entry
from seatrial.scheduler.core.queue.queue import SchedulingQueue
from seatrial.scheduler.core.waking import Waker, class_key
from seatrial.scheduler.engine.class_scores import ClassScores
from seatrial.scheduler.engine.explanation import explain, score_table
from seatrial.scheduler.engine.runner import Runner
from seatrial.scheduler.framework.decisions import SCHEDULER_ERROR, Bind, ClearNomination, Decision, Evict, Reject
from seatrial.scheduler.framework.extension_points import NO_METADATA_CHANGES, MetadataChanges
from seatrial.scheduler.framework.fit_error import FitError
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.preparation import merged
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import SUCCESS, Code, PostFilterResult, Status
from seatrial.scheduler.framework.timing import EVERY, PRE_BIND

log = logging.getLogger(__name__)

_TAINT_WORDS = ("untolerated taint", "node(s) were unschedulable")


class Core(Intake):
    """All profiles of one scheduler, with one cache and one queue."""

    def __init__(self, handle: Handle, runners: Mapping[str, Runner], queue: SchedulingQueue) -> None:
        super().__init__(handle, runners, queue)
        self._outbox: list[Decision] = []  # decisions that timers and events made
        self.waker = Waker(self)
        self.groups = GroupEngine(self)
        self.permits = PermitWaiters(self)
        handle.permit_waiters = self.permits
        self.reports = HeldReports(self)
        self._diagnoses = DiagnosisLog(handle.clock)
        self.timing = handle.timing
        self._untimed = 0  # cycles left before the next one that is timed

    # -- deciding -----------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether `decide` would schedule a pod."""
        self.waker.wake_due()
        return self.queue.ready > 0 or bool(self._outbox)

    def decide(self) -> list[Decision]:
        """Run one scheduling cycle for the next pod. An empty list also means that no pod is ready."""
        self.waker.wake_due()
        if self._outbox:
            decisions, self._outbox = self._outbox, []
            return decisions
        entry = self.queue.pop()
        if entry is None:
            return []
        entry.attempts += 1
        info = entry.info
        runner = self._runners[info.pod.spec.scheduler_name]
        if self._untimed:
            self._untimed -= 1
            return self._schedule(entry, runner)
        if self.handle.debug.diagnoses:
            return self._schedule(entry, runner)  # the explanation would be timed too: time the next cycle
        self._untimed = EVERY - 1
        waiting = len(self.groups)
        self.timing.start()
        try:
            decisions = self._schedule(entry, runner)
        finally:
            self.timing.stop()
        self.timing.record_cycle(
            runner.scheduler_name,
            placed=any(isinstance(decision, Bind) for decision in decisions),
            waits=len(self.groups) > waiting,
        )
        return decisions

    def _schedule(self, entry: Entry, runner: Runner) -> list[Decision]:
        try:
            if self.handle.debug.on:
                self._log_cycle(runner, entry.info)
            if entry.grouped:
                return self.groups.schedule(entry, runner)
            return self.schedule_alone(entry, runner)
        except Exception as error:  # noqa: BLE001 the pod is tried again, and other pods go on
            return self.attempt_failed(error, entry)

    def schedule_alone(self, entry: Entry, runner: Runner) -> list[Decision]:
        """One cycle for one pod."""
        info = entry.info
        class_scores = runner.class_scores(info.shape)
        if entry.gates:
            closed = self._closed_gate(entry)
            if closed is not None:
                status, held_under = closed
                failure = FitError(self.cache.known_count, pre_filter=status)
                return self._fail(entry, runner, class_scores, failure, held_under=held_under)
        found = class_scores.select(info)
        if isinstance(found, FitError):
            return self._fail(entry, runner, class_scores, found)
        row, state = found
        node = self.cache.columns.names[row]
        status = self.take_place(info, runner, state, node)
        if status is not SUCCESS and not status.ok and not status.waits:
            return self._reject(entry, state, status)
        if self.handle.nominator.nominated:
            self.handle.nominator.forget(info.uid)
        waiting = self.queue.waiting
        if not waiting.empty:
            key = class_key(info, state)
            for group in dict.fromkeys((key, (*key[:2], ""))):  # pods that were tried without any node have no mark
                if waiting.has_class(group):
                    self.waker.wake_class(group, class_scores)
        if status.waits:
            self.permits.add(entry, state, node, status.waits)
            return []
        return [self.bind(entry, state, node)]

    def take_place(self, info: PodInfo, runner: Runner, state: CycleState, node: str) -> Status:
        """Run Reserve and Permit, and assume the pod on the node. Success, Wait with `waits`, or why nothing was taken.

        Raises:
            Exception: a plugin raised it. All that was taken for the pod is given back.
        """
        try:
            status = runner.reserve(state, info.pod, node)
            if status is not SUCCESS and not status.ok:
                return status
            if runner.profile.permit:
                status = runner.permit(state, info.pod, node)
                if not status.ok and not status.waits:
                    return status
            self.cache.assume(info, node)
        except Exception:
            self.give_place_back(info, state, node)
            raise
        return status

    def give_place_back(self, info: PodInfo, state: CycleState, node: str) -> None:
        """Undo `take_place`, however far it came. Exceptions of plugins are recorded; the others are called."""
        runner = self._runner(info)
        runner.unreserve(state, info.pod, node)
        try:
            self.cache.forget(info.uid)
        except Exception as error:  # noqa: BLE001 the cache has forgotten the pod
            self.evaluation_failed(error, f"pod={info.key}")
        if runner.groups is not None:
            runner.groups.released(info.uid)

    def bind(self, entry: Entry, state: CycleState, node: str) -> Bind:
        """The decision to bind a pod that is reserved and assumed on this node.

        Raises:
            Exception: a PreBind plugin raised it. The pod has given its place back.
        """
        info = entry.info
        self._binding[info.uid] = (entry, state)
        try:
            marks = self._marks(self._runner(info), state, info.pod, node)
        except Exception:
            self.cancel_binding(info.uid)
            raise
        return Bind(info, node, marks.annotations, marks.labels, marks.node_annotations, marks.preparation)

    def _closed_gate(self, entry: Entry) -> tuple[Status, str] | None:
        """The rejection of the first gate that holds the pod back, and its wake key.

        Whatever comes of this cycle, the next pod of each key is asked after it.
        """
        for gate, key in entry.gates:
            status = gate.gate(entry.info)
            if not status.ok:
                return status.by(gate.name), key
            if key in self.queue.held:
                self.handle.opened_gates.add(key)
        return None

    def _log_cycle(self, runner: Runner, info: PodInfo) -> None:
        """Log what the debug flags enable, with Koordinator's messages (FWK-R33, FWK-R34)."""
        debug, explanation = self.handle.debug, explain(runner, info)
        if debug.filter_failures:
            for node, status in explanation.rejected.items():
                log.info(
                    'Failed to filter for Pod "%s" on Node "%s" (pass 0), failedPlugin: %s, reason: %s',
                    info.key, node, status.plugin, status.message,
                )  # fmt: skip
        feasible = explanation.feasible
        if debug.top_scores > 0 and len(feasible) > 1:
            log.info(
                "Top%d scores for Pod: %s, feasibleNodes: %d, plugins:[%s]\n%s",
                debug.top_scores, info.key, len(feasible), " ".join(sorted(feasible[0].by_plugin)),
                score_table(info, feasible, debug.top_scores),
            )  # fmt: skip

    def _marks(self, runner: Runner, state: CycleState, pod: Pod, node: str) -> MetadataChanges:
        found = NO_METADATA_CHANGES
        for plugin in runner.profile.pre_bind:
            if self.timing.paused:
                marks = plugin.pre_bind(state, pod, node)
            else:
                marks = self.timing.ask(PRE_BIND, plugin, plugin.pre_bind, state, pod, node)
            if marks is not NO_METADATA_CHANGES:
                found = marks if found is NO_METADATA_CHANGES else _merged(found, marks)
        return found

    def _fail(
        self, entry: Entry, runner: Runner, class_scores: ClassScores, failure: FitError, *, held_under: str = ""
    ) -> list[Decision]:
        """No node fits, or the gate `held_under` is closed."""
        info = entry.info
        self.timing.pre_filter = failure.pre_filter
        decisions: list[Decision] = []
        nominated: str | None = None
        words: list[str] = []
        state = failure.state or class_scores.state.fork()
        key = class_key(info, state)
        for plugin in runner.profile.post_filter:
            result = plugin.post_filter(state, info, failure)
            if result.status.ok:
                nominated = result.all_nominations(info)[0][1]
                decisions += self.preempt(info, result)
                break
            words += result.status.reasons
            if result.clear_nomination and (self.handle.nominator.node_of(info.uid) or _nominated(info.pod)):
                self.handle.nominator.forget(info.uid)
                nominated = ""
            if result.status.code is not Code.UNSCHEDULABLE:
                break
        if self.handle.debug.diagnoses:
            said = ", ".join(words) if runner.profile.post_filter else None
            self._diagnose(runner, info, failure, nominated or "", said)
        message = failure.message(", ".join(words))
        entry.reason_of_nodes = not failure.nodes or any(part in message for part in _TAINT_WORDS)
        if held_under:
            assert failure.pre_filter is not None  # noqa: S101
            self.waker.hold(entry, held_under, failure.pre_filter)
        else:
            self.waker.add(entry, key, class_scores)
        return [*decisions, Reject(info, message, nominated=nominated)]

    def _diagnose(self, runner: Runner, info: PodInfo, failure: FitError, nominated: str, said: str | None) -> None:
        """Log the diagnosis of a failure as JSON (FWK-R35). `said`: message of PostFilter; None if it did not run."""
        rejected = {} if failure.pre_filter is not None else explain(runner, info).rejected
        diagnosis = diagnosis_of(
            info, rejected, now=self.handle.clock.now(), pre_filter=failure.pre_filter, nominated=nominated,
            preemption=said,
        )  # fmt: skip
        self._diagnoses.say(info, diagnosis, at_once=self.handle.debug.diagnoses_at_once)

    def preempt(self, info: PodInfo, result: PostFilterResult, *, group: str = "") -> list[Decision]:
        """Nominate the pods of `result`, evict its victims, and clear nominations of pods of lower priority there.

        `info`: the pod that failed; `group`: the wake key of its group, if the group is nominated together.
        """
        nominator, nominations = self.handle.nominator, result.all_nominations(info)
        own = {nominated.uid for nominated, _ in nominations}
        lesser = [
            other for node in dict.fromkeys(node for _, node in nominations) for other in nominator.on(node)
            if other.priority < info.priority and other.uid not in own
        ]  # fmt: skip
        cleared = self.groups.nominations.give_back_of(other.uid for other in lesser)
        given_back = {ended.info.uid for ended in cleared}
        for other in lesser:
            nominator.forget(other.uid)
        decisions: list[Decision] = [
            *cleared,
            *(ClearNomination(other) for other in lesser if other.uid not in given_back),
        ]
        victims = [victim for victim in result.victims if not victim.pod.deleting]
        if group:
            assert self.handle.groups is not None  # noqa: S101
            seconds = self.handle.groups.hold_time_of(info.pod)
            decisions += self.groups.nominations.nominate(group, nominations, victims, seconds)
        else:
            for nominated, node in nominations:
                nominator.nominate(nominated, node)
        evicted = False
        for victim in victims:
            if victim.uid in self.groups:
                self.groups.preempt_waiting(victim.uid)
            else:
                evicted = True
                decisions.append(Evict(victim, info, victim.node_name, result.preemptor))
        if not evicted:  # nothing to wait for: the nodes are free, or victims are terminating
            self.handle.wake_requested = True
        return decisions

    def _reject(self, entry: Entry, state: CycleState, status: Status) -> list[Decision]:
        """Reserve or Permit rejected the pod: the message counts one node (FWK-R47)."""
        info = entry.info
        reason = "Unschedulable" if status.rejected else SCHEDULER_ERROR
        message = f"0/1 nodes are available: 1 {status.message}." if status.rejected else status.message
        self.waker.add(entry, class_key(info, state), self._runner(info).class_scores(info.shape))
        return [Reject(info, message, reason)]

    # -- exceptions of plugins ----------------------------------------------------------------------------------------

    def attempt_failed(self, error: Exception, entry: Entry) -> list[Decision]:
        """A plugin raised in the attempt to place this pod: put it, or the whole group, in backoff.

        Upstream treats an error of a plugin so; a panic of a plugin ends its process.
        """
        self.timing.cancel()
        message = self.evaluation_failed(error, f"pod={entry.info.key}")
        entries = self.groups.abandon(entry) if entry.grouped else [entry]
        for each in entries:
            self.queue.remove(each.info.uid)
            self.queue.put_back(each)
            each.told = message
        self.waker.set_alarm(self.queue.next_backoff())
        return [Reject(each.info, message, SCHEDULER_ERROR) for each in entries]

    def evaluation_failed(self, error: Exception, concerned: str) -> str:
        """Record an exception of a plugin, and drop all kept results: some may be half updated. Returns the message."""
        message = self.handle.plugin_errors.record(error, concerned)
        self.handle.invalidate_class_scores()
        return message

    def event_failed(self, error: Exception, found: object) -> None:
        """A plugin raised while an object that changed, or is gone, was taken in. A pod that waits is told."""
        metadata = getattr(found, "metadata", ObjectMeta())
        message = self.evaluation_failed(error, f"object={type(found).__name__}/{metadata.key}")
        if (
            isinstance(found, Pod)
            and found.spec.scheduler_name in self._runners
            and not (found.spec.node_name or found.deleting or found.terminated)
            and self.queue.find(metadata.uid) is None
        ):
            self.later(Reject(PodInfo(found, self.cache.classes.of(found)), message, SCHEDULER_ERROR))

    # -- results of bindings ------------------------------------------------------------------------------------------

    def is_binding(self, uid: str) -> bool:
        """Whether the pod has been decided to be bound, and the result of that is not reported yet."""
        return uid in self._binding

    def bound(self, uid: str) -> None:
        """The API server accepted the binding. The informer delivers the bound pod separately."""
        found = self._binding.pop(uid, None)
        if found is not None:
            entry, state = found
            runner = self._runner(entry.info)
            if entry.grouped and runner.groups is not None:
                runner.groups.bound(uid)
            runner.post_bind(state, entry.info.pod, entry.info.node_name)

    def cancel_binding(self, uid: str) -> None:
        """Give the place of a pod back whose decision to be bound is not carried out."""
        entry, state = self._binding.pop(uid)
        self.give_place_back(entry.info, state, entry.info.node_name)

    def bind_failed(self, uid: str, message: str, *, retry: bool = True) -> list[Decision]:
        """The binding failed: run Unreserve, forget the pod, and with `retry` put it in backoff."""
        found = self._binding.pop(uid, None)
        if found is None:
            return []
        entry, state = found
        info = entry.info
        if not self.cache.is_assumed(uid):
            return []  # the pod is confirmed or gone
        self.give_place_back(info, state, info.node_name)
        self.handle.wake_requested = True
        if not retry:
            return []
        self.queue.put_back(entry)
        self.waker.set_alarm(self.queue.next_backoff())
        return [Reject(info, message, SCHEDULER_ERROR)]

    # -- waiting ------------------------------------------------------------------------------------------------------

    def held_back(self, info: PodInfo) -> str:
        """Why PreEnqueue, a gate or its group keeps a pod of the queue from being placed; "" if none does."""
        if info.uid in self.groups:
            return f"has a place on node {info.node_name} and waits for the other members of its group"
        waiter = self.permits.get(info.uid)
        if waiter is not None:
            names = ", ".join(waiter.pending_plugins)
            return f"has a place on node {info.node_name} and waits on Permit for {names}"
        entry = self.queue.held.get(info.uid)
        if entry is None or entry.held is None:
            return ""
        groups = self._runner(info).groups
        lacks = groups.incompleteness(info.pod) if entry.grouped and groups is not None else ""
        if lacks:
            return lacks
        words = entry.told or entry.held.message
        more = groups.explanation(info.pod) if entry.grouped and groups is not None else ""
        return f"{words}; {more}" if more else words

    def notes(self, info: PodInfo) -> list[str]:
        """What is wrong with the rules of the pod's group, where defaults are used instead."""
        groups = self._runner(info).groups
        return [] if groups is None else list(groups.notes(info.pod))

    def later(self, decision: Decision) -> None:
        """Have the next `decide` return this decision of a timer or an event, unless the pod leaves the queue before.

        A standby decides nothing.
        """
        if self.handle.leading:
            self._outbox.append(decision)
            self.on_ready()

    def _leave_queue(self, uid: str) -> None:
        super()._leave_queue(uid)
        if self._outbox:
            self._outbox = [each for each in self._outbox if isinstance(each, Evict) or each.info.uid != uid]


def _merged(changes: MetadataChanges, other: MetadataChanges) -> MetadataChanges:
    return MetadataChanges(
        {**changes.annotations, **other.annotations},
        {**changes.labels, **other.labels},
        {**changes.node_annotations, **other.node_annotations},
        merged(changes.preparation, other.preparation),
    )


def _nominated(pod: Pod) -> bool:
    return bool(pod.status.nominated_node_name)
