"""The chart's programs with the rights of their service accounts alone, on a real API server with RBAC.

Skipped where the programs of envtest are missing. kube-apiserver counts the requests that it forbids.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.harness.charts import seatrial_manifests
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.envtest import EnvtestBackend
from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.load.tests.test_workers import Load
from seatrial.harness.processes import start_child, stop
from seatrial.scheduler.api.builders import gang, members, node, pod, quota, reservation
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.private_files import write_private
from seatrial.scheduler.api.transport import APPLY_PATCH, Request
from seatrial.scheduler.api.wire import to_json

MISSING = EnvtestBackend().probe()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

NAMESPACE = "gpu"
ALL = seatrial_manifests(NAMESPACE, {"descheduler": {"enabled": True}, "load": {"enabled": True}})
PROGRAMS = ("scheduler", "manager", "descheduler")
KINDS = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ConfigMap"}
KOORD = "/apis/scheduling.koordinator.sh/v1alpha1"
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"


def send(cluster: Cluster, path: str, body: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(accepted(cluster.call(Request("POST", path, to_json(body))), path).body)
    return document


def install(cluster: Cluster) -> None:
    send(cluster, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for manifest in ALL:
        if manifest["kind"] in KINDS:
            meta, version = manifest["metadata"], manifest["apiVersion"]
            root = f"/apis/{version}" if "/" in version else f"/api/{version}"
            scope = f"/namespaces/{NAMESPACE}" if "namespace" in meta else ""
            path = f"{root}{scope}/{manifest['kind'].lower()}s/{meta['name']}?fieldManager=test"
            accepted(cluster.call(Request("PATCH", path, to_json(manifest), APPLY_PATCH)), path)


def kubeconfig_of(cluster: Cluster, program: str, folder: Path) -> Path:
    """A kubeconfig with a token of the program's service account."""
    assert cluster.endpoint is not None
    document = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/seatrial-{program}/token"
    content = yaml.safe_load(cluster.endpoint.kubeconfig.read_text())
    token = send(cluster, path, document)["status"]["token"]
    content["users"] = [{"name": user["name"], "user": {"token": token}} for user in content["users"]]
    kubeconfig = folder / f"{program}.kubeconfig"
    write_private(kubeconfig, yaml.safe_dump(content).encode())
    return kubeconfig


def start(cluster: Cluster, program: str, folder: Path, log: Path) -> "subprocess.Popen[bytes]":
    """Start the container's command with a token of its service account and the file of its ConfigMap."""
    named = [manifest for manifest in ALL if manifest["metadata"]["name"] == f"seatrial-{program}"]
    (deployment,) = (manifest for manifest in named if manifest["kind"] == "Deployment")
    words = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    for manifest in named:
        if manifest["kind"] == "ConfigMap":
            (folder / f"{program}.yaml").write_text(manifest["data"]["config.yaml"])
    words = [word.replace("/etc/seatrial/config.yaml", str(folder / f"{program}.yaml")) for word in words]
    words[words.index("--port") + 1] = "0"
    words[words.index("--address") + 1] = "127.0.0.1"
    command = [sys.executable, "-m", "seatrial", *words, "--kubeconfig", str(kubeconfig_of(cluster, program, folder))]
    with log.open("wb") as sink:
        return start_child(command, stdout=sink, stderr=sink)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster on which the three programs run."""
    folder = tmp_path_factory.mktemp("programs")
    with ExitStack() as stack:
        clusters = stack.enter_context(EnvtestBackend().start())
        install(clusters)
        for program in PROGRAMS:
            stack.callback(stop, start(clusters, program, folder, folder / f"{program}.log"))
        yield clusters


def items(cluster: Cluster, path: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(accepted(cluster.call(Request("GET", path)), path).body)["items"]
    return items


def forbidden(cluster: Cluster) -> list[str]:
    """The API server's counts of requests that no rule allows; the counter of answers does not have these."""
    text = accepted(cluster.call(Request("GET", "/metrics")), "metrics").body.decode()
    counts = [line for line in text.splitlines() if line.startswith("authorization_attempts_total{")]
    assert counts, "expected the counter authorization_attempts_total"
    return [line for line in counts if 'result="allowed"' not in line and not line.endswith(" 0")]


