"""Which waiting and held pods are tried again, and when.

Events only note that something changed. The next decision wakes one pod of each class that has a feasible node or may
preempt on a node that a pod has left, and asks held pods whose gate opened again. A timer ends backoffs and retries
pods that have waited for long.
"""

import math
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Protocol

from seatrial.scheduler.api.clock import Timer
from seatrial.scheduler.api.core import PREEMPT_NEVER
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.cache.pins import pin_of
from seatrial.scheduler.cache.volumes import claim_keys
from seatrial.scheduler.core.held_reports import HeldReports
from seatrial.scheduler.core.outbox import Outbox
from seatrial.scheduler.core.queue.active import Entry
from seatrial.scheduler.core.queue.held import UNTIL_CHANGED
from seatrial.scheduler.core.queue.queue import LEFTOVER_SECONDS, SchedulingQueue
from seatrial.scheduler.core.queue.unschedulable import ClassKey
from seatrial.scheduler.engine.class_scores import ClassScores
from seatrial.scheduler.engine.runner import Runners
from seatrial.scheduler.framework.decisions import SCHEDULER_ERROR, Reject
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CLUSTER_SCOPED, CONCERNED_PLUGINS, WAKE_GROUP, CycleState
from seatrial.scheduler.framework.status import Code, Status
from seatrial.scheduler.pods.preempted import preempted

# Waiting pods whose placement depends on other pods are tried again after this many changes, or when no pod is ready.
PLACEMENT_CHANGES_THRESHOLD = 32
READ_AGAIN_SECONDS = 10.0  # the pause before gate keys are read once more because a plugin raised
PREEMPTION_PAUSE_SECONDS = 1.0  # between two pods of one group that are tried because they may preempt
AFTER_BACKOFF = "after-backoff"  # the wake key of pods that are asked again when their backoff ends


class WaitingGroups(Protocol):
    """Groups of pods that wait as a whole."""

    def apply_changed_rules(self) -> None:
        """Rules of groups may have changed: their members are tried by the present ones."""

    def behind(self, gates: set[str]) -> set[str]:
        """Wake keys of the groups of which a member was held back by one of these gates."""

    def wake(self) -> None:
        """Open the gates of groups that may fit now."""

    def wake_nominated_to(self, names: Iterable[str]) -> None:
        """Open the gates of groups with nominations to one of these nodes, if all their victims have ended."""


