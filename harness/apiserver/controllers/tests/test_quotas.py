"""ResourceQuotas: usage, enforcement, messages, status."""

from typing import Any

import pytest

from seatrial.harness.apiserver.controllers.tests.bench import Bench, condition, running, workload


def quota(bench: Bench, hard: dict[str, Any], **spec: Any) -> None:
    bench.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}})


def pod(
    name: str, requests: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    resources = {part: value for part, value in (("requests", requests), ("limits", limits)) if value}
    container = {"name": "c", "image": "img", "resources": resources}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def used(bench: Bench) -> dict[str, str]:
    status: dict[str, str] = bench.status("resourcequotas", "q")["used"]
    return status


def test_one_pod_too_many() -> None:
    with running(nodes=0) as bench:
        quota(bench, {"pods": "1"})
        bench.create("pods", pod("a"))
        refused = bench.create("pods", pod("b"), code=403)
        assert refused["reason"] == "Forbidden"
        assert refused["message"] == (
            'pods "b" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
        )
        bench.delete("pods", "a")
        bench.create("pods", pod("b"))


def test_several_resources_are_named_together() -> None:
    with running(nodes=0) as bench:
        quota(bench, {"requests.cpu": "1", "requests.memory": "1Gi", "pods": "10"})
        bench.create("pods", pod("a", {"cpu": "600m", "memory": "512Mi"}))
        refused = bench.create("pods", pod("b", {"cpu": "500m", "memory": "768Mi"}), code=403)
        assert refused["message"] == (
            'pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=500m,requests.memory=768Mi,'
            " used: requests.cpu=600m,requests.memory=512Mi, limited: requests.cpu=1,requests.memory=1Gi"
        )
        assert used(bench) == {"requests.cpu": "600m", "requests.memory": "512Mi", "pods": "1"}


def test_counted_resources_must_be_specified() -> None:
    with running(nodes=0) as bench:
        quota(bench, {"limits.cpu": "4", "requests.memory": "4Gi"})
        refused = bench.create("pods", pod("a"), code=403)
        assert refused["message"] == (
            'pods "a" is forbidden: failed quota: q: must specify limits.cpu for: c; requests.memory for: c'
        )


@pytest.mark.parametrize(
    ("resource", "ask"),
    [
        pytest.param("requests.nvidia.com/gpu", {"nvidia.com/gpu": 4}, id="devices"),
        pytest.param("requests.ephemeral-storage", {"ephemeral-storage": "4"}, id="local-storage"),
    ],
)
def test_other_resources(resource: str, ask: dict[str, Any]) -> None:
    with running(nodes=0, scheduler=False) as bench:
        quota(bench, {resource: "6"})
        bench.create("pods", pod("a", ask, ask))
        refused = bench.create("pods", pod("b", ask, ask), code=403)
        assert f"requested: {resource}=4, used: {resource}=4, limited: {resource}=6" in refused["message"]
        bench.create("pods", pod("c"))  # one that asks for none is free to come


def test_a_finished_pod_counts_as_an_object_only() -> None:
    with running(nodes=0) as bench:
        quota(bench, {"pods": "1", "count/pods": "3"})
        bench.create("pods", pod("a"))
        bench.patch("pods", "a", {"status": {"phase": "Succeeded"}}, "status")
        assert used(bench) == {"pods": "0", "count/pods": "1"}
        bench.create("pods", pod("b"))


@pytest.mark.parametrize(
    ("spec", "counted"),
    [
        pytest.param({"scopes": ["BestEffort"]}, {"best"}, id="best-effort"),
        pytest.param({"scopes": ["NotBestEffort"]}, {"burst", "ends", "vip"}, id="not-best-effort"),
        pytest.param({"scopes": ["Terminating"]}, {"ends"}, id="with-a-deadline"),
        pytest.param({"scopes": ["NotTerminating"]}, {"best", "burst", "vip"}, id="without-a-deadline"),
        pytest.param(
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["vip"]}]
                }
            },
            {"vip"},
            id="by-priority-class",
        ),
    ],
)
def test_scopes(spec: dict[str, Any], counted: set[str]) -> None:
    with running(nodes=0) as bench:
        bench.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "vip"}, "value": 5})
        quota(bench, {"pods": "10"}, **spec)
        bench.create("pods", pod("best"))
        bench.create("pods", pod("burst", {"cpu": "1"}))
        bench.create("pods", pod("ends", {"cpu": "1"}, activeDeadlineSeconds=5))
        bench.create("pods", pod("vip", {"cpu": "1"}, priorityClassName="vip"))
        assert used(bench) == {"pods": str(len(counted))}
        for name in ("best", "burst", "ends", "vip"):
            before = int(used(bench)["pods"])
            bench.delete("pods", name)
            assert before - int(used(bench)["pods"]) == (name in counted)


