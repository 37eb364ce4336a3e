"""Backend envtest: simulated nodes on a real API server. Skipped where its programs are missing."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from seatrial.harness.clusters.backends import EXISTING, backend_named
from seatrial.harness.clusters.control_plane import missing_programs
from seatrial.harness.clusters.envtest import EnvtestBackend, EnvtestCluster
from seatrial.harness.clusters.leftovers import runs_on
from seatrial.harness.clusters.snapshot import collect, loaded_server, write
from seatrial.harness.subject.protocol import OURS, open_subject
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import Request

PODS = "/api/v1/namespaces/default/pods"
MISSING = missing_programs()

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture(scope="module")
def cluster() -> Iterator[EnvtestCluster]:
    """Two nodes and our scheduler."""
    with EnvtestBackend().start() as cluster, open_subject(OURS, cluster):
        cluster.add_nodes([node("n1").gpus("a10", 1), node("n2").gpus("a10", 1)])
        yield cluster


def read(cluster: EnvtestCluster, path: str) -> dict[str, object]:
    body: dict[str, object] = orjson.loads(cluster.call(Request("GET", path)).body)
    return body


def test_it_is_a_real_api_server(cluster: EnvtestCluster) -> None:
    assert "goVersion" in read(cluster, "/version")


def test_each_node_has_a_kubelet_address_of_its_own(cluster: EnvtestCluster) -> None:
    addresses = set()
    for name in ("n1", "n2"):
        status: dict[str, object] = read(cluster, f"/api/v1/nodes/{name}")["status"]  # type: ignore[assignment]
        addresses.add((str(status["addresses"]), str(status["daemonEndpoints"])))
    assert len(addresses) == 2


def test_logs_come_from_the_kubelet_of_the_pods_node(cluster: EnvtestCluster) -> None:
    """Each pod gets the only card of its node; kube-apiserver asks the node's kubelet for its log."""
    for name in ("a", "b"):
        body = orjson.dumps(pod(name).gpus(1).manifest)
        assert cluster.wait(lambda body=body: cluster.call(Request("POST", PODS, body)).code in {201, 409}, within=30)  # type: ignore[misc]

    def running(name: str) -> bool:
        return read(cluster, f"{PODS}/{name}")["status"]["phase"] == "Running"  # type: ignore[index]

    assert cluster.wait(lambda: running("a") and running("b"), within=60)
    assert {read(cluster, f"{PODS}/{name}")["spec"]["nodeName"] for name in ("a", "b")} == {"n1", "n2"}  # type: ignore[index]
    for name in ("a", "b"):
        answer = cluster.call(Request("GET", f"{PODS}/{name}/log"))
        assert answer.code == 200
        assert b"NVIDIA_VISIBLE_DEVICES=0" in answer.body.splitlines()


def test_an_empty_list_that_go_writes_as_null_stops_nothing(cluster: EnvtestCluster) -> None:
    """A CSINode as kubelet makes it; the scheduler, which watches CSINodes, is started afterwards and binds."""
    body = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"}, "spec": {"drivers": None}}
    path = "/apis/storage.k8s.io/v1/csinodes"
    assert cluster.call(Request("POST", path, orjson.dumps(body))).code == 201
    assert read(cluster, f"{path}/n1")["spec"] == {"drivers": None}
    with open_subject(OURS, cluster) as subject:
        assert subject is not None
        assert "object-not-decoded" not in subject.log()


def test_a_snapshot_of_it_is_loaded_by_ours(cluster: EnvtestCluster, tmp_path: Path) -> None:
    """After the cases above: with bound pods, and with a CSINode that has null for a list."""
    snapshot = collect(cluster.call, foreign=True, secrets=False)
    write(tmp_path / "s", snapshot, SimClock())
    server, left_out = loaded_server(tmp_path / "s", SimClock())
    assert (snapshot.unread, left_out) == ({}, {})
    there = orjson.loads(cluster.call(Request("GET", f"{PODS}/a")).body)
    here = server.store.collection(("", "pods")).get(("default", "a")).obj
    assert (here["spec"], here["status"]) == (there["spec"], there["status"])
    assert here["metadata"]["uid"] == there["metadata"]["uid"]


def test_a_run_on_this_cluster_leaves_nothing(cluster: EnvtestCluster) -> None:
    assert cluster.endpoint is not None
    kubeconfig: Path = cluster.endpoint.kubeconfig
    paths = ("/api/v1/nodes", "/api/v1/namespaces", "/apis/scheduling.koordinator.sh/v1alpha1/devices")

    def names() -> list[str]:
        return [
            item["metadata"]["name"]
            for path in paths
            for item in read(cluster, path)["items"]  # type: ignore[attr-defined]
        ]

    before = names()
    with backend_named(EXISTING, kubeconfig=kubeconfig).start() as shared:
        shared.add_nodes([node("n1").gpus("h100-80g", 8)])
        assert len(runs_on(cluster)) == 1
    assert names() == before
