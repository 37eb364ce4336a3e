"""What ElasticQuota adds to the scheduler besides extension points: quotas followed, routes and metrics."""

from collections.abc import Iterator
from typing import Any

from seatrial.scheduler.api.quota import PROFILES_PATH, QUOTAS_PATH, ElasticQuota, ElasticQuotaProfile
from seatrial.scheduler.framework.collaborators import Watch
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.elasticquota.cache import QuotaCache
from seatrial.scheduler.plugins.elasticquota.controller import QuotaController
from seatrial.scheduler.plugins.elasticquota.hook_latency import METRIC
from seatrial.scheduler.plugins.elasticquota.profile_controller import ProfileController
from seatrial.scheduler.plugins.elasticquota.status import spec_fields, status_fields, summary
from seatrial.scheduler.serving.exposition import Family, histogram_lines, sample
from seatrial.scheduler.serving.routes import Answer, RequestContext, json, missing

PLUGIN = "ElasticQuota"


def register(handle: Handle) -> None:
    """Register the watches, controllers, routes and metrics. Call after the plugins of all profiles are built."""
    cache = QuotaCache.of(handle)
    handle.watch(Watch(QUOTAS_PATH, ElasticQuota, cache.set_quota, cache.remove_quota))
    handle.control(lambda context: QuotaController(cache, context))
    handle.control(lambda context: ProfileController(cache, context))
    if cache.args.multi_quota_tree:
        handle.watch(Watch(PROFILES_PATH, ElasticQuotaProfile, cache.set_profile, cache.remove_profile))
    handle.serve(f"plugins/{PLUGIN}/quotas", lambda request: _all(cache, request))
    handle.serve(f"plugins/{PLUGIN}/quotas/:name", lambda request: _one(cache, request))
    handle.export(lambda: _families(cache))


def _one(cache: QuotaCache, request: RequestContext) -> Answer:
    name = request.parameters["name"]
    results = cache.find(name)
    if results is None:
        return missing(f"cannot find quota {name}")
    return json(summary(cache, *results, pods=request.query.get("includePods") == "true"))


def _all(cache: QuotaCache, request: RequestContext) -> Answer:
    name = request.query.get("tree", "")
    shown: dict[str, Any] = {}
    for tree_id, tree in cache.trees.items():
        if name and tree_id != name:
            continue
        for quota in tree:
            beside = quota in {tree.system, tree.default} and bool(tree_id)
            if quota is not tree.root and not beside:
                shown[quota.name] = summary(cache, tree, quota, pods=request.query.get("includePods") == "true")
    return json(shown)


def _families(cache: QuotaCache) -> Iterator[Family]:
    for name, words, fields in (
        ("scheduler_elastic_quota_spec", "Min, max and shared weight of each quota.", spec_fields),
        ("scheduler_elastic_quota_status", "Request, use and runtime share of each quota.", status_fields),
    ):
        samples: list[str] = []
        for quota_name in sorted(cache.objects):
            results = cache.find(quota_name)
            if results is None:
                continue
            tree, quota = results
            labels = {
                "tree": cache.tree_id(quota_name),
                "is_parent": str(quota.spec.is_parent).lower(),
                "parent": quota.spec.parent,
            }
            for field, amounts in fields(tree, quota).items():
                for key, value in sorted(amounts.items()):
                    samples.append(sample(name, {"name": quota_name, "resource": key, **labels, "field": field}, value))
        yield name, "gauge", words, samples
    if cache.hooks:
        lines = [
            line
            for hook in cache.hooks
            for operation, latency in sorted(hook.latency.items())
            for line in histogram_lines(METRIC, {"plugin": hook.key, "operation": operation}, latency)
        ]
        yield METRIC, "histogram", "Seconds of the calls of hook plugins.", lines
