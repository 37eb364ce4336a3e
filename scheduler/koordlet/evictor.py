"""Evicts pods when CPU or memory is short: looks at what is short, and asks the API server (EV-1 to EV-11)."""

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.quantity import CPU, MEMORY, QuantityError, amount
from seatrial.scheduler.api.slo import BATCH_CPU
from seatrial.scheduler.api.transport import Response, Transport
from seatrial.scheduler.client.events import EventRecorder
from seatrial.scheduler.client.rest import Rest, RetryPolicy, refusal
from seatrial.scheduler.koordlet import evict
from seatrial.scheduler.koordlet.audit import AuditLog
from seatrial.scheduler.koordlet.collectors import BE_LIMIT, BE_REQUEST, BE_USED, FRESH, NODE_CPU, NODE_MEMORY
from seatrial.scheduler.koordlet.evict import REQUESTED, USED, Shortage, Victim, Window
from seatrial.scheduler.koordlet.objects import LocalPod
from seatrial.scheduler.koordlet.samples import Samples, average
from seatrial.scheduler.koordlet.strategies import BY_ALLOCATABLE, Threshold
from seatrial.scheduler.pods.priority import DEFAULT_PRIORITY, EXTENDED_RESOURCES
from seatrial.scheduler.pods.qos import BE
from seatrial.scheduler.pods.requests import pod_requests
from seatrial.scheduler.serving.once import Once

log = logging.getLogger(__name__)

COOL_DOWN = {CPU: 20.0, MEMORY: 4.0}  # seconds after an eviction
REFUSED = 10.0  # seconds until a pod is tried again whose eviction was refused, as by a budget
LOOK = 1.0  # seconds between two looks


class _Round(NamedTuple):
    """What one look at a node sees."""

    now: float
    pods: list[LocalPod]
    threshold: Threshold
    node: Node
    capacity: dict[str, int]  # thousandths of a core, bytes