def have_volumes_chosen(cluster: Cluster) -> None:
    """Two claims wait for their pods: one gets a volume, the provisioner of the other one is told a node."""
    for name, provisioner in (("there", "kubernetes.io/no-provisioner"), ("made", "made.example.com")):
        kind: dict[str, Any] = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
        mode = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
        send(cluster, "/apis/storage.k8s.io/v1/storageclasses", {**kind, **mode})
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": name}
        if name == "there":
            volume = {**spec, "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/data"}}
            body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": volume}
            send(cluster, "/api/v1/persistentvolumes", body)
        claim = {**spec, "resources": {"requests": {"storage": "1Gi"}}}
        body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": claim}
        send(cluster, CLAIMS, body)
        user = pod(f"with-{name}").request(cpu=1).scheduler(KOORD_SCHEDULER)
        user.manifest["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        send(cluster, PODS, user.manifest)

    def chosen() -> bool:
        by_name = {item["metadata"]["name"]: item for item in items(cluster, CLAIMS)}
        annotations = by_name["made"]["metadata"].get("annotations") or {}
        return by_name["there"]["spec"].get("volumeName") == "v" and "volume.kubernetes.io/selected-node" in annotations

    assert cluster.wait(chosen, within=60), forbidden(cluster)


def test_nothing_is_forbidden(cluster: Cluster) -> None:
    """Half a card, a gang, a reservation with its owner, a quota, unbound claims, and a migration that moves a pod."""
    cluster.add_nodes([node("n1").gpus("a10", 2), node("n2").gpus("a10", 2)])
    group, coscheduling = gang("train", 2), "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default"
    send(cluster, f"{coscheduling}/podgroups", group.manifest)
    send(cluster, f"{coscheduling}/elasticquotas", quota("team").max(cpu=8).manifest)
    held = reservation("held").like(pod("x").request(cpu=1).scheduler(KOORD_SCHEDULER)).for_labels(app="web")
    send(cluster, f"{KOORD}/reservations", held.manifest)
    built = [
        pod("half").gpu_share(50),
        *members(group, 2),
        pod("web").request(cpu=1).label("app", "web"),
        pod("counted").request(cpu=1).label("quota.scheduling.koordinator.sh/name", "team"),
    ]
    for each in built:
        send(cluster, PODS, each.scheduler(KOORD_SCHEDULER).manifest)
    assert cluster.wait(lambda: all(item["spec"].get("nodeName") for item in items(cluster, PODS)), within=60), (
        forbidden(cluster)
    )
    assert cluster.wait(lambda: len(items(cluster, "/apis/slo.koordinator.sh/v1alpha1/nodemetrics")) == 2, within=60)

    before = forbidden(cluster)  # while the programs started, the API server may not have known all roles yet
    have_volumes_chosen(cluster)
    job = {"podRef": {"namespace": "default", "name": "web"}, "mode": "ReservationFirst", "ttl": "5m"}
    body = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "PodMigrationJob", "metadata": {"name": "move"}}
    send(cluster, f"{KOORD}/podmigrationjobs", {**body, "spec": job})

    def ended() -> bool:
        (results,) = items(cluster, f"{KOORD}/podmigrationjobs")
        return results.get("status", {}).get("phase") in {"Succeeded", "Failed"}

    assert cluster.wait(ended, within=60), items(cluster, f"{KOORD}/podmigrationjobs")
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    leases = {item["metadata"]["name"] for item in items(cluster, path)}
    assert leases == {"seatrial-scheduler"}
    assert forbidden(cluster) == before


def test_a_worker_of_a_load_may_do_its_part(cluster: Cluster, tmp_path: Path) -> None:
    """The master has the administrator's rights, the worker those of the chart."""
    assert cluster.endpoint is not None
    cluster.add_nodes([node("for-load").cpu(8)])
    before = forbidden(cluster)
    flags = ["--rate", "10", "--seconds", "2", "--hold", "0.2", "--mix", "cpu", "--scheduler-name", KOORD_SCHEDULER]
    load = Load(cluster.endpoint.kubeconfig, *flags, workers=1)
    load.work(kubeconfig=kubeconfig_of(cluster, "load", tmp_path))
    _, (status, messages) = load.end()
    assert status == 0, messages
    assert load.figures["created"] == load.figures["bound"] == load.figures["deleted"] > 0
    assert load.figures["validity"]["errors"] == {}
    assert forbidden(cluster) == before
