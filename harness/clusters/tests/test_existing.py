"""Runs on a cluster that others use: an embedded one that has a node, a pod and a namespace of others."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import yaml

from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.backends import EXISTING, backend_named
from seatrial.harness.clusters.embedded import EmbeddedBackend, EmbeddedCluster
from seatrial.harness.clusters.existing import ExistingBackend, plan
from seatrial.harness.clusters.kubeconfig import with_context
from seatrial.harness.clusters.leftovers import LEASE, lease_body, lease_path, remove_dead_runs, runs_on
from seatrial.harness.clusters.run_scope import RUN_LABEL
from seatrial.harness.errors import UsageError
from seatrial.harness.nodes.fleet import SIMULATED_LABEL, node_manifest
from seatrial.scheduler.api.builders import node
from seatrial.scheduler.api.transport import MERGE_PATCH, Request

OLD = "2020-01-01T00:00:00Z"
KINDS = (
    "/api/v1/nodes",
    "/api/v1/namespaces",
    "/api/v1/pods",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/scheduling.koordinator.sh/v1alpha1/devices",
    "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies",
    "/apis/coordination.k8s.io/v1/leases",
)


@pytest.fixture(scope="module")
def shared() -> Iterator[EmbeddedCluster]:
    """A cluster of others, whose node is called like those of tests."""
    with EmbeddedBackend().start() as cluster:
        cluster.add_nodes([node("n1").gpus("a10", 1)])
        yield cluster


def kubeconfig(cluster: EmbeddedCluster) -> Path:
    assert cluster.endpoint is not None
    return cluster.endpoint.kubeconfig


def everything(cluster: EmbeddedCluster) -> list[str]:
    messages = []
    for path in KINDS:
        items = orjson.loads(cluster.call(Request("GET", path)).body)["items"]
        messages += [f"{path} {item['metadata'].get('namespace', '')}/{item['metadata']['name']}" for item in items]
    return sorted(messages)


def create(cluster: EmbeddedCluster, path: str, body: dict[str, object]) -> None:
    accepted(cluster.call(Request("POST", path, orjson.dumps(body))), path)


def dead_run(cluster: EmbeddedCluster, run: str) -> None:
    """What a killed run leaves."""
    labels = {RUN_LABEL: run}
    for name in (f"st-{run}", f"st-{run}-trial-a"):
        create(cluster, "/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    create(cluster, lease_path(run), lease_body(run, OLD))
    create(cluster, KINDS[3], {"kind": "PriorityClass", "metadata": {"name": f"st-{run}-high"}, "value": 1})
    create(cluster, KINDS[0], {"kind": "Node", "metadata": {"name": f"st-{run}-n1", "labels": labels}})


def test_nothing_of_a_run_remains(shared: EmbeddedCluster) -> None:
    before = everything(shared)
    backend = backend_named(EXISTING, kubeconfig=kubeconfig(shared))
    with backend.start() as cluster:
        cluster.add_nodes([node("n1").gpus("a10", 2)])
        own = orjson.loads(cluster.call(Request("GET", "/api/v1/nodes")).body)["items"]
        assert [item["metadata"]["name"] for item in own] == ["n1"]
        assert own[0]["status"]["allocatable"]["nvidia.com/gpu"] == "2"
        assert {taint["key"] for taint in own[0]["spec"]["taints"]} == {RUN_LABEL}
        (run,) = runs_on(shared)
        assert f"/api/v1/nodes /st-{run}-n1" in everything(shared)
        others = orjson.loads(shared.call(Request("GET", "/api/v1/nodes/n1")).body)
        assert others["status"]["allocatable"]["nvidia.com/gpu"] == "1"
    assert everything(shared) == before


def test_what_a_dead_run_left_is_removed_and_a_live_run_is_not(shared: EmbeddedCluster) -> None:
    """The dead run has no Lease that changes; the other run renews its own."""
    before = everything(shared)
    with backend_named(EXISTING, kubeconfig=kubeconfig(shared)).start() as living:
        living.add_nodes([node("n1").gpus("a10", 1)])
        (run,) = runs_on(shared)
        dead_run(shared, "dead01")
        shared.call(Request("DELETE", f"{lease_path('dead01')}/{LEASE}"))
        assert remove_dead_runs(shared) == ["dead01"]
        assert runs_on(shared) == [run]
        assert [
            item["metadata"]["name"] for item in orjson.loads(living.call(Request("GET", KINDS[0])).body)["items"]
        ] == ["n1"]
    assert everything(shared) == before


def test_a_run_whose_clock_is_wrong_is_not_removed(shared: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Lease has an old time, but is renewed while it is watched."""
    dead_run(shared, "late01")
    waited = []

    def wait(until: object, *, within: float) -> bool:
        waited.append(within)
        body = orjson.dumps(lease_body("late01", "2020-01-01T00:00:10Z"))
        accepted(shared.call(Request("PATCH", f"{lease_path('late01')}/{LEASE}", body, MERGE_PATCH)), "renew")
        return False

    with monkeypatch.context() as patched:
        patched.setattr(shared, "wait", wait)
        assert remove_dead_runs(shared) == []
    assert len(waited) == 1
    shared.call(Request("DELETE", f"{lease_path('late01')}/{LEASE}"))
    assert remove_dead_runs(shared) == ["late01"]