class Waker:
    """Pods that were tried and wait: for room on a node, for a gate, or for time to pass."""

    def __init__(
        self, handle: Handle, runners: Runners, queue: SchedulingQueue, outbox: Outbox, reports: HeldReports
    ) -> None:
        self._handle, self._wakes, self._cache = handle, handle.wakes, handle.cache
        self._runners, self._queue = runners, queue
        self._outbox, self._reports = outbox, reports
        self.groups: WaitingGroups | None = None
        self._label_keys = 0  # number of label keys that terms of placed pods read, when groups were formed
        self._placement_changes = 0  # value of `cache.placement_changes` when waiting pods were last tried
        self._alarm: tuple[float, Timer] | None = None
        self._keys_unread = False  # a plugin raised when the gate keys were read again
        self._cooling_gates: set[str] = set()  # wake keys of opened gates whose pods are in backoff
        self._opened_nodes: set[str] = set()  # that a pod has left, or that changed, since pods were last looked at
        # Groups to be tried because of them: the lowest priority there, and `placement_changes` at the event; pods that
        # were tried since need not be.
        self._preemptors: dict[ClassKey, tuple[int, float]] = {}
        self._paused: dict[ClassKey, float] = {}  # when another pod of a group may be tried so

    def wake_due(self) -> None:
        """Put the pods into the queue that changes since the last call may have made feasible."""
        if self._wakes.wake or self._placement_changes != self._cache.placement_changes:
            self._wake_if_opened()
        if self._wakes.gates:
            self._open_gates()

    def add(self, entry: Entry, key: ClassKey, class_scores: ClassScores) -> None:
        """Have a pod that no node can take wait in the group `key`."""
        self._queue.wait(key, entry)
        moment = self._handle.clock.monotonic() + LEFTOVER_SECONDS
        if self._could_go(key, entry.info, class_scores):
            moment = min(moment, self._queue.waiting.next_ready(key))
            if self._handle.nominator.nominated:
                self._wake_nominated(key)
        self.set_alarm(moment)
        alike = (*key[:2], "")
        if key[2] and self._queue.waiting.has_class(alike):  # it was woken as an example of them, but differs
            self.wake_class(alike, class_scores)

    def _wake_nominated(self, key: ClassKey) -> None:
        """Wake the pods of a group for which preemption made room: the pod of the group that was tried found no place
        although there is one, as it may be theirs."""
        now, waiting = self._handle.clock.monotonic(), self._queue.waiting
        for uid in list(self._handle.nominator.nominated):
            entry = waiting.get(uid)
            if entry is not None and entry.ready_at <= now and waiting.class_of(uid) == key:
                self._queue.wake(entry)

    def node_opened(self, node: str) -> None:
        """A pod or a nomination is gone from a node, or the node itself changed: pods that are nominated to it, or may
        preempt there, may be tried again."""
        if self._handle.leading:
            self._opened_nodes.add(node)

    def _wake_nominated_to(self, names: Iterable[str]) -> None:
        """Wake the pods that are nominated to one of these nodes, when none of its pods is a victim that ends.

        Another pod may have the room that was made. No node is feasible for the nominated pod then, and it has to
        preempt again; upstream tries it again at each deletion of a pod.
        """
        now, waiting = self._handle.clock.monotonic(), self._queue.waiting
        for name in names:
            nominated = [entry for info in self._handle.nominator.on(name) if (entry := waiting.get(info.uid))]
            if not nominated:
                continue
            node = self._cache.find(name)
            if node is not None and any(preempted(info.pod) for info in node.pods.values()):
                continue  # its end is another event
            for entry in nominated:
                if entry.ready_at <= now:
                    self._queue.wake(entry)
                else:
                    self._queue.retry_after_backoff(entry)
                    self.set_alarm(entry.ready_at)

    def _wake_preemptors(self, names: Iterable[str]) -> None:
        """Wake the first pod of each group that is more important than a pod on one of the nodes `names`.

        A pod has left these nodes, or they changed. None is feasible, but the eviction of less important pods may be
        enough now. Upstream tries all waiting pods again at such an event; equal pods would come to the same result. A
        group of which a pod was tried so a moment ago, or whose pods are in backoff, is tried in a later call.
        """
        waiting, now = self._queue.waiting, self._handle.clock.monotonic()
        lowest = self._lowest_on(names)
        if lowest is not None:
            self._add_preemptors(waiting.classes(), lowest)
        self._paused = {key: moment for key, moment in self._paused.items() if moment > now}
        for key, (lowest, changes) in list(self._preemptors.items()):
            entry = None
            if key not in self._paused:
                entry = waiting.first(key, now, self._cannot_preempt)
                if entry is None and waiting.next_ready(key) == float("inf"):
                    entry = waiting.first(key, now)
            if entry is not None:
                del self._preemptors[key]
                if entry.info.priority > lowest and entry.placements < changes:
                    self._queue.wake(entry)
                    self._paused[key] = now + PREEMPTION_PAUSE_SECONDS
            elif waiting.has_class(key):
                self.set_alarm(self._paused.get(key, 0.0) or waiting.next_ready(key))
            else:
                del self._preemptors[key]

    def _cannot_preempt(self, entry: Entry) -> bool:
        """Whether the pod made room already, or never does: another one of its group may."""
        never = entry.info.pod.spec.preemption_policy == PREEMPT_NEVER
        return never or entry.info.uid in self._handle.nominator.nominated

    def others_may_preempt(self, key: ClassKey, victims: Iterable[PodInfo]) -> None:
        """A pod of the group preempts these: pods of the group that wait and are not nominated are tried, too.

        Upstream tried them at the event that had the first one tried, and each would have found its own victims.
        """
        nominated, waiting = self._handle.nominator.nominated, self._queue.waiting
        lowest = min((victim.priority for victim in victims), default=None)
        if lowest is None or not waiting.has_class(key):
            return
        if any(entry.info.uid not in nominated for entry in waiting.members(key)):
            self._add_preemptors((key,), lowest)
            self._handle.request_wake()

    def _add_preemptors(self, keys: Iterable[ClassKey], lowest: int, changes: float = math.inf) -> None:
        """Have a pod of each of these groups tried that is more important than `lowest`."""
        for key in keys:
            if self._runners[key[0]].profile.post_filter:
                before = self._preemptors.get(key, (lowest, changes))
                self._preemptors[key] = min(lowest, before[0]), max(changes, before[1])

    def _lowest_on(self, names: Iterable[str]) -> int | None:
        """The lowest priority of the pods on these nodes; None if no waiting pod is more important."""
        highest, lowest = self._queue.waiting.highest_priority, self._cache.lowest_priority
        if highest is None or lowest is None or highest <= lowest:
            return None
        nodes = [node for name in names if (node := self._cache.find(name)) is not None]
        priority = min((info.priority for node in nodes for info in node.pods.values()), default=highest)
        return priority if priority < highest else None

    def wait(self, entry: Entry, state: CycleState | None) -> None:
        """Wait until a node is feasible. `state`: that of the cycle, if there was one."""
        try:
            class_scores = self._runners.of(entry.info).class_scores(entry.info.pod_class)
            self.add(entry, class_key(entry.info, state or class_scores.state, self._cache.label_keys), class_scores)
        except Exception as error:  # noqa: BLE001 the pod is tried again after its backoff
            self._handle.evaluation_failed(error, f"pod={entry.info.key}")
            self._queue.remove(entry.info.uid)
            self._queue.put_back(entry)
            self.set_alarm(self._queue.next_backoff())

    def requeue(self, entry: Entry) -> None:
        """Put an entry back that was taken from the queue and not tried."""
        status = self._runners.of(entry.info).pre_enqueue(entry.info.pod)
        if status.ok:
            self._queue.push(entry)
        elif status.code is Code.ERROR:
            self.hold_after_error(entry, status)
        else:
            self._queue.hold(status.wake_key or UNTIL_CHANGED, entry, status)

    def hold_after_error(self, entry: Entry, status: Status) -> None:
        """PreEnqueue failed: ask it again after the pod's backoff."""
        entry.attempts += 1
        self._queue.hold(AFTER_BACKOFF, entry, status)
        self._cooling_gates.add(AFTER_BACKOFF)
        self.set_alarm(entry.ready_at)
        self._outbox.put(Reject(entry.info, status.message, SCHEDULER_ERROR))

    def hold(self, entry: Entry, key: str, status: Status) -> None:
        """Wait until the gate `key` opens."""
        self._queue.hold(key, entry, status)
        self.set_alarm(self._handle.clock.monotonic() + LEFTOVER_SECONDS)

    def _open_gates(self) -> None:
        """Ask the first held pod of each class again, for each gate that opened."""
        if self.groups is not None:
            self.groups.apply_changed_rules()
        opened = self._wakes.take_gates()
        if self._wakes.take_regate():
            self._regate()
        now = self._handle.clock.monotonic()
        if self.groups is not None:
            opened |= self.groups.behind(opened)
        for key in sorted(opened):
            more = True
            while more:
                entries = self._queue.held.first_of_classes(key, now)
                more = True in [self._ask_again(entry, key) for entry in entries]
            moment = self._queue.held.next_ready(key)
            if moment != float("inf"):
                self._cooling_gates.add(key)
                self.set_alarm(moment)

    def _ask_again(self, entry: Entry, key: str) -> bool:
        """Release a held pod if what held it under `key` passes it now.

        Returns whether PreEnqueue holds it under this key no more, so that the next pod is to be asked at once: all
        members of a gang have to be under the key of its group before its attempt.
        """
        own = [gate for gate, gate_key in entry.gates if gate_key == key]
        if own:
            try:
                closed = next((status.by(gate.name) for gate in own if not (status := gate.gate(entry.info)).ok), None)
            except Exception as error:  # noqa: BLE001 the pod's own cycle reports it
                self._handle.evaluation_failed(error, f"pod={entry.info.key}")
                closed = None
            if closed is None:
                self._queue.release(entry)  # its cycle has the next pod asked
            else:
                if entry.held != closed:
                    self._reports.changed(entry.info.uid)
                entry.held = closed
            return False
        status = self._runners.of(entry.info).pre_enqueue(entry.info.pod)
        if status.ok:
            self._queue.release(entry)
        elif status.code is Code.ERROR:
            self._queue.held.remove(entry.info.uid)
            self.hold_after_error(entry, status)
            return key != AFTER_BACKOFF
        elif status.wake_key != key:
            self._queue.held.remove(entry.info.uid)
            self._queue.hold(status.wake_key or UNTIL_CHANGED, entry, status)
        else:
            entry.held = status
            if entry.attempts and entry.grouped:
                self._tell_what_lacks(entry, key)
            return False
        return True

    def _tell_what_lacks(self, entry: Entry, key: str) -> None:
        """A group that was tried lacks members now: the others are held back and say why, as before."""
        groups = self._runners.of(entry.info).groups
        if groups is not None and groups.incompleteness(entry.info.pod):
            for member in self._queue.held.under(key):
                member.attempts, member.last_message = 0, ""
                self._reports.held(member.info.uid)

    def _regate(self) -> None:
        """Read the gate keys of all pods in the queue again, and release those that another gate holds now.

        A pod for which a plugin raises has its former keys until all are read again, READ_AGAIN_SECONDS later.
        """
        held = self._queue.held
        for _, entry in list(self._queue.entries()):
            before = entry.gates
            try:
                entry.gates = self._runners.of(entry.info).gates_of(entry.info.pod)
            except Exception as error:  # noqa: BLE001 the other pods' keys are read all the same
                self._handle.evaluation_failed(error, f"pod={entry.info.key}")
                self._keys_unread = True
                self.set_alarm(self._handle.clock.monotonic() + READ_AGAIN_SECONDS)
                continue
            if entry.held is not None:
                key = held.key_of(entry.info.uid)
                if key in {own for _, own in before} - {own for _, own in entry.gates}:
                    self._queue.release(entry)

    def _wake_if_opened(self) -> None:
        if self._wakes.wake:
            self._wake()
        elif self._placement_changes != self._cache.placement_changes and (
            not self._queue.ready
            or self._cache.placement_changes - self._placement_changes >= PLACEMENT_CHANGES_THRESHOLD
        ):
            if self._label_keys != len(self._cache.label_keys):
                self._regroup()
            self._take_in_placements()
            self.wake_classes(self._queue.waiting.wide_classes())
            if self._preemptors:
                self._wake_preemptors(())
            if self.groups is not None:
                self.groups.wake()

    def _wake(self) -> None:
        """Wake the first pod of each class of waiting pods that has a feasible node now."""
        self._wakes.wake = False
        if self._label_keys != len(self._cache.label_keys):
            self._regroup()
        self._take_in_placements()
        self.wake_classes(self._queue.waiting.classes())
        if self._opened_nodes or self._preemptors:
            opened, self._opened_nodes = sorted(self._opened_nodes), set()
            self._wake_preemptors(opened)
            self._wake_nominated_to(opened)
            if self.groups is not None:
                self.groups.wake_nominated_to(opened)
        if self.groups is not None:
            self.groups.wake()

    def _take_in_placements(self) -> None:
        """Pods whose placement depends on other pods may preempt where they could not before, as beside a partner."""
        if self._placement_changes == self._cache.placement_changes:
            return
        self._placement_changes = self._cache.placement_changes
        highest, lowest = self._queue.waiting.highest_priority, self._cache.lowest_priority
        if highest is not None and lowest is not None and lowest < highest:
            self._add_preemptors(self._queue.waiting.wide_classes(), lowest, self._placement_changes)

    def _regroup(self) -> None:
        """A term reads a label that none read before: pods of one group may differ in it, so that all are tried."""
        self._label_keys = len(self._cache.label_keys)
        wide = set(self._queue.waiting.wide_classes())
        for entry in [entry for key in wide for entry in self._queue.waiting.members(key)]:
            self._queue.wake(entry)

    def wake_classes(self, keys: Iterable[ClassKey]) -> None:
        """Wake the first pod of each of these groups for which a node is feasible."""
        for key in keys:
            info = self._queue.waiting.example(key).info
            try:
                class_scores = self._runners[key[0]].class_scores(info.pod_class)
            except Exception as error:  # noqa: BLE001 the pod's own cycle reports it
                self._handle.evaluation_failed(error, f"pod={info.key}")
                self._wake_first(key)
            else:
                self.wake_class(key, class_scores)

    def wake_class(self, key: ClassKey, class_scores: ClassScores) -> None:
        """Wake the first pod of the group `key` if a node is feasible for it."""
        info = self._queue.waiting.example(key).info
        try:
            class_scores.refresh()
        except Exception as error:  # noqa: BLE001 the pod's own cycle reports it
            self._handle.evaluation_failed(error, f"pod={info.key}")
        else:
            if not self._could_go(key, info, class_scores):
                return
        self._wake_first(key)

    def _wake_first(self, key: ClassKey) -> None:
        """Wake the first pod of the group that is not in backoff, or set the timer to the end of the first backoff."""
        entry = self._queue.waiting.first(key, self._handle.clock.monotonic())
        if entry is not None:
            self._queue.wake(entry)
        else:
            self.set_alarm(self._queue.waiting.next_ready(key))

    def _could_go(self, key: ClassKey, info: PodInfo, class_scores: ClassScores) -> bool:
        """Whether a node is feasible for `info`, an example of its group of waiting pods, or a plugin raises for it."""
        try:
            return class_scores.feasible_for(info) if key[2] else class_scores.feasible
        except Exception as error:  # noqa: BLE001 the pod's own cycle reports it
            self._handle.evaluation_failed(error, f"pod={info.key}")
            return True

    def set_alarm(self, moment: float) -> None:
        """Set the timer to that monotonic second, unless it is set to an earlier one."""
        if moment == float("inf") or (self._alarm is not None and self._alarm[0] <= moment):
            return
        if self._alarm is not None:
            self._alarm[1].cancel()
        delay = max(0.0, moment - self._handle.clock.monotonic())
        self._alarm = (moment, self._handle.clock.call_later(delay, self._ring))

    def _ring(self) -> None:
        self._alarm = None
        self._queue.tick()
        if self._keys_unread:
            self._keys_unread = False
            self._handle.request_regate()
        self._wakes.gates |= self._cooling_gates
        self._cooling_gates.clear()
        self._wakes.gates |= self._queue.held.overdue(self._handle.clock.monotonic() - LEFTOVER_SECONDS)
        try:
            if self._wakes.gates:
                self._open_gates()
            self._wake()
        finally:
            self.set_alarm(self._queue.next_backoff())
            self.set_alarm(self._queue.waiting.oldest + LEFTOVER_SECONDS + 1)  # a second late: no rounding delays it
            if self._queue.held.some_tried:
                self.set_alarm(self._handle.clock.monotonic() + LEFTOVER_SECONDS)
            if self._queue.ready or self._wakes.gates:
                self._handle.request_cycle()


