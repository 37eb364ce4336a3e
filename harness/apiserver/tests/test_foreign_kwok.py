"""KWOK, unchanged: it keeps nodes and pods of its own beside our simulated ones."""

import subprocess
from pathlib import Path
from typing import Any

from seatrial.harness.apiserver.tests.foreign import binary, create, read, wait_until
from seatrial.harness.clusters.embedded import EmbeddedCluster
from seatrial.harness.processes import die_with_parent, stop
from seatrial.scheduler.api.transport import Request

NODE = "/api/v1/nodes/kwok-0"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/kwok-0"


def node() -> dict[str, Any]:
    amounts = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    return {
        "metadata": {"name": "kwok-0", "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def test_nodes_and_pods_of_kwok(embedded: EmbeddedCluster, namespace: str, tmp_path: Path) -> None:
    assert embedded.endpoint is not None
    log = tmp_path / "log"
    pods = f"/api/v1/namespaces/{namespace}/pods"
    command = [
        binary("kwok"),
        f"--kubeconfig={embedded.endpoint.kubeconfig}",
        f"--config={tmp_path / 'kwok.yaml'}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=40",
        "--cidr=10.99.0.0/24",
    ]
    (tmp_path / "kwok.yaml").touch()

    def ready() -> bool:
        conditions = read(embedded, NODE)["status"].get("conditions", ())
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

    def phase() -> str:
        return str(read(embedded, f"{pods}/a").get("status", {}).get("phase", "gone"))

    with log.open("wb") as sink:
        kwok = subprocess.Popen(command, stdout=sink, stderr=sink, preexec_fn=die_with_parent)  # noqa: PLW1509
    try:
        create(embedded, "/api/v1/nodes", node())
        wait_until(ready, "a node that is Ready", log.read_text)
        wait_until(lambda: bool(read(embedded, LEASE)), "its lease", log.read_text)
        spec = {"nodeName": "kwok-0", "containers": [{"name": "c", "image": "busybox:1"}]}
        create(embedded, pods, {"metadata": {"name": "a"}, "spec": spec})
        wait_until(lambda: phase() == "Running", "a running pod", log.read_text)
        assert read(embedded, f"{pods}/a")["status"]["podIP"].startswith("10.99.0.")
        embedded.call(Request("DELETE", f"{pods}/a"))
        wait_until(lambda: phase() == "gone", "the pod's end", log.read_text)
    finally:
        embedded.call(Request("DELETE", NODE))
        stop(kwok)
    assert '"level":"ERROR"' not in log.read_text()
