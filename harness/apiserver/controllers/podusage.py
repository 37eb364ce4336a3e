"""Current resource usage of pods, from the NodeMetric objects that node agents report."""

from seatrial.harness.apiserver.quantities import milli
from seatrial.harness.apiserver.storage.store import CollectionKey, Store

NODE_METRICS: CollectionKey = ("slo.koordinator.sh", "nodemetrics")


def pod_usage(store: Store, namespace: str, resource: str) -> dict[str, int]:
    """Pod name → usage of `resource` in thousandths; pods without a report are absent."""
    by_metric: dict[str, int] = {}
    for item in store.collection(NODE_METRICS).each():
        for metric in (item.obj.get("status") or {}).get("podsMetric") or ():
            if metric.get("namespace") != namespace:
                continue
            used = ((metric.get("podUsage") or {}).get("resources") or {}).get(resource)
            if used is not None:
                by_metric[metric.get("name", "")] = milli(used)
    return by_metric
