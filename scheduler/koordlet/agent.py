"""The agent of one node: follows its pods and settings, measures, enforces, evicts, reports."""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.integers import finite
from seatrial.scheduler.api.numa import (
    CPU_NORMALIZATION_RATIO,
    NODE_RESERVATION,
    NODE_TOPOLOGIES_PATH,
    CpusetError,
    NodeReservation,
    NodeResourceTopology,
    parse_cpuset,
)
from seatrial.scheduler.api.quantity import CPU, MEMORY, QuantityError
from seatrial.scheduler.api.slo import NODE_METRICS_PATH, NODE_SLOS_PATH, CollectPolicy, NodeMetric, NodeSlo
from seatrial.scheduler.api.transport import Response, Transport
from seatrial.scheduler.api.wire import decode_as, decoder
from seatrial.scheduler.client.events import EventRecorder
from seatrial.scheduler.client.informer import Informer
from seatrial.scheduler.client.rest import Rest, refusal
from seatrial.scheduler.koordlet import cpi, hooks, reconciler, report
from seatrial.scheduler.koordlet.audit import NO_AUDIT, AuditConfig, AuditLog
from seatrial.scheduler.koordlet.cgroups import CgroupError, Cgroups, Layout
from seatrial.scheduler.koordlet.collectors import NODE_MEMORY, Collectors
from seatrial.scheduler.koordlet.core_sched import Cookies
from seatrial.scheduler.koordlet.cpu_pools import KubeletCpus, Pools, kubelet_cpus
from seatrial.scheduler.koordlet.enforcer import Enforcer
from seatrial.scheduler.koordlet.evict import (
    BE_CPU,
    BE_MEMORY,
    CPU_ALLOCATABLE,
    CPU_USAGE,
    MEMORY_ALLOCATABLE,
    MEMORY_USAGE,
)
from seatrial.scheduler.koordlet.evictor import LOOK, Evictor
from seatrial.scheduler.koordlet.executor import Executor
from seatrial.scheduler.koordlet.machine import Machine, MachineError
from seatrial.scheduler.koordlet.objects import AgentPod, LocalPod
from seatrial.scheduler.koordlet.prediction import CHECKPOINT, TRAINING, Models
from seatrial.scheduler.koordlet.predictor import Predictor
from seatrial.scheduler.koordlet.pressure import Pressures
from seatrial.scheduler.koordlet.reconciler import Reconciler
from seatrial.scheduler.koordlet.resctrl_groups import Resctrl
from seatrial.scheduler.koordlet.samples import Samples
from seatrial.scheduler.koordlet.strategies import Strategies, strategies
from seatrial.scheduler.serving.exposition import Family, sample
from seatrial.scheduler.serving.once import Once

log = logging.getLogger(__name__)