def test_agents_of_the_cluster_leave_nodes_of_runs_alone(shared: EmbeddedCluster) -> None:
    """A run has agents of its own. The node of a run is created first, so other agents had the time to take it."""
    entry = {"name": "st-other1-n1", "labels": {RUN_LABEL: "other1", SIMULATED_LABEL: "other1"}}
    create(shared, KINDS[0], node_manifest(entry))
    shared.add_nodes([node("plain")])
    try:
        body = orjson.loads(shared.call(Request("GET", f"{KINDS[0]}/st-other1-n1")).body)
        assert not body.get("status", {}).get("conditions")
    finally:
        shared.remove_node("plain")
        shared.call(Request("DELETE", f"{KINDS[0]}/st-other1-n1"))


SCRIPT = """
import sys, time
from pathlib import Path
from seatrial.harness.clusters.backends import backend_named
from seatrial.scheduler.api.builders import node
with backend_named("existing", kubeconfig=Path(sys.argv[1])).start() as cluster:
    cluster.add_nodes([node("n1").gpus("a10", 1)])
    print("up", flush=True)
    time.sleep(600)
"""


def test_of_two_runs_one_is_killed(shared: EmbeddedCluster) -> None:
    """The other goes on; a clean-up after the Lease has gone removes what was left."""
    before = everything(shared)
    command = [sys.executable, "-c", SCRIPT, str(kubeconfig(shared))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"up\n"
        (killed,) = runs_on(shared)
        with backend_named(EXISTING, kubeconfig=kubeconfig(shared)).start() as other:
            other.add_nodes([node("n1").gpus("a10", 2)])
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            assert killed in runs_on(shared)
            shared.call(Request("DELETE", f"{lease_path(killed)}/{LEASE}"))
            assert remove_dead_runs(shared) == [killed]
            own = orjson.loads(other.call(Request("GET", "/api/v1/nodes/n1")).body)
            assert own["status"]["allocatable"]["nvidia.com/gpu"] == "2"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert everything(shared) == before


def test_another_context_of_the_kubeconfig(tmp_path: Path) -> None:
    content = {
        "contexts": [{"name": "a"}, {"name": "b"}],
        "current-context": "a",
        "users": [{"name": "u", "user": {"client-key": "keys/u.key"}}],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    document = yaml.safe_load(with_context(path, "b", tmp_path / "copy").read_text())
    assert document["current-context"] == "b"
    assert document["users"][0]["user"]["client-key"] == str(tmp_path / "keys/u.key")
    assert yaml.safe_load(path.read_text()) == content
    with pytest.raises(UsageError, match="has no such context; it has: a, b"):
        with_context(path, "c", tmp_path / "copy")


def test_a_dry_run_changes_nothing(shared: EmbeddedCluster) -> None:
    before = everything(shared)
    text = "\n".join(plan(kubeconfig(shared), ""))
    assert "Namespace st-RUN" in text
    assert "taint seatrial.dev/run=RUN" in text
    assert everything(shared) == before


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        pytest.param(EXISTING, {}, "give the cluster with --kubeconfig", id="no-kubeconfig"),
        pytest.param(EXISTING, {"kubeconfig": Path("/nowhere")}, "expected a file, found none", id="no-such-file"),
        pytest.param("embedded", {"kubeconfig": Path("k")}, "makes its own cluster", id="another-backend"),
        pytest.param("virtual", {"context": "a"}, "--context: backend 'virtual'", id="context-of-another-backend"),
    ],
)
def test_refused(name: str, options: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        backend_named(name, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("user", "why"),
    [
        pytest.param(
            {"token": "unknown"},
            "expected credentials that the API server knows, found token of user",
            id="unknown-token",
        ),
        pytest.param(
            {},
            "may create namespaces, delete namespaces, patch nodes, create leases, create nodes,"
            " delete nodes; found a user without credentials",
            id="no-credentials",
        ),
    ],
)
def test_credentials_without_rights(shared: EmbeddedCluster, tmp_path: Path, user: dict[str, str], why: str) -> None:
    content = yaml.safe_load(kubeconfig(shared).read_text())
    content["users"] = [{"name": entry["name"], "user": user} for entry in content["users"]]
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    assert why in str(ExistingBackend(kubeconfig=path).probe())


def test_a_server_that_does_not_answer(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(
        "{clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}], users: [{name: u, user: {}}],"
        " contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}"
    )
    assert "no answer to GET /version" in str(ExistingBackend(kubeconfig=file).probe())
