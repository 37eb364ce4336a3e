"""Cases on nodes that a run did not make: they belong to a cluster with node agents of its own, and are lent."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from seatrial.harness.clusters.backends import EXISTING, REAL, backend_named
from seatrial.harness.clusters.control_plane import missing_programs
from seatrial.harness.clusters.embedded import EmbeddedBackend
from seatrial.harness.clusters.envtest import EnvtestBackend
from seatrial.harness.clusters.leftovers import LEASE, lease_path, remove_dead_runs, runs_on
from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.clusters.requirements import TRIALS_LABEL
from seatrial.harness.clusters.run_scope import RUN_LABEL
from seatrial.harness.errors import ClusterError, UsageError
from seatrial.harness.results import Case
from seatrial.scheduler.api.builders import node
from seatrial.scheduler.api.transport import MERGE_PATCH, Request

decode_case = msgspec.json.Decoder(Case).decode
ROOT = Path(__file__).resolve().parents[3]
MISSING = missing_programs()
NODES = ("gpu-a", "gpu-b", "others")
PODS = "/api/v1/pods"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(EmbeddedBackend, id="embedded"),
        pytest.param(EnvtestBackend, id="envtest", marks=pytest.mark.skipif(MISSING is not None, reason=str(MISSING))),
    ],
)
def theirs(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster with two nodes for trials, one of which has a label and a taint of its own, and one that is not."""
    with request.param().start() as cluster:
        cluster.add_nodes(
            [
                node("gpu-a")
                .gpus("a10", 4)
                .label(TRIALS_LABEL, "true")
                .label("pool", "a")
                .taint("dedicated", "trials"),
                node("gpu-b").gpus("a10", 2).label(TRIALS_LABEL, "true"),
                node("others").gpus("a10", 8),
            ]
        )
        yield cluster


def kubeconfig(cluster: Cluster) -> Path:
    assert cluster.endpoint is not None
    return cluster.endpoint.kubeconfig


def marks(cluster: Cluster) -> dict[str, Any]:
    """What lending can change of each node: labels, annotations, taints."""
    labels = {}
    for name in NODES:
        body = orjson.loads(cluster.call(Request("GET", f"/api/v1/nodes/{name}")).body)
        meta = body["metadata"]
        # kube-controller-manager writes its own when it gets to it: the annotation ttl, a taint, old labels.
        annotations = {key: value for key, value in meta["annotations"].items() if "kubernetes.io/" not in key}
        taints = [taint for taint in body["spec"].get("taints") or () if "kubernetes.io/" not in taint["key"]]
        own = {key: value for key, value in meta["labels"].items() if not key.startswith("beta.kubernetes.io/")}
        labels[name] = (own, annotations, taints, meta["uid"])
    return labels


def pods(cluster: Cluster) -> list[str]:
    return [item["metadata"]["name"] for item in orjson.loads(cluster.call(Request("GET", PODS)).body)["items"]]


def test_cases_of_a_suite_on_nodes_of_the_cluster(theirs: Cluster, tmp_path: Path) -> None:
    """Cases pass on lent nodes; those that need more say what is missing; the nodes are as before."""
    before = marks(theirs)
    results = tmp_path / "results"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "suites/allocation/test_gpu.py",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "test_whole_gpu or test_several_whole or two_halves_share or never_given or unhealthy",
        "--seatrial-subject=seatrial",
        "--seatrial-backend=existing",
        "--seatrial-nodes=real",
        f"--seatrial-kubeconfig={kubeconfig(theirs)}",
        f"--seatrial-results={results}",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    cases = {case.case: case for case in map(decode_case, (results / "cases.jsonl").read_bytes().splitlines())}
    verdicts = {name: case.verdict for name, case in cases.items()}
    assert verdicts == {
        "DS-001": "passed",
        "DS-002[2]": "passed",
        "DS-002[4]": "passed",
        "DS-002[8]": "skipped",
        "DS-006": "passed",
        "DS-007": "passed",
        "DS-011": "skipped",
    }
    assert "needs a node with 8 free cards (nvidia)" in cases["DS-002[8]"].reason
    assert "gpu-a: 4 free cards; gpu-b: 2 free cards" in cases["DS-002[8]"].reason
    assert "needs devices that fail on request" in cases["DS-011"].reason
    assert marks(theirs) == before
    assert not pods(theirs)
    assert not runs_on(theirs)


