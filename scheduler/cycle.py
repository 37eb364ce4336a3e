"""The scheduler without its surroundings: events in, decisions out. No I/O, no threads, no clock but the one handed in.

`decide` settles one pod. What it returns is to be carried out by somebody else, who then says how a binding went. Until
then the pod counts as being where it was decided to go.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence

from scheduler.api.clock import Timer
from scheduler.api.core import ConfigMap, Node, Pod, PodDisruptionBudget
from scheduler.api.device import Device
from scheduler.api.numa import NodeResourceTopology
from scheduler.api.reservation import Reservation
from scheduler.cache.pins import pin_of
from scheduler.framework.clusterwide import MARK, WIDE
from scheduler.framework.diagnosis import DiagnosisLog, diagnosis_of
from scheduler.framework.events import Bind, ClearNomination, Decision, Evict, Reject
from scheduler.framework.explaining import explain, score_table
from scheduler.framework.failure import FitError
from scheduler.framework.handle import Handle
from scheduler.framework.nodeinfo import PodInfo
from scheduler.framework.points import NO_MARKS, Marks
from scheduler.framework.runner import Runner
from scheduler.framework.state import CycleState
from scheduler.framework.status import SUCCESS, Code, Status
from scheduler.framework.timing import EVERY, PRE_BIND
from scheduler.framework.verdicts import ClassVerdicts
from scheduler.plugins.deviceshare.cache import DeviceCache
from scheduler.plugins.deviceshare.slices import SliceRegistry
from scheduler.plugins.nodenuma.cache import NumaCache
from scheduler.plugins.reservation.args import ReservationArgs
from scheduler.plugins.reservation.cache import UNREADABLE, ReservationCache
from scheduler.plugins.reservation.plugin import Reservation as ReservationPlugin
from scheduler.queue.active import Entry
from scheduler.queue.queue import LEFTOVER_SECONDS, SchedulingQueue
from scheduler.queue.unschedulable import ClassKey

log = logging.getLogger(__name__)

ENOUGH_STIRS = 32  # so many placements that others' places may depend on pass before these are looked at, at most
SCHEDULER_ERROR = "SchedulerError"


class Core:
    """All profiles of one scheduler over one cache and one queue."""

    def __init__(
        self, handle: Handle, runners: Mapping[str, Runner], queue: SchedulingQueue, devices: DeviceCache
    ) -> None:
        self.handle = handle
        self.cache = handle.cache
        self.queue = queue
        self.complaints: list[str] = []  # what objects said that cannot be understood; the shell logs and empties it
        self._runners = runners
        self._devices = devices
        self._opened = False  # something happened that may have opened a node to pods that wait
        self._stirs = 0  # how much of `cache.stirs` the pods have been told that depend on other pods' places
        self._alarm: tuple[float, Timer] | None = None
        self.reservations = ReservationCache.of(handle)
        self._binding: dict[str, tuple[Entry, CycleState]] = {}
        self._diagnoses = DiagnosisLog(handle.clock)
        self.timing = handle.timing
        self._untimed = 0  # so many cycles before one is timed

    # -- events -------------------------------------------------------------------------------------------------------

    def set_node(self, node: Node) -> None:
        changes = self.cache.columns.changes
        self.complaints += self.cache.set_node(node)
        self._opened |= self.cache.columns.changes != changes

    def remove_node(self, name: str) -> None:
        self.cache.remove_node(name)

    def set_device(self, name: str, device: Device | None) -> None:
        self.complaints += self._devices.set_device(name, device)
        self._opened = True

    def set_topology(self, name: str, topology: NodeResourceTopology | None) -> None:
        """A node's NodeResourceTopology is there, changed, or (None) went."""
        self.complaints += NumaCache.of(self.handle).set_topology(name, topology)
        self._opened = True

    def set_config_map(self, key: str, config_map: ConfigMap | None) -> None:
        """One of `config_maps` is there, changed, or (None) went."""
        changed, wrong = self.handle.shared(SliceRegistry, SliceRegistry).replace(key, config_map)
        self.complaints += wrong
        if changed:
            self.handle.forget_verdicts()
            self._opened = True

    @property
    def config_maps(self) -> list[str]:
        """The ConfigMaps that plugins read, as namespace/name."""
        return sorted(self.handle.shared(SliceRegistry, SliceRegistry).read)

    def set_namespace(self, name: str, labels: dict[str, str] | None) -> None:
        """A namespace with its labels; None: it is gone."""
        self.cache.set_namespace(name, labels)

    def storage_changed(self) -> None:
        """`cache.volumes` is not what it was."""
        self.cache.stirs += 1

    def set_budget(self, budget: PodDisruptionBudget) -> None:
        self.handle.budgets[budget.metadata.key] = budget

    def remove_budget(self, key: str) -> None:
        self.handle.budgets.pop(key, None)

    def set_reservation(self, reservation: Reservation) -> None:
        """A reservation as the API server shows it, wherever in its life it is: its pod goes the way of all pods."""
        uid = reservation.metadata.uid
        before = self.reservations.find(uid)
        try:
            pod = self.reservations.set(reservation)
        except UNREADABLE as error:
            self.complaints.append(f"reservation {reservation.name}: {error}")
            self.remove_pod(uid)
            return
        placed = self.cache.placed(uid)
        if placed is not None and placed.priority != pod.spec.priority:
            self.cache.remove_pod(uid)  # sums by priority go by what it was placed with
        self.set_pod(pod)
        found = self.reservations.find(uid)
        if found is not None and (before is None or before.reservation.spec != reservation.spec):
            self._invite()
        if before is not None and found is None:
            self._opened = True

    def remove_reservation(self, uid: str) -> None:
        """A reservation is gone; its pods stay."""
        self.reservations.remove(uid)
        self.remove_pod(uid)

    def _invite(self) -> None:
        """A reservation opened: pods that waited like others do are told apart from these now."""
        waiting, owners = self.queue.waiting, self.reservations.owners
        for entry in waiting:
            info = entry.info
            if owners.knows(info.pod):
                waiting.remove(info.uid)
                waiting.add(_class_key(info, CycleState({WIDE: True, MARK: str(owners.groups(info.pod))})), entry)
        self._opened = True

    def set_pod(self, pod: Pod) -> None:
        """A pod as the API server shows it, wherever in its life it is."""
        uid = pod.metadata.uid
        if pod.terminated:
            self.remove_pod(uid)
        elif pod.spec.node_name:
            self._leave_queue(uid)
            self.cache.set_pod(pod)
        elif pod.spec.scheduler_name in self._runners and not self.cache.is_assumed(uid):
            if pod.deleting:
                self._leave_queue(uid)
            else:
                self._enqueue(pod)

    def remove_pod(self, uid: str) -> None:
        """A pod that is gone or has ended."""
        self._leave_queue(uid)
        self._binding.pop(uid, None)
        if self.cache.remove_pod(uid) is not None:
            self._opened = True

    def bound(self, uid: str) -> None:
        """The API server took the binding; its own word for it comes as an event."""
        self._binding.pop(uid, None)

    def bind_failed(self, uid: str, message: str, *, retry: bool = True) -> list[Decision]:
        """The binding came to nothing: what was taken is given back, and the pod is tried again unless it is gone."""
        found = self._binding.pop(uid, None)
        if found is None:
            return []
        entry, state = found
        info = self.cache.forget(uid)
        if info is None:
            return []  # the API server had it bound after all, or the pod is gone
        self._runner(info).unreserve(state, info.pod, info.node_name)
        self._opened = True
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
                entry.info.pod = pod  # only its status moved, or marks that nobody reads
                return
        self.queue.remove(uid)
        info = PodInfo(pod, self.cache.classes.of(pod))
        runner = self._runner(info)
        if pod.status.nominated_node_name and not self.handle.nominator.node_of(uid):
            self.handle.nominator.nominate(info, pod.status.nominated_node_name)
        self.queue.add(info, gated=not runner.pre_enqueue(pod).ok)

    def _leave_queue(self, uid: str) -> None:
        self.queue.remove(uid)
        if self.handle.nominator.node_of(uid):
            self.handle.nominator.forget(uid)
            self._opened = True

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
    def reservation_args(self) -> ReservationArgs | None:
        """How long reservations are kept, by the first profile that places any."""
        plugins = (plugin for runner in self._runners.values() for plugin in runner.profile.all)
        return next((plugin.args for plugin in plugins if isinstance(plugin, ReservationPlugin)), None)

    @property
    def profiles(self) -> frozenset[str]:
        """Names under which pods ask for this scheduler."""
        return frozenset(self._runners)

    def runner_of(self, info: PodInfo) -> Runner:
        """The profile that a pod asks for."""
        return self._runner(info)

    def _runner(self, info: PodInfo) -> Runner:
        return self._runners[info.pod.spec.scheduler_name]

    # -- deciding -----------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether `decide` would have a pod to settle."""
        if self._opened or self._devices.unsettled or self._stirs != self.cache.stirs:
            self._wake_if_opened()
        return self.queue.ready > 0

    def decide(self) -> list[Decision]:
        """Settle the pod whose turn it is; an empty list also means that nobody's is."""
        if self._opened or self._devices.unsettled or self._stirs != self.cache.stirs:
            self._wake_if_opened()
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
            return self._settle(entry, runner)
        if self.handle.debug.diagnoses:
            return self._settle(entry, runner)  # explaining would be timed with it: the next one, then
        self._untimed = EVERY - 1
        self.timing.start()
        try:
            decisions = self._settle(entry, runner)
        finally:
            self.timing.stop()
        self.timing.record_cycle(
            runner.scheduler_name, placed=any(isinstance(decision, Bind) for decision in decisions)
        )
        return decisions

    def _settle(self, entry: Entry, runner: Runner) -> list[Decision]:
        info = entry.info
        verdicts = runner.verdicts(info.shape)
        found = verdicts.select(info)
        if isinstance(found, FitError):
            return self._fail(entry, runner, verdicts, found)
        row, state = found
        node = self.cache.columns.names[row]
        status = runner.reserve(state, info.pod, node)
        if status is not SUCCESS and not status.ok:
            return self._reject(entry, state, status)
        self.cache.assume(info, node)
        if self.handle.nominator.nominated:
            self.handle.nominator.forget(info.uid)
        self._binding[info.uid] = (entry, state)
        waiting = self.queue.waiting
        if not waiting.empty:
            key = _class_key(info, state)
            if waiting.has_class(key):
                self._wake_class(key, verdicts)
        marks = self._marks(runner, state, info.pod, node)
        return [Bind(info, node, marks.annotations, marks.labels, marks.node_annotations)]

    def _log_cycle(self, runner: Runner, info: PodInfo) -> None:
        """What the debug flags ask for, in Koordinator's words (FWK-R33, FWK-R34)."""
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

    def _marks(self, runner: Runner, state: CycleState, pod: Pod, node: str) -> Marks:
        found = NO_MARKS
        for plugin in runner.profile.pre_bind:
            if self.timing.paused:
                marks = plugin.pre_bind(state, pod, node)
            else:
                marks = self.timing.ask(PRE_BIND, plugin, plugin.pre_bind, state, pod, node)
            if marks is not NO_MARKS:
                found = marks if found is NO_MARKS else _merged(found, marks)
        return found

    def _fail(self, entry: Entry, runner: Runner, verdicts: ClassVerdicts, failure: FitError) -> list[Decision]:
        info = entry.info
        self.timing.pre_filter = failure.pre_filter
        decisions: list[Decision] = []
        nominated: str | None = None
        words: list[str] = []
        state = failure.state or verdicts.state.fork()
        key = _class_key(info, state)
        for plugin in runner.profile.post_filter:
            result = plugin.post_filter(state, info, failure)
            if result.status.ok:
                nominated = result.node
                decisions += self._make_way(info, result.node, result.victims)
                break
            words += result.status.reasons
            if result.clear_nomination and (self.handle.nominator.node_of(info.uid) or _nominated(info.pod)):
                self.handle.nominator.forget(info.uid)
                nominated = ""
            if result.status.code is not Code.UNSCHEDULABLE:
                break
        if self.handle.debug.diagnoses:
            said = ", ".join(words) if runner.profile.post_filter else None
            self._account(runner, info, failure, nominated or "", said)
        self._wait(entry, key, verdicts)
        return [*decisions, Reject(info, failure.message(", ".join(words)), nominated=nominated)]

    def _account(self, runner: Runner, info: PodInfo, failure: FitError, nominated: str, said: str | None) -> None:
        """Log the failure as JSON (FWK-R35); `said` by PostFilter, if it was asked."""
        rejected = {} if failure.pre_filter is not None else explain(runner, info).rejected
        diagnosis = diagnosis_of(
            info, rejected, now=self.handle.clock.now(), pre_filter=failure.pre_filter, nominated=nominated,
            preemption=said,
        )  # fmt: skip
        self._diagnoses.say(info, diagnosis, at_once=self.handle.debug.diagnoses_at_once)

    def _make_way(self, info: PodInfo, node: str, victims: Sequence[PodInfo]) -> list[Decision]:
        """Evict the victims, hold the node for `info`, and take it from less important pods that were to have it."""
        nominator = self.handle.nominator
        lesser = [other for other in nominator.on(node) if other.priority < info.priority]
        for other in lesser:
            nominator.forget(other.uid)
        nominator.nominate(info, node)
        evictions = [Evict(victim, info, node) for victim in victims if not victim.pod.deleting]
        if not evictions:
            self._opened = True  # nobody to wait for: the node is free, or will be when those who are going have gone
        return [*(ClearNomination(other) for other in lesser), *evictions]

    def _reject(self, entry: Entry, state: CycleState, status: Status) -> list[Decision]:
        """Reserve said no although the filters had said yes: the message counts one node (FWK-R47)."""
        info = entry.info
        reason = "Unschedulable" if status.rejected else SCHEDULER_ERROR
        message = f"0/1 nodes are available: 1 {status.message}." if status.rejected else status.message
        self._wait(entry, _class_key(info, state), self._runner(info).verdicts(info.shape))
        return [Reject(info, message, reason)]

    # -- waiting ------------------------------------------------------------------------------------------------------

    def _wait(self, entry: Entry, key: ClassKey, verdicts: ClassVerdicts) -> None:
        self.queue.wait(key, entry)
        moment = self.handle.clock.monotonic() + LEFTOVER_SECONDS
        if self._could_go(key, entry.info, verdicts):
            moment = min(moment, self.queue.waiting.next_ready(key))
        self._set_alarm(moment)
        alike = (*key[:2], "")
        if key[2] and self.queue.waiting.has_class(alike):  # it was tried in the name of these, but differs from them
            self._wake_class(alike, verdicts)

    def _wake_if_opened(self) -> None:
        if self._opened or self._devices.unsettled:
            self._wake()
        elif self._stirs != self.cache.stirs and (
            not self.queue.ready or self.cache.stirs - self._stirs >= ENOUGH_STIRS
        ):
            self._stirs = self.cache.stirs
            self._wake_classes(self.queue.waiting.wide_classes())

    def _wake(self) -> None:
        """Look which classes of waiting pods have a node now, and let the first pod of each try."""
        self._opened = self._devices.unsettled = False
        self._stirs = self.cache.stirs
        self._wake_classes(self.queue.waiting.classes())

    def _wake_classes(self, keys: Iterable[ClassKey]) -> None:
        for key in keys:
            shape = self.queue.waiting.example(key).info.shape
            self._wake_class(key, self._runners[key[0]].verdicts(shape))

    def _wake_class(self, key: ClassKey, verdicts: ClassVerdicts) -> None:
        verdicts.refresh()
        if not self._could_go(key, self.queue.waiting.example(key).info, verdicts):
            return
        entry = self.queue.waiting.first(key, self.handle.clock.monotonic())
        if entry is not None:
            self.queue.wake(entry)
        else:
            self._set_alarm(self.queue.waiting.next_ready(key))

    def _could_go(self, key: ClassKey, info: PodInfo, verdicts: ClassVerdicts) -> bool:
        """Whether a node would take `info`, which stands for its class; where the class says little, it has to try."""
        return verdicts.feasible_for(info) if key[2] else verdicts.feasible

    def _set_alarm(self, moment: float) -> None:
        """Look again at that monotonic second, if not before."""
        if moment == float("inf") or (self._alarm is not None and self._alarm[0] <= moment):
            return
        if self._alarm is not None:
            self._alarm[1].cancel()
        delay = max(0.0, moment - self.handle.clock.monotonic())
        self._alarm = (moment, self.handle.clock.call_later(delay, self._ring))

    def _ring(self) -> None:
        self._alarm = None
        self.queue.tick()
        self._wake()
        self._set_alarm(self.queue.next_backoff())
        if len(self.queue.waiting):
            self._set_alarm(self.handle.clock.monotonic() + LEFTOVER_SECONDS)
        if self.queue.ready:
            self.on_ready()

    def on_ready(self) -> None:
        """Called when time alone has made `decide` worth calling; the shell puts its own function here."""


def _class_key(info: PodInfo, state: CycleState) -> ClassKey:
    """What a pod has in common with those that can be placed whenever it can."""
    metadata = info.pod.metadata
    pin = pin_of(info.pod)
    mark = "" if pin is None else f"on {sorted(pin)} "
    if WIDE in state:
        claims = [volume.persistent_volume_claim.claim_name for volume in info.pod.spec.volumes
                  if volume.persistent_volume_claim]  # fmt: skip
        marked = state.get(MARK) or ""
        mark += f"{metadata.namespace} {sorted(metadata.labels.items())} {claims} {marked}"
    return info.pod.spec.scheduler_name, info.shape.id, mark


def _merged(one: Marks, other: Marks) -> Marks:
    return Marks(
        {**one.annotations, **other.annotations},
        {**one.labels, **other.labels},
        {**one.node_annotations, **other.node_annotations},
    )


def _nominated(pod: Pod) -> bool:
    return bool(pod.status.nominated_node_name)
