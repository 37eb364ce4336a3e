"""The way of one pod, from the queue to its binding. No I/O and no threads; the clock is handed in.

`Core.decide` runs one scheduling cycle and returns decisions, which the caller carries out. Read from top to bottom:

1. `decide`: pop the most important ready pod; a member of a group brings its whole group (`groups/engine.py`).
2. `_cycle`: gates; PreFilter, Filter and Score (`engine/`); Reserve and Permit, which take the place (`places.py`).
3. `bindings.py`: PreBind, and the decision to bind. Until its result is reported the pod is assumed to be on its node.
4. `_fail`: no node fits. PostFilter may preempt; the pod waits until `waking.py` finds that it may fit.
5. `bound`, `bind_failed`: the result of the binding. PostBind, or the place is given back.

`Places.give_back` undoes a cycle, however far it came.
"""

import logging
from collections.abc import Iterable, Iterator

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.core.bindings import Bindings
from seatrial.scheduler.core.diagnosis import DiagnosisLog, diagnosis_of
from seatrial.scheduler.core.groups.engine import GroupEngine
from seatrial.scheduler.core.held_reports import HeldReports
from seatrial.scheduler.core.intake import Intake
from seatrial.scheduler.core.outbox import Outbox
from seatrial.scheduler.core.permit_waiters import PermitWaiters
from seatrial.scheduler.core.places import Places
from seatrial.scheduler.core.queue.active import Entry
from seatrial.scheduler.core.queue.queue import SchedulingQueue
from seatrial.scheduler.core.waking import Waker, class_key
from seatrial.scheduler.engine.class_scores import ClassScores
from seatrial.scheduler.engine.explanation import explain, score_table
from seatrial.scheduler.engine.runner import Runner, Runners
from seatrial.scheduler.framework.decisions import SCHEDULER_ERROR, Bind, ClearNomination, Decision, Evict, Reject
from seatrial.scheduler.framework.fit_error import FitError
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import SUCCESS, Code, PostFilterResult, Status
from seatrial.scheduler.framework.timing import EVERY

log = logging.getLogger(__name__)


