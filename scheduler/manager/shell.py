"""The manager: follows nodes, their usage, their topology and the configuration.

It writes NodeMetrics and NodeSLOs, the ratios of nodes, what nodes offer to batch and mid pods, and the totals of their
devices. A cluster whose nodes have none of it and whose configuration enables none gets no writes to nodes, and its
pods and Device objects are not read.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec

from seatrial.scheduler.api.clock import Clock, TimeError, Timer
from seatrial.scheduler.api.core import ConfigMap, Node
from seatrial.scheduler.api.device import GROUP_VERSION as DEVICES_VERSION
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.numa import (
    AMPLIFICATION_RATIO,
    CPU_NORMALIZATION_ENABLED,
    CPU_NORMALIZATION_RATIO,
    NODE_TOPOLOGIES_PATH,
    NodeResourceTopology,
)
from seatrial.scheduler.api.quantity import QuantityError
from seatrial.scheduler.api.slo import (
    NODE_METRICS_PATH,
    NODE_SLOS_PATH,
    ORIGIN_ALLOCATABLE,
    THIRD_PARTY_ALLOCATIONS,
    NodeSlo,
    ThirdPartyAllocations,
)
from seatrial.scheduler.api.transport import JSON_PATCH, Request, Response, Transport
from seatrial.scheduler.api.wire import decoder, to_json, to_plain
from seatrial.scheduler.client.events import EventRecorder
from seatrial.scheduler.client.informer import Following, Informer
from seatrial.scheduler.client.pods import PodDecoder
from seatrial.scheduler.client.rest import Rest, node_path, refusal
from seatrial.scheduler.manager.config import (
    AMPLIFICATION,
    COLOCATION,
    NAME,
    NAMESPACE,
    NORMALIZATION,
    SloConfig,
    read_config,
)
from seatrial.scheduler.manager.devices import NodeChange, NodeTotals, read_totals
from seatrial.scheduler.manager.noderesource import (
    NodeResources,
    Offer,
    allocations_of,
    normalization,
    offers_something,
)
from seatrial.scheduler.manager.nodeslo import node_slo_spec
from seatrial.scheduler.manager.normalization import changed_annotations
from seatrial.scheduler.manager.profile_controller import ProfileController
from seatrial.scheduler.manager.sections import Settings
from seatrial.scheduler.manager.strategy import ColocationStrategy, collect_policy, node_strategy
from seatrial.scheduler.manager.usage_report import UsageReport
from seatrial.scheduler.serving.exposition import Family, sample
from seatrial.scheduler.serving.once import Once

log = logging.getLogger(__name__)

RETRY = 5.0  # seconds after a write that failed
UNSERVED_PAUSE = 30.0  # seconds after which a kind is tried again that the API server does not serve
STALE_SCAN = 60.0  # seconds between looks for nodes whose usage is no longer reported
DEVICES_PATH = f"/apis/{DEVICES_VERSION}/devices"
Write = Callable[[Callable[[Response], None]], None]
K = TypeVar("K", bound=Following)


class Manager:
    """Runs the controllers against one API server."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        *,
        selector: str = "",
        profiles: ProfileController | None = None,
        gpu_shared: bool = False,
    ) -> None:
        """`selector`: a label selector; only nodes with these labels are served. `profiles` is started with it.
        `gpu_shared`: nodes get `koordinator.sh/gpu.shared` too."""
        self._transport, self._clock = transport, clock
        self.faults = clock.faults
        self._rest = Rest(transport, clock)
        self._config = SloConfig()
        self._nodes: dict[str, Node] = {}
        self._topologies: dict[str, NodeResourceTopology] = {}
        self._metrics: dict[str, UsageReport] = {}
        self._writing: set[str] = set()
        self._again: set[str] = set()
        self._retries: dict[str, Timer] = {}  # by node: one each, or refused writes would multiply
        self._slos: dict[str, NodeSlo] = {}
        # By node: what follows from settings and node alone; settings, node and NodeSLO that agree. Reports come
        # far more often than these change.
        self._strategies: dict[str, tuple[SloConfig, Node, ColocationStrategy]] = {}
        self._agreed: dict[str, tuple[SloConfig, Node, NodeSlo]] = {}
        # Of kinds that are patched: the copies, how an object is read, and what is done with a new one.
        self._copies: dict[str, tuple[dict[str, Any], Callable[[bytes], Any], Callable[[Any], None]]] = {
            "Node": (self._nodes, decoder(Node), self._set_node),
            "NodeMetric": (self._metrics, decoder(UsageReport), self._set_metric),
            "NodeSLO": (self._slos, decoder(NodeSlo), self._set_slo),
            "NodeResourceTopology": (self._topologies, decoder(NodeResourceTopology), self._set_topology),
        }
        self._resources = NodeResources(clock)
        self._unserved: dict[str, dict[str, None]] = {}  # by kind, nodes without an object of a kind that is not served
        self._probe: Timer | None = None
        self._scan: Timer | None = None
        self._once = Once(log)
        self._events = EventRecorder(self._rest, clock, "seatrial-manager", "seatrial-manager")
        self._gone: set[str] = set()  # nodes that were here; their NodeMetrics may become known later than their end
        self._selective = bool(selector)
        self._profiles = profiles
        self.writes: Counter[tuple[str, str]] = Counter()
        self.ready = self._stopped = False
        only = {"labelSelector": selector} if selector else {}
        self._informers = [
            self._follow(
                f"/api/v1/namespaces/{NAMESPACE}/configmaps",
                decoder(ConfigMap),
                self._set_config,
                _ignore,
                {"fieldSelector": f"metadata.name={NAME}"},
            ),
            self._follow(
                NODE_TOPOLOGIES_PATH,
                decoder(NodeResourceTopology),
                self._set_topology,
                lambda topology: self._topologies.pop(topology.metadata.name, None),
                {},
            ),
            self._follow(NODE_METRICS_PATH, decoder(UsageReport), self._set_metric, self._metric_gone, {}),
            self._follow(NODE_SLOS_PATH, decoder(NodeSlo), self._set_slo, self._slo_gone, {}),
            self._follow("/api/v1/nodes", decoder(Node), self._set_node, self._node_gone, only),
        ]
        self._pods = self._follow(  # started when colocation is enabled
            "/api/v1/pods",
            PodDecoder(),
            self._resources.set_pod,
            self._resources.pod_gone,
            {"fieldSelector": "spec.nodeName!="},
        )
        self._totals = NodeTotals(self._reconcile, self._reconcile_all)
        self._devices = self._follow(  # likewise
            DEVICES_PATH,
            partial(read_totals, shared=gpu_shared),
            self._totals.set,
            self._totals.gone,
            {},
            on_batch=self._totals.listed,
        )

    def start(self) -> None:
        for informer in self._informers:
            informer.start()
        if self._profiles is not None:
            self._profiles.start()

    def stop(self) -> None:
        self._stopped = True
        self._rest.stop()
        for informer in (*self._informers, self._pods, self._devices):
            informer.stop()
        for timer in (*self._retries.values(), self._probe, self._scan):
            if timer is not None:
                timer.cancel()
        if self._profiles is not None:
            self._profiles.stop()

    def _follow(
        self,
        path: str,
        decode: Callable[[bytes], K],
        on_set: Callable[[K], object],
        on_gone: Callable[[K], object],
        selector: dict[str, str],
        *,
        on_batch: Callable[[], None] = lambda: None,  # each event is complete by itself
    ) -> Informer[Any]:
        return Informer(
            self._transport,
            self._clock,
            path,
            decode,
            on_set=on_set,  # type: ignore[arg-type]
            on_gone=on_gone,  # type: ignore[arg-type]
            on_synced=self._synced,
            on_batch=on_batch,
            selector=selector,
            optional=True,
        )

    def _synced(self) -> None:
        if not self.ready and all(informer.synced for informer in self._informers):
            self.ready = True
            log.info("manager synced nodes=%d", len(self._nodes))
            self._reconcile_all()
            for name in {*self._metrics, *self._slos}:
                self._remove_orphans(name)
        elif self.ready and self._pods.synced:
            self._reconcile_all()

    # -- objects ------------------------------------------------------------------------------------------------------

    def _set_config(self, config_map: ConfigMap) -> None:
        """A deleted ConfigMap changes nothing: the last settings stay."""
        self._config, wrong = read_config(config_map, self._config)
        for key, text in wrong.items():
            log.warning("config refused why=%s", text)
            self._events.about(
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "namespace": NAMESPACE,
                    "name": NAME,
                    "uid": config_map.metadata.uid,
                },
                "Warning",
                "ColocationCfgUnmarshalFailed" if key == COLOCATION else "SLOCfgUnmarshalFailed",
                "Reading",
                text,
            )
        if self._colocation and self._scan is None and not self._stopped:
            self._pods.start()
            self._devices.start()
            self._scan = self._clock.call_later(STALE_SCAN, self._look_for_stale)
        self._reconcile_all()

    @property
    def _colocation(self) -> bool:
        """Whether the cluster's settings enable colocation; those of nodes can only disable it (NR-1)."""
        return self._config.section(COLOCATION).cluster.get("enable") is True

    def _look_for_stale(self) -> None:
        """Reports that stay away cause no event; neither does the time after which small differences are written."""
        self._scan = self._clock.call_later(STALE_SCAN, self._look_for_stale)
        self._reconcile_all()

    def _set_topology(self, topology: NodeResourceTopology) -> None:
        self._topologies[topology.metadata.name] = topology
        self._reconcile(topology.metadata.name)

    def _set_metric(self, metric: UsageReport) -> None:
        name = metric.metadata.name
        before = self._metrics.get(name)
        self._metrics[name] = metric
        self._served("NodeMetric")
        if before is None or before.spec != metric.spec or self._colocation:
            self._reconcile(name)
        self._remove_orphans(name)

    def _metric_gone(self, metric: UsageReport) -> None:
        if self._metrics.pop(metric.metadata.name, None) is not None:
            self._reconcile(metric.metadata.name)

    def _set_slo(self, slo: NodeSlo) -> None:
        name = slo.metadata.name
        self._slos[name] = slo
        self._served("NodeSLO")
        self._reconcile(name)
        self._remove_orphans(name)

    def _slo_gone(self, slo: NodeSlo) -> None:
        if self._slos.pop(slo.metadata.name, None) is not None:
            self._reconcile(slo.metadata.name)

    def _set_node(self, node: Node) -> None:
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node
        self._gone.discard(node.name)
        if before is None or _settings_of(before) != _settings_of(node):
            self._reconcile(node.name)

    def _node_gone(self, node: Node) -> None:
        self._nodes.pop(node.name, None)
        self._gone.add(node.name)
        self._resources.node_gone(node.name)
        self._strategies.pop(node.name, None)
        self._agreed.pop(node.name, None)
        self._totals.node_gone(node.name)
        self._remove_orphans(node.name)

    def _remove_orphans(self, name: str) -> None:
        """Delete the NodeMetric and the NodeSLO of a node that is gone. With a selector, a node that was never here
        may be another's."""
        if not self.ready or self._stopped or name in self._nodes or (self._selective and name not in self._gone):
            return

        def done(response: Response) -> None:
            if not response.ok and response.code not in {404, 409}:  # 409: the name has another one by now
                log.warning("manager undeleted name=%s why=%s", name, refusal(response))
                self._later(name)

        for kind, path, objects in (
            ("NodeMetric", NODE_METRICS_PATH, self._metrics),
            ("NodeSLO", NODE_SLOS_PATH, self._slos),
        ):
            entry = objects.get(name)
            if entry is not None:
                self._rest.delete(f"{path}/{name}", uid=entry.metadata.uid, done=self._count(kind, "delete", done))

    # -- writes -------------------------------------------------------------------------------------------------------

    def _reconcile_all(self) -> None:
        for name in list(self._nodes):
            self._reconcile(name)

    def _reconcile(self, name: str) -> None:
        self._clock.attempt("Manager._write_changes", name, partial(self._write_changes, name))

    def _write_changes(self, name: str) -> None:
        """Write what differs from what should be; one round of writes at a time for each node."""
        node = self._nodes.get(name)
        if node is None or not self.ready or self._stopped:
            return
        if name in self._writing:
            self._again.add(name)
            return
        writes = list(self._writes(node))
        if not writes:
            return
        self._writing.add(name)
        left = len(writes)

        def done(response: Response) -> None:
            nonlocal left
            left -= 1
            failed = not response.ok and response.code not in {404, 409}
            if failed:
                log.warning("manager unwritten node=%s why=%s", name, refusal(response))
                self._later(name)
            if not left:
                self._writing.discard(name)
                if name in self._again:
                    self._again.discard(name)
                    self._reconcile(name)

        for write in writes:
            write(done)

    def _later(self, name: str) -> None:
        """Look at a node again after a write that was refused."""

        def due() -> None:
            del self._retries[name]
            self._reconcile(name)
            self._remove_orphans(name)

        if name not in self._retries and not self._stopped:
            self._retries[name] = self._clock.call_later(RETRY, due)

    def _writes(self, node: Node) -> Iterator[Write]:
        strategy = self._strategy(node)
        yield from self._metric_writes(node, strategy)
        yield from self._slo_writes(node)
        annotations = self._ratio_changes(node)
        devices = self._totals.change(node) if self._colocation and strategy.enable else None
        if self._colocation:
            if self._pods.synced:
                yield from self._resource_writes(node, strategy, annotations, devices)
        elif COLOCATION not in self._config.broken and offers_something(node, self._topologies.get(node.name)):
            yield from self._resource_writes(node, ColocationStrategy(), annotations)
        metadata = {"annotations": annotations, "labels": devices.labels if devices is not None else {}}
        patch: Settings = {"metadata": {name: change for name, change in metadata.items() if change}}
        if patch["metadata"]:
            yield partial(self._patch, "Node", node_path(node.name), node.metadata.uid, patch)

    def _strategy(self, node: Node) -> ColocationStrategy:
        known = self._strategies.get(node.name)
        if known is None or known[0] is not self._config or known[1] is not node:
            section = self._config.section(COLOCATION)
            strategy, wrong = node_strategy(section, node.metadata.labels, node.metadata.annotations)
            self._say(node.name, "colocation strategy", wrong)
            known = self._strategies[node.name] = (self._config, node, strategy)
        return known[2]

    def _metric_writes(self, node: Node, strategy: ColocationStrategy) -> Iterator[Write]:
        """Create the node's NodeMetric, or change its policy; a broken configuration changes no existing one."""
        policy = collect_policy(strategy)
        metric = self._metrics.get(node.name)
        if metric is None:
            spec = {"metricCollectPolicy": policy}
            yield partial(self._post, "NodeMetric", NODE_METRICS_PATH, node.name, spec)
        elif COLOCATION not in self._config.broken and _policy_of(metric) != policy:
            patch: Settings = {"spec": {"metricCollectPolicy": policy}}
            yield partial(self._patch, "NodeMetric", f"{NODE_METRICS_PATH}/{node.name}", metric.metadata.uid, patch)

    def _slo_writes(self, node: Node) -> Iterator[Write]:
        """Create the node's NodeSLO, or replace its blocks (NS-1)."""
        slo = self._slos.get(node.name)
        known = self._agreed.get(node.name)
        if known is not None and known[0] is self._config and known[1] is node and known[2] is slo:
            return
        before = slo.spec if slo is not None else {}
        spec = node_slo_spec(self._config, node.metadata.labels, node.metadata.annotations, before)
        if slo is None:
            yield partial(self._post, "NodeSLO", NODE_SLOS_PATH, node.name, spec)
        elif spec != before:
            steps: list[Settings] = [
                {"op": "test", "path": "/metadata/uid", "value": slo.metadata.uid},
                {"op": "add", "path": "/spec", "value": spec},
            ]
            yield partial(self._change, "NodeSLO", f"{NODE_SLOS_PATH}/{node.name}", steps)
        else:
            self._agreed[node.name] = (self._config, node, slo)

    def _resource_writes(
        self,
        node: Node,
        strategy: ColocationStrategy,
        annotations: dict[str, str | None],
        devices: NodeChange | None = None,
    ) -> Iterator[Write]:
        """What the node offers to batch and mid pods, and the totals of its devices, into its status and its topology;
        the annotation with the amounts before those of third parties goes to the others."""
        offer, amounts = self._offer(node, strategy, annotations)
        if devices is not None:
            self._say(node.name, "device resources", [devices.totals.wrong] if devices.totals.wrong else [])
            amounts |= devices.amounts
        status = self._resources.status_change(node, strategy, amounts)
        if offer is not None and (status or ORIGIN_ALLOCATABLE not in node.metadata.annotations):  # as by Koordinator
            annotations.update(self._resources.annotation_change(node, offer))
        if status:
            why = [offer.why if offer is not None else "", devices.totals.why if devices is not None else ""]
            log.debug("noderesource node=%s %s", node.name, "\n".join(filter(None, why)))
            path = f"{node_path(node.name)}/status"
            yield self._noted(node.name, "Node", partial(self._patch, "Node", path, node.metadata.uid, status))
        topology = self._topologies.get(node.name)
        if topology is None or offer is None:
            return
        steps = self._resources.zone_change(topology, strategy, offer)
        if steps:
            path = f"{NODE_TOPOLOGIES_PATH}/{node.name}"
            yield self._noted(
                node.name, "NodeResourceTopology", partial(self._change, "NodeResourceTopology", path, steps)
            )

    def _offer(
        self, node: Node, strategy: ColocationStrategy, annotations: Mapping[str, str | None]
    ) -> tuple[Offer | None, dict[str, int | None]]:
        """What the node offers to batch and mid pods, and the amounts; None: it cannot be read, the last ones stay."""
        ratio = annotations.get(CPU_NORMALIZATION_RATIO) or node.metadata.annotations.get(CPU_NORMALIZATION_RATIO)
        metric, topology = self._metrics.get(node.name), self._topologies.get(node.name)
        wrong: list[str] = []
        try:
            offer = self._resources.offer(node, strategy, metric, topology, normalization(ratio))
        except (QuantityError, TimeError) as error:
            self._say(node.name, "batch and mid resources", [str(error)])
            return None, {}
        try:
            amounts = offer.amounts(allocations_of(node))
        except (QuantityError, msgspec.MsgspecError) as error:
            wrong.append(f"annotation {THIRD_PARTY_ALLOCATIONS}: {error}")
            amounts = offer.amounts(ThirdPartyAllocations())
        self._say(node.name, "batch and mid resources", wrong)
        return offer, amounts

    def _noted(self, name: str, kind: str, write: Write) -> Write:
        """The write, whose success starts the time until small differences are written."""

        def noted(done: Callable[[Response], None]) -> None:
            def answered(response: Response) -> None:
                if response.ok:
                    self._resources.written(name, kind)
                done(response)

            write(answered)

        return noted

    def _ratio_changes(self, node: Node) -> dict[str, str | None]:
        metadata, config = node.metadata, self._config
        keys = (AMPLIFICATION_RATIO, CPU_NORMALIZATION_RATIO, CPU_NORMALIZATION_ENABLED)
        marked = any(key in metadata.annotations or key in metadata.labels for key in keys)
        if not marked and not any(
            config.section(key).cluster or config.section(key).overrides for key in (NORMALIZATION, AMPLIFICATION)
        ):
            return {}
        topology = self._topologies.get(node.name)
        changes, wrong = changed_annotations(
            config.section(NORMALIZATION).on(metadata.labels),
            config.section(AMPLIFICATION).on(metadata.labels),
            metadata.labels,
            metadata.annotations,
            topology.metadata.annotations if topology is not None else {},
        )
        self._say(node.name, "ratios", wrong)
        return changes

    def _say(self, name: str, what: str, wrong: list[str]) -> None:
        """Log once why something of a node stays as it is."""
        self._once((name, what), f"{what} kept node={name} why={'; '.join(wrong)}" if wrong else "")

    def _post(self, kind: str, path: str, name: str, spec: Settings, done: Callable[[Response], None]) -> None:
        def posted(response: Response) -> None:
            done(response)
            if response.code == 404:
                self._unserved.setdefault(kind, {})[name] = None
                if self._probe is None and not self._stopped:
                    self._probe = self._clock.call_later(UNSERVED_PAUSE, self._try_one)
            elif response.ok:
                self._served(kind)

        group = path.removeprefix("/apis/").rpartition("/")[0]
        body = {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec}
        self._rest.post(path, body, self._count(kind, "create", posted))

    def _try_one(self) -> None:
        """One node shows whether the kinds are served by now: a cluster may never serve them."""
        self._probe = None
        names = [next((name for name in nodes if name in self._nodes), "") for nodes in self._unserved.values()]
        for name in filter(None, dict.fromkeys(names)):
            for nodes in self._unserved.values():
                nodes.pop(name, None)
            self._reconcile(name)

    def _served(self, kind: str) -> None:
        """The kind is served: nodes may be without an object of it because it was not."""
        for name in self._unserved.pop(kind, {}):
            self._reconcile(name)

    def _change(self, kind: str, path: str, steps: list[Settings], done: Callable[[Response], None]) -> None:
        self._rest.send(Request("PATCH", path, to_json(steps), JSON_PATCH), self._count(kind, "patch", done))

    def _patch(self, kind: str, path: str, uid: str, patch: Settings, done: Callable[[Response], None]) -> None:
        self._rest.merge(path, patch, self._count(kind, "patch", done), uid=uid)

    def _count(
        self, kind: str, verb: str, then: Callable[[Response], None] | None = None
    ) -> Callable[[Response], None]:
        def counted(response: Response) -> None:
            self.writes[kind, verb] += 1
            if verb == "patch" and response.ok:
                self._take(kind, response)
            if then is not None:
                then(response)

        return counted

    def _take(self, kind: str, response: Response) -> None:
        """Take the answer of a write for the copy of its object: until the watch brings it, the same would be written
        again. An object that is gone, or newer by now, stays as the watch has it."""
        copies, decode, take = self._copies[kind]
        try:
            body = decode(response.body)
        except msgspec.MsgspecError:
            return
        known = copies.get(body.metadata.name)
        if known is not None and known.metadata.uid == body.metadata.uid:
            version, before = (integer(each.metadata.resource_version) for each in (body, known))
            if version is not None and before is not None and version > before:
                take(body)

    def families(self) -> Iterator[Family]:
        """Metric families for `/metrics`."""
        name = "manager_writes_total"
        yield (
            name,
            "counter",
            "Writes of the manager by kind and verb.",
            [sample(name, {"kind": kind, "verb": verb}, count) for (kind, verb), count in sorted(self.writes.items())],
        )


def _settings_of(node: Node) -> tuple[object, ...]:
    """What of a node decides about what is written."""
    return node.metadata.labels, node.metadata.annotations, node.status.capacity, node.status.allocatable


def _policy_of(metric: UsageReport) -> Settings:
    metric_collect_policy = metric.spec.metric_collect_policy
    plain: Settings = to_plain(metric_collect_policy) if metric_collect_policy is not None else {}
    return plain


def _ignore(_: object) -> None:
    """The last settings stay."""
