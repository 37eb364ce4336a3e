"""`seatrial scale nodes`: which nodes are added and removed, and the command on a cluster of `seatrial up`."""

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from seatrial.harness.clusters.detached import Detached, remember
from seatrial.harness.clusters.embedded import EmbeddedCluster
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.clusters.scale import NodeShape, added_entries, remove_nodes, shape_of, surplus
from seatrial.harness.clusters.simulated import is_ready
from seatrial.harness.commands.tests.test_up import Shell
from seatrial.harness.errors import UsageError
from seatrial.harness.nodes.fleet import ENTRY_ANNOTATION, node_manifest
from seatrial.harness.nodes.runtimes.tests.rig import WITHIN
from seatrial.harness.processes import started_at
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.transport import Request

PODS = "/api/v1/namespaces/default/pods"
FLEET = """
nodes:
  - {name: "a10-[0-1]", devices: [{model: a10, count: 2}], labels: {pool: train}}
  - {name: cpu, count: 1, cpu: 4}
"""


def nodes(*names: str, **entry: Any) -> list[dict[str, Any]]:
    return [node_manifest({"name": name, **entry}) for name in names]


def shape(name: str, *names: str, **entry: Any) -> NodeShape:
    return shape_of(name, nodes(*names, **entry))


@pytest.mark.parametrize(
    ("name", "names", "members"),
    [
        pytest.param("a10", ["a10-0", "a10-1", "b-0"], ["a10-0", "a10-1"], id="numbers-behind-a-dash"),
        pytest.param("gpu", ["gpu10", "gpu9", "gpux"], ["gpu9", "gpu10"], id="numbers-in-their-order"),
        pytest.param("h100", ["h100", "h100-0"], ["h100-0", "h100"], id="a-node-without-a-number-is-last"),
        pytest.param("h100", ["h100-0", "h1000"], ["h100-0"], id="the-number-has-all-digits"),
    ],
)
def test_nodes_of_a_shape(name: str, names: list[str], members: list[str]) -> None:
    assert list(shape(name, *names).members) == members


def test_a_new_node_is_like_the_last_of_its_shape() -> None:
    """Free numbers are taken first, and zeros in front are kept."""
    entries = added_entries(shape("a", "a-00", "a-02", cpu=4, labels={"pool": "train"}), 4)
    assert entries == [{"name": name, "cpu": 4, "labels": {"pool": "train"}} for name in ("a-01", "a-03")]


@pytest.mark.parametrize("text", ["{", "[1]", "7"], ids=["no-json", "a-list", "a-number"])
def test_an_annotation_that_anybody_wrote_stops_nobody(text: str) -> None:
    broken = {"metadata": {"name": "a10-1", "annotations": {ENTRY_ANNOTATION: text}}}

    assert list(shape_of("a10", [*nodes("a10-0"), broken]).members) == ["a10-0", "a10-1"]


def test_a_shape_without_nodes_is_a_server_of_the_catalogue() -> None:
    assert added_entries(shape("dgx-h100", "a-0"), 2) == [
        {"name": "dgx-h100-0", "server": "dgx-h100"},
        {"name": "dgx-h100-1", "server": "dgx-h100"},
    ]


def test_a_shape_that_is_neither_is_refused() -> None:
    with pytest.raises(UsageError, match=r"shape 'h10': no node of the cluster.*a10, cpu.*no server model 'h10'"):
        added_entries(shape("h10", "a10-0", "a10-1", "cpu-0"), 1)


