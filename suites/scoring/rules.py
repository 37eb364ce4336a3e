"""Pods with affinity, spread and node terms, and helpers of the cases on them."""

from typing import Any

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.transport import STRATEGIC_MERGE_PATCH

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
Json = dict[str, Any]


def pod_with(name: str, app: str = "a", **spec: Any) -> PodBuilder:
    """A pod with the label `app` and further fields of its spec."""
    builder = pod(name).label("app", app)
    builder.manifest["spec"].update(spec)
    return builder


def term(app: str, *, key: str = HOST, **more: Any) -> Json:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}


def apart_from(app: str, **more: Any) -> Json:
    return {"podAntiAffinity": {REQUIRED: [term(app, **more)]}}


def spread(app: str = "a", **more: Any) -> list[Json]:
    selector = {"labelSelector": {"matchLabels": {"app": app}}}
    return [{"topologyKey": HOST, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **selector, **more}]


def node_terms(*terms: list[Json]) -> Json:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}}}


def expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def patch(trial: Trial, path: str, body: Json) -> None:
    response = trial.call("PATCH", path, body)
    assert response.ok, response.body


def resize(trial: Trial, name: str, cpu: str) -> None:
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}]
    path = f"/api/v1/namespaces/{trial.name}/pods/{name}/resize"
    assert trial.call("PATCH", path, {"spec": {"containers": containers}}, kind=STRATEGIC_MERGE_PATCH).ok
    trial.settle()


def waits(expect: Expect, name: str, saying: str = "") -> None:
    """The pod is refused, and stays so."""
    expect.pending(name, saying=saying)
    expect.stable(seconds=3)