def test_a_lent_node_has_what_was_stated(theirs: Cluster) -> None:
    """One of four cards and two cores are free; label and taint of the case are there; then all is as before."""
    before = marks(theirs)
    with backend_named(EXISTING, kubeconfig=kubeconfig(theirs), nodes=REAL).start() as cluster:
        builder = node("n1").cards(3).cpu(2).label("pool", "b").label("zone", "z").taint("case", "one")
        cluster.add_nodes([builder])
        seen = orjson.loads(cluster.call(Request("GET", "/api/v1/nodes/n1")).body)
        assert seen["metadata"]["name"] == "n1"
        assert {key: seen["metadata"]["labels"][key] for key in ("pool", "zone")} == {"pool": "b", "zone": "z"}
        taints = {taint["key"] for taint in seen["spec"]["taints"]}
        assert taints == {"dedicated", "case", RUN_LABEL}
        (own,) = orjson.loads(theirs.call(Request("GET", PODS)).body)["items"]
        assert own["spec"]["nodeName"] == "gpu-a"
        requests = own["spec"]["containers"][0]["resources"]["requests"]
        assert requests["koordinator.sh/gpu-core"] == "100"
        assert int(requests["cpu"]) == int(seen["status"]["allocatable"]["cpu"]) - 2
        for method in ("PATCH", "DELETE"):
            with pytest.raises(ClusterError, match="does not belong to run"):
                cluster.call(Request(method, "/api/v1/nodes/n1", b"{}", MERGE_PATCH))
        cluster.remove_node("n1")
        assert marks(theirs) == before
        assert not pods(theirs)


def test_two_runs_do_not_get_the_same_node(theirs: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of two runs gets one of the two nodes; a third waits, and gets the first that is given back."""
    backends = [backend_named(EXISTING, kubeconfig=kubeconfig(theirs), nodes=REAL) for _ in range(3)]
    with backends[0].start() as first, backends[1].start() as second, backends[2].start() as third:
        first.add_nodes([node("n1").cards(2)])
        second.add_nodes([node("n1").cards(2)])
        names = {
            json.loads(run.call(Request("GET", "/api/v1/nodes/n1")).body)["metadata"]["uid"] for run in (first, second)
        }
        assert len(names) == 2
        with monkeypatch.context() as patch:
            patch.setattr("seatrial.harness.clusters.lent_nodes.FREE_WITHIN", 1.0)
            with pytest.raises(ClusterError, match="were not free within 1 s"):
                third.add_nodes([node("n1").cards(2)])
        second.remove_node("n1")
        third.add_nodes([node("n1").cards(2)])


SCRIPT = """
import sys, time
from pathlib import Path
from seatrial.harness.clusters.backends import backend_named
from seatrial.scheduler.api.builders import node
with backend_named("existing", kubeconfig=Path(sys.argv[1]), nodes="real").start() as cluster:
    cluster.add_nodes([node("n1").cards(1).label("pool", "b").taint("case", "one"), node("n2").cards(2)])
    print("up", flush=True)
    time.sleep(600)
"""


def test_a_killed_run_is_given_back_by_the_next(theirs: Cluster) -> None:
    before = marks(theirs)
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(kubeconfig(theirs))], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"up\n"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert marks(theirs) != before
    (killed,) = runs_on(theirs)
    theirs.call(Request("DELETE", f"{lease_path(killed)}/{LEASE}"))
    assert remove_dead_runs(theirs) == [killed]
    assert marks(theirs) == before
    assert not pods(theirs)


def test_real_nodes_of_a_cluster_of_our_own_are_refused() -> None:
    with pytest.raises(UsageError, match="--nodes real: backend 'embedded' has no nodes of others"):
        backend_named("embedded", nodes=REAL)
    with pytest.raises(UsageError, match="--nodes some: expected simulated or real"):
        backend_named("embedded", nodes="some")