@pytest.mark.parametrize(
    ("pods", "removed", "lost"),
    [
        pytest.param({}, ["a-3", "a-2"], [], id="the-highest-numbers"),
        pytest.param({"a-3": ["default/p"]}, ["a-2", "a-1"], [], id="nodes-without-pods-first"),
        pytest.param(
            {"a-0": ["x/a", "x/b"], "a-1": ["x/c"], "a-3": ["x/d"]}, ["a-2", "a-3"], ["a-3"], id="then-the-fewest-pods"
        ),
    ],
)
def test_surplus_nodes(pods: dict[str, list[str]], removed: list[str], lost: list[str]) -> None:
    names = surplus(shape("a", "a-0", "a-1", "a-2", "a-3"), 2, pods)
    assert names == removed
    assert [name for name in names if pods.get(name)] == lost


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A folder with the kubeconfig K of a cluster with two kinds of nodes."""
    folder = tmp_path_factory.mktemp("scale")
    (folder / "fleet.yaml").write_text(FLEET)
    shell = Shell(folder)
    done = shell.seatrial("up", "--detach", "--kubeconfig", "K", "--fleet", "fleet.yaml", "--name", "s")
    assert done.returncode == 0, done.stderr
    yield shell
    shell.without_process("down", "--all")


@pytest.fixture
def cluster(shell: Shell) -> Iterator[EmbeddedCluster]:
    path: Path = shell.folder / "K"
    with closing(EmbeddedCluster("embedded", load_access(path), path)) as cluster:
        cluster.wait_for_nodes(1)
        yield cluster


def ready_nodes(cluster: EmbeddedCluster) -> dict[str, dict[str, Any]]:
    items = orjson.loads(cluster.call(Request("GET", "/api/v1/nodes")).body)["items"]
    return {item["metadata"]["name"]: item for item in items if is_ready(item)}


def scale(shell: Shell, *words: str) -> tuple[int, str, str]:
    done = shell.without_process("scale", "nodes", *words, "--name", "s")
    return done.returncode, done.stdout, done.stderr


def test_nodes_are_added_and_removed(shell: Shell, cluster: EmbeddedCluster) -> None:
    """New nodes are Ready with their cards when the command ends; a node with a pod is removed only by --force."""
    status, answer, errors = scale(shell, "a10=4", "cpu=0")
    assert (status, answer) == (0, "a10: 2 -> 4 nodes, added a10-2, a10-3\ncpu: 1 -> 0 nodes, removed cpu-0\n"), errors
    results = ready_nodes(cluster)
    assert set(results) == {"a10-0", "a10-1", "a10-2", "a10-3"}
    assert results["a10-3"]["status"]["allocatable"]["nvidia.com/gpu"] == "2"
    assert results["a10-3"]["metadata"]["labels"]["pool"] == "train"

    for number, name in enumerate(("a10-0", "a10-3")):
        body = pod(f"p{number}").request(cpu=1).node_name(name).namespace("default").manifest
        assert cluster.call(Request("POST", PODS, orjson.dumps(body))).code == 201
    status, answer, _ = scale(shell, "a10=2", "--json")
    assert status == 0
    assert json.loads(answer) == [
        {"shape": "a10", "before": 4, "after": 2, "added": [], "removed": ["a10-2", "a10-1"], "podsRemoved": []}
    ]
    status, answer, errors = scale(shell, "a10=0")
    assert (status, answer) == (2, "")
    assert "a10=0: pods would be lost: a10-3 (default/p1), a10-0 (default/p0); --force" in errors
    assert set(ready_nodes(cluster)) == {"a10-0", "a10-3"}
    status, answer, errors = scale(shell, "a10=0", "--force")
    assert status == 0, errors
    assert answer == "a10: 2 -> 0 nodes, removed a10-3, a10-0, pods removed: default/p1, default/p0\n"
    assert ready_nodes(cluster) == {}
    assert cluster.wait(lambda: not orjson.loads(cluster.call(Request("GET", PODS)).body)["items"], within=WITHIN)
    assert scale(shell, "a10=1")[:2] == (0, "a10: 0 -> 1 nodes, added a10-0\n"), "as the fleet file has it"
    assert ready_nodes(cluster)["a10-0"]["metadata"]["labels"]["pool"] == "train"
    assert scale(shell, "a10-4=1")[:2] == (0, "a10-4: 0 -> 1 nodes, added a10-4-0\n")
    assert scale(shell, "a10-4=1")[:2] == (0, "a10-4: 1 nodes, no change\n")


@pytest.mark.parametrize(
    ("words", "saying"),
    [
        pytest.param(["a10"], "expected SHAPE=N, found 'a10'", id="no-number"),
        pytest.param(["a10=x"], "expected SHAPE=N, found 'a10=x'", id="a-number-that-is-none"),
        pytest.param([f"a10={'9' * 5000}"], "expected SHAPE=N, found 'a10=999", id="thousands-of-digits"),
        pytest.param(["a10=-1"], "expected SHAPE=N, found 'a10=-1'", id="less-than-none"),
        pytest.param(["a10=100001"], "expected at most 100000 nodes", id="too-many"),
        pytest.param(["a10=1", "a10=2"], "expected each shape once, found 'a10' twice", id="a-shape-twice"),
        pytest.param(["nope=1"], "shape 'nope': no node of the cluster", id="an-unknown-shape"),
        pytest.param([], "expected SHAPE=N", id="nothing"),
    ],
)
def test_mistakes_are_told_in_a_sentence(shell: Shell, words: list[str], saying: str) -> None:
    status, body, errors = scale(shell, *words)
    assert (status, body) == (2, "")
    assert saying in " ".join(errors.split())


def test_a_node_that_got_a_pod_after_the_check_stays_and_is_not_cordoned(
    shell: Shell, cluster: EmbeddedCluster
) -> None:
    assert scale(shell, "late=0", "cpu=2")[0] == 2, "an unknown shape beside a known one changes nothing"
    assert scale(shell, "cpu=2")[0] == 0
    body = pod("late").request(cpu=1).node_name("cpu-1").namespace("default").manifest
    assert cluster.call(Request("POST", PODS, orjson.dumps(body))).code == 201
    with pytest.raises(UsageError, match=r"cpu=0: pods would be lost: cpu-1 \(default/late\)"):
        remove_nodes(cluster, "cpu=0", ["cpu-0", "cpu-1"], force=False)
    results = ready_nodes(cluster)
    assert {"cpu-0", "cpu-1"} <= results.keys()
    assert not any(results[name]["spec"].get("unschedulable") for name in ("cpu-0", "cpu-1"))
    assert scale(shell, "cpu=0", "--force")[0] == 0


def test_nodes_of_an_existing_cluster_are_not_scaled(tmp_path: Path) -> None:
    """The state file is that of a cluster of `up --backend existing` whose process is the test's."""
    shell, pid = Shell(tmp_path), os.getpid()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", shell.env["XDG_STATE_HOME"])
        remember(Detached("s", "https://127.0.0.1:1", "", ((pid, started_at(pid)),), "existing"))
    status, _, errors = scale(shell, "a10=1")
    assert status == 2
    assert "expected a cluster of --backend embedded or envtest, found 's' of --backend existing" in errors


def test_a_cluster_that_is_not_up_is_told(shell: Shell) -> None:
    done = shell.without_process("scale", "nodes", "a10=1", "--name", "other")
    assert done.returncode == 2
    assert "no cluster 'other' is up (up: s)" in done.stderr