class Core:
    """All profiles of one scheduler, with one cache and one queue. `intake` is its input."""

    def __init__(self, handle: Handle, runners: Runners, queue: SchedulingQueue) -> None:
        self.handle, self.cache, self.runners, self.queue = handle, handle.cache, runners, queue
        self.timing = handle.timing
        self.places = Places(handle, runners)
        self.bindings = Bindings(self.places, handle.kept)
        self.outbox = Outbox(handle)
        self.reports = HeldReports(handle, queue, self.outbox, self.held_back)
        self.waker = Waker(handle, runners, queue, self.outbox, self.reports)
        self.permits = PermitWaiters(handle, self.places, self.bindings, self.waker, self.outbox, self.attempt_failed)
        self.groups = GroupEngine(
            handle,
            runners,
            queue,
            self.places,
            self.bindings,
            self.permits,
            self.waker,
            self.reports,
            self.outbox,
            self.preempt,
        )
        self.intake = Intake(handle, runners, queue, self.waker, self.bindings, self.reports, self.outbox)
        if handle.groups is not None:
            self.waker.groups = self.intake.groups = self.groups
            self.intake.follow(self.groups, handle.groups.name_of)
        if any(runner.profile.permit for runner in runners.values()):
            self.intake.follow(self.permits, lambda _: False)
        handle.connect(self.intake, self.permits)
        self._diagnoses = DiagnosisLog(handle.clock)
        self._untimed = 0  # cycles left before the next one that is timed

    # -- the next pod -------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether `decide` would schedule a pod."""
        self.waker.wake_due()
        return self.queue.ready > 0 or bool(self.outbox.decisions)

    def decide(self) -> list[Decision]:
        """Run one scheduling cycle for the next pod. An empty list also means that no pod is ready."""
        self.waker.wake_due()
        if self.outbox.decisions:
            return self.outbox.take()
        entry = self.queue.pop()
        if entry is None:
            return []
        entry.attempts += 1
        runner = self.runners.of(entry.info)
        if self._untimed:
            self._untimed -= 1
            return self._schedule(entry, runner)
        if self.handle.debug.diagnoses:
            return self._schedule(entry, runner)  # the explanation would be timed too: time the next cycle
        self._untimed = EVERY - 1
        waiting = len(self.groups.members)
        self.timing.start()
        try:
            decisions = self._schedule(entry, runner)
        finally:
            self.timing.stop()
        self.timing.record_cycle(
            runner.scheduler_name,
            placed=any(isinstance(decision, Bind) for decision in decisions),
            waits=len(self.groups.members) > waiting,
        )
        return decisions

    def _schedule(self, entry: Entry, runner: Runner) -> list[Decision]:
        try:
            if self.handle.debug.on:
                self._log_cycle(runner, entry.info)
            placed = self.groups.schedule(entry, runner) if entry.grouped else None
            decisions = self._cycle(entry, runner) if placed is None else placed
        except Exception as error:  # noqa: BLE001 the pod is tried again, and other pods go on
            decisions = self.attempt_failed(error, entry)
        if self.handle.kept.size:
            for decision in decisions:
                if type(decision) is Reject:
                    self.handle.kept.reject(decision.info, decision.message)
        return decisions

    # -- the cycle of one pod -----------------------------------------------------------------------------------------

    def _cycle(self, entry: Entry, runner: Runner) -> list[Decision]:
        info = entry.info
        class_scores = runner.class_scores(info.pod_class)
        if entry.gates:
            closed = self._closed_gate(entry)
            if closed is not None:
                status, held_under = closed
                failure = FitError(self.cache.known_count, pre_filter=status)
                return self._fail(entry, runner, class_scores, failure, held_under=held_under)
        selected = class_scores.select(info)
        if isinstance(selected, FitError):
            return self._fail(entry, runner, class_scores, selected)
        row, state = selected
        node = self.cache.columns.names[row]
        status = self.places.take(info, runner, state, node)
        if status is not SUCCESS and not status.ok and not status.waits:
            return self._reject(entry, state, status)
        if self.handle.nominator.nominated:
            self.handle.nominator.forget(info.uid)
        if self.queue.waiting.by_uid:
            self._wake_alike(info, state, class_scores)
        if status.waits:
            self.permits.add(entry, runner, state, node, status.waits)
            return []
        return [self.bindings.decide(entry, runner, state, node)]

    def _closed_gate(self, entry: Entry) -> tuple[Status, str] | None:
        """The rejection of the first gate that holds the pod back, and its wake key.

        Whatever comes of this cycle, the next pod of each key is asked after it.
        """
        for gate, key in entry.gates:
            status = gate.gate(entry.info)
            if not status.ok:
                return status.by(gate.name), key
            if key in self.queue.held:
                self.handle.open_gate(key)
        return None

    def _wake_alike(self, info: PodInfo, state: CycleState, class_scores: ClassScores) -> None:
        """A place was there: it is the turn of the next waiting pod of the class."""
        key = class_key(info, state, self.cache.label_keys)
        for group in dict.fromkeys((key, (*key[:2], ""))):  # pods that were tried without any node have no mark
            if self.queue.waiting.has_class(group):
                self.waker.wake_class(group, class_scores)

    # -- without a place ----------------------------------------------------------------------------------------------

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
        key = class_key(info, state, self.cache.label_keys)
        for plugin in runner.profile.post_filter:
            result = plugin.post_filter(state, info, failure)
            if result.status.ok:
                nominated = result.all_nominations(info)[0][1]
                decisions += self.preempt(info, result)
                self.waker.others_may_preempt(key, result.victims)
                break
            words += result.status.reasons
            if result.clear_nomination and (self.handle.nominator.node_of(info.uid) or _nominated(info.pod)):
                self.handle.nominator.forget(info.uid)
                nominated = ""
            if result.status.code is not Code.UNSCHEDULABLE:
                break
        if self.handle.debug.diagnoses:
            text = ", ".join(words) if runner.profile.post_filter else None
            self._diagnose(runner, info, failure, nominated or "", text)
        message = failure.message(", ".join(words))
        entry.reason_of_nodes = not failure.nodes or failure.of_taints()
        entry.placements = self.cache.placement_changes
        if held_under:
            assert failure.pre_filter is not None
            self.waker.hold(entry, held_under, failure.pre_filter)
        else:
            self.waker.add(entry, key, class_scores)
        return [*decisions, Reject(info, message, nominated=nominated)]

    def _reject(self, entry: Entry, state: CycleState, status: Status) -> list[Decision]:
        """Reserve or Permit rejected the pod: the message counts one node (FWK-R47)."""
        info = entry.info
        reason = "Unschedulable" if status.rejected else SCHEDULER_ERROR
        message = f"0/1 nodes are available: 1 {status.message}." if status.rejected else status.message
        self.waker.add(
            entry, class_key(info, state, self.cache.label_keys), self.runners.of(info).class_scores(info.pod_class)
        )
        return [Reject(info, message, reason)]

    def preempt(self, info: PodInfo, result: PostFilterResult, group: str = "") -> list[Decision]:
        """Nominate the pods of `result`, evict its victims, and clear nominations of pods of lower priority there.

        `info`: the pod that failed; `group`: the wake key of its group, if the group is nominated together.
        """
        nominator, nominations = self.handle.nominator, result.all_nominations(info)
        own = {nominated.uid for nominated, _ in nominations}
        lesser = [
            other
            for node in dict.fromkeys(node for _, node in nominations)
            for other in nominator.on(node)
            if other.priority < info.priority and other.uid not in own
        ]
        cleared = self.groups.nominations.give_back_of(other.uid for other in lesser)
        given_back = {ended.info.uid for ended in cleared}
        for other in lesser:
            nominator.forget(other.uid)
        decisions: list[Decision] = [
            *cleared,
            *(ClearNomination(other) for other in lesser if other.uid not in given_back),
        ]
        victims = self._units(result.victims)
        if group:
            assert self.handle.groups is not None
            seconds = self.handle.groups.hold_time_of(info.pod)
            decisions += self.groups.nominations.nominate(group, nominations, victims, seconds)
        else:
            for nominated, node in nominations:
                nominator.nominate(nominated, node)
        evicted = False
        for victim in victims:
            if victim.uid in self.groups.members:
                self.groups.members.preempt(victim.uid)
            else:
                evicted = True
                decisions.append(Evict(victim, info, victim.node_name, result.preemptor))
        if not evicted:  # nothing to wait for: the nodes are free, or victims are terminating
            self.handle.request_wake()
        return decisions

    def _units(self, victims: Iterable[PodInfo]) -> list[PodInfo]:
        """The victims with all pods that are preempted with them (WAS-R48), without those that end already."""
        groups = self.handle.groups
        every: dict[str, PodInfo] = {}
        for victim in victims:
            unit = groups.unit_of(victim) if groups is not None and victim.uid not in every else ()
            every.update((pod.uid, pod) for pod in (victim, *unit) if not pod.pod.deleting)
        return list(every.values())

    # -- results of bindings ------------------------------------------------------------------------------------------

    def bound(self, uid: str) -> None:
        """The API server accepted the binding. The informer delivers the bound pod separately."""
        binding = self.bindings.take(uid)
        if binding is not None:
            entry, runner, state = binding
            if entry.grouped and runner.groups is not None:
                runner.groups.bound(uid)
            runner.post_bind(state, entry.info.pod, entry.info.node_name)

    def bind_failed(self, uid: str, message: str, *, retry: bool = True) -> list[Decision]:
        """The binding failed: run Unreserve, forget the pod, and with `retry` put it in backoff. Its nomination, which
        holds no room since the pod was placed, is cleared."""
        binding = self.bindings.take(uid)
        if binding is None:
            return []
        entry, _, state = binding
        info = entry.info
        if not self.cache.is_assumed(uid):
            return []  # the pod is confirmed or gone
        self.places.give_back(info, state, info.node_name)
        self.handle.request_wake()
        if not retry:
            return []
        self.queue.put_back(entry)
        self.waker.set_alarm(self.queue.next_backoff())
        return [Reject(info, message, SCHEDULER_ERROR, nominated="" if _nominated(info.pod) else None)]

    def status_refused(self, uid: str) -> None:
        """The API server did not take the pod's condition: a member of a group gets it again at the next attempt."""
        entry = self.queue.find(uid)
        if entry is not None:
            entry.last_message = ""

    # -- exceptions of plugins ----------------------------------------------------------------------------------------

    def attempt_failed(self, error: Exception, entry: Entry) -> list[Decision]:
        """A plugin raised in the attempt to place this pod: put it, or the whole group, in backoff.

        Upstream treats an error of a plugin so; a panic of a plugin ends its process.
        """
        self.timing.cancel()
        message = self.handle.evaluation_failed(error, f"pod={entry.info.key}")
        entries = self.groups.abandon(entry) if entry.grouped else [entry]
        for each in entries:
            self.queue.remove(each.info.uid)
            self.queue.put_back(each)
            each.last_message = message
        self.waker.set_alarm(self.queue.next_backoff())
        return [Reject(each.info, message, SCHEDULER_ERROR) for each in entries]

    def event_failed(self, error: Exception, item: object) -> None:
        """A plugin raised while an object that changed, or is gone, was taken in. A pod that waits is told."""
        metadata = getattr(item, "metadata", ObjectMeta())
        message = self.handle.evaluation_failed(error, f"object={type(item).__name__}/{metadata.key}")
        if (
            isinstance(item, Pod)
            and item.spec.scheduler_name in self.runners
            and not (item.spec.node_name or item.deleting or item.terminated)
            and self.queue.find(metadata.uid) is None
        ):
            self.outbox.put(Reject(PodInfo(item, self.cache.classes.of(item)), message, SCHEDULER_ERROR))

    # -- for people ---------------------------------------------------------------------------------------------------

    def pods(self) -> Iterator[PodInfo]:
        """All pods, those on nodes first, then those in the queue."""
        for node in self.cache.nodes.values():
            yield from node.pods.values()
        for _, entry in self.queue.entries():
            yield entry.info

    def find(self, key: str) -> PodInfo | None:
        """A pod by namespace/name, on a node or in the queue."""
        return next((info for info in self.pods() if info.key == key), None)

    def held_back(self, info: PodInfo) -> str:
        """Why PreEnqueue, a gate or its group keeps a pod of the queue from being placed; "" if none does."""
        if info.uid in self.groups.members:
            return f"has a place on node {info.node_name} and waits for the other members of its group"
        waiter = self.permits.get(info.uid)
        if waiter is not None:
            names = ", ".join(waiter.pending_plugins)
            return f"has a place on node {info.node_name} and waits on Permit for {names}"
        entry = self.queue.held.get(info.uid)
        if entry is None or entry.held is None:
            return ""
        groups = self.runners.of(info).groups
        lacks = groups.incompleteness(info.pod) if entry.grouped and groups is not None else ""
        if lacks:
            return lacks
        words = entry.last_message or entry.held.message
        more = groups.explanation(info.pod) if entry.grouped and groups is not None else ""
        return f"{words}; {more}" if more else words

    def notes(self, info: PodInfo) -> list[str]:
        """What is wrong with the rules of the pod's group, where defaults are used instead."""
        groups = self.runners.of(info).groups
        return [] if groups is None else list(groups.notes(info.pod))

    def _log_cycle(self, runner: Runner, info: PodInfo) -> None:
        """Log what the debug flags enable, with Koordinator's messages (FWK-R33, FWK-R34)."""
        debug, explanation = self.handle.debug, explain(runner, info)
        if debug.filter_failures:
            for node, status in explanation.rejected.items():
                log.info(
                    'Failed to filter for Pod "%s" on Node "%s" (pass 0), failedPlugin: %s, reason: %s',
                    info.key,
                    node,
                    status.plugin,
                    status.message,
                )
        feasible = explanation.feasible
        if debug.top_scores > 0 and len(feasible) > 1:
            log.info(
                "Top%d scores for Pod: %s, feasibleNodes: %d, plugins:[%s]\n%s",
                debug.top_scores,
                info.key,
                len(feasible),
                " ".join(sorted(feasible[0].by_plugin)),
                score_table(info, feasible, debug.top_scores),
            )

    def _diagnose(self, runner: Runner, info: PodInfo, failure: FitError, nominated: str, text: str | None) -> None:
        """Log the diagnosis of a failure as JSON (FWK-R35). `text`: message of PostFilter; None if it did not run."""
        rejected = {} if failure.pre_filter is not None else explain(runner, info).rejected
        diagnosis = diagnosis_of(
            info,
            rejected,
            now=self.handle.clock.now(),
            pre_filter=failure.pre_filter,
            nominated=nominated,
            preemption=text,
        )
        self._diagnoses.say(info, diagnosis, at_once=self.handle.debug.diagnoses_at_once)


def _nominated(pod: Pod) -> bool:
    return bool(pod.status.nominated_node_name)
