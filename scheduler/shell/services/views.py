"""Routes of the scheduler: health, metrics, and its view of nodes and pods (section 6 of the API).

Koordinator's routes for nodes, DeviceShare, NodeNUMAResource and Reservation; of our own are
`/apis/v1/explain/:namespace/:name` and `/debug/decisions`.
"""

import logging
from collections import Counter
from functools import partial
from typing import Any, Protocol

import msgspec

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.wire import to_plain
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.cache.resources import BY_CLAIM
from seatrial.scheduler.cache.volumes import claim_keys
from seatrial.scheduler.core.cycle import Core
from seatrial.scheduler.engine.explanation import explain
from seatrial.scheduler.serving.exposition import CONTENT_TYPE
from seatrial.scheduler.serving.routes import Answer, Handler, RequestContext, Routes, json, missing, text
from seatrial.scheduler.shell.services.decisions import decisions, lacking_room, placement_of
from seatrial.scheduler.shell.services.flags import Flags
from seatrial.scheduler.shell.services.metrics import Metrics
from seatrial.scheduler.shell.services.podresources import pod_resources

BASE = "/apis/v1"
NO_PPROF = text("no pprof here: this is a Python process; py-spy dump or py-spy top --pid shows what it does", 501)
NOT_SYNCED = text("informers are not synced", 500)
NOT_LEADING = json({"message": "the instance is not leader"}, 503)


class Standing(Protocol):
    """State of the scheduler that decides what routes answer."""

    @property
    def ready(self) -> bool:
        """Whether all informers are synced."""

    @property
    def leading(self) -> bool:
        """Whether it is the leader."""


class Configuration(Protocol):
    """The scheduler's configuration, as `/configz` shows it."""

    @property
    def enable_profiling(self) -> bool: ...


def routes_of(
    core: Core, metrics: Metrics, standing: Standing, configuration: Configuration, logger: logging.Logger
) -> Routes:
    """All routes; those below `/debug` only with `enableProfiling` (FWK-R32)."""
    routes = Routes(core.handle.clock.faults)

    def service(pattern: str, handler: Handler) -> None:
        """Add a route of the services API, which only the leader answers."""
        routes.add("GET", f"{BASE}/{pattern}", lambda request: handler(request) if standing.leading else NOT_LEADING)

    routes.add_health(lambda: standing.ready, NOT_SYNCED)
    routes.add("GET", "/metrics", lambda _: Answer(200, metrics.render(), CONTENT_TYPE))
    routes.add(
        "GET",
        "/metrics/resources",  # only the leader reports
        lambda _: Answer(200, pod_resources(core) if standing.leading else b"", CONTENT_TYPE),
    )
    routes.add("GET", "/configz", lambda _: json({"componentconfig": msgspec.to_builtins(configuration)}))
    service("__services__", lambda _: json(routes.patterns(BASE)))
    service("nodes/:nodeName", partial(_node, core))
    for pattern, handler in core.handle.routes:
        service(pattern, handler)
    service("explain/:namespace/:name", partial(_explain, core))
    if configuration.enable_profiling:
        routes.add("GET", "/debug/decisions", partial(decisions, core))
        Flags(core.handle.debug, logger).install(routes)
        for pattern in ("/debug/pprof", "/debug/pprof/", "/debug/pprof/:profile"):
            routes.add("GET", pattern, lambda _: NO_PPROF)
    return routes


def _node(core: Core, request: RequestContext) -> Answer:
    name = request.parameters["nodeName"]
    node = core.cache.find(name)
    return missing(f"cannot find node {name}") if node is None else json(node_view(core, node))


def node_view(core: Core, node: NodeInfo) -> dict[str, Any]:
    """The sums of one node; cpu in milli, other resources in whole units."""
    names = core.cache.columns.resources.names
    allocatable = _amounts(names, node.allocatable)
    requested = _amounts(names, node.requested)
    infos = sorted(node.pods.values(), key=lambda info: info.key)
    claims = Counter("/".join(key) for info in infos for key in claim_keys(info.pod))
    return {
        "node": to_plain(node.known),
        "pods": [_reference(info.pod) for info in infos],
        "podsWithAffinity": [_reference(info.pod) for info in infos if _says(info.pod, required_far=False)],
        "podsWithRequiredAntiAffinity": [_reference(info.pod) for info in infos if _says(info.pod, required_far=True)],
        **{key: view(node) for key, view in core.handle.node_views.items()},
        "requested": requested,
        "nonZeroRequested": {"cpu": node.nonzero[0], "memory": node.nonzero[1]},
        "remaining": {name: amount - requested.get(name, 0) for name, amount in allocatable.items()},
        "allocatable": allocatable,
        "imageStates": {name: image.size_bytes for image in node.known.status.images for name in image.names},
        "pvcRefCounts": dict(claims),
    }


def _amounts(names: list[str], vector: list[int]) -> dict[str, int]:
    return {name: amount for name, amount in zip(names, vector, strict=False) if amount not in {0, BY_CLAIM}}


def _reference(pod: Pod) -> dict[str, str]:
    return {"namespace": pod.metadata.namespace, "name": pod.metadata.name, "uid": pod.metadata.uid}


def _says(pod: Pod, *, required_far: bool) -> bool:
    """Whether a pod has pod affinity or anti-affinity; `required_far`: required anti-affinity."""
    affinity = pod.spec.affinity
    if affinity is None:
        return False
    far = affinity.pod_anti_affinity
    if required_far:
        return far is not None and bool(far.required)
    return affinity.pod_affinity is not None or far is not None


def _explain(core: Core, request: RequestContext) -> Answer:
    key = f"{request.parameters['namespace']}/{request.parameters['name']}"
    info = core.find(key)
    if info is None or info.pod.spec.scheduler_name not in core.runners:
        return missing(f"cannot find pod {key}")
    explanation = explain(core.runners.of(info), info)
    places = {entry.info.uid: place for place, entry in core.queue.entries()}
    return json(
        {
            "pod": _reference(info.pod),
            "node": info.node_name,
            "queue": places.get(info.uid, ""),
            "heldBack": core.held_back(info),
            "notes": core.notes(info),
            "decision": placement_of(core, info) if info.node_name else None,
            "keptDecisions": core.handle.kept.size,
            "lacking": [] if info.node_name or explanation.feasible else lacking_room(core, info, explanation.rejected),
            "feasible": [
                {"node": scored.node, "score": scored.total, "byPlugin": scored.by_plugin}
                for scored in explanation.feasible
            ],
            "rejected": [
                {
                    "node": node,
                    "plugin": status.plugin,
                    "reasons": status.reasons,
                    "preemptionMightHelp": status.code.name == "UNSCHEDULABLE",
                }
                for node, status in sorted(explanation.rejected.items())
            ],
        }
    )
