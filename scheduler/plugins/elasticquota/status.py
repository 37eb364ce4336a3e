"""What the scheduler publishes about a quota: status annotations, the summary of the services API, and figures."""

from collections.abc import Mapping
from typing import Any

from seatrial.scheduler.api import quota as keys
from seatrial.scheduler.api.quantity import quantities
from seatrial.scheduler.api.wire import to_json
from seatrial.scheduler.plugins.elasticquota.cache import QuotaCache
from seatrial.scheduler.quota.tree import Quota, QuotaTree

Amounts = dict[str, int]


def status_fields(tree: QuotaTree, quota: Quota) -> dict[str, Amounts]:
    """The fields of a quota's status, by the names that metrics use."""
    parts = [quota, tree.system, tree.default] if quota is tree.root else [quota]
    request: Amounts = {}
    for part in parts:
        for key, value in part.request(lends=tree.lends(part)).items():
            request[key] = request.get(key, 0) + value

    def total(name: str) -> Amounts:
        amounts: Amounts = {}
        for part in parts:
            for key, value in getattr(part, name).items():
                amounts[key] = amounts.get(key, 0) + value
        return {key: value for key, value in amounts.items() if value}

    guaranteed = dict(quota.spec.min)
    if tree.guarantee:
        guaranteed = {key: value for key, value in quota.guaranteed.items() if value}
    return {
        "used": total("used"),
        "runtime": tree.runtime(quota),
        "request": request,
        "child-request": total("child_request"),
        "guaranteed": guaranteed,
        "allocated": total("allocated") if tree.guarantee else total("used"),
        "non-preemptible-request": total("non_preemptible_request"),
        "non-preemptible-used": total("non_preemptible_used"),
    }


def spec_fields(tree: QuotaTree, quota: Quota) -> dict[str, Amounts]:  # noqa: ARG001 one signature
    """Amounts of the quota's spec under the names of the summary; without a weight, `max` is the weight."""
    spec = quota.spec
    return {
        "min": dict(spec.min),
        "max": dict(spec.max),
        "sharedWeight": dict(spec.max if spec.weight is None else spec.weight),
    }


_ANNOTATIONS = {
    "runtime": keys.RUNTIME,
    "request": keys.REQUEST,
    "child-request": keys.CHILD_REQUEST,
    "guaranteed": keys.GUARANTEED,
    "allocated": keys.ALLOCATED,
    "non-preemptible-request": keys.NON_PREEMPTIBLE_REQUEST,
    "non-preemptible-used": keys.NON_PREEMPTIBLE_USED,
}


def status_of(tree: QuotaTree, quota: Quota) -> tuple[dict[str, str], dict[str, str]]:
    """The annotations and `status.used` to write."""
    fields = status_fields(tree, quota)
    annotations = {key: to_json(quantities(fields[name])).decode() for name, key in _ANNOTATIONS.items()}
    return annotations, quantities(fields["used"])


def without_zeros(listed: Mapping[str, Any]) -> dict[str, Any]:
    """A resource list without entries of 0: such entries alone are no reason to write a status."""
    return {key: value for key, value in listed.items() if str(value) != "0"}


def summary(cache: QuotaCache, tree: QuotaTree, quota: Quota, *, pods: bool = False) -> dict[str, Any]:
    """The summary of one quota, with upstream's field names."""
    spec = quota.spec
    fields = status_fields(tree, quota)
    results: dict[str, Any] = {
        "name": quota.name,
        "parentName": spec.parent,
        "isParent": spec.is_parent,
        "runtimeVersion": sum(quota.versions.values()),
        "allowLentResource": spec.lends,
        "tree": cache.tree_id(quota.name),
        "max": quantities(spec.max),
        "min": quantities(spec.min),
        "autoScaleMin": quantities(tree.auto_scale_min(quota)),
        "used": quantities(fields["used"]),
        "nonPreemptibleUsed": quantities(fields["non-preemptible-used"]),
        "request": quantities(fields["request"]),
        "nonPreemptibleRequest": quantities(fields["non-preemptible-request"]),
        "sharedWeight": quantities(spec.max if spec.weight is None else spec.weight),
        "runtime": quantities(fields["runtime"]),
        "childRequest": quantities(fields["child-request"]),
        "allocated": quantities(fields["allocated"]),
        "guaranteed": quantities(fields["guaranteed"]),
        "selfUsed": quantities(quota.self_used),
        "selfRequest": quantities(quota.self_request),
        "selfNonPreemptibleUsed": quantities(quota.self_non_preemptible_used),
        "selfNonPreemptibleRequest": quantities(quota.self_non_preemptible_request),
    }
    if pods:
        results["podCache"] = {
            account.pod.key: {"isAssigned": account.assigned, "resource": quantities(account.amounts)}
            for account in cache.members.get(quota.name, {}).values()
        }
    return results
