"""What pods use at the moment, as the nodes' agents report it in NodeMetric objects."""

from harness.apiserver.store import CollectionKey, Store
from scheduler.api.quantity import milli

NODE_METRICS: CollectionKey = ("slo.koordinator.sh", "nodemetrics")


def pod_usage(store: Store, namespace: str, resource: str) -> dict[str, int]:
    """Pod → thousandths of `resource` that it uses; pods of which nobody reports are missing."""
    found: dict[str, int] = {}
    for item in store.collection(NODE_METRICS).each():
        for metric in (item.obj.get("status") or {}).get("podsMetric") or ():
            if metric.get("namespace") != namespace:
                continue
            used = ((metric.get("podUsage") or {}).get("resources") or {}).get(resource)
            if used is not None:
                found[metric.get("name", "")] = milli(used)
    return found
