"""The agent of one node: follows its pods and settings, measures, enforces, evicts, reports."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.integers import finite
from seatrial.scheduler.api.numa import (
    CPU_NORMALIZATION_RATIO,
    NODE_RESERVATION,
    CpusetError,
    NodeReservation,
    parse_cpuset,
)
from seatrial.scheduler.api.quantity import QuantityError, amount
from seatrial.scheduler.api.slo import BATCH_CPU, NODE_METRICS_PATH, NODE_SLOS_PATH, CollectPolicy, NodeMetric, NodeSlo
from seatrial.scheduler.api.transport import Response, Transport
from seatrial.scheduler.api.wire import decode_as, decoder
from seatrial.scheduler.client.events import EventRecorder
from seatrial.scheduler.client.informer import Informer
from seatrial.scheduler.client.rest import Rest, refusal
from seatrial.scheduler.koordlet import evict, report
from seatrial.scheduler.koordlet.cgroups import CgroupError, Cgroups
from seatrial.scheduler.koordlet.collectors import BE_LIMIT, BE_REQUEST, BE_USED, FRESH, NODE_MEMORY, Collectors
from seatrial.scheduler.koordlet.enforcer import Enforcer
from seatrial.scheduler.koordlet.evict import BE_CPU, BE_MEMORY, Victim, Window
from seatrial.scheduler.koordlet.executor import Executor
from seatrial.scheduler.koordlet.machine import Machine
from seatrial.scheduler.koordlet.objects import AgentPod, LocalPod
from seatrial.scheduler.koordlet.prediction import CHECKPOINT, TRAINING, Models
from seatrial.scheduler.koordlet.predictor import Predictor
from seatrial.scheduler.koordlet.resctrl_groups import Resctrl
from seatrial.scheduler.koordlet.samples import Samples, average
from seatrial.scheduler.koordlet.strategies import BY_ALLOCATABLE, Strategies, strategies
from seatrial.scheduler.pods.qos import BE
from seatrial.scheduler.pods.requests import pod_requests
from seatrial.scheduler.serving.exposition import Family, sample
from seatrial.scheduler.serving.once import Once

log = logging.getLogger(__name__)

LOOK, POD_RULES = 1.0, 10.0  # seconds between two looks, and between two writes of what pods get
COOL_DOWN = {BE_CPU: 20.0, BE_MEMORY: 4.0}  # seconds after an eviction
GATES = {
    "BECPUSuppress": True,
    "CPUBurst": True,
    "BatchResource": True,
    "RdtResctrl": True,
    BE_CPU: False,
    BE_MEMORY: False,
}


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """`gates`: features that differ from `GATES`."""

    node: str
    gates: Mapping[str, bool] = field(default_factory=dict)

    def enabled(self, gate: str) -> bool:
        return self.gates.get(gate, GATES[gate])


class Agent:
    """Runs on one node; all times come from the clock."""

    def __init__(  # noqa: PLR0917
        self,
        transport: Transport,
        clock: Clock,
        config: AgentConfig,
        cgroups: Cgroups,
        machine: Machine,
        resctrl: Resctrl,
        models: Models,
        dice: Random,
    ) -> None:
        """Raises:
        MachineError: the node's CPUs cannot be read.
        """
        self._clock, self._config, self._cgroups, self._machine = clock, config, cgroups, machine
        self.faults = clock.faults
        self._rest = Rest(transport, clock)
        self._events = EventRecorder(self._rest, clock, "koordlet", config.node)
        self.samples = Samples()
        self._collectors = Collectors(cgroups, machine, self.samples)
        self._executor = Executor(cgroups, clock)
        self._resctrl = resctrl
        self._predictor = Predictor(models, self.samples, clock)
        self._enforcer = Enforcer(self._executor, self._collectors, machine.cpus(), dice)
        self._pods: dict[str, LocalPod] = {}
        self._node = Node()
        self._policy: CollectPolicy | None = None  # None: there is no NodeMetric to report to
        self._interval: float = report.LEAST_INTERVAL
        self._strategies = Strategies()
        self._evicted: dict[str, float] = {}  # feature → moment of its last eviction
        self._evicting: set[str] = set()  # uids
        self._say = Once(log)
        self._stopped = False
        only = {"fieldSelector": f"metadata.name={config.node}"}
        mine = {"fieldSelector": f"spec.nodeName={config.node}"}
        self._informers: list[Informer[Any]] = [
            self._follow("/api/v1/nodes", Node, self._set_node, lambda _: None, only),
            self._follow(NODE_SLOS_PATH, NodeSlo, self._set_slo, lambda _: None, only),
            self._follow(NODE_METRICS_PATH, NodeMetric, self._set_metric, self._metric_gone, only),
            self._follow("/api/v1/pods", AgentPod, self._set_pod, self._pod_gone, mine),
        ]

    @property
    def ready(self) -> bool:
        return all(informer.synced for informer in self._informers)

    def start(self) -> None:
        for informer in self._informers:
            informer.start()
        self._every(LOOK, "look", self._look)
        self._every(POD_RULES, "pods", self._pod_rules)
        self._every(TRAINING, "train", lambda: self._predictor.train(self._pods.values()))
        self._every(CHECKPOINT, "save", self._predictor.models.save)
        self._clock.call_later(report.LEAST_INTERVAL, self._report)

    def stop(self) -> None:
        """Stop, and take suppression back."""
        self._stopped = True
        self._rest.stop()
        for informer in self._informers:
            informer.stop()
        self._enforcer.end(self._reserved())
        self._predictor.models.save()

    def _every(self, seconds: float, name: str, action: Callable[[], None]) -> None:
        def due() -> None:
            if not self._stopped:
                self._clock.call_later(seconds, due)
                self._clock.attempt(f"Agent.{name}", self._config.node, action)

        self._clock.call_later(seconds, due)

    def _follow(
        self,
        path: str,
        kind: Any,
        on_set: Callable[[Any], object],
        on_gone: Callable[[Any], object],
        selector: dict[str, str],
    ) -> Informer[Any]:
        return Informer(
            self._rest.transport,
            self._clock,
            path,
            decoder(kind),
            on_set=on_set,  # type: ignore[arg-type]
            on_gone=on_gone,  # type: ignore[arg-type]
            on_synced=self._synced,
            on_batch=lambda: None,
            selector=selector,
            optional=True,
        )

    def _synced(self) -> None:
        if self.ready:
            log.info("koordlet synced pods=%d", len(self._pods))
            self._pod_rules()

    # -- objects ------------------------------------------------------------------------------------------------------

    def _set_node(self, node: Node) -> None:
        self._node = node

    def _set_slo(self, slo: NodeSlo) -> None:
        self._strategies, wrong = strategies(slo.spec, self._strategies)
        for text in wrong:
            log.warning("NodeSLO %s: %s; the last settings stay", slo.metadata.name, text)

    def _set_metric(self, metric: NodeMetric) -> None:
        self._policy = metric.spec.metric_collect_policy or CollectPolicy()
        self._interval = max(self._policy.report_interval_seconds or 0, report.LEAST_INTERVAL)
        self._collectors.window = report.window(self._policy)

    def _metric_gone(self, _: NodeMetric) -> None:
        self._policy = None

    def _set_pod(self, pod: AgentPod) -> None:
        before = self._pods.get(pod.metadata.uid)
        self._pods[pod.metadata.uid] = LocalPod(pod, self._cgroups.layout)
        if self.ready and (before is None or before.containers != self._pods[pod.metadata.uid].containers):
            self._pod_rules()

    def _pod_gone(self, pod: AgentPod) -> None:
        found = self._pods.pop(pod.metadata.uid, None)
        self._evicting.discard(pod.metadata.uid)
        if found is not None:
            self._collectors.forget(found)
            self._enforcer.forget(found)
            for folder in (found.folder, *found.containers.values()):
                self._executor.forget(folder)

    # -- rounds -------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        now = self._clock.monotonic()  # a clock that is set back would make rates and ages wrong
        pods = [pod for pod in self._pods.values() if pod.pod.status.phase in {"Running", "Pending"}]
        self._collectors.look(now, pods, self._strategies)
        if self._config.enabled("BECPUSuppress"):
            try:
                self._enforcer.suppress(now, pods, self._strategies, self._reserved())
            except (CgroupError, CpusetError) as error:
                self._say("suppress", f"suppress: {error}")
        if self._config.enabled("CPUBurst"):
            self._enforcer.burst(now, pods, self._strategies)
        if self._strategies.threshold.enable:
            for feature, due in ((BE_CPU, self._evict_cpu), (BE_MEMORY, self._evict_memory)):
                cooled = now - self._evicted.get(feature, float("-inf")) >= COOL_DOWN[feature]
                if self._config.enabled(feature) and cooled:
                    due(now)

    def _pod_rules(self) -> None:
        if self._config.enabled("BatchResource"):
            ratio = finite(self._node.metadata.annotations.get(CPU_NORMALIZATION_RATIO, "")) or 1.0
            self._enforcer.pods(list(self._pods.values()), self._strategies, ratio, self._reserved())
        if self._config.enabled("RdtResctrl") and self._resctrl.mounted:
            self._resctrl.reconcile([pod for pod in self._pods.values() if pod.active], self._strategies.qos)

    def _reserved(self) -> frozenset[int]:
        """The CPUs that the node's annotation keeps from pods; an unreadable one keeps none."""
        text = self._node.metadata.annotations.get(NODE_RESERVATION, "")
        try:
            return parse_cpuset(decode_as(text, NodeReservation).reserved_cpus) if text else frozenset()
        except (msgspec.MsgspecError, CpusetError):
            return frozenset()

    # -- eviction -----------------------------------------------------------------------------------------------------

    def _evict_cpu(self, now: float) -> None:
        threshold = self._strategies.threshold
        lower, upper = (
            threshold.cpu_evict_be_satisfaction_lower_percent,
            threshold.cpu_evict_be_satisfaction_upper_percent,
        )
        if lower is None or upper is None:
            return
        wrong = evict.satisfaction_error(lower, upper)
        self._say(BE_CPU, wrong)
        if wrong:
            return
        seconds = max(LOOK, threshold.cpu_evict_time_window_seconds)
        found = [self.samples.between(kind, now - seconds, now) for kind in (BE_USED, BE_REQUEST, BE_LIMIT)]
        if not all(found) or len(found[0]) * LOOK < seconds / 3:
            return
        mean = Window(*(average(each) or 0.0 for each in found))
        current = Window(*(each[-1].value for each in found))
        if threshold.cpu_evict_policy == BY_ALLOCATABLE:
            limit = self._allocatable()
            mean, current = mean._replace(limit=limit), current._replace(limit=limit)
        release = evict.satisfaction_release(
            mean, current, lower, upper, threshold.cpu_evict_be_usage_threshold_percent
        )
        if release > 0:
            victims = evict.by_cpu(self._victims(now, "cpu", BE_CPU))
            self._evict(now, BE_CPU, victims, {victim.uid: victim.request for victim in victims}, release)

    def _allocatable(self) -> float:
        """Batch CPU that the node offers; 0 counts as one thousandth, and none as no limit (EV-2)."""
        found = self._node.status.allocatable.get(BATCH_CPU)
        return -1 if found is None else max(amount(BATCH_CPU, found), 1)

    def _evict_memory(self, now: float) -> None:
        threshold = self._strategies.threshold
        used = self.samples.last(NODE_MEMORY, now - FRESH)
        if used is None:
            return
        capacity = self._machine.memory().total
        percent, lower = threshold.memory_evict_threshold_percent, threshold.memory_evict_lower_percent
        if lower is not None and lower >= percent:
            self._say(BE_MEMORY, f"lower percent({lower}) should less than threshold percent({percent})")
            return
        release = evict.usage_release(capacity, int(used), percent, lower)
        if release > 0:
            victims = evict.by_memory(self._victims(now, "memory", BE_MEMORY))
            self._evict(now, BE_MEMORY, victims, {victim.uid: victim.used or 0 for victim in victims}, release)

    def _victims(self, now: float, kind: str, feature: str) -> list[Victim]:
        found = []
        for pod in self._pods.values():
            metadata = pod.pod.metadata
            if pod.raw_qos == BE and pod.active and evict.may_evict(metadata.annotations, feature):
                try:
                    request = pod_requests(pod.pod.spec).get(BATCH_CPU, 0)
                except QuantityError:
                    request = 0
                used = self.samples.last((kind, "pod", pod.uid), now - FRESH)
                scaled = used * 1000 if used is not None and kind == "cpu" else used
                found.append(Victim(pod.uid, metadata.name, pod.pod.spec.priority, scaled, request))
        return found

    def _evict(
        self, now: float, feature: str, victims: list[Victim], amounts: Mapping[str, float], release: float
    ) -> None:
        """Evict the first victims whose amounts reach the release; those under way count (EV-10)."""
        release -= sum(amounts.get(uid, 0) for uid in self._evicting)
        for victim in evict.enough([each for each in victims if each.uid not in self._evicting], amounts, release):
            self._evict_one(now, feature, self._pods[victim.uid].pod)

    def _evict_one(self, now: float, feature: str, pod: AgentPod) -> None:
        metadata = pod.metadata
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": metadata.name, "namespace": metadata.namespace},
            "deleteOptions": {"preconditions": {"uid": metadata.uid}},
        }
        self._evicting.add(metadata.uid)

        def done(response: Response) -> None:
            if response.ok:
                self._evicted[feature] = now
                note = f"trigger by koordlet feature {feature}, kill pod: {metadata.name}"
                log.info("%s", note)
                regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": metadata.namespace, "name": metadata.name}
                self._events.about({**regarding, "uid": metadata.uid}, "Warning", "evictPodSuccess", "Evicting", note)
            else:
                self._evicting.discard(metadata.uid)
                self._say(metadata.uid, f"pod {metadata.namespace}/{metadata.name} not evicted: {refusal(response)}")

        path = f"/api/v1/namespaces/{metadata.namespace}/pods/{metadata.name}/eviction"
        self._rest.post(path, body, done)

    # -- report -------------------------------------------------------------------------------------------------------

    def _report(self) -> None:
        if self._stopped:
            return
        self._clock.call_later(self._interval, self._report)
        if self._policy is not None:
            self._clock.attempt("Agent.report", self._config.node, self._send_report)

    def _send_report(self) -> None:
        pods = list(self._pods.values())
        policy = self._policy or CollectPolicy()
        try:
            reclaimable = self._predictor.reclaimable(pods, self._node)
        except QuantityError as error:
            self._say("prediction", f"prediction: {error}")
            reclaimable = None
        programs = self._strategies.applications
        found = report.status(self.samples, self._clock.monotonic(), policy, pods, programs, reclaimable)
        if found is None:
            return
        found["updateTime"] = self._clock.timestamp()

        def done(response: Response) -> None:
            if not response.ok:
                self._say("report", f"report: {refusal(response)}")

        self._rest.merge(f"{NODE_METRICS_PATH}/{self._config.node}/status", {"status": found}, done)

    def families(self) -> Iterator[Family]:
        """Metric families for `/metrics`."""
        labels = {"node": self._config.node}
        for name, kind, text, metric in (
            ("koordlet_node_used_cpu_cores", "gauge", "Cores that the node uses.", "node-cpu"),
            ("koordlet_node_used_memory_bytes", "gauge", "Bytes of memory that the node uses.", NODE_MEMORY),
        ):
            value = self.samples.last(metric)
            if value is not None:
                yield name, kind, text, [sample(name, labels, value)]
        name = "koordlet_resource_update_failures_total"
        yield name, "counter", "Values that could not be written.", [sample(name, labels, self._executor.failures)]
