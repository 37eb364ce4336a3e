"""Pods on a cluster of the backend kubelet: create, wait, read what the container printed, delete."""

from typing import Any

import orjson

from seatrial.harness.allocations import parse_allocations
from seatrial.harness.clusters.kubelet import KubeletCluster
from seatrial.scheduler.api.builders import PodBuilder
from seatrial.scheduler.api.transport import Request

PODS = "/api/v1/namespaces/default/pods"
WITHIN = 60.0  # seconds


def read(cluster: KubeletCluster, path: str) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(cluster.call(Request("GET", path)).body)
    return body


def run(cluster: KubeletCluster, *pods: PodBuilder) -> list[dict[str, Any]]:
    """Create pods, wait until they run, and return them."""
    names = [one.manifest["metadata"]["name"] for one in pods]
    for one in pods:

        def created(body: bytes = orjson.dumps(one.manifest)) -> bool:
            return cluster.call(Request("POST", PODS, body)).code in {201, 409}

        assert cluster.wait(created, within=WITHIN), "the API server takes no pods"
    for name in names:

        def phase(name: str = name) -> bool:
            return bool(read(cluster, f"{PODS}/{name}")["status"].get("phase") == "Running")

        assert cluster.wait(phase, within=WITHIN), read(cluster, f"{PODS}/{name}")["status"]
    return [read(cluster, f"{PODS}/{name}") for name in names]


def remove(cluster: KubeletCluster, *names: str) -> None:
    for name in names:
        cluster.call(Request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0"))
    assert cluster.wait(
        lambda: all(cluster.call(Request("GET", f"{PODS}/{name}")).code == 404 for name in names), within=WITHIN
    )


def promised(one: dict[str, Any]) -> str:
    """The cards of the annotation, as NVIDIA's variable lists them."""
    entries = parse_allocations(one["metadata"]["annotations"])["gpu"]
    return ",".join(str(entry.minor) for entry in entries)


def inside(cluster: KubeletCluster, name: str, container: str = "main") -> list[str]:
    """What a container printed: its environment, device nodes and mounts."""

    def log() -> bytes:
        return cluster.call(Request("GET", f"{PODS}/{name}/log?container={container}")).body

    assert cluster.wait(lambda: b"mount=/sys" in log(), within=WITHIN)
    return log().decode().splitlines()
