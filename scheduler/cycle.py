"""The core of the scheduler: events in, decisions out. No I/O and no threads; the clock is handed in.

`decide` schedules one pod and returns decisions. The caller carries them out and reports the result of each binding.
Until then the pod is assumed to be on its node.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from seatrial.scheduler.api.clock import Timer
from seatrial.scheduler.api.core import ConfigMap, Node, Pod, PodDisruptionBudget
from seatrial.scheduler.api.device import Device
from seatrial.scheduler.api.numa import NodeResourceTopology
from seatrial.scheduler.api.quota import ElasticQuota
from seatrial.scheduler.api.reservation import Reservation
from seatrial.scheduler.api.slo import NodeMetric
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.cache.pins import pin_of
from seatrial.scheduler.framework.class_scores import ClassScores
from seatrial.scheduler.framework.cluster_scope import MARK, WIDE
from seatrial.scheduler.framework.decisions import Bind, ClearNomination, Decision, Evict, Reject
from seatrial.scheduler.framework.diagnosis import DiagnosisLog, diagnosis_of
from seatrial.scheduler.framework.explanation import explain, score_table
from seatrial.scheduler.framework.extension_points import NO_METADATA_CHANGES, MetadataChanges
from seatrial.scheduler.framework.fit_error import FitError
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.runner import Runner
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import SUCCESS, Code, Status
from seatrial.scheduler.framework.timing import EVERY, PRE_BIND
from seatrial.scheduler.groups import GroupEngine
from seatrial.scheduler.held_reports import HeldReports
from seatrial.scheduler.queue.active import Entry
from seatrial.scheduler.queue.held import UNTIL_CHANGED
from seatrial.scheduler.queue.queue import LEFTOVER_SECONDS, SchedulingQueue
from seatrial.scheduler.queue.unschedulable import ClassKey

log = logging.getLogger(__name__)

# Waiting pods whose placement depends on other pods are tried again after this many changes, or when no pod is ready.
PLACEMENT_CHANGES_THRESHOLD = 32
SCHEDULER_ERROR = "SchedulerError"


_TAINT_WORDS = ("untolerated taint", "node(s) were unschedulable")


class Core:
    """All profiles of one scheduler, with one cache and one queue."""

    def __init__(self, handle: Handle, runners: Mapping[str, Runner], queue: SchedulingQueue) -> None:
        self.handle = handle
        self.cache = handle.cache
        self.queue = queue
        self.complaints = handle.complaints
        self._runners = runners
        self._placement_changes = 0  # value of `cache.placement_changes` when waiting pods were last tried
        self._alarm: tuple[float, Timer] | None = None
        self._cooling_gates: set[str] = set()  # wake keys of opened gates whose pods are in backoff
        self._binding: dict[str, tuple[Entry, CycleState]] = {}
        self._outbox: list[Decision] = []  # decisions that timers and events made
        self.groups = GroupEngine(self)
        self._reports = HeldReports(self)
        self._diagnoses = DiagnosisLog(handle.clock)
        self.timing = handle.timing
        self._untimed = 0  # cycles left before the next one that is timed
        handle.intake = self

    # -- events -------------------------------------------------------------------------------------------------------

    def set_node(self, node: Node) -> None:
        changes = self.cache.columns.changes
        if len(self.queue.waiting) and self._taints_change(node):
            self.queue.retry_rejected_by_taint()
            self._set_alarm(self.queue.next_backoff())
        self.complaints += self.cache.set_node(node)
        self.handle.wake_requested |= self.cache.columns.changes != changes
        for listener in self.handle.object_listeners:
            listener.node_changed(node.name, node)

    def _taints_change(self, node: Node) -> bool:
        """Whether a known node's taints or cordon differ from `node`'s."""
        known = self.cache.nodes.get(node.name)
        if known is None or known.node is None:
            return False
        before, after = known.node.spec, node.spec
        return before.taints != after.taints or before.unschedulable != after.unschedulable

    def remove_node(self, name: str) -> None:
        self.cache.remove_node(name)
        for listener in self.handle.object_listeners:
            listener.node_changed(name, None)

    def set_device(self, name: str, device: Device | None) -> None:
        """The Device object of a node was added or changed, or (None) is gone."""
        found = device or Device()
        self._deliver(replace(found, metadata=replace(found.metadata, name=name)), there=device is not None)

    def set_topology(self, name: str, topology: NodeResourceTopology | None) -> None:
        """The NodeResourceTopology of a node was added or changed, or (None) is gone."""
        found = topology or NodeResourceTopology()
        self._deliver(replace(found, metadata=replace(found.metadata, name=name)), there=topology is not None)

    def set_reservation(self, reservation: Reservation) -> None:
        """A Reservation was added or changed."""
        self._deliver(reservation, there=True)

    def remove_reservation(self, uid: str) -> None:
        """A Reservation is gone. The pods that allocated from it stay."""
        self._deliver(Reservation(ObjectMeta(uid=uid)), there=False)

    def set_quota(self, quota: ElasticQuota) -> None:
        """An ElasticQuota was added or changed."""
        self._deliver(quota, there=True)

    def set_node_metric(self, metric: NodeMetric) -> None:
        """The NodeMetric of a node was added or changed."""
        self._deliver(metric, there=True)

    def remove_node_metric(self, name: str) -> None:
        """The NodeMetric of a node is gone."""
        self._deliver(NodeMetric(ObjectMeta(name=name)), there=False)

    def set_config_map(self, key: str, config_map: ConfigMap | None) -> None:
        """The ConfigMap `namespace/name` was added or changed, or (None) is gone."""
        namespace, name = key.split("/")
        found = config_map or ConfigMap(ObjectMeta(name=name, namespace=namespace))
        self._deliver(found, there=config_map is not None, path=f"/namespaces/{namespace}/", selected=name)

    def _deliver(self, found: object, *, there: bool, path: str = "", selected: str = "") -> None:
        """Call the plugins that watch this kind of object, as an informer does."""
        for watch in self.handle.watches:
            selector = watch.selector.get("fieldSelector", "")
            if isinstance(found, watch.kind) and path in watch.path and selector in {"", f"metadata.name={selected}"}:
                (watch.on_set if there else watch.on_gone)(found)

    def set_namespace(self, name: str, labels: dict[str, str] | None) -> None:
        """Set the labels of a namespace; None: it is gone."""
        self.cache.set_namespace(name, labels)

    def storage_changed(self) -> None:
        """`cache.volumes` changed."""
        self.cache.placement_changes += 1

    def set_budget(self, budget: PodDisruptionBudget) -> None:
        self.handle.budgets[budget.metadata.key] = budget

    def remove_budget(self, key: str) -> None:
        self.handle.budgets.pop(key, None)

    def regroup_waiting(self, mark_of: Callable[[Pod], str | None]) -> None:
        """Regroup waiting pods: those with a mark wait apart from other pods of their class."""
        waiting = self.queue.waiting
        for entry in waiting:
            info = entry.info
            mark = mark_of(info.pod)
            if mark is not None:
                waiting.remove(info.uid)
                waiting.add(_class_key(info, CycleState({WIDE: True, MARK: mark})), entry)
        self.handle.wake_requested = True

    def set_pod(self, pod: Pod) -> None:
        """A pod was added or changed, as read from the API server, in any phase."""
        uid = pod.metadata.uid
        if self.handle.groups is not None:
            self.handle.groups.set_pod(pod)
            if uid in self.groups and (pod.spec.node_name or pod.deleting):
                self.groups.drop(uid)
        if pod.terminated:
            self.remove_pod(uid)
        elif pod.spec.node_name:
            self._leave_queue(uid)
            self.cache.set_pod(pod)
        else:
            for listener in self.handle.object_listeners:
                listener.pod_pending(pod)
            if pod.spec.scheduler_name not in self._runners or self.cache.is_assumed(uid):
                return
            if pod.deleting:
                self._leave_queue(uid)
            else:
                self._enqueue(pod)

    def remove_pod(self, uid: str) -> None:
        """A pod is gone or has ended."""
        if self.handle.groups is not None:
            self.groups.drop(uid)
            self.handle.groups.remove_pod(uid)
        self._leave_queue(uid)
        self._binding.pop(uid, None)
        if self.cache.remove_pod(uid) is not None:
            self.handle.wake_requested = True
        for listener in self.handle.object_listeners:
            listener.pod_left(uid)

    def pod_deleted(self, pod: Pod) -> None:
        """A pod is gone, or left the watch because it ended; `pod` is its last state."""
        if self.handle.groups is not None and pod.terminated:
            self.handle.groups.set_pod(pod)
        self.remove_pod(pod.metadata.uid)

    def bound(self, uid: str) -> None:
        """The API server accepted the binding. The informer delivers the bound pod separately."""
        found = self._binding.pop(uid, None)
        if found is not None:
            entry, state = found
            runner = self._runner(entry.info)
            if entry.grouped and runner.groups is not None:
                runner.groups.bound(uid)
            if runner.profile.post_bind:
                runner.post_bind(state, entry.info.pod, entry.info.node_name)

    def bind_failed(self, uid: str, message: str, *, retry: bool = True) -> list[Decision]:
        """The binding failed: run Unreserve, forget the pod, and with `retry` put it in backoff."""
        found = self._binding.pop(uid, None)
        if found is None:
            return []
        entry, state = found
        info = self.cache.forget(uid)
        if info is None:
            return []  # the pod is confirmed or gone
        runner = self._runner(info)
        runner.unreserve(state, info.pod, info.node_name)
        if entry.grouped and runner.groups is not None:
            runner.groups.released(uid)
        self.handle.wake_requested = True
        if not retry:
            return []
        self.queue.put_back(entry)
        self._set_alarm(self.queue.next_backoff())
        return [Reject(info, message, SCHEDULER_ERROR)]

    def _enqueue(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        entry = self.queue.find(uid)
        if (
            entry is not None
            and entry.info.pod.spec == pod.spec
            and entry.info.pod.metadata.labels == pod.metadata.labels
        ):
            same_marks = entry.info.pod.metadata.annotations == pod.metadata.annotations
            if same_marks or self.cache.classes.of(pod) is entry.info.shape:
                entry.info.pod = pod  # only its status changed, or metadata that no plugin reads
                return
        self.queue.remove(uid)
        info = PodInfo(pod, self.cache.classes.of(pod))
        runner = self._runner(info)
        if pod.status.nominated_node_name and not self.handle.nominator.node_of(uid):
            self.handle.nominator.nominate(info, pod.status.nominated_node_name)
        status = runner.pre_enqueue(pod)
        self.queue.add(
            info,
            gates=runner.gates_of(pod),
            held=None if status.ok else status,
            grouped=runner.groups is not None and runner.groups.is_member(pod),
        )
        if not status.ok and status.wake_key:
            self._reports.held(info.uid)

    def _leave_queue(self, uid: str) -> None:
        self.queue.remove(uid)
        if self.handle.nominator.node_of(uid):
            self.handle.nominator.forget(uid)
            self.handle.wake_requested = True

    def find(self, key: str) -> PodInfo | None:
        """A pod by namespace/name, on a node or in the queue."""
        return next((info for info in self.pods() if info.key == key), None)

    def pods(self) -> Iterator[PodInfo]:
        """All pods, those on nodes first, then those in the queue."""
        for node in self.cache.nodes.values():
            yield from node.pods.values()
        for _, entry in self.queue.entries():
            yield entry.info

    @property
    def runners(self) -> Mapping[str, Runner]:
        """The runner of each profile, by scheduler name."""
        return self._runners

    @property
    def profiles(self) -> frozenset[str]:
        """The scheduler names of all profiles."""
        return frozenset(self._runners)

    def runner_of(self, info: PodInfo) -> Runner:
        """The runner of the profile that a pod names."""
        return self._runner(info)

    def _runner(self, info: PodInfo) -> Runner:
        return self._runners[info.pod.spec.scheduler_name]

    # -- deciding -----------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether `decide` would schedule a pod."""
        if self.handle.wake_requested or self._placement_changes != self.cache.placement_changes:
            self._wake_if_opened()
        if self.handle.opened_gates:
            self._open_gates()
        return self.queue.ready > 0 or bool(self._outbox)

    def decide(self) -> list[Decision]:
        """Run one scheduling cycle for the next pod. An empty list also means that no pod is ready."""
        if self.handle.wake_requested or self._placement_changes != self.cache.placement_changes:
            self._wake_if_opened()
        if self.handle.opened_gates:
            self._open_gates()
        if self._outbox:
            decisions, self._outbox = self._outbox, []
            return decisions
        entry = self.queue.pop()
        if entry is None:
            return []
        entry.attempts += 1
        info = entry.info
        runner = self._runners[info.pod.spec.scheduler_name]
        if self.handle.debug.on:
            self._log_cycle(runner, info)
        if self._untimed:
            self._untimed -= 1
            return self._schedule(entry, runner)
        if self.handle.debug.diagnoses:
            return self._schedule(entry, runner)  # the explanation would be timed too: time the next cycle
        self._untimed = EVERY - 1
        self.timing.start()
        try:
            decisions = self._schedule(entry, runner)
        finally:
            self.timing.stop()
        self.timing.record_cycle(
            runner.scheduler_name, placed=any(isinstance(decision, Bind) for decision in decisions)
        )
        return decisions

    def _schedule(self, entry: Entry, runner: Runner) -> list[Decision]:
        if entry.grouped:
            return self.groups.schedule(entry, runner)
        return self.schedule_alone(entry, runner)

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
        status = runner.reserve(state, info.pod, node)
        if status is not SUCCESS and not status.ok:
            return self._reject(entry, state, status)
        if runner.profile.permit:
            status = runner.permit(state, info.pod, node)
            if not status.ok:
                return self._reject(entry, state, status)
        self.cache.assume(info, node)
        if self.handle.nominator.nominated:
            self.handle.nominator.forget(info.uid)
        waiting = self.queue.waiting
        if not waiting.empty:
            key = _class_key(info, state)
            if waiting.has_class(key):
                self._wake_class(key, class_scores)
        return [self.bind(entry, state, node)]

    def bind(self, entry: Entry, state: CycleState, node: str) -> Bind:
        """The decision to bind a pod that is reserved and assumed on this node."""
        info = entry.info
        self._binding[info.uid] = (entry, state)
        marks = self._marks(self._runner(info), state, info.pod, node)
        return Bind(info, node, marks.annotations, marks.labels, marks.node_annotations)

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
        key = _class_key(info, state)
        for plugin in runner.profile.post_filter:
            result = plugin.post_filter(state, info, failure)
            if result.status.ok:
                nominated = result.node
                decisions += self._preempt(info, result.node, result.victims)
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
        entry.rejected_by_taint = any(part in message for part in _TAINT_WORDS)
        if held_under:
            assert failure.pre_filter is not None  # noqa: S101
            self.hold(entry, held_under, failure.pre_filter)
        else:
            self._wait(entry, key, class_scores)
        return [*decisions, Reject(info, message, nominated=nominated)]

    def _diagnose(self, runner: Runner, info: PodInfo, failure: FitError, nominated: str, said: str | None) -> None:
        """Log the diagnosis of a failure as JSON (FWK-R35). `said`: message of PostFilter; None if it did not run."""
        rejected = {} if failure.pre_filter is not None else explain(runner, info).rejected
        diagnosis = diagnosis_of(
            info, rejected, now=self.handle.clock.now(), pre_filter=failure.pre_filter, nominated=nominated,
            preemption=said,
        )  # fmt: skip
        self._diagnoses.say(info, diagnosis, at_once=self.handle.debug.diagnoses_at_once)

    def _preempt(self, info: PodInfo, node: str, victims: Sequence[PodInfo]) -> list[Decision]:
        """Evict the victims, nominate `info` to the node, and clear nominations of pods of lower priority there."""
        nominator = self.handle.nominator
        lesser = [other for other in nominator.on(node) if other.priority < info.priority]
        for other in lesser:
            nominator.forget(other.uid)
        nominator.nominate(info, node)
        evictions = [Evict(victim, info, node) for victim in victims if not victim.pod.deleting]
        if not evictions:
            self.handle.wake_requested = True  # no eviction to wait for: the node is free, or victims are terminating
        return [*(ClearNomination(other) for other in lesser), *evictions]

    def _reject(self, entry: Entry, state: CycleState, status: Status) -> list[Decision]:
        """Reserve or Permit rejected the pod: the message counts one node (FWK-R47)."""
        info = entry.info
        reason = "Unschedulable" if status.rejected else SCHEDULER_ERROR
        message = f"0/1 nodes are available: 1 {status.message}." if status.rejected else status.message
        self._wait(entry, _class_key(info, state), self._runner(info).class_scores(info.shape))
        return [Reject(info, message, reason)]

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _wait(self, entry: Entry, key: ClassKey, class_scores: ClassScores) -> None:
        self.queue.wait(key, entry)
        moment = self.handle.clock.monotonic() + LEFTOVER_SECONDS
        if self._could_go(key, entry.info, class_scores):
            moment = min(moment, self.queue.waiting.next_ready(key))
        self._set_alarm(moment)
        alike = (*key[:2], "")
        if key[2] and self.queue.waiting.has_class(alike):  # it was woken as an example of these, but differs from them
            self._wake_class(alike, class_scores)

    def held_back(self, info: PodInfo) -> str:
        """Why PreEnqueue, a gate or its group keeps a pod of the queue from being placed; "" if none does."""
        if info.uid in self.groups:
            return f"has a place on node {info.node_name} and waits for the other members of its group"
        entry = self.queue.held.get(info.uid)
        if entry is None or entry.held is None:
            return ""
        groups = self._runner(info).groups
        lacks = groups.incompleteness(info.pod) if entry.grouped and groups is not None else ""
        return lacks or entry.told or entry.held.message

    def later(self, decision: Decision) -> None:
        """Have the next `decide` return this decision of a timer or an event."""
        self._outbox.append(decision)
        self.on_ready()

    def wait(self, entry: Entry, state: CycleState | None) -> None:
        """Wait until a node is feasible. `state`: that of the cycle, if there was one."""
        class_scores = self._runner(entry.info).class_scores(entry.info.shape)
        self._wait(entry, _class_key(entry.info, state or class_scores.state), class_scores)

    def requeue(self, entry: Entry) -> None:
        """Put an entry back that was taken from the queue and not tried."""
        status = self._runner(entry.info).pre_enqueue(entry.info.pod)
        if status.ok:
            self.queue.push(entry)
        else:
            self.queue.hold(status.wake_key or UNTIL_CHANGED, entry, status)

    def hold(self, entry: Entry, key: str, status: Status) -> None:
        """Wait until the gate `key` opens."""
        self.queue.hold(key, entry, status)
        self._set_alarm(self.handle.clock.monotonic() + LEFTOVER_SECONDS)

    def _open_gates(self) -> None:
        """Ask the first held pod of each class again, for each gate that opened."""
        opened, self.handle.opened_gates = self.handle.opened_gates, set()
        if self.handle.regate_requested:
            self.handle.regate_requested = False
            opened |= self._regate()
        now = self.handle.clock.monotonic()
        if self.groups.parked:
            opened |= self.groups.behind(opened)
        for key in sorted(opened):
            for entry in self.queue.held.first_of_classes(key, now):
                self._ask_again(entry, key)
            moment = self.queue.held.next_ready(key)
            if moment != float("inf"):
                self._cooling_gates.add(key)
                self._set_alarm(moment)

    def _ask_again(self, entry: Entry, key: str) -> None:
        """Release a held pod if what held it under `key` passes it now."""
        own = [gate for gate, gate_key in entry.gates if gate_key == key]
        if own:
            closed = next((status.by(gate.name) for gate in own if not (status := gate.gate(entry.info)).ok), None)
            if closed is None:
                self.queue.release(entry)  # its cycle has the next pod asked
            else:
                entry.held = closed
            return
        status = self._runner(entry.info).pre_enqueue(entry.info.pod)
        if status.ok:
            self.queue.release(entry)
            if key in self.queue.held:
                self.handle.opened_gates.add(key)
        elif status.wake_key != key:
            self.queue.held.remove(entry.info.uid)
            self.queue.hold(status.wake_key or UNTIL_CHANGED, entry, status)
        else:
            entry.held = status

    def _regate(self) -> set[str]:
        """Read the gate keys of all pods in the queue again. Returns the keys under which pods are held."""
        held = self.queue.held
        for _, entry in list(self.queue.entries()):
            before, entry.gates = entry.gates, self._runner(entry.info).gates_of(entry.info.pod)
            if entry.held is not None:
                key = held.key_of(entry.info.uid)
                if key in {own for _, own in before} - {own for _, own in entry.gates}:
                    self.queue.release(entry)
        return held.keys()

    def _wake_if_opened(self) -> None:
        if self.handle.wake_requested:
            self._wake()
        elif self._placement_changes != self.cache.placement_changes and (
            not self.queue.ready
            or self.cache.placement_changes - self._placement_changes >= PLACEMENT_CHANGES_THRESHOLD
        ):
            self._placement_changes = self.cache.placement_changes
            self._wake_classes(self.queue.waiting.wide_classes())
            if self.groups.parked:
                self.groups.wake()

    def _wake(self) -> None:
        """Wake the first pod of each class of waiting pods that has a feasible node now."""
        self.handle.wake_requested = False
        self._placement_changes = self.cache.placement_changes
        self._wake_classes(self.queue.waiting.classes())
        if self.groups.parked:
            self.groups.wake()

    def _wake_classes(self, keys: Iterable[ClassKey]) -> None:
        for key in keys:
            shape = self.queue.waiting.example(key).info.shape
            self._wake_class(key, self._runners[key[0]].class_scores(shape))

    def _wake_class(self, key: ClassKey, class_scores: ClassScores) -> None:
        class_scores.refresh()
        if not self._could_go(key, self.queue.waiting.example(key).info, class_scores):
            return
        entry = self.queue.waiting.first(key, self.handle.clock.monotonic())
        if entry is not None:
            self.queue.wake(entry)
        else:
            self._set_alarm(self.queue.waiting.next_ready(key))

    def _could_go(self, key: ClassKey, info: PodInfo, class_scores: ClassScores) -> bool:
        """Whether a node is feasible for `info`, an example of its group of waiting pods."""
        return class_scores.feasible_for(info) if key[2] else class_scores.feasible

    def _set_alarm(self, moment: float) -> None:
        """Set the timer to that monotonic second, unless it is set to an earlier one."""
        if moment == float("inf") or (self._alarm is not None and self._alarm[0] <= moment):
            return
        if self._alarm is not None:
            self._alarm[1].cancel()
        delay = max(0.0, moment - self.handle.clock.monotonic())
        self._alarm = (moment, self.handle.clock.call_later(delay, self._ring))

    def _ring(self) -> None:
        self._alarm = None
        self.queue.tick()
        self.handle.opened_gates |= self._cooling_gates
        self._cooling_gates.clear()
        self.handle.opened_gates.update(
            self.queue.held.overdue(self.handle.clock.monotonic() - LEFTOVER_SECONDS) if len(self.queue.held) else ()
        )
        if self.handle.opened_gates:
            self._open_gates()
        self._wake()
        self._set_alarm(self.queue.next_backoff())
        if len(self.queue.waiting):
            self._set_alarm(self.handle.clock.monotonic() + LEFTOVER_SECONDS)
        if self.queue.ready or self.handle.opened_gates:
            self.on_ready()

    def on_ready(self) -> None:
        """Called when a timer made a pod ready. The shell replaces it."""


def _class_key(info: PodInfo, state: CycleState) -> ClassKey:
    """The key of the group of waiting pods that can be placed whenever this pod can."""
    metadata = info.pod.metadata
    pin = pin_of(info.pod)
    mark = "" if pin is None else f"on {sorted(pin)} "
    if WIDE in state:
        claims = [volume.persistent_volume_claim.claim_name for volume in info.pod.spec.volumes
                  if volume.persistent_volume_claim]  # fmt: skip
        marked = state.get(MARK) or ""
        mark += f"{metadata.namespace} {sorted(metadata.labels.items())} {claims} {marked}"
    return info.pod.spec.scheduler_name, info.shape.id, mark


def _merged(one: MetadataChanges, other: MetadataChanges) -> MetadataChanges:
    return MetadataChanges(
        {**one.annotations, **other.annotations},
        {**one.labels, **other.labels},
        {**one.node_annotations, **other.node_annotations},
    )


def _nominated(pod: Pod) -> bool:
    return bool(pod.status.nominated_node_name)
