"""A small cluster for controller tests: an API server, simulated nodes, and a scheduler that binds pods."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson

from seatrial.harness.clusters.virtual import VirtualCluster
from seatrial.harness.subject.protocol import open_subject
from seatrial.scheduler.api.transport import MERGE_PATCH, Request, Response

Object = dict[str, Any]
_GROUPS = {
    "resourceclaims": "/apis/resource.k8s.io/v1",
    "deployments": "/apis/apps/v1",
    "replicasets": "/apis/apps/v1",
    "statefulsets": "/apis/apps/v1",
    "daemonsets": "/apis/apps/v1",
    "controllerrevisions": "/apis/apps/v1",
    "jobs": "/apis/batch/v1",
    "horizontalpodautoscalers": "/apis/autoscaling/v2",
    "nodemetrics": "/apis/slo.koordinator.sh/v1alpha1",
    "cronjobs": "/apis/batch/v1",
    "endpointslices": "/apis/discovery.k8s.io/v1",
    "ipaddresses": "/apis/networking.k8s.io/v1",
    "servicecidrs": "/apis/networking.k8s.io/v1",
    "deviceclasses": "/apis/resource.k8s.io/v1",
    "workloads": "/apis/scheduling.k8s.io/v1beta1",
    "podgroups": "/apis/scheduling.k8s.io/v1beta1",
}
_CLUSTER_WIDE = frozenset({"nodes", "namespaces", "nodemetrics", "ipaddresses", "servicecidrs", "deviceclasses"})


class Bench:
    """Shortcuts for requests in namespace `default`."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster, self.clock = cluster, cluster.clock

    def path(self, plural: str, name: str = "", subresource: str = "", *, namespace: str = "default") -> str:
        space = "" if plural in _CLUSTER_WIDE else f"/namespaces/{namespace}"
        parts = [f"{_GROUPS.get(plural, '/api/v1')}{space}/{plural}", name, subresource]
        return "/".join(part for part in parts if part)

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Response:
        return self.cluster.call(Request(method, path, orjson.dumps(body) if body is not None else b"", kind))

    def create(self, plural: str, body: Object, *, code: int = 201) -> Object:
        response = self.call("POST", self.path(plural), body)
        assert response.code == code, response.body
        return orjson.loads(response.body)

    def get(self, plural: str, name: str) -> Object:
        response = self.call("GET", self.path(plural, name))
        assert response.code == 200, response.body
        return orjson.loads(response.body)

    def all(self, plural: str, selector: str = "") -> list[Object]:
        query = f"?labelSelector={selector}" if selector else ""
        return orjson.loads(self.call("GET", self.path(plural) + query).body)["items"]

    def names(self, plural: str) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.all(plural)]

    def patch(self, plural: str, name: str, body: Object, subresource: str = "") -> Object:
        response = self.call("PATCH", self.path(plural, name, subresource), body, MERGE_PATCH)
        assert response.code == 200, response.body
        return orjson.loads(response.body)

    def delete(self, plural: str, name: str, query: str = "") -> None:
        response = self.call("DELETE", self.path(plural, name) + query)
        assert response.code in {200, 202}, response.body

    def scale(self, plural: str, name: str, replicas: int) -> None:
        self.patch(plural, name, {"spec": {"replicas": replicas}}, "scale")

    def wait(self, until: Callable[[], Any], within: float = 60.0) -> None:
        assert self.cluster.wait(lambda: bool(until()), within=within), f"not within {within} s"

    def settle(self, seconds: float = 5.0) -> None:
        """Advance the clock."""
        self.cluster.pass_time(seconds)

    def status(self, plural: str, name: str) -> Object:
        return self.get(plural, name).get("status") or {}

    def live_pods(self, selector: str = "") -> list[Object]:
        return [pod for pod in self.all("pods", selector) if "deletionTimestamp" not in pod["metadata"]]

    def events(self, reason: str) -> list[str]:
        return [event["message"] for event in self.all("events") if event.get("reason") == reason]


@contextmanager
def running(nodes: int = 2, *, scheduler: bool = True, workload_with_job: bool = False) -> Iterator[Bench]:
    """A cluster with `nodes` plain nodes `n0`, `n1`, …; pods are bound if there is a scheduler."""
    cluster = VirtualCluster(workload_with_job=workload_with_job)
    try:
        cluster.add_nodes([{"name": f"n{number}", "server": "cpu-64"} for number in range(nodes)])
        with open_subject("inprocess" if scheduler else "none", cluster):
            yield Bench(cluster)
    finally:
        cluster.close()


def template(labels: Mapping[str, str], image: str = "img:1", **spec: Any) -> Object:
    """A pod template with one container."""
    return {"metadata": {"labels": dict(labels)}, "spec": {"containers": [{"name": "c", "image": image}], **spec}}


def workload(name: str, replicas: int | None = None, image: str = "img:1", **spec: Any) -> Object:
    """The body of a Deployment, ReplicaSet, StatefulSet or DaemonSet."""
    labels = {"app": name}
    body: Object = {"selector": {"matchLabels": labels}, "template": template(labels, image), **spec}
    if replicas is not None:
        body["replicas"] = replicas
    return {"metadata": {"name": name}, "spec": body}


def condition(obj: Object, kind: str) -> Object:
    """The condition of that type; empty if there is none."""
    return next((entry for entry in (obj.get("status") or {}).get("conditions") or () if entry["type"] == kind), {})


def owner(obj: Object) -> Object:
    """The single owner reference."""
    (owner,) = obj["metadata"]["ownerReferences"]
    return owner
