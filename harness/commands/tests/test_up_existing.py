"""`seatrial up --backend existing` on a cluster that others use, as a user calls it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from seatrial.harness.clusters import detached
from seatrial.harness.clusters.embedded import EmbeddedBackend, EmbeddedCluster
from seatrial.harness.clusters.kubeconfig import with_context
from seatrial.harness.clusters.leftovers import LEASE, lease_path, runs_on
from seatrial.harness.clusters.run_scope import RUN_LABEL
from seatrial.harness.clusters.start_lock import start_lock
from seatrial.harness.commands.tests.test_up import Shell
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.transport import Request

KINDS = (
    "/api/v1/nodes",
    "/api/v1/namespaces",
    "/api/v1/pods",
    "/apis/scheduling.koordinator.sh/v1alpha1/devices",
    "/apis/coordination.k8s.io/v1/leases",
)
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module")
def theirs() -> Iterator[EmbeddedCluster]:
    """A cluster of others with a node of its own."""
    with EmbeddedBackend().start() as cluster:
        cluster.add_nodes([node("n1").gpus("a10", 1)])
        yield cluster


@pytest.fixture
def shell(theirs: EmbeddedCluster, tmp_path: Path) -> Iterator[Shell]:
    """A folder with the kubeconfig K and a fleet of two nodes."""
    assert theirs.endpoint is not None
    with_context(theirs.endpoint.kubeconfig, "", tmp_path / "K")
    (tmp_path / "fleet.yaml").write_text("nodes: [{name: gpu, count: 2, devices: [{model: a10, count: 2}]}]")
    shell = Shell(tmp_path)
    yield shell
    shell.without_process("down", "--all")


def everything(cluster: EmbeddedCluster) -> list[str]:
    messages = []
    for path in KINDS:
        items = orjson.loads(cluster.call(Request("GET", path)).body)["items"]
        messages += [f"{path} {item['metadata'].get('namespace', '')}/{item['metadata']['name']}" for item in items]
    return sorted(messages)


def up(shell: Shell) -> str:
    done = shell.seatrial("up", "--backend", "existing", "--kubeconfig", "K", "--fleet", "fleet.yaml", "--detach")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nodes_and_a_scheduler_until_down(theirs: EmbeddedCluster, shell: Shell) -> None:
    """A pod that selects them runs there with its cards; down removes all, and the kubeconfig stays."""
    before = everything(theirs)
    text = up(shell)
    (run,) = runs_on(theirs)
    assert f"run {run} is up" in text
    assert [line for line in everything(theirs) if f"st-{run}-gpu-" in line and "/nodes" in line] == [
        f"/api/v1/nodes /st-{run}-gpu-{number}" for number in range(2)
    ]
    again = shell.seatrial("up", "--backend", "existing", "--kubeconfig", "K", "--detach")
    assert again.returncode == 2
    assert "is up already" in again.stderr
    assert "end it with `seatrial down`, or" in again.stderr
    built = pod("a").gpus(2).scheduler(f"st-{run}-default-scheduler").select({RUN_LABEL: run}).tolerate(RUN_LABEL)
    assert theirs.call(Request("POST", PODS, orjson.dumps(built.manifest))).code == 201

    def runs() -> bool:
        return bool(orjson.loads(theirs.call(Request("GET", f"{PODS}/a")).body)["status"]["phase"] == "Running")

    assert theirs.wait(runs, within=30)
    body = orjson.loads(theirs.call(Request("GET", f"{PODS}/a")).body)
    assert body["spec"]["nodeName"].startswith(f"st-{run}-gpu-")
    allocated = orjson.loads(body["metadata"]["annotations"]["scheduling.koordinator.sh/device-allocated"])
    assert len(allocated["gpu"]) == 2
    theirs.call(Request("DELETE", f"{PODS}/a?gracePeriodSeconds=0"))
    down = shell.seatrial("down")
    assert down.returncode == 0, down.stderr
    assert everything(theirs) == before
    assert (shell.folder / "K").exists()


@pytest.mark.parametrize("parent", [True, False], ids=["a-detached-start", "a-start-in-the-foreground"])
def test_a_start_beside_one_that_goes_on_is_refused(theirs: EmbeddedCluster, shell: Shell, *, parent: bool) -> None:
    """The test holds the lock as the other start does; nothing of the refused one is left."""
    before = everything(theirs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", shell.env["XDG_STATE_HOME"])
        with start_lock("r", parent=parent):
            words = ("up", "--backend", "existing", "--kubeconfig", "K", "--fleet", "fleet.yaml", "--detach")
            done = shell.seatrial(*words, "--name", "r")
    assert done.returncode == 2
    assert "cluster 'r' is being started by process" in done.stderr
    assert everything(theirs) == before


def test_what_a_killed_one_left_is_cleaned(
    theirs: EmbeddedCluster, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(theirs)
    up(shell)
    monkeypatch.setenv("XDG_STATE_HOME", shell.env["XDG_STATE_HOME"])
    running = detached.find(detached.DEFAULT_NAME)
    assert running is not None
    os.kill(running.processes[0][0], signal.SIGKILL)
    (run,) = runs_on(theirs)
    theirs.call(Request("DELETE", f"{lease_path(run)}/{LEASE}"))  # as if it had not been renewed for a while
    done = shell.seatrial("clean", "--kubeconfig", "K")
    assert (done.returncode, done.stdout) == (0, f"run {run}: removed\n"), done.stderr
    assert everything(theirs) == before


@pytest.mark.parametrize(
    ("words", "saying"),
    [
        pytest.param(["--backend", "existing"], "give the cluster with --kubeconfig FILE", id="no-kubeconfig"),
        pytest.param(
            ["--backend", "existing", "--kubeconfig", "K", "--port", "1"], "--host, --port: not with", id="port"
        ),
        pytest.param(["--context", "c"], "--context c: expected --backend existing, found embedded", id="context"),
        pytest.param(
            ["--backend", "existing", "--kubeconfig", "K", "--subject", "deployed"],
            "--subject deployed: expected seatrial, none or",
            id="deployed",
        ),
    ],
)
def test_mistakes_are_told_in_a_sentence(shell: Shell, words: list[str], saying: str) -> None:
    done = shell.without_process("up", *words)
    assert done.returncode == 2
    assert saying in done.stderr
