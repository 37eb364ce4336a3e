"""What LoadAwareScheduling adds to the scheduler besides extension points: a route and metrics."""

from collections.abc import Iterator, Sequence
from functools import partial

from seatrial.scheduler.api.quantity import text
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.loadaware.cache import PLUGIN, LoadCache, LoadCaches
from seatrial.scheduler.plugins.loadaware.estimator import Vector
from seatrial.scheduler.serving.exposition import Family, sample
from seatrial.scheduler.serving.routes import Answer, RequestContext, json, missing


def register(handle: Handle) -> None:
    """Register the route and metrics if some profile runs the plugin. Call after the plugins of all profiles exist."""
    if not handle.has_shared(LoadCaches):
        return
    caches = list(handle.shared(LoadCaches).all.values())
    handle.serve(f"plugins/{PLUGIN}/nodes/:nodeName", partial(_node, caches[0]))
    handle.export(partial(_families, caches))


def _node(cache: LoadCache, request: RequestContext) -> Answer:
    """The load of one node, as the first profile that runs the plugin sees it (FWK-E4)."""
    name = request.parameters["nodeName"]
    load = cache.load(name)
    if load is None:
        return missing(f"cannot find node {name}")

    def listed(vector: Vector) -> dict[str, str]:
        return {resource: text(resource, value) for resource, value in zip(cache.names, vector, strict=True)}

    return json(
        {
            "reported": load.report is not None,
            "nodeUsage": listed(load.report.usage)
            if load.report is not None and load.report.usage is not None
            else None,
            "prodUsage": listed(load.prod_usage),
            "nodeDelta": listed(load.delta),
            "prodDelta": listed(load.prod_delta),
            "nodeEstimated": listed(load.estimated),
            "nodeDeltaPods": load.uncovered(),
            "prodDeltaPods": load.uncovered(prod=True),
            "nodeEstimatedPods": sorted(pod.key for pod in load.pods.values()),
            "pods": {pod.key: listed(pod.estimate) for pod in load.pods.values()},
        }
    )


def _families(caches: Sequence[LoadCache]) -> Iterator[Family]:
    updates, refused = sum(cache.updates for cache in caches), sum(cache.refused for cache in caches)
    yield (
        "scheduler_node_metric_updates_total",
        "counter",
        "NodeMetric objects received.",
        [
            sample("scheduler_node_metric_updates_total", {"result": result}, value)
            for result, value in (("used", updates - refused), ("refused", refused))
        ],
    )
    counts = caches[0].counts()
    name = "scheduler_node_load_nodes"
    yield (
        name,
        "gauge",
        "Nodes by the state of their NodeMetric.",
        [sample(name, {"state": state}, count) for state, count in counts.items()],
    )