def test_counts_of_any_kind() -> None:
    with running(nodes=0) as bench:
        quota(bench, {"count/deployments.apps": "1", "configmaps": "2", "services.nodeports": "1"})
        bench.create("deployments", workload("web", 0))
        refused = bench.create("deployments", workload("api", 0), code=403)
        assert refused["message"] == (
            'deployments.apps "api" is forbidden: exceeded quota: q, requested: count/deployments.apps=1,'
            " used: count/deployments.apps=1, limited: count/deployments.apps=1"
        )
        ports = [{"name": "a", "port": 1}, {"name": "b", "port": 2}]
        body: dict[str, Any] = {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": ports}}
        assert "requested: services.nodeports=2" in bench.create("services", body, code=403)["message"]
        body["spec"]["type"] = "ClusterIP"
        bench.create("services", body)
        response = bench.call(
            "PATCH", bench.path("services", "s"), {"spec": {"type": "NodePort"}}, "application/merge-patch+json"
        )
        assert response.code == 403, response.body
        assert used(bench)["configmaps"] == "1"  # kube-root-ca.crt


def test_a_new_quota_counts_existing_objects() -> None:
    with running(nodes=0) as bench:
        bench.create("pods", pod("a"))
        quota(bench, {"pods": "5"})
        assert used(bench) == {"pods": "1"}
        bench.patch("resourcequotas", "q", {"spec": {"hard": {"pods": None, "count/pods": "7"}}})
        assert bench.status("resourcequotas", "q") == {"hard": {"count/pods": "7"}, "used": {"count/pods": "1"}}


def test_a_dry_run_uses_nothing() -> None:
    with running(nodes=0) as bench:
        quota(bench, {"pods": "1"})
        for _ in range(2):
            response = bench.call("POST", bench.path("pods") + "?dryRun=All", pod("a"))
            assert response.code == 201, response.body
        bench.create("pods", pod("a"))


def test_a_replica_set_reports_quota_errors_and_continues_when_allowed() -> None:
    with running() as bench:
        quota(bench, {"pods": "2"})
        bench.create("replicasets", workload("web", 3))
        bench.wait(lambda: bench.status("replicasets", "web").get("readyReplicas") == 2)
        failure = condition(bench.get("replicasets", "web"), "ReplicaFailure")
        assert failure["message"].endswith("exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2")
        bench.patch("resourcequotas", "q", {"spec": {"hard": {"pods": "3"}}})
        bench.wait(lambda: bench.status("replicasets", "web").get("readyReplicas") == 3, within=600)


def claim(name: str, *requests: dict[str, Any]) -> dict[str, Any]:
    rows = [{"name": f"r{number}", **request} for number, request in enumerate(requests)]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": rows}}}


def exactly(count: int = 1, of: str = "gpu", **fields: Any) -> dict[str, Any]:
    return {"deviceClassName": of, **({} if fields else {"count": count}), **fields}


def test_devices_of_claims_count_by_class_before_there_are_any() -> None:
    """Requests add up, `All` counts 32, and of alternatives the largest of each class counts."""
    devices = "gpu.deviceclass.resource.k8s.io/devices"
    with running(nodes=0) as bench:
        quota(bench, {devices: "8", "count/resourceclaims.resource.k8s.io": "3"})
        bench.create("resourceclaims", claim("two", {"exactly": exactly(2)}, {"exactly": exactly(5, of="nic")}))
        ways = [{"name": f"w{number}", **exactly(number)} for number in (1, 4, 3)]
        bench.create("resourceclaims", claim("first", {"firstAvailable": ways}, {"exactly": exactly()}))
        assert used(bench) == {devices: "7", "count/resourceclaims.resource.k8s.io": "2"}
        refused = bench.create("resourceclaims", claim("more", {"exactly": exactly(2)}), code=403)
        assert refused["message"] == (
            f'resourceclaims.resource.k8s.io "more" is forbidden: exceeded quota: q, requested: {devices}=2,'
            f" used: {devices}=7, limited: {devices}=8"
        )
        refused = bench.create("resourceclaims", claim("all", {"exactly": exactly(allocationMode="All")}), code=403)
        assert f"requested: {devices}=32" in refused["message"]
        bench.delete("resourceclaims", "two")
        bench.create("resourceclaims", claim("more", {"exactly": exactly(2)}))
        bench.create("resourceclaims", claim("none", {"exactly": exactly(9, of="nic")}))
        bench.create("resourceclaims", claim("fourth", {"exactly": exactly(9, of="nic")}), code=403)


def test_claims_count_under_the_extended_resources_of_their_class() -> None:
    """What a pod counts already its claim does not count again; a second claim for the pod does (DRA-R22)."""
    devices, own = "gpu.deviceclass.resource.k8s.io/devices", "requests.deviceclass.resource.kubernetes.io/gpu"
    named = "requests.example.com/gpu"

    def counts(of_class: int, implicit: int, resource: int) -> dict[str, str]:
        return {devices: str(of_class), own: str(implicit), named: str(resource)}

    def extended(name: str, pod_uid: str) -> dict[str, Any]:
        body = claim(name, {"exactly": exactly()})
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod_uid, "controller": True}
        marks = {"resource.kubernetes.io/extended-resource-claim": "true"}
        return {**body, "metadata": {"name": name, "annotations": marks, "ownerReferences": [owner]}}

    with running(nodes=0) as bench:
        spec = {"extendedResourceName": "example.com/gpu"}
        bench.create("deviceclasses", {"metadata": {"name": "gpu"}, "spec": spec})
        quota(bench, {devices: "9", own: "9", named: "2"})
        bench.create("resourceclaims", claim("two", {"exactly": exactly(2)}))
        assert used(bench) == counts(2, 2, 2)
        asks = {"example.com/gpu": "1"}
        refused = bench.create("pods", pod("p", asks, asks), code=403)
        assert f"exceeded quota: q, requested: {named}=1, used: {named}=2, limited: {named}=2" in refused["message"]
        bench.delete("resourceclaims", "two")
        made = bench.create("pods", pod("p", asks, asks))
        bench.create("resourceclaims", extended("first", made["metadata"]["uid"]))
        assert used(bench) == counts(1, 1, 1)
        bench.create("resourceclaims", extended("second", made["metadata"]["uid"]))
        assert used(bench) == counts(2, 2, 2)
        bench.delete("resourceclaims", "second")
        bench.delete("deviceclasses", "gpu")  # what was counted for a claim is given back as it was counted
        bench.delete("resourceclaims", "first")
        assert used(bench) == counts(0, 0, 1)
