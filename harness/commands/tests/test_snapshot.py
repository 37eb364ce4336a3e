"""`seatrial snapshot` on clusters of `up`: 20 nodes with a gang, a quota and a reservation, down and up again."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from seatrial.harness.clusters.embedded import EmbeddedCluster
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.clusters.snapshot import check, read
from seatrial.harness.commands.tests.test_up import Shell
from seatrial.harness.nodes.runtimes.tests.rig import WITHIN
from seatrial.scheduler.api.builders import gang, pod, quota, reservation
from seatrial.scheduler.api.transport import Request

PODS = "/api/v1/namespaces/default/pods"
RESERVATION = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
FLEET = """
nodes:
  - {name: "a10-[0-1]", devices: [{model: a10, count: 2}]}
  - {name: "cpu-[0-17]", cpu: 4}
"""
OBJECTS = (
    quota("team").min(cpu=1, memory="1Gi").max(cpu=1, memory="1Gi"),
    gang("g", 2),
    *(pod(f"g-{number}").nvidia(2).in_gang("g") for number in range(2)),
    pod("waiting").nvidia(2),
    pod("counted").request(cpu=1).quota("team"),
    pod("above").request(cpu=1).quota("team"),
    reservation("held").like(pod("p").request(cpu=2)).for_labels(app="a"),
)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    (tmp_path / "fleet.yaml").write_text(FLEET)
    shell = Shell(tmp_path)
    yield shell
    shell.without_process("down", "--all")


def succeeds(shell: Shell, *words: str) -> str:
    done = shell.seatrial(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ask(shell: Shell, question: Callable[[EmbeddedCluster], Any]) -> Any:
    """What a client of the cluster answers; a cluster that was restored has other credentials."""
    path = shell.folder / "K"
    with closing(EmbeddedCluster("embedded", load_access(path), path)) as cluster:
        return question(cluster)


def wait_for_pods(shell: Shell, **nodes: bool) -> dict[str, dict[str, Any]]:
    """The pods, once those of these names are Running (True) or marked as unschedulable (False)."""
    pods: dict[str, dict[str, Any]] = {}

    def is_so(name: str, running: bool) -> bool:
        status = pods.get(name.replace("_", "-"), {}).get("status", {})
        reasons = {row.get("reason") for row in status.get("conditions") or ()}
        return bool(status.get("phase") == "Running" if running else "Unschedulable" in reasons)

    def until(cluster: EmbeddedCluster) -> bool:
        def holds() -> bool:
            items = orjson.loads(cluster.call(Request("GET", PODS)).body)["items"]
            pods.update({item["metadata"]["name"]: item for item in items})
            return all(is_so(name, running) for name, running in nodes.items())

        return cluster.wait(holds, within=WITHIN)

    assert ask(shell, until), {name: pod.get("status") for name, pod in pods.items()}
    return pods


CHANGING = {  # by what runs in a cluster, all the time or as it starts: times, messages, generations of devices
    *("resourceVersion", "managedFields", "renewTime", "lastHeartbeatTime", "lastTransitionTime", "message"),
    "generation",
}


def objects(path: Path) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The objects of a snapshot without what is changing, and without what the scheduler makes and writes of quotas."""

    def constant(value: Any) -> Any:
        if isinstance(value, list):
            return [constant(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {name: constant(part) for name, part in value.items() if name not in CHANGING}

    bodies = [orjson.loads(line) for line in read(path)]
    bodies = [body for body in bodies if body["metadata"].get("namespace") != "koordinator-system"]
    for body in bodies:
        if body["kind"] == "ElasticQuota":
            body["metadata"].pop("annotations", None)
            body.pop("status", None)
    return {
        (body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"]): constant(body)
        for body in bodies
    }


def test_a_cluster_is_saved_ended_started_and_restored(shell: Shell) -> None:
    """Objects keep UIDs and nodes; the scheduler goes on where it was, and the auditor finds nothing wrong."""
    succeeds(shell, "up", "--detach", "--kubeconfig", "K", "--fleet", "fleet.yaml")
    for each in OBJECTS:
        body = each.manifest
        group = f"apis/{body['apiVersion']}" if "/" in body["apiVersion"] else "api/v1"
        where = "" if body["kind"] == "Reservation" else "namespaces/default/"
        path = f"/{group}/{where}{body['kind'].lower()}s"
        answer = ask(shell, lambda cluster: cluster.call(Request("POST", path, orjson.dumps(body))))  # noqa: B023
        assert answer.code == 201, answer.body
    before = wait_for_pods(shell, g_0=True, g_1=True, counted=True, waiting=False, above=False)
    text = succeeds(shell, "snapshot", "save", "s")
    assert "20 Node, 5 Pod" in text
    assert "1 Reservation" in text
    succeeds(shell, "down")

    succeeds(shell, "up", "--detach", "--kubeconfig", "K", "--snapshot", "s")
    after = wait_for_pods(shell, g_0=True, g_1=True, counted=True, waiting=False, above=False)
    for name, results in after.items():
        assert results["metadata"]["uid"] == before[name]["metadata"]["uid"]
        assert results["spec"] == before[name]["spec"]
    held = ask(shell, lambda cluster: orjson.loads(cluster.call(Request("GET", f"{RESERVATION}/held")).body))
    assert held["status"]["phase"] == "Available"
    succeeds(shell, "snapshot", "save", "again")
    there, here = objects(shell.folder / "s"), objects(shell.folder / "again")
    assert there.keys() == here.keys()
    webhooks = here["ValidatingWebhookConfiguration", "", "seatrial-quota-webhook"]["webhooks"]
    assert webhooks[1]["namespaceSelector"]["matchExpressions"], "pods without a label are asked about, as quotas exist"
    assert {
        key[2] if key[0] != "CustomResourceDefinition" else "definition" for key in there if there[key] != here[key]
    } == {
        "kube-system",
        "kubernetes",
        "kube-root-ca.crt",
        "extension-apiserver-authentication",
        "seatrial-quota-webhook",
        "definition",
    }

    for name in ("g-0", "counted"):
        assert ask(shell, lambda cluster: cluster.call(Request("DELETE", f"{PODS}/{name}"))).ok  # noqa: B023
    placed = wait_for_pods(shell, waiting=True, above=True)
    assert placed["waiting"]["spec"]["nodeName"] == before["g-0"]["spec"]["nodeName"]
    audit = json.loads(succeeds(shell, "audit", "--kubeconfig", "K", "--for", "0", "--json"))
    assert (audit["nodes"], audit["violations"]) == (20, [])

    refused = shell.without_process("snapshot", "restore", "s")
    assert refused.returncode == 2
    assert (
        "is not empty: 26 objects: 20 Node, 3 Pod, 1 ElasticQuota, 1 PodGroup, 1 Reservation; --replace"
        in refused.stderr
    )
    text = succeeds(shell, "snapshot", "restore", "s", "--replace")
    assert "replaced: 26 objects" in text
    wait_for_pods(shell, g_0=True, g_1=True, counted=True, waiting=False, above=False)


def wait_for_scheduler(shell: Shell) -> None:
    ends = time.monotonic() + WITHIN
    while "shell synced" not in succeeds(shell, "logs", "e", "--component", "scheduler"):
        assert time.monotonic() < ends, "the scheduler did not start"
        time.sleep(0.1)


def test_an_empty_cluster_is_restored_with_its_options(shell: Shell) -> None:
    """No --replace is needed. Without a file of its options the cluster is not ended."""
    config = shell.folder / "scheduler.yaml"
    config.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    started = ("--kubeconfig", "K", "--fleet", "none", "--scheduler-config", "scheduler.yaml", "--name", "e")
    succeeds(shell, "up", "--detach", *started)
    url = json.loads(succeeds(shell, "list", "--json"))[0]["api"]
    succeeds(shell, "snapshot", "save", "s", "--name", "e")
    check(shell.folder / "s")
    text = succeeds(shell, "snapshot", "restore", "s", "--name", "e")
    assert f"Kubernetes API at {url}, snapshot" in text
    scheduler = json.loads((shell.folder / "state/seatrial/clusters/e.json").read_bytes())["processes"][-1][0]
    assert str(config).encode() in Path(f"/proc/{scheduler}/cmdline").read_bytes().split(b"\0")

    wait_for_scheduler(shell)  # it has read its configuration
    config.unlink()
    done = shell.without_process("snapshot", "restore", "s", "--name", "e")
    assert done.returncode == 2
    assert f"cluster 'e' was started with {config}, which is gone" in " ".join(done.stderr.split())
    assert json.loads(succeeds(shell, "list", "--json"))[0]["state"] == "running"


def test_a_file_that_cannot_be_used_ends_nothing(shell: Shell) -> None:
    succeeds(shell, "up", "--detach", "--kubeconfig", "K", "--fleet", "none", "--subject", "none")
    (shell.folder / "s").write_text("nodes:")
    for words in (["snapshot", "restore", "s"], ["snapshot", "save", "s"], ["up", "--snapshot", "s", "--name", "b"]):
        done = shell.without_process(*words)
        assert done.returncode == 2
        assert "expected a file of `seatrial snapshot save`: Not a gzipped file" in " ".join(done.stderr.split())
    assert json.loads(succeeds(shell, "list", "--json"))[0]["state"] == "running"
    assert (shell.folder / "s").read_text() == "nodes:"


def test_a_cluster_in_the_foreground_is_not_ended(shell: Shell) -> None:
    command = [sys.executable, "-m", "seatrial", "up", "--kubeconfig", "K", "--fleet", "none", "--subject", "none"]
    process = subprocess.Popen(command, cwd=shell.folder, env=shell.env, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        while "Ctrl-C ends it." not in process.stdout.readline():
            assert process.poll() is None
        succeeds(shell, "snapshot", "save", "s")
        done = shell.without_process("snapshot", "restore", "s")
        assert done.returncode == 2
        assert (
            f"in the foreground of process {process.pid}; end it, and start `seatrial up --snapshot s`" in done.stderr
        )
    finally:
        process.terminate()
        process.communicate(timeout=WITHIN)


@pytest.mark.parametrize(
    ("words", "saying"),
    [
        pytest.param(["snapshot", "save", "s"], "no cluster 'seatrial' is up (up: none)", id="no-cluster"),
        pytest.param(["snapshot", "save", "s", "--name", "a", "--kubeconfig", "K"], "found both", id="two-clusters"),
        pytest.param(["snapshot", "save", "s", "--secrets"], "expected --kubeconfig", id="secrets-of-ours"),
        pytest.param(
            ["up", "--snapshot", "s", "--fleet", "large"], "without --fleet, found --fleet large", id="a-fleet"
        ),
        pytest.param(["up", "--snapshot", "s", "--backend", "envtest"], "found --backend envtest", id="a-real-server"),
    ],
)
def test_mistakes_are_told_in_a_sentence(shell: Shell, words: list[str], saying: str) -> None:
    done = shell.without_process(*words)
    assert done.returncode == 2
    assert saying in " ".join(done.stderr.split())
