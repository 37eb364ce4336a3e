"""Quotas of a case and the pods that they count."""

from collections.abc import Sequence
from typing import Any

import orjson

from seatrial.fixtures.trial import Trial
from seatrial.scheduler.api.builders import PodBuilder, QuotaBuilder, pod
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.quota import QUOTAS_PATH

SETTLED = 20.0  # seconds after which a status was written and waiting pods were asked again


def named(cluster: Trial, name: str) -> str:
    """Names of quotas are global."""
    return f"{cluster.name}-{name}"


def make(cluster: Trial, *quotas: QuotaBuilder) -> None:
    cluster.apply(*(quota.manifest for quota in quotas))


def counted(cluster: Trial, name: str, own: str, *, preemptible: bool = True, **resources: str | int) -> PodBuilder:
    found = pod(name).request(**resources).quota(named(cluster, own), preemptible=preemptible)
    return found.scheduler(KOORD_SCHEDULER)


def many(cluster: Trial, own: str, count: int) -> Sequence[PodBuilder]:
    """Pods of one core each."""
    return [counted(cluster, f"{own}-{number}", own, cpu=1) for number in range(count)]


def placed(cluster: Trial, prefix: str) -> int:
    return sum(pod.metadata.name.startswith(prefix) and bool(pod.spec.node_name) for pod in cluster.pods())


def settle(cluster: Trial) -> None:
    cluster.cluster.wait(lambda: False, within=SETTLED)


def path_of(cluster: Trial, name: str, namespace: str = "") -> str:
    collection = QUOTAS_PATH.replace("/elasticquotas", f"/namespaces/{namespace or cluster.name}/elasticquotas")
    return f"{collection}/{name}"


def read(cluster: Trial, name: str, namespace: str = "") -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(cluster.call("GET", path_of(cluster, name, namespace)).body)
    if found.get("kind") == "ElasticQuota":
        found.setdefault("status", {}).setdefault("used", {})  # before the first word of a scheduler
    return found


def annotation(found: dict[str, Any], key: str) -> dict[str, Any]:
    value: dict[str, Any] = orjson.loads(found["metadata"].get("annotations", {}).get(key, "{}"))
    return value