def class_key(info: PodInfo, state: CycleState, label_keys: AbstractSet[str]) -> ClassKey:
    """The key of the group of waiting pods that can be placed whenever this pod can.

    `label_keys`: of labels that terms of placed pods have read; a term that reads one of them may come again.
    """
    metadata = info.pod.metadata
    pin = pin_of(info.pod)
    mark = "" if pin is None else f"on {sorted(pin)} "
    if CLUSTER_SCOPED in state:
        claims = [name for _, name in claim_keys(info.pod)]
        marked = state.get(WAKE_GROUP) or ""
        mark += f"{metadata.namespace} {_read_labels(info, state, label_keys)} {claims} {marked}"
    return info.pod.spec.scheduler_name, info.pod_class.id, mark


def _read_labels(info: PodInfo, state: CycleState, label_keys: AbstractSet[str]) -> list[tuple[str, str]]:
    """The labels of a pod that plugins of scope CLUSTER may read, sorted.

    The pods of a StatefulSet or an indexed Job have labels of their own (`apps.kubernetes.io/pod-index`), which hardly
    any selector names. Grouped by these each pod would be a group, and each is asked when a place becomes free.
    """
    labels = info.pod.metadata.labels
    if not labels:
        return []
    keys = set(label_keys)
    for plugin in state.get(CONCERNED_PLUGINS) or (None,):
        read = None if plugin is None else plugin.label_keys(info.pod)
        if read is None:
            return sorted(labels.items())
        keys |= read
    return sorted((key, labels[key]) for key in keys if key in labels)
