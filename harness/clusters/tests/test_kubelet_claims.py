"""Our driver of claims with a real kubelet: what reaches the containers is what the claim has. Skipped in words."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from seatrial.harness.clusters.kubelet import KubeletBackend, KubeletCluster
from seatrial.harness.clusters.machine_kubelet import PLUGIN, missing_parts
from seatrial.harness.clusters.tests.on_kubelet import PODS, WITHIN, inside, read, remove
from seatrial.harness.nodes.faults import FAULTS_ANNOTATION
from seatrial.harness.nodes.slices import SLICES
from seatrial.harness.subject.protocol import OURS, open_subject
from seatrial.scheduler.api.builders import PROBE_COMMAND, PROBE_IMAGE
from seatrial.scheduler.api.transport import MERGE_PATCH, Request

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
MISSING = missing_parts()

pytestmark = pytest.mark.skipif(MISSING is not None, reason=f"no real kubelet here: {MISSING}")


class ClaimsBackend(KubeletBackend):
    """A kubelet with our driver of claims."""

    dra = True


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeletCluster]:
    """A node with four A10 of the stand-in, and our scheduler."""
    with ClaimsBackend(fake="a10:4").start() as cluster, open_subject(OURS, cluster):
        yield cluster


def claim(cluster: KubeletCluster, name: str, **request: Any) -> None:
    """Create a claim with the request `gpu`."""
    exactly = {"deviceClassName": "gpu.nvidia.com", **request}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    assert cluster.call(Request("POST", CLAIMS, orjson.dumps(body))).code == 201


def start(cluster: KubeletCluster, name: str, claim: str) -> None:
    """Create a pod whose container `main` uses a claim and whose container `other` uses none."""
    containers: list[dict[str, Any]] = [
        {"name": each, "image": PROBE_IMAGE, "imagePullPolicy": "Never", "command": PROBE_COMMAND}
        for each in ("main", "other")
    ]
    containers[0]["resources"] = {"claims": [{"name": "cards"}]}
    spec = {"containers": containers, "resourceClaims": [{"name": "cards", "resourceClaimName": claim}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    def created() -> bool:
        return cluster.call(Request("POST", PODS, orjson.dumps(body))).code in {201, 409}

    assert cluster.wait(created, within=WITHIN)


def runs(cluster: KubeletCluster, name: str) -> None:
    assert cluster.wait(lambda: read(cluster, f"{PODS}/{name}")["status"].get("phase") == "Running", within=WITHIN), (
        read(cluster, f"{PODS}/{name}")["status"],
        cluster.machine.log(PLUGIN),
    )


def test_a_container_gets_the_devices_of_its_claim(cluster: KubeletCluster) -> None:
    claim(cluster, "two", count=2)
    start(cluster, "p", "two")
    runs(cluster, "p")
    results = read(cluster, f"{CLAIMS}/two")["status"]["allocation"]["devices"]["results"]
    cards = {f"mount=/dev/nvidia{result['device'].removeprefix('gpu-')}" for result in results}
    lines = inside(cluster, "p")
    assert len(cards) == 2
    assert {line for line in lines if line.startswith("mount=/dev/nvidia") and line[-1].isdigit()} == cards
    remove(cluster, "p")


def events(cluster: KubeletCluster, name: str) -> str:
    """The messages of a pod's events."""
    items = read(cluster, f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}")["items"]
    return "\n".join(item["message"] for item in items)


def waits_with(cluster: KubeletCluster, name: str, *parts: str) -> None:
    """Wait until kubelet has said in an event of the pod why it does not start it."""
    seen = lambda: all(part in events(cluster, name) for part in parts)  # noqa: E731
    assert cluster.wait(seen, within=WITHIN), events(cluster, name)


def drop(cluster: KubeletCluster, *names: str) -> None:
    """Delete the pods and claims of these names; nothing of them stays on the node."""
    remove(cluster, *names)
    for name in names:
        assert cluster.call(Request("DELETE", f"{CLAIMS}/{name}")).ok
    gone = lambda: all(cluster.call(Request("GET", f"{CLAIMS}/{name}")).code == 404 for name in names)  # noqa: E731
    assert cluster.wait(gone, within=WITHIN)
    assert list(cdi(cluster).glob("k8s.*")) == []


def cdi(cluster: KubeletCluster) -> Path:
    return cluster.machine.folder / "run" / "cdi"


def slices(cluster: KubeletCluster) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = read(cluster, f"{SLICES}?fieldSelector=spec.nodeName={cluster.node}")["items"]
    return [entry for entry in entries if entry["spec"]["driver"] == "gpu.nvidia.com"]


def taints(cluster: KubeletCluster) -> dict[str, list[dict[str, Any]]]:
    """The taints of devices that have some."""
    devices = [device for each in slices(cluster) for device in each["spec"]["devices"]]
    return {device["name"]: device["taints"] for device in devices if "taints" in device}


def test_a_claim_that_two_pods_use_is_prepared_once(cluster: KubeletCluster) -> None:
    claim(cluster, "shared")
    for name in ("first", "second"):
        start(cluster, name, "shared")
        runs(cluster, name)
    assert cluster.machine.log(PLUGIN).count("prepared driver=gpu.nvidia.com claim=default/shared") == 1
    remove(cluster, "first")
    assert len(list(cdi(cluster).glob("k8s.*"))) == 1
    remove(cluster, "second")
    assert cluster.call(Request("DELETE", f"{CLAIMS}/shared")).ok
    assert list(cdi(cluster).glob("k8s.*")) == []


