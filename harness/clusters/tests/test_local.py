"""This machine as the node of a cluster: a scheduler's pods really run here, and nothing of them stays."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from seatrial.fake_devices.build import NO_COMPILER, compiler
from seatrial.harness.clusters.embedded import start_process
from seatrial.harness.clusters.local import LocalBackend, LocalCluster, LocalDockerBackend
from seatrial.harness.clusters.local_node import LocalNode
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.errors import ClusterError, UsageError
from seatrial.harness.nodes.runtimes.tests.engine import IMAGE, containers, engine_at
from seatrial.harness.nodes.runtimes.tests.rig import WITHIN, read, with_mark
from seatrial.harness.subject.protocol import OURS, open_subject
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.scheduler.api.transport import Request

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Pods' folders are looked for and cleared away in a place of the tests' own."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def cluster(own_state: Path) -> Iterator[LocalCluster]:
    """A machine with eight H100s behind NVML's boundary, and our scheduler."""
    with LocalBackend(fake="dgx-h100").start() as started, open_subject(OURS, started):
        yield started


def script(name: str, text: str, **spec: Any) -> PodBuilder:
    """A pod that runs a script."""
    built = pod(name)
    built.manifest["spec"]["containers"][0]["command"] = ["sh", "-c", text]
    built.manifest["spec"].update(spec)
    return built


def submit(cluster: LocalCluster, builder: PodBuilder) -> None:
    answer = cluster.call(Request("POST", PODS, orjson.dumps(builder.namespace("default").manifest)))
    assert answer.ok, answer.body


def status(cluster: LocalCluster, name: str) -> dict[str, Any]:
    body = orjson.loads(cluster.call(Request("GET", f"{PODS}/{name}")).body)
    return {**body.get("status", {}), "there": True} if body["kind"] == "Pod" else {"there": False}


def reaches(cluster: LocalCluster, name: str, phase: str) -> dict[str, Any]:
    assert cluster.wait(lambda: status(cluster, name).get("phase") == phase, within=3 * WITHIN), status(cluster, name)
    return status(cluster, name)


def test_the_node_is_this_machine(cluster: LocalCluster) -> None:
    body = orjson.loads(cluster.call(Request("GET", f"/api/v1/nodes/{cluster.node}")).body)
    capacity, info = body["status"]["capacity"], body["status"]["nodeInfo"]
    assert int(capacity["cpu"]) == len(os.sched_getaffinity(0))
    assert capacity["memory"] in read("/proc/meminfo").split("\n")[0].replace(" kB", "Ki")
    assert capacity["nvidia.com/gpu"] == "8"
    assert info["kernelVersion"] == os.uname().release
    assert info["containerRuntimeVersion"].startswith("process://")
    assert "seatrial.dev/limits" in body["metadata"]["annotations"]


def test_a_pod_runs_here_with_the_cards_it_was_promised(cluster: LocalCluster) -> None:
    name = f"granted-{uuid.uuid4().hex}"
    submit(cluster, pod(name).gpus(2))
    reaches(cluster, name, "Running")
    (child, *_) = with_mark(f"HOSTNAME={name}")
    env = dict(line.split("=", 1) for line in read(f"/proc/{child}/environ").split("\0") if line)
    body = orjson.loads(cluster.call(Request("GET", f"{PODS}/{name}")).body)
    promised = json.loads(body["metadata"]["annotations"]["scheduling.koordinator.sh/device-allocated"])["gpu"]
    assert env["NVIDIA_VISIBLE_DEVICES"] == ",".join(str(allocation["minor"]) for allocation in promised)
    assert cluster.wait(
        lambda: b"NVIDIA_VISIBLE_DEVICES=" in cluster.call(Request("GET", f"{PODS}/{name}/log")).body, within=WITHIN
    )
    cluster.call(Request("DELETE", f"{PODS}/{name}"))
    assert cluster.wait(lambda: not status(cluster, name)["there"], within=WITHIN)
    assert not with_mark(f"HOSTNAME={name}")


@pytest.mark.parametrize(
    ("text", "phase", "code"),
    [
        pytest.param("echo done", "Succeeded", 0, id="one-that-ends-well"),
        pytest.param("exit 9", "Failed", 9, id="one-that-fails"),
    ],
)
def test_a_pod_runs_to_its_end(cluster: LocalCluster, text: str, phase: str, code: int) -> None:
    name = f"ends-{phase.lower()}"
    submit(cluster, script(name, text, restartPolicy="Never"))
    ended = reaches(cluster, name, phase)
    assert ended["containerStatuses"][0]["state"]["terminated"]["exitCode"] == code


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl: expected on PATH, not found")
@pytest.mark.parametrize(
    ("words", "code", "output"),
    [
        pytest.param("echo hello $HOSTNAME", 0, "hello kubectl-exec", id="a-command-and-its-output"),
        pytest.param("exit 3", 3, "", id="a-command-that-fails"),
    ],
)
def test_commands_by_kubectl(cluster: LocalCluster, words: str, code: int, output: str) -> None:
    if status(cluster, "kubectl-exec").get("phase") != "Running":
        submit(cluster, script("kubectl-exec", "sleep 600"))
        reaches(cluster, "kubectl-exec", "Running")
    assert cluster.endpoint is not None
    command = ["kubectl", "--kubeconfig", str(cluster.endpoint.kubeconfig), "exec", "kubectl-exec", "--", "sh", "-c"]

    process = subprocess.run([*command, words], capture_output=True, text=True, timeout=600, check=False)

    assert (process.returncode, process.stdout.strip()) == (code, output), process.stderr


