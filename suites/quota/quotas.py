"""Quotas of a case and the pods that they count."""

from collections.abc import Sequence
from typing import Any

import orjson

from seatrial.fixtures.trial import Trial
from seatrial.scheduler.api.builders import PodBuilder, QuotaBuilder, pod
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.quota import QUOTAS_PATH

SETTLED = 20.0  # seconds after which a status was written and waiting pods were asked again


def named(trial: Trial, name: str) -> str:
    """Names of quotas are global."""
    return f"{trial.name}-{name}"


def make(trial: Trial, *quotas: QuotaBuilder) -> None:
    trial.apply(*(quota.manifest for quota in quotas))


def counted(trial: Trial, name: str, own: str, *, preemptible: bool = True, **resources: str | int) -> PodBuilder:
    builder = pod(name).request(**resources).quota(named(trial, own), preemptible=preemptible)
    return builder.scheduler(KOORD_SCHEDULER)


def many(trial: Trial, own: str, count: int) -> Sequence[PodBuilder]:
    """Pods of one core each."""
    return [counted(trial, f"{own}-{number}", own, cpu=1) for number in range(count)]


def placed(trial: Trial, prefix: str) -> int:
    return sum(pod.metadata.name.startswith(prefix) and bool(pod.spec.node_name) for pod in trial.pods())


def settle(trial: Trial) -> None:
    trial.pass_time(SETTLED)


def path_of(trial: Trial, name: str, namespace: str = "") -> str:
    collection = QUOTAS_PATH.replace("/elasticquotas", f"/namespaces/{namespace or trial.name}/elasticquotas")
    return f"{collection}/{name}"


def read(trial: Trial, name: str, namespace: str = "") -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(trial.call("GET", path_of(trial, name, namespace)).body)
    if body.get("kind") == "ElasticQuota":
        body.setdefault("status", {}).setdefault("used", {})  # before the first word of a scheduler
    return body


def annotation(results: dict[str, Any], key: str) -> dict[str, Any]:
    value: dict[str, Any] = orjson.loads(results["metadata"].get("annotations", {}).get(key, "{}"))
    return value
