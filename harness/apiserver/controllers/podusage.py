"""What pods use at the moment, as the nodes' agents report it in NodeMetric objects."""

from harness.apiserver.storage.store import CollectionKey, Store
from scheduler.api.quantity import milli

NODE_METRICS: CollectionKey = ("slo.koordinator.sh", "nodemetrics")


def pod_usage(store: Store, namespace: str, resource: str) -> dict[str, int]:
    """Pod → thousandths of `resource` that it uses; pods of which nobody reports are missing."""
    found: dict[str, int] = {}
    for item in store.collection(NODE_METRICS).each():
        for one in (item.obj.get("status") or {}).get("podsMetric") or ():
            if one.get("namespace") != namespace:
                continue
            used = ((one.get("podUsage") or {}).get("resources") or {}).get(resource)
            if used is not None:
                found[one.get("name", "")] = milli(used)
    return found