def test_what_a_pod_is_made_of_is_waited_for(cluster: LocalCluster) -> None:
    """Without its ConfigMap it waits and says for which; with it, it runs, and its init container is told of."""
    at = "$CONTAINER_SANDBOX_MOUNT_POINT/etc/settings"
    built = script(
        "made-of-things",
        f"test $COLOUR = blue && test $(cat {at}/size) = 9 && echo $POD_IP",
        restartPolicy="Never",
        volumes=[{"name": "v", "configMap": {"name": "settings"}}],
        initContainers=[{"name": "first", "image": "x", "command": ["true"]}],
    )
    (container,) = built.manifest["spec"]["containers"]
    container["volumeMounts"] = [{"name": "v", "mountPath": "/etc/settings"}]
    container["env"] = [
        {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    submit(cluster, built)

    def waiting() -> dict[str, Any]:
        container_statuses = status(cluster, "made-of-things").get("containerStatuses") or [{"state": {}}]
        return dict(container_statuses[0]["state"].get("waiting", {}))

    assert cluster.wait(lambda: waiting().get("reason") == "CreateContainerConfigError", within=WITHIN)
    assert waiting()["message"] == 'configmap "settings" not found'
    body = {"metadata": {"name": "settings"}, "data": {"colour": "blue", "size": "9"}}
    cluster.call(Request("POST", "/api/v1/namespaces/default/configmaps", orjson.dumps(body)))
    ended = reaches(cluster, "made-of-things", "Succeeded")
    assert ended["initContainerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
    assert ended["podIP"].startswith("127.64.")
    log = cluster.call(Request("GET", f"{PODS}/made-of-things/log")).body
    assert log.decode().strip() == ended["podIP"]


def test_what_is_not_on_this_machine_is_pending_with_the_reason(cluster: LocalCluster) -> None:
    built = pod("imageless")
    built.manifest["spec"]["containers"][0].update(image="vendor/tool:7", command=["no-such-tool"])
    submit(cluster, built)

    def waiting() -> dict[str, Any]:
        container_statuses = status(cluster, "imageless").get("containerStatuses") or [{"state": {}}]
        return dict(container_statuses[0]["state"].get("waiting", {}))

    assert cluster.wait(lambda: waiting().get("reason") == "ErrImagePull", within=WITHIN)
    assert "no program 'no-such-tool'" in waiting()["message"]
    assert status(cluster, "imageless")["phase"] == "Pending"


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda cluster: cluster.add_nodes([node("n1")]), id="no-node-is-added"),
        pytest.param(lambda cluster: cluster.remove_node("n1"), id="none-is-removed"),
    ],
)
def test_one_node_and_no_other(cluster: LocalCluster, call: Any) -> None:
    with pytest.raises(ClusterError, match="has one node, this machine"):
        call(cluster)


def test_only_a_stand_in_fails_on_request(cluster: LocalCluster) -> None:
    assert cluster.endpoint is not None
    real = LocalCluster("local", cluster.endpoint.kubeconfig, frozenset())
    try:
        with pytest.raises(ClusterError, match="its devices are real"):
            real.inject({"node": cluster.node, "device": 0, "verb": "lost"})
    finally:
        real.close()