POD_RULES = 10.0  # seconds between two writes of what pods get, and between two looks at pressure
PRESSURE, CPI, COLD_PAGES, CACHES = "PSICollector", "CPICollector", "ColdPageCollector", "ResctrlCollector"
AUDIT, AUDIT_HTTP = "AuditEvents", "AuditEventsHTTPHandler"
GATES = {
    "BECPUSuppress": True,
    "CPUBurst": True,
    hooks.BATCH: True,
    hooks.CPUSET: True,
    "RdtResctrl": True,
    **dict.fromkeys((BE_CPU, CPU_ALLOCATABLE, CPU_USAGE, BE_MEMORY, MEMORY_ALLOCATABLE, MEMORY_USAGE), False),
    **dict.fromkeys((*reconciler.GATES, PRESSURE, CPI, COLD_PAGES, CACHES, AUDIT, AUDIT_HTTP), False),
    **dict.fromkeys((hooks.GPU, hooks.RDMA, hooks.VGPU_MONITOR, hooks.RESCTRL), False),
}


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """`gates`: features that differ from `GATES`. `library`: where nodes have HAMi-core. `audit`: what is recorded."""

    node: str
    gates: Mapping[str, bool] = field(default_factory=dict)
    library: Path = Path(hooks.LIBRARY)
    audit: AuditConfig = NO_AUDIT

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
        cookies: Cookies,
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
        self._collectors = Collectors(cgroups, machine, self.samples, cold=config.enabled(COLD_PAGES))
        self.audit = AuditLog(config.audit, clock)
        self._executor = Executor(cgroups, clock, self.audit)
        self._resctrl = resctrl
        self._pressures = Pressures(cgroups)
        self._predictor = Predictor(models, self.samples, clock)
        self._cpus = machine.cpus()
        self._cpi = cpi.CpiCollector(cgroups, clock, (cpu.id for cpu in self._cpus), cpi.PerfEvents())
        self._enforcer = Enforcer(self._executor, self._collectors, self._cpus, dice)
        self._reconciler = Reconciler(self._executor, machine, cookies, config.enabled)
        self._pods: dict[str, LocalPod] = {}
        self._node = Node()
        self._kubelet: KubeletCpus | None = None  # None: the node has no topology
        self._policy: CollectPolicy | None = None  # None: there is no NodeMetric to report to
        self._interval: float = report.LEAST_INTERVAL
        self._strategies = Strategies()
        self._evictor = Evictor(transport, self._events, clock, self.samples, config.enabled, self.audit)
        self._say = Once(log)
        self._stopped = False
        only = {"fieldSelector": f"metadata.name={config.node}"}
        mine = {"fieldSelector": f"spec.nodeName={config.node}"}
        self._informers: list[Informer[Any]] = [
            self._follow("/api/v1/nodes", Node, self._set_node, lambda _: None, only),
            self._follow(NODE_SLOS_PATH, NodeSlo, self._set_slo, lambda _: None, only),
            self._follow(NODE_METRICS_PATH, NodeMetric, self._set_metric, self._metric_gone, only),
            self._follow(NODE_TOPOLOGIES_PATH, NodeResourceTopology, self._set_topology, self._topology_gone, only),
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
        if self._config.enabled(PRESSURE):
            self._every(POD_RULES, "pressure", lambda: self._pressures.look(self._pods.values()))
        if self._config.enabled(CPI):
            self._every(cpi.PERIOD, "cpi", lambda: self._cpi.begin(self._pods.values()))
        self._every(TRAINING, "train", lambda: self._predictor.train(self._pods.values()))
        self._every(CHECKPOINT, "save", self._predictor.models.save)
        self._clock.call_later(report.LEAST_INTERVAL, self._report)

    def stop(self) -> None:
        """Stop, and take suppression back."""
        self._stopped = True
        self._rest.stop()
        self._evictor.stop()
        self._cpi.stop()
        for informer in self._informers:
            informer.stop()
        if self._strategies.known:
            self._enforcer.recover(self._pods.values(), self._reserved() | self._system)
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

    def _set_topology(self, topology: NodeResourceTopology) -> None:
        try:
            self._kubelet = kubelet_cpus(topology)
        except (msgspec.MsgspecError, CpusetError) as error:
            log.warning("NodeResourceTopology %s: %s; the last CPUs stay", topology.metadata.name, error)

    def _topology_gone(self, _: NodeResourceTopology) -> None:
        self._kubelet = None

    def _set_pod(self, pod: AgentPod) -> None:
        before = self._pods.get(pod.metadata.uid)
        self._pods[pod.metadata.uid] = LocalPod(pod, self._cgroups.layout)
        if self.ready and (before is None or before.containers != self._pods[pod.metadata.uid].containers):
            self._pod_rules()

    def _pod_gone(self, pod: AgentPod) -> None:
        local_pod = self._pods.pop(pod.metadata.uid, None)
        self._evictor.forget(pod.metadata.uid)
        self._reconciler.forget(pod.metadata.uid)
        if local_pod is not None:
            self._collectors.forget(local_pod)
            self._enforcer.forget(local_pod)
            for folder in (local_pod.folder, *local_pod.containers.values()):
                self._executor.forget(folder)

    # -- rounds -------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        now = self._clock.monotonic()  # a clock that is set back would make rates and ages wrong
        pods = [pod for pod in self._pods.values() if pod.pod.status.phase in {"Running", "Pending"}]
        self._collectors.look(now, pods, self._strategies)
        if self._config.enabled("BECPUSuppress"):
            try:
                self._enforcer.suppress(now, pods, self._strategies, self._reserved(), self._system)
            except (CgroupError, CpusetError) as error:
                self._say("suppress", f"suppress: {error}")
        if self._config.enabled("CPUBurst"):
            ratio = self._ratio if self._config.enabled(hooks.NORMALIZATION) else 1.0
            self._enforcer.burst(now, pods, self._strategies, ratio)
        if self._strategies.threshold.enable:
            try:
                capacity = {CPU: 1000 * len(self._cpus), MEMORY: self._machine.memory().total}
            except MachineError:
                return  # the collectors have said so
            self._evictor.look(pods, self._strategies.threshold, self._node, capacity)

    def _pod_rules(self) -> None:
        pods = list(self._pods.values())
        if self._config.enabled(hooks.CPUSET):
            self._enforcer.cpus(pods, self._strategies.applications, self._pools)
        if self._config.enabled(hooks.BATCH):
            self._enforcer.pods(pods, self._strategies, self._ratio)
        if self._strategies.known:
            self._reconciler.reconcile(pods, self._strategies, self._node, self._ratio)
        if self._config.enabled("RdtResctrl") and self._resctrl.mounted:
            self._resctrl.reconcile([pod for pod in pods if pod.active], self._strategies.qos)

    @property
    def _pools(self) -> Pools:
        return self._enforcer.pools(self._pods.values(), self._kubelet, self._reserved())

    @property
    def _ratio(self) -> float:
        """CPU normalization of the node."""
        return finite(self._node.metadata.annotations.get(CPU_NORMALIZATION_RATIO, "")) or 1.0

    @property
    def _system(self) -> frozenset[int]:
        """The CPUs that pods of class SYSTEM have alone."""
        return self._kubelet.system & self._kubelet.apart if self._kubelet is not None else frozenset()

    def _reserved(self) -> frozenset[int]:
        """The CPUs that the node's annotation keeps from pods; an unreadable one keeps none."""
        text = self._node.metadata.annotations.get(NODE_RESERVATION, "")
        try:
            return parse_cpuset(decode_as(text, NodeReservation).reserved_cpus) if text else frozenset()
        except (msgspec.MsgspecError, CpusetError):
            return frozenset()

    # -- pods and containers that the runtime is about to make -------------------------------------------------------

    @property
    def layout(self) -> Layout:
        """How kubelet names control groups here."""
        return self._cgroups.layout

    def prepare_pod(self, pod: LocalPod) -> None:
        """Write what the groups of a pod get, before its containers are made."""
        if self._config.enabled(hooks.CPUSET):
            self._enforcer.lift_quota(pod)
        if self._config.enabled(hooks.BATCH):
            self._enforcer.pod(pod, self._strategies, self._ratio)
        if self._config.enabled(hooks.RESCTRL) and self._resctrl.mounted:
            self._resctrl.prepare(pod)

    def container_changes(
        self, pod: LocalPod, container: str, quota: int, created: bool
    ) -> Iterator[hooks.Changes | Exception]:
        """What one of its containers gets, as `hooks.changes_by_hook`; `quota`: that of kubelet, 0: not known;
        `created`: False for a container that is there."""
        setting = hooks.Setting(
            pod,
            container,
            self._pools,
            quota,
            self._strategies.own_quotas,
            self._ratio,
            self._machine.sys,
            self._config.library,
            self._config.enabled(hooks.VGPU_MONITOR),
            self._resctrl.group_of(pod),
            created,
        )
        return hooks.changes_by_hook(setting, self._config.enabled)

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
        zones = {cpu.node for cpu in self._cpus}
        status = report.status(self.samples, self._clock.monotonic(), policy, pods, programs, reclaimable, zones)
        if status is None:
            return
        status["updateTime"] = self._clock.timestamp()

        def done(response: Response) -> None:
            if not response.ok:
                self._say("report", f"report: {refusal(response)}")

        self._rest.merge(f"{NODE_METRICS_PATH}/{self._config.node}/status", {"status": status}, done)

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
        yield from self._pressures.families(labels)
        yield from self._cpi.families(labels)
        if self._config.enabled(CACHES):
            yield from self._resctrl.families(labels)
        name = "koordlet_resource_update_failures_total"
        yield name, "counter", "Values that could not be written.", [sample(name, labels, self._executor.failures)]