class Evictor:
    """Remembers which pods it has evicted, and whose eviction was refused."""

    def __init__(  # noqa: PLR0917
        self,
        transport: Transport,
        events: EventRecorder,
        clock: Clock,
        samples: Samples,
        enabled: Callable[[str], bool],
        audit: AuditLog,
    ) -> None:
        """`enabled`: whether a feature is switched on."""
        self._audit = audit
        self._rest = Rest(transport, clock, RetryPolicy(1))  # another pod is tried in the next round
        self._events, self._clock, self._samples, self._enabled = events, clock, samples, enabled
        self._last: dict[str, float] = {}  # CPU or memory → moment of the last eviction
        self._evicting: set[str] = set()  # uids
        self._refused: dict[str, float] = {}  # uid → moment from which it is tried again
        self._say = Once(log)
        self._features = {
            CPU: {
                evict.BE_CPU: self._by_satisfaction,
                evict.CPU_ALLOCATABLE: self._by_cpu_requests,
                evict.CPU_USAGE: self._by_cpu_usage,
            },
            MEMORY: {
                evict.BE_MEMORY: self._by_memory_of_best_effort,
                evict.MEMORY_ALLOCATABLE: self._by_memory_requests,
                evict.MEMORY_USAGE: self._by_memory_usage,
            },
        }

    def look(self, pods: Iterable[LocalPod], threshold: Threshold, node: Node, capacity: dict[str, int]) -> None:
        """Evict what each feature that is switched on wants evicted; `capacity` of the node by resource."""
        seen = _Round(self._clock.monotonic(), list(pods), threshold, node, capacity)
        by_uid = {pod.uid: pod for pod in seen.pods}
        for kind, features in self._features.items():
            if seen.now - self._last.get(kind, float("-inf")) < COOL_DOWN[kind]:
                continue
            shortages = [result for name, look in features.items() if self._enabled(name) and (result := look(seen))]
            leaving = [self._victim(seen, pod, kind) for pod in seen.pods if self._leaves(pod)] if shortages else []
            refused = {uid for uid, until in self._refused.items() if until > seen.now}
            for feature, uid in evict.chosen(shortages, leaving, refused):
                self._evict(seen.now, kind, feature, by_uid[uid])

    def stop(self) -> None:
        self._rest.stop()

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._evicting.discard(uid)
        self._refused.pop(uid, None)

    # -- features -----------------------------------------------------------------------------------------------------

    def _by_satisfaction(self, seen: _Round) -> Shortage | None:
        """Best-effort pods get too little of the CPU that they request (EV-2 to EV-4)."""
        threshold, now = seen.threshold, seen.now
        lower, upper = (
            threshold.cpu_evict_be_satisfaction_lower_percent,
            threshold.cpu_evict_be_satisfaction_upper_percent,
        )
        if lower is None or upper is None or self._wrong(evict.BE_CPU, evict.satisfaction_error(lower, upper)):
            return None
        seconds = max(LOOK, threshold.cpu_evict_time_window_seconds)
        samples = [self._samples.between(kind, now - seconds, now) for kind in (BE_USED, BE_REQUEST, BE_LIMIT)]
        if not all(samples) or len(samples[0]) * LOOK < seconds / 3:
            return None
        mean = Window(*(average(each) or 0.0 for each in samples))
        current = Window(*(each[-1].value for each in samples))
        if threshold.cpu_evict_policy == BY_ALLOCATABLE:
            limit = _batch_cpu(seen.node)
            mean, current = mean._replace(limit=limit), current._replace(limit=limit)
        release = evict.satisfaction_release(
            mean, current, lower, upper, threshold.cpu_evict_be_usage_threshold_percent
        )
        if release <= 0:
            return None
        victims = evict.by_cpu(self._best_effort(seen, CPU, evict.BE_CPU))
        return Shortage(evict.BE_CPU, REQUESTED, {BATCH_CPU: release}, victims)

    def _by_memory_of_best_effort(self, seen: _Round) -> Shortage | None:
        release = self._memory_release(seen, evict.BE_MEMORY)
        if release <= 0:
            return None
        victims = evict.by_memory(self._best_effort(seen, MEMORY, evict.BE_MEMORY))
        return Shortage(evict.BE_MEMORY, USED, {MEMORY: release}, victims)

    def _by_cpu_usage(self, seen: _Round) -> Shortage | None:
        percent, lower = seen.threshold.cpu_evict_threshold_percent, seen.threshold.cpu_evict_lower_percent
        if percent is None or self._wrong(evict.CPU_USAGE, evict.lines_error(percent, lower)):
            return None
        seconds = max(LOOK, seen.threshold.cpu_evict_time_window_seconds)
        used = average(self._samples.between(NODE_CPU, seen.now - seconds, seen.now))
        release = 0 if used is None else evict.usage_release(seen.capacity[CPU], int(used * 1000), percent, lower)
        return self._by_usage(seen, CPU, evict.CPU_USAGE, release)

    def _by_memory_usage(self, seen: _Round) -> Shortage | None:
        return self._by_usage(seen, MEMORY, evict.MEMORY_USAGE, self._memory_release(seen, evict.MEMORY_USAGE))

    def _memory_release(self, seen: _Round, feature: str) -> int:
        """Bytes to be released because the node uses too many (EV-6)."""
        used = self._samples.last(NODE_MEMORY, seen.now - FRESH)
        percent, lower = seen.threshold.memory_evict_threshold_percent, seen.threshold.memory_evict_lower_percent
        if used is None or self._wrong(feature, evict.lines_error(percent, lower)):
            return 0
        return evict.usage_release(seen.capacity[MEMORY], int(used), percent, lower)

    def _by_usage(self, seen: _Round, kind: str, feature: str, release: int) -> Shortage | None:
        """The node uses too much: pods of all classes go that have the label, by their priority (EV-5)."""
        most = seen.threshold.evict_enabled_priority_threshold
        if self._wrong(feature, "EvictEnabledPriorityThreshold not config" if most is None else "") or most is None:
            return None
        if release <= 0:
            return None
        return Shortage(
            feature, USED, {kind: release}, evict.by_priority(self._labelled(seen, kind, feature), most, USED)
        )

    def _by_cpu_requests(self, seen: _Round) -> Shortage | None:
        threshold = seen.threshold
        lines = threshold.cpu_allocatable_evict_threshold_percent, threshold.cpu_allocatable_evict_lower_percent
        return self._by_requests(seen, CPU, evict.CPU_ALLOCATABLE, *lines)

    def _by_memory_requests(self, seen: _Round) -> Shortage | None:
        threshold = seen.threshold
        lines = threshold.memory_allocatable_evict_threshold_percent, threshold.memory_allocatable_evict_lower_percent
        return self._by_requests(seen, MEMORY, evict.MEMORY_ALLOCATABLE, *lines)

    def _by_requests(
        self, seen: _Round, kind: str, feature: str, percent: int | None, lower: int | None
    ) -> Shortage | None:
        """Batch or mid pods request more than the node offers them by now (EV-7)."""
        most = seen.threshold.allocatable_evict_priority_threshold
        if percent is None or lower is None or most is None or percent < 0:
            return None
        wrong = evict.lines_error(percent, lower)
        if most > evict.MOST_ALLOCATABLE_PRIORITY:
            wrong = (
                f"priorityThresholdPercent({most}) should less than {evict.MOST_ALLOCATABLE_PRIORITY},"
                " koor-prod pods should not be killed"
            )
        if self._wrong(feature, wrong):
            return None
        present = [self._victim(seen, pod, kind) for pod in seen.pods]
        amounts = {}
        for resource in (names[kind] for names in EXTENDED_RESOURCES.values()):
            requested = sum(each.request for each in present if each.resource == resource and each.priority <= most)
            offer = seen.node.status.allocatable.get(resource)
            allocatable = None if offer is None else amount(resource, offer)
            release = evict.allocatable_release(requested, allocatable, percent, lower)
            if release > 0:
                amounts[resource] = release
        victims = evict.by_priority(self._labelled(seen, kind, feature), most, REQUESTED)
        return Shortage(feature, REQUESTED, amounts, victims)

    def _wrong(self, feature: str, text: str) -> bool:
        """Say once what is wrong with the settings of a feature; whether something is."""
        self._say(feature, text)
        return bool(text)

    # -- pods ---------------------------------------------------------------------------------------------------------

    def _leaves(self, pod: LocalPod) -> bool:
        return pod.uid in self._evicting or pod.pod.metadata.deletion_timestamp is not None

    def _best_effort(self, seen: _Round, kind: str, feature: str) -> list[Victim]:
        return [
            self._victim(seen, pod, kind)._replace(priority=pod.pod.spec.priority)
            for pod in seen.pods
            if pod.raw_qos == BE and pod.active and evict.may_evict(pod.pod.metadata.annotations, feature)
        ]

    def _labelled(self, seen: _Round, kind: str, feature: str) -> list[Victim]:
        return [
            self._victim(seen, pod, kind)
            for pod in seen.pods
            if pod.active
            and pod.pod.metadata.labels.get(evict.EVICTION_ENABLED) == "true"
            and evict.may_evict(pod.pod.metadata.annotations, feature)
        ]

    def _victim(self, seen: _Round, pod: LocalPod, kind: str) -> Victim:
        """The pod with what it uses and requests of CPU or memory."""
        metadata, spec = pod.pod.metadata, pod.pod.spec
        resource = EXTENDED_RESOURCES.get(pod.priority_class, {}).get(kind, kind)
        try:
            request = pod_requests(spec).get(resource, 0)
        except QuantityError:  # the API server refuses such pods
            request = 0
        used = self._samples.last((kind, "pod", pod.uid), seen.now - FRESH)
        priority = spec.priority or DEFAULT_PRIORITY[pod.priority_class]
        own = integer(metadata.labels.get(evict.SUB_PRIORITY, ""))
        return Victim(
            pod.uid,
            metadata.name,
            priority,
            used * 1000 if used is not None and kind == CPU else used,
            request,
            resource,
            integer(metadata.annotations.get(evict.EVICTION_PRIORITY, "")) or 0,
            priority if own is None else own,
        )

    def _evict(self, now: float, kind: str, feature: str, pod: LocalPod) -> None:
        metadata = pod.pod.metadata
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace},
            "deleteOptions": {"preconditions": {"uid": metadata.uid}},
        }
        self._evicting.add(pod.uid)

        def done(response: Response) -> None:
            if response.ok:
                self._last[kind] = now
                reason = f"trigger by koordlet feature {feature}"
                note = f"{reason}, kill pod: {metadata.name}"
                log.info("%s", note)
                self._audit.record(0, reason, note, type="pod", namespace=metadata.namespace, name=metadata.name)
                regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": metadata.namespace, "name": metadata.name}
                self._events.about({**regarding, "uid": metadata.uid}, "Warning", "evictPodSuccess", "Evicting", note)
            else:
                self._evicting.discard(pod.uid)
                self._refused[pod.uid] = self._clock.monotonic() + REFUSED
                self._say(pod.uid, f"pod {metadata.namespace}/{metadata.name} not evicted: {refusal(response)}")

        path = f"/api/v1/namespaces/{metadata.namespace}/pods/{metadata.name}/eviction"
        self._rest.post(path, body, done)


def _batch_cpu(node: Node) -> float:
    """Batch CPU that the node offers; 0 counts as one thousandth, and none as no limit (EV-2)."""
    batch_cpu = node.status.allocatable.get(BATCH_CPU)
    return -1 if batch_cpu is None else max(amount(BATCH_CPU, batch_cpu), 1)