def test_a_driver_that_vanishes_delays_pods_and_loses_nothing(cluster: KubeletCluster) -> None:
    """SIGKILL; then a damaged checkpoint. A pod that runs keeps its card, and one that came meanwhile starts."""
    claim(cluster, "before")
    start(cluster, "before", "before")
    runs(cluster, "before")
    cluster.machine.kill_plugin()
    claim(cluster, "during")
    start(cluster, "during", "during")
    waits_with(cluster, "during", "gpu.nvidia.com")
    checkpoint = cluster.machine.folder / "lib" / "kubelet" / "plugins" / "gpu.nvidia.com" / "prepared.json"
    checkpoint.write_bytes(b"{")
    cluster.machine.start_plugin()
    runs(cluster, "during")
    devices = [
        result["device"]
        for name in ("before", "during")
        for result in read(cluster, f"{CLAIMS}/{name}")["status"]["allocation"]["devices"]["results"]
    ]
    assert len(set(devices)) == 2
    assert len(list(cdi(cluster).glob("k8s.*"))) == 2
    assert "expected prepared claims, found" in cluster.machine.log(PLUGIN)
    drop(cluster, "before", "during")


def test_slices_that_kubelet_deletes_come_back(cluster: KubeletCluster) -> None:
    """It does so when it starts (DRA-R151)."""
    before = {entry["metadata"]["uid"] for entry in slices(cluster)}
    cluster.machine.restart_kubelet()

    def new() -> bool:
        now = slices(cluster)
        return bool(now) and not before & {entry["metadata"]["uid"] for entry in now}

    assert cluster.wait(new, within=WITHIN), cluster.machine.log(PLUGIN)
    claim(cluster, "after")
    start(cluster, "after", "after")
    runs(cluster, "after")
    drop(cluster, "after")


def test_a_card_that_fails_has_a_taint_until_it_is_well(cluster: KubeletCluster) -> None:
    """The pod that has it keeps running, and its status says what kubelet knows of the card's health."""
    claim(cluster, "all", allocationMode="All")
    start(cluster, "all", "all")
    runs(cluster, "all")
    cluster.inject({"node": cluster.node, "device": 2, "verb": "critical", "xid": 79})
    tainted = [{"key": "gpu.nvidia.com/unhealthy", "value": "Xid79", "effect": "NoSchedule"}]

    def shown() -> bool:
        return [[{**taint, "timeAdded": None} for taint in each] for each in taints(cluster).values()] == [
            [{**taint, "timeAdded": None} for taint in tainted]
        ]

    assert cluster.wait(shown, within=WITHIN), taints(cluster)

    def sick() -> list[str]:
        (main,) = (
            status for status in read(cluster, f"{PODS}/all")["status"]["containerStatuses"] if status["name"] == "main"
        )
        return [entry["health"] for each in main.get("allocatedResourcesStatus", ()) for entry in each["resources"]]

    assert cluster.wait(lambda: sorted(sick()) == ["Healthy"] * 3 + ["Unhealthy"], within=WITHIN), sick()
    patch = orjson.dumps({"metadata": {"annotations": {FAULTS_ANNOTATION: None}}})
    assert cluster.call(Request("PATCH", f"/api/v1/nodes/{cluster.node}", patch, MERGE_PATCH)).ok
    assert cluster.wait(lambda: not taints(cluster), within=WITHIN), taints(cluster)
    drop(cluster, "all")


def test_a_folder_that_cannot_be_written_is_in_the_events(cluster: KubeletCluster) -> None:
    """A pod that waits for it can be deleted; another one starts once the folder is there."""
    cdi(cluster).rename(cdi(cluster).with_name("aside"))
    cdi(cluster).write_bytes(b"")
    claim(cluster, "late")
    start(cluster, "late", "late")
    waits_with(cluster, "late", "CDI folder /var/run/cdi: expected one that can be written")
    claim(cluster, "never")
    start(cluster, "never", "never")
    waits_with(cluster, "never", "CDI folder /var/run/cdi")
    remove(cluster, "never")
    cdi(cluster).unlink()
    cdi(cluster).with_name("aside").rename(cdi(cluster))
    runs(cluster, "late")
    assert cluster.call(Request("DELETE", f"{CLAIMS}/never")).ok
    drop(cluster, "late")


def test_a_device_that_is_not_here_is_in_the_events(cluster: KubeletCluster) -> None:
    """An allocation of another writer. The pod can be deleted."""
    claim(cluster, "odd")
    body = read(cluster, f"{CLAIMS}/odd")
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": cluster.node, "device": "gpu-99"}
    body["status"] = {"allocation": {"devices": {"results": [result]}}}
    assert cluster.call(Request("PUT", f"{CLAIMS}/odd/status", orjson.dumps(body))).ok
    start(cluster, "odd", "odd")
    waits_with(cluster, "odd", "device gpu-99 of driver gpu.nvidia.com is not on this node")
    drop(cluster, "odd")
