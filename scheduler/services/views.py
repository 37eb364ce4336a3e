"""Routes of the scheduler's process: health, metrics, and what it holds of nodes and pods (section 6 of the API).

Koordinator's routes for nodes, DeviceShare, NodeNUMAResource and Reservation; of our own is
`/apis/v1/explain/:namespace/:name`.
"""

import logging
from collections import Counter
from functools import partial
from typing import Any, Protocol

import msgspec

from scheduler.api.core import Pod
from scheduler.api.wire import to_plain
from scheduler.cache.volumes import claim_keys
from scheduler.config import Configuration
from scheduler.cycle import Core
from scheduler.framework.explaining import explain
from scheduler.framework.nodeinfo import NodeInfo
from scheduler.plugins.deviceshare.cache import DeviceCache
from scheduler.plugins.deviceshare.plugin import DeviceShare
from scheduler.plugins.deviceshare.summary import summaries, summary_of
from scheduler.plugins.nodenuma.cache import NumaCache
from scheduler.plugins.nodenuma.plugin import NodeNUMAResource
from scheduler.plugins.nodenuma.summary import summary_of as numa_summary_of
from scheduler.plugins.nodeports import ports_of
from scheduler.plugins.reservation.summary import summary_of as reservations_of
from scheduler.services.exposition import CONTENT_TYPE
from scheduler.services.flags import Flags
from scheduler.services.metrics import Metrics
from scheduler.services.podresources import pod_resources
from scheduler.services.routes import Answer, Asked, Handler, Routes, json, missing, text

BASE = "/apis/v1"
NO_PPROF = text("no pprof here: this is a Python process; py-spy dump or py-spy top --pid shows what it does", 501)
NOT_SYNCED = text("informers are not synced", 500)
NOT_LEADING = json({"message": "the instance is not leader"}, 503)


class Standing(Protocol):
    """How far the scheduler is."""

    @property
    def ready(self) -> bool:
        """It has seen the cluster, and decides."""

    @property
    def leading(self) -> bool:
        """It is its turn to decide; of several schedulers, one leads."""


def routes_of(
    core: Core, metrics: Metrics, standing: Standing, configuration: Configuration, logger: logging.Logger
) -> Routes:
    """All routes; debug flags only where `enableProfiling` is on (FWK-R32)."""
    routes = Routes()

    def service(pattern: str, handler: Handler) -> None:
        """A route of the services API, which the leader alone answers."""
        routes.add("GET", f"{BASE}/{pattern}", lambda asked: handler(asked) if standing.leading else NOT_LEADING)

    for name in ("healthz", "livez"):
        routes.add("GET", f"/{name}", lambda _: Answer(200, b"ok"))
    routes.add("GET", "/readyz", lambda _: Answer(200, b"ok") if standing.ready else NOT_SYNCED)
    routes.add("GET", "/metrics", lambda _: Answer(200, metrics.render(), CONTENT_TYPE))
    routes.add(
        "GET",
        "/metrics/resources",  # of several schedulers one tells, the others nothing
        lambda _: Answer(200, pod_resources(core) if standing.leading else b"", CONTENT_TYPE),
    )
    routes.add("GET", "/configz", lambda _: json({"componentconfig": msgspec.to_builtins(configuration)}))
    service("__services__", lambda _: json(routes.patterns(BASE)))
    service("nodes/:nodeName", partial(_node, core))
    service(f"plugins/{DeviceShare.name}/nodeDeviceSummaries", partial(_device_summaries, core))
    service(f"plugins/{DeviceShare.name}/nodeDeviceSummaries/:name", partial(_device_summary, core))
    service(f"plugins/{NodeNUMAResource.name}/nodes/:nodeName", partial(_numa_summary, core))
    service("plugins/NodeNUMAResources/cpuTopologyOptions/:nodeName", partial(_numa_summary, core))  # v0.7's path
    service("plugins/Reservation/nodeReservations/:nodeName", partial(_reservations, core))
    service("explain/:namespace/:name", partial(_explain, core))
    if configuration.enable_profiling:
        Flags(core.handle.debug, logger).install(routes)
        for pattern in ("/debug/pprof", "/debug/pprof/", "/debug/pprof/:profile"):
            routes.add("GET", pattern, lambda _: NO_PPROF)
    return routes


