"""Our driver of claims with a real kubelet: what reaches the containers is what the claim has. Skipped in words."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from seatrial.harness.clusters.kubelet import KubeletBackend, KubeletCluster
from seatrial.harness.clusters.machine_kubelet import PLUGIN, missing_parts
from seatrial.harness.clusters.tests.on_kubelet import PODS, WITHIN, inside, read, remove
from seatrial.harness.subject.protocol import OURS, open_subject
from seatrial.scheduler.api.builders import PROBE_COMMAND, PROBE_IMAGE
from seatrial.scheduler.api.transport import Request


def containerd_without_cdi() -> str | None:
    """Why containerd passes no CDI devices to containers: it does since 1.7."""
    program = shutil.which("containerd") or ""
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"\b(\d+)\.(\d+)\.", text)
    if version is None or (int(version[1]), int(version[2])) < (1, 7):
        return f"expected containerd 1.7 or later, which knows CDI, found {text.strip()!r}"
    return None


CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
MISSING = missing_parts() or containerd_without_cdi()

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
