"""In-place resizes of pods on simulated nodes: what the node gives, and what it reports."""

from typing import Any

import orjson

from seatrial.harness.clusters.virtual import VirtualBackend, VirtualCluster
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.transport import JSON, STRATEGIC_MERGE_PATCH, Request

PODS = "/api/v1/namespaces/default/pods"


def running(cluster: VirtualCluster, name: str, cpu: str) -> None:
    body = pod(name).request(cpu=cpu).node_name("n1").manifest
    assert cluster.call(Request("POST", PODS, orjson.dumps(body), JSON)).ok
    assert cluster.wait(lambda: status(cluster, name)["phase"] == "Running", within=30)


def resize(cluster: VirtualCluster, name: str, cpu: str) -> None:
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}}]
    body = orjson.dumps({"spec": {"containers": containers}})
    response = cluster.call(Request("PATCH", f"{PODS}/{name}/resize", body, STRATEGIC_MERGE_PATCH))
    assert response.ok, response.body
    cluster.pass_time(1)


def status(cluster: VirtualCluster, name: str) -> dict[str, Any]:
    status: dict[str, Any] = orjson.loads(cluster.call(Request("GET", f"{PODS}/{name}")).body)["status"]
    return status


def resize_state(cluster: VirtualCluster, name: str) -> tuple[str, str, str]:
    """The allocated and the actual CPU of the pod's container, and why its resize is pending."""
    results = status(cluster, name)
    (container,) = results["containerStatuses"]
    pending = [each["reason"] for each in results["conditions"] if each["type"] == "PodResizePending"]
    return container["allocatedResources"]["cpu"], container["resources"]["requests"]["cpu"], "".join(pending)


def test_a_node_gives_what_it_has() -> None:
    """Of 8 cores a pod has 4 and another 3: the first shrinks, the second grows; more waits until the first is gone."""
    with VirtualBackend().start() as cluster:
        cluster.add_nodes([node("n1").cpu(8)])
        running(cluster, "a", "4")
        running(cluster, "b", "3")
        assert resize_state(cluster, "a") == ("4", "4", "")
        resize(cluster, "a", "2")
        assert resize_state(cluster, "a") == ("2", "2", "")
        resize(cluster, "b", "5")
        assert resize_state(cluster, "b") == ("5", "5", "")
        resize(cluster, "b", "7")
        assert resize_state(cluster, "b") == ("5", "5", "Deferred")
        cluster.call(Request("DELETE", f"{PODS}/a?gracePeriodSeconds=0"))
        cluster.pass_time(1)
        assert resize_state(cluster, "b") == ("7", "7", "")
        resize(cluster, "b", "80")
        assert resize_state(cluster, "b") == ("7", "7", "Infeasible")
        running(cluster, "c", "1")
