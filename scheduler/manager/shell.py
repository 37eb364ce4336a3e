"""The manager: follows nodes, their topology and the configuration, and writes NodeMetrics and node annotations.

A cluster whose nodes have no ratio annotations and whose configuration enables none gets no writes to nodes.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from seatrial.scheduler.api.clock import Clock, Timer
from seatrial.scheduler.api.core import ConfigMap, Node
from seatrial.scheduler.api.numa import (
    AMPLIFICATION_RATIO,
    CPU_NORMALIZATION_ENABLED,
    CPU_NORMALIZATION_RATIO,
    GROUP_VERSION,
    NodeResourceTopology,
)
from seatrial.scheduler.api.slo import NODE_METRICS_PATH, NodeMetric
from seatrial.scheduler.api.transport import Response, Transport
from seatrial.scheduler.api.wire import decoder, to_plain
from seatrial.scheduler.client.informer import Following, Informer
from seatrial.scheduler.client.rest import Rest, node_path, refusal
from seatrial.scheduler.manager.config import (
    AMPLIFICATION,
    COLOCATION,
    NAME,
    NAMESPACE,
    NORMALIZATION,
    Settings,
    SloConfig,
    collect_policy,
    read_config,
)
from seatrial.scheduler.manager.normalization import changed_annotations
from seatrial.scheduler.serving.exposition import Family, sample

log = logging.getLogger(__name__)

RETRY = 5.0  # seconds after a write that failed
UNSERVED_PAUSE = 30.0  # seconds after which NodeMetrics are tried again that the API server does not serve
K = TypeVar("K", bound=Following)


class Manager:
    """Runs the controllers against one API server."""

    def __init__(self, transport: Transport, clock: Clock, *, selector: str = "") -> None:
        """`selector`: a label selector; only nodes with these labels are served."""
        self._transport, self._clock = transport, clock
        self.faults = clock.faults
        self._rest = Rest(transport, clock)
        self._config = SloConfig()
        self._nodes: dict[str, Node] = {}
        self._topologies: dict[str, NodeResourceTopology] = {}
        self._metrics: dict[str, NodeMetric] = {}
        self._writing: set[str] = set()
        self._again: set[str] = set()
        self._retries: dict[str, Timer] = {}  # by node: one each, or refused writes would multiply
        self._unserved: dict[str, None] = {}  # nodes without NodeMetric because the kind was not served
        self._probe: Timer | None = None
        self._said: dict[str, str] = {}
        self._gone: set[str] = set()  # nodes that were here; their NodeMetrics may become known later than their end
        self._selective = bool(selector)
        self.writes: Counter[tuple[str, str]] = Counter()
        self.ready = self._stopped = False
        only = {"labelSelector": selector} if selector else {}
        self._informers = [
            self._follow(
                f"/api/v1/namespaces/{NAMESPACE}/configmaps",
                ConfigMap,
                self._set_config,
                _ignore,
                {"fieldSelector": f"metadata.name={NAME}"},
            ),
            self._follow(
                f"/apis/{GROUP_VERSION}/noderesourcetopologies",
                NodeResourceTopology,
                self._set_topology,
                lambda topology: self._topologies.pop(topology.metadata.name, None),
                {},
            ),
            self._follow(NODE_METRICS_PATH, NodeMetric, self._set_metric, self._metric_gone, {}),
            self._follow("/api/v1/nodes", Node, self._set_node, self._node_gone, only),
        ]

    def start(self) -> None:
        for informer in self._informers:
            informer.start()

    def stop(self) -> None:
        self._stopped = True
        for informer in self._informers:
            informer.stop()
        for timer in (*self._retries.values(), self._probe):
            if timer is not None:
                timer.cancel()

    def _follow(
        self,
        path: str,
        kind: type[K],
        on_set: Callable[[K], object],
        on_gone: Callable[[K], object],
        selector: dict[str, str],
    ) -> Informer[Any]:
        return Informer(
            self._transport,
            self._clock,
            path,
            decoder(kind),
            on_set=on_set,  # type: ignore[arg-type]
            on_gone=on_gone,  # type: ignore[arg-type]
            on_synced=self._synced,
            on_batch=_nothing,
            selector=selector,
            optional=True,
        )

    def _synced(self) -> None:
        if not self.ready and all(informer.synced for informer in self._informers):
            self.ready = True
            log.info("manager synced nodes=%d", len(self._nodes))
            self._reconcile_all()
            for metric in list(self._metrics.values()):
                self._remove_if_orphan(metric)

    # -- objects ------------------------------------------------------------------------------------------------------

    def _set_config(self, config_map: ConfigMap) -> None:
        """A deleted ConfigMap changes nothing: the last settings stay."""
        self._config, wrong = read_config(config_map, self._config)
        for text in wrong:
            log.warning("config refused why=%s", text)
        self._reconcile_all()

    def _set_topology(self, topology: NodeResourceTopology) -> None:
        self._topologies[topology.metadata.name] = topology
        self._reconcile(topology.metadata.name)

    def _set_metric(self, metric: NodeMetric) -> None:
        name = metric.metadata.name
        before = self._metrics.get(name)
        self._metrics[name] = metric
        self._served()
        if before is None or before.spec != metric.spec:  # not for reports
            self._reconcile(name)
            self._remove_if_orphan(metric)

    def _metric_gone(self, metric: NodeMetric) -> None:
        if self._metrics.pop(metric.metadata.name, None) is not None:
            self._reconcile(metric.metadata.name)

    def _set_node(self, node: Node) -> None:
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node
        self._gone.discard(node.name)
        known = before.metadata if before is not None else None
        if known is None or (known.labels, known.annotations) != (node.metadata.labels, node.metadata.annotations):
            self._reconcile(node.name)

    def _node_gone(self, node: Node) -> None:
        self._nodes.pop(node.name, None)
        self._gone.add(node.name)
        metric = self._metrics.get(node.name)
        if metric is not None:
            self._remove_if_orphan(metric)

    def _remove_if_orphan(self, metric: NodeMetric) -> None:
        """Delete a NodeMetric whose node is gone. With a selector, a node that was never here may be another's."""
        name = metric.metadata.name
        if self.ready and name not in self._nodes and (name in self._gone or not self._selective):

            def done(response: Response) -> None:
                if not response.ok and response.code not in {404, 409}:  # 409: the name has another one by now
                    log.warning("manager undeleted nodemetric=%s why=%s", name, refusal(response))
                    self._later(name)

            path = f"{NODE_METRICS_PATH}/{name}"
            self._rest.delete(path, uid=metric.metadata.uid, done=self._count("NodeMetric", "delete", done))

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
        writes = [*self._metric_writes(node), *self._annotation_writes(node)]
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
            metric = self._metrics.get(name)
            if metric is not None and not self._stopped:
                self._remove_if_orphan(metric)

        if name not in self._retries and not self._stopped:
            self._retries[name] = self._clock.call_later(RETRY, due)

    def _metric_writes(self, node: Node) -> Iterator[Callable[[Callable[[Response], None]], None]]:
        """Create the node's NodeMetric, or change its policy; a broken configuration changes no existing one."""
        policy = collect_policy(self._config.section(COLOCATION).on(node.metadata.labels))
        metric = self._metrics.get(node.name)
        if metric is None:
            group = NODE_METRICS_PATH.removeprefix("/apis/").rpartition("/")[0]
            body = {
                "apiVersion": group,
                "kind": "NodeMetric",
                "metadata": {"name": node.name},
                "spec": {"metricCollectPolicy": policy},
            }
            yield partial(self._post, body)
        elif COLOCATION not in self._config.broken and _policy_of(metric) != policy:
            patch: Settings = {"spec": {"metricCollectPolicy": policy}}
            yield partial(self._patch, "NodeMetric", f"{NODE_METRICS_PATH}/{node.name}", metric.metadata.uid, patch)

    def _annotation_writes(self, node: Node) -> Iterator[Callable[[Callable[[Response], None]], None]]:
        metadata, config = node.metadata, self._config
        keys = (AMPLIFICATION_RATIO, CPU_NORMALIZATION_RATIO, CPU_NORMALIZATION_ENABLED)
        marked = any(key in metadata.annotations or key in metadata.labels for key in keys)
        if not marked and not any(
            config.section(key).cluster or config.section(key).overrides for key in (NORMALIZATION, AMPLIFICATION)
        ):
            return
        topology = self._topologies.get(node.name)
        changes, wrong = changed_annotations(
            config.section(NORMALIZATION).on(metadata.labels),
            config.section(AMPLIFICATION).on(metadata.labels),
            metadata.labels,
            metadata.annotations,
            topology.metadata.annotations if topology is not None else {},
        )
        said = "; ".join(wrong)
        if said and self._said.get(node.name) != said:
            log.warning("ratios kept node=%s why=%s", node.name, said)
        self._said[node.name] = said
        if changes:
            patch: Settings = {"metadata": {"annotations": changes}}
            yield partial(self._patch, "Node", node_path(node.name), metadata.uid, patch)

    def _post(self, body: Settings, done: Callable[[Response], None]) -> None:
        def posted(response: Response) -> None:
            done(response)
            if response.code == 404:
                self._unserved[body["metadata"]["name"]] = None
                if self._probe is None and not self._stopped:
                    self._probe = self._clock.call_later(UNSERVED_PAUSE, self._try_one)
            elif response.ok:
                self._served()

        self._rest.post(NODE_METRICS_PATH, body, self._count("NodeMetric", "create", posted))

    def _try_one(self) -> None:
        """One node shows whether the kind is served by now: a cluster may never serve it."""
        self._probe = None
        name = next((name for name in self._unserved if name in self._nodes), None)
        if name is not None:
            del self._unserved[name]
            self._reconcile(name)

    def _served(self) -> None:
        """The kind NodeMetric is served: nodes may be without one because it was not."""
        names, self._unserved = self._unserved, {}
        for name in names:
            self._reconcile(name)

    def _patch(self, kind: str, path: str, uid: str, patch: Settings, done: Callable[[Response], None]) -> None:
        self._rest.merge(path, patch, self._count(kind, "patch", done), uid=uid)

    def _count(
        self, kind: str, verb: str, then: Callable[[Response], None] | None = None
    ) -> Callable[[Response], None]:
        def counted(response: Response) -> None:
            self.writes[kind, verb] += 1
            if then is not None:
                then(response)

        return counted

    def families(self) -> Iterator[Family]:
        """Metric families for `/metrics`."""
        name = "manager_writes_total"
        yield (
            name,
            "counter",
            "Writes of the manager by kind and verb.",
            [sample(name, {"kind": kind, "verb": verb}, count) for (kind, verb), count in sorted(self.writes.items())],
        )


def _policy_of(metric: NodeMetric) -> Settings:
    found = metric.spec.metric_collect_policy
    plain: Settings = to_plain(found) if found is not None else {}
    return plain


def _nothing() -> None:
    """Each event is complete by itself."""


def _ignore(_: object) -> None:
    """The last settings stay."""