def _device_summaries(core: Core, _: Asked) -> Answer:
    return json(summaries(DeviceCache.of(core.handle), core.cache))


def _device_summary(core: Core, asked: Asked) -> Answer:
    name = asked.parameters["name"]
    found = summary_of(DeviceCache.of(core.handle), core.cache, name)
    return missing(f"cannot find node {name}") if found is None else json(found)


def _numa_summary(core: Core, asked: Asked) -> Answer:
    numa = NumaCache.of(core.handle).find(asked.parameters["nodeName"])
    if numa is None:
        return missing("cannot find target node")
    if not numa.state.topology.valid:
        return json({"message": "invalid topology, please check the NodeResourceTopology object"}, 500)
    return json(numa_summary_of(numa, core.cache))


def _reservations(core: Core, asked: Asked) -> Answer:
    return json(reservations_of(core.reservations, core.cache, asked.parameters["nodeName"]))


def _node(core: Core, asked: Asked) -> Answer:
    name = asked.parameters["nodeName"]
    node = core.cache.find(name)
    return missing(f"cannot find node {name}") if node is None else json(node_view(core, node))


def node_view(core: Core, node: NodeInfo) -> dict[str, Any]:
    """What the scheduler counts on one node; cpu in milli, everything else in whole units."""
    names = core.cache.columns.resources.names
    allocatable = _amounts(names, node.allocatable)
    requested = _amounts(names, node.requested)
    infos = sorted(node.pods.values(), key=lambda info: info.key)
    claims = Counter("/".join(key) for info in infos for key in claim_keys(info.pod))
    ports = [port for info in infos for port in ports_of(info.shape)]
    return {
        "node": to_plain(node.known),
        "pods": [_reference(info.pod) for info in infos],
        "podsWithAffinity": [_reference(info.pod) for info in infos if _says(info.pod, required_far=False)],
        "podsWithRequiredAntiAffinity": [_reference(info.pod) for info in infos if _says(info.pod, required_far=True)],
        "usedPorts": [{"ip": one.address, "protocol": one.protocol, "port": one.number} for one in sorted(ports)],
        "requested": requested,
        "nonZeroRequested": {"cpu": node.nonzero[0], "memory": node.nonzero[1]},
        "remaining": {name: amount - requested.get(name, 0) for name, amount in allocatable.items()},
        "allocatable": allocatable,
        "imageStates": {name: image.size_bytes for image in node.known.status.images for name in image.names},
        "pvcRefCounts": dict(claims),
    }


def _amounts(names: list[str], vector: list[int]) -> dict[str, int]:
    return {name: amount for name, amount in zip(names, vector, strict=False) if amount}


def _reference(pod: Pod) -> dict[str, str]:
    return {"namespace": pod.metadata.namespace, "name": pod.metadata.name, "uid": pod.metadata.uid}


def _says(pod: Pod, *, required_far: bool) -> bool:
    """Whether a pod has terms about other pods; or such as keep others off."""
    affinity = pod.spec.affinity
    if affinity is None:
        return False
    far = affinity.pod_anti_affinity
    if required_far:
        return far is not None and bool(far.required)
    return affinity.pod_affinity is not None or far is not None


def _explain(core: Core, asked: Asked) -> Answer:
    key = f"{asked.parameters['namespace']}/{asked.parameters['name']}"
    info = core.find(key)
    if info is None or info.pod.spec.scheduler_name not in core.profiles:
        return missing(f"cannot find pod {key}")
    explanation = explain(core.runner_of(info), info)
    places = {entry.info.uid: place for place, entry in core.queue.entries()}
    return json({
        "pod": _reference(info.pod),
        "node": info.node_name,
        "queue": places.get(info.uid, ""),
        "feasible": [
            {"node": scored.node, "score": scored.total, "byPlugin": scored.by_plugin}
            for scored in explanation.feasible
        ],
        "rejected": [
            {"node": node, "plugin": status.plugin, "reasons": status.reasons,
             "preemptionMightHelp": status.code.name == "UNSCHEDULABLE"}
            for node, status in sorted(explanation.rejected.items())
        ],
    })  # fmt: skip