@pytest.mark.parametrize(
    ("fault", "saying"),
    [
        pytest.param({"node": "n1", "device": 0, "verb": "lost"}, "this machine, found 'n1'", id="another-node"),
        pytest.param({"device": 99, "verb": "lost"}, "has no gpu 99", id="a-card-that-is-not-there"),
        pytest.param({"device": 0, "verb": "melt"}, "no fault verb 'melt'", id="an-unknown-verb"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(cluster: LocalCluster, fault: dict[str, Any], saying: str) -> None:
    with pytest.raises(UsageError) as refused:
        cluster.inject({"node": cluster.node, **fault})
    assert saying in str(refused.value)


@pytest.mark.skipif(compiler() is None, reason=NO_COMPILER)
def test_a_pod_s_own_nvml_shows_the_stand_in(cluster: LocalCluster) -> None:
    """A program that knows nothing of us, started as a pod, loads libnvidia-ml.so.1 and counts."""
    text = f"exec {sys.executable} -c 'import pynvml as p; p.nvmlInit(); print(p.nvmlDeviceGetCount())'"
    submit(cluster, script("asks-nvml", text, restartPolicy="Never"))
    reaches(cluster, "asks-nvml", "Succeeded")
    assert cluster.call(Request("GET", f"{PODS}/asks-nvml/log")).body.strip() == b"8"


def test_what_it_can_do_depends_on_what_is_here() -> None:
    assert LocalBackend(fake="a10").capabilities == {
        Capability.REAL_TIME,
        Capability.CONTAINERS,
        Capability.DEVICE_FAULTS,
        Capability.NODE_FAULTS,
    }
    assert Capability.NODES not in LocalBackend().capabilities
    with pytest.raises(UsageError, match="takes no fleet"), LocalBackend().start(fleet="default"):
        pass


def test_an_unknown_fake_is_said_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--fake abacus"):
        LocalBackend(fake="abacus")
    with pytest.raises(ClusterError, match="--fake abacus"):
        start_process(
            tmp_path / "kubeconfig", fleet="", seed=0, port=0, log=tmp_path / "log", local=LocalNode(fake="abacus")
        )


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGKILL, id="killed"), pytest.param(signal.SIGTERM, id="asked-to-end")]
)
def test_nothing_outlives_the_cluster(tmp_path: Path, own_state: Path, number: signal.Signals) -> None:
    mark = f"outlive-{uuid.uuid4().hex}"
    process, _ = start_process(
        tmp_path / "kubeconfig", fleet="", seed=0, port=0, log=tmp_path / "log", local=LocalNode(fake="a10")
    )
    try:
        cluster = LocalCluster("local", tmp_path / "kubeconfig", frozenset())
        cluster.wait_for_node()
        built = script(mark, "trap '' TERM; setsid sleep 61 & while :; do sleep 0.05; done")
        submit(cluster, built.node_name(cluster.node))
        reaches(cluster, mark, "Running")
        assert cluster.wait(lambda: len(with_mark(mark)) >= 3, within=WITHIN)
        cluster.close()
    finally:
        process.send_signal(number)
        process.wait(WITHIN)
        assert process.stdout is not None
        process.stdout.close()
    assert _soon(lambda: not with_mark(mark))
    pods = own_state / "seatrial" / "pods"
    left = [folder for folder in pods.iterdir() if folder.name.startswith(f"{process.pid}-")]
    assert bool(left) == (number == signal.SIGKILL)  # the next one to start clears it away, see below


def test_the_next_one_ends_what_a_dead_cluster_and_its_dead_supervisors_left(tmp_path: Path) -> None:
    mark = f"left-{uuid.uuid4().hex}"
    process, _ = start_process(
        tmp_path / "kubeconfig", fleet="", seed=0, port=0, log=tmp_path / "log", local=LocalNode(fake="a10")
    )
    cluster = LocalCluster("local", tmp_path / "kubeconfig", frozenset())
    cluster.wait_for_node()
    submit(cluster, script(mark, "sleep 61 & sleep 62 & wait").node_name(cluster.node))
    assert cluster.wait(lambda: len(with_mark(mark)) >= 3, within=WITHIN)
    cluster.close()
    supervisors = [int(read(f"/proc/{pid}/stat").rpartition(")")[2].split()[1]) for pid in with_mark(mark)]
    process.send_signal(signal.SIGSTOP)  # so that it does not clear up after the supervisor
    for pid in set(supervisors):
        if b"supervisor.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait(WITHIN)
    assert process.stdout is not None
    process.stdout.close()
    assert _soon(lambda: len(with_mark(mark)) == 2)  # its children; the program itself went with its supervisor
    with LocalBackend(fake="a10").start():
        assert _soon(lambda: not with_mark(mark))


def test_folders_of_the_dead_are_cleared_away(own_state: Path, tmp_path: Path) -> None:
    dead = own_state / "seatrial" / "pods" / "4194303-1"
    (dead / "uid" / "main").mkdir(parents=True)
    with LocalBackend(fake="a10").start() as cluster:
        assert cluster.wait(lambda: not dead.exists(), within=WITHIN)


def test_pods_as_docker_containers(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    with engine_at(tmp_path_factory.mktemp("engine")) as url:
        monkeypatch.setenv("DOCKER_HOST", url)
        assert LocalDockerBackend().probe() is None
        with LocalDockerBackend(fake="a10").start() as cluster:
            built = script("boxed", "echo $NVIDIA_VISIBLE_DEVICES; exec sleep 60").gpus(1)
            built.manifest["spec"]["containers"][0]["image"] = IMAGE
            with open_subject(OURS, cluster):
                submit(cluster, built)
                results = reaches(cluster, "boxed", "Running")
            assert results["containerStatuses"][0]["containerID"].startswith("docker://")
            log = cluster.call(Request("GET", f"{PODS}/boxed/log")).body.decode().strip()
            assert log.isdigit()  # the minor of the card that it was promised
            assert len(containers(url)) == 1
        assert not containers(url)


def test_suites_run_to_their_end_and_say_what_they_miss(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "seatrial", "run", "allocation", "isolation", "--backend", "local"]
    done = subprocess.run(
        [*command, "-k", "test_gpu or test_machine", "--report", str(tmp_path / "report")],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "needs nodes that the test adds and removes; backend local has none" in done.stdout
    verdict = "verdict  PASS of what ran: "
    assert f"{verdict}5 passed" in done.stdout or f"{verdict}6 passed" in done.stdout  # six with a real card


def _soon(holds: Any) -> bool:
    deadline = time.monotonic() + WITHIN
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
