"""Backend kubelet: what a real kubelet hands to containers is what the scheduler allocated. Skipped in words."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from seatrial.harness.clusters.abandoned import CGROUPS, end_abandoned
from seatrial.harness.clusters.kubelet import KubeletBackend, KubeletCluster
from seatrial.harness.clusters.machine_kubelet import PLUGIN, missing_parts
from seatrial.harness.clusters.tests.on_kubelet import PODS, WITHIN, inside, promised, read, remove, run
from seatrial.harness.nodes.faults import FAULTS_ANNOTATION
from seatrial.harness.subject.protocol import OURS, open_subject
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.transport import MERGE_PATCH, Request

GPU = "nvidia.com/gpu"
MISSING = missing_parts()

pytestmark = pytest.mark.skipif(MISSING is not None, reason=f"no real kubelet here: {MISSING}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeletCluster]:
    """A node with four A10 of the stand-in, and our scheduler; afterwards nothing of it is left on the machine."""
    with KubeletBackend(fake="a10:4").start() as cluster:
        folder = str(cluster.machine.folder)
        with open_subject(OURS, cluster):
            yield cluster
        assert len(leftovers(folder, os.getpid())) > 3, "the check below would see nothing"
    assert leftovers(folder, os.getpid()) == set()


def leftovers(folder: str, pid: int) -> set[str]:
    """What a kubelet and its containers leave on a machine: processes, mounts, control groups."""
    parts = {line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines() if folder in line}
    parts |= {str(group) for group in CGROUPS.glob(f"**/seatrial-kubelet-{pid}-*")}
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if folder.encode() in process.read_bytes():
                parts.add(str(process))
    return parts


def allocatable(cluster: KubeletCluster, resource: str) -> str:
    allocatable: str = read(cluster, f"/api/v1/nodes/{cluster.node}")["status"]["allocatable"].get(resource, "")
    return allocatable


def test_a_killed_run_leaves_no_process() -> None:
    """SIGKILL to the run while a kubelet runs: the kernel ends the rest. Control groups go when the next run starts."""
    script = (
        "import time\n"
        "from seatrial.harness.clusters.kubelet import KubeletBackend\n"
        "with KubeletBackend(fake='a10:1').start() as cluster:\n"
        "    print(cluster.machine.folder, flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            folder = process.stdout.readline().strip()
            assert len(leftovers(folder, process.pid)) > 3
        finally:
            process.kill()
    deadline = time.monotonic() + WITHIN
    while any(path.startswith("/proc/") for path in leftovers(folder, process.pid)) and time.monotonic() < deadline:
        time.sleep(0.1)
    end_abandoned()
    assert leftovers(folder, process.pid) == set()


def test_the_container_gets_what_the_scheduler_allocated(cluster: KubeletCluster) -> None:
    """Half a card and two whole cards; five pods of equal size at once cannot be mistaken for each other."""
    process = run(cluster, pod("half").gpu_share(50), pod("two").gpus(2))
    halves = [pod(f"part{number}").gpu_share(20) for number in range(5)]
    process += run(cluster, *halves)
    for one in process:
        name = one["metadata"]["name"]
        lines = inside(cluster, name)
        assert f"NVIDIA_VISIBLE_DEVICES={promised(one)}" in lines, name
        nodes = {line for line in lines if line.startswith("device=/dev/nvidia") and line[-1].isdigit()}
        assert nodes == {f"device=/dev/nvidia{minor}" for minor in promised(one).split(",")}
    assert len({promised(one) for one in process}) > 2, "all on one card: nothing could be mistaken"
    remove(cluster, *(one["metadata"]["name"] for one in process))


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on PATH")
def test_logs_and_exec_through_kubectl(cluster: KubeletCluster) -> None:
    (one,) = run(cluster, pod("talk").gpus(1))
    inside(cluster, "talk")
    assert cluster.endpoint is not None
    command = ["kubectl", "--kubeconfig", str(cluster.endpoint.kubeconfig)]
    expected = f"NVIDIA_VISIBLE_DEVICES={promised(one)}"
    for words in (["logs", "talk"], ["exec", "talk", "--", "env"]):
        done = subprocess.run([*command, *words], capture_output=True, text=True, check=True, timeout=WITHIN)
        assert expected in done.stdout.splitlines()
    remove(cluster, "talk")


def test_a_sick_card_leaves_and_comes_back(cluster: KubeletCluster) -> None:
    """kubelet offers one card less, in all resources; the Device object says why."""
    cluster.inject({"node": cluster.node, "device": 2, "verb": "critical", "xid": 79})
    assert cluster.wait(lambda: allocatable(cluster, GPU) == "3", within=WITHIN)
    assert cluster.wait(lambda: allocatable(cluster, "koordinator.sh/gpu-core") == "300", within=WITHIN)
    device = read(cluster, f"/apis/scheduling.koordinator.sh/v1alpha1/devices/{cluster.node}")
    sick = next(entry for entry in device["spec"]["devices"] if not entry["health"])
    assert (sick["minor"], sick["conditions"][0]["reason"]) == (2, "Xid79")
    process = run(cluster, pod("rest").gpus(3))
    assert promised(process[0]) == "0,1,3"
    assert "NVIDIA_VISIBLE_DEVICES=0,1,3" in inside(cluster, "rest")
    remove(cluster, "rest")
    patch = orjson.dumps({"metadata": {"annotations": {FAULTS_ANNOTATION: None}}})
    cluster.call(Request("PATCH", f"/api/v1/nodes/{cluster.node}", patch, MERGE_PATCH))
    assert cluster.wait(lambda: allocatable(cluster, GPU) == "4", within=WITHIN)


def test_a_restarted_kubelet_gets_the_devices_again(cluster: KubeletCluster) -> None:
    """The plugin registers anew; the running pod keeps its card and the next one gets another."""
    (before,) = run(cluster, pod("stays").gpus(1))
    registered = cluster.machine.log(PLUGIN).count("registered resources=")
    cluster.machine.restart_kubelet()
    assert cluster.wait(
        lambda: cluster.machine.log(PLUGIN).count("registered resources=") == registered + 1, within=WITHIN
    )
    assert cluster.wait(lambda: allocatable(cluster, GPU) == "4", within=WITHIN)
    (after,) = run(cluster, pod("next").gpus(1))
    assert promised(before) != promised(after)
    assert f"NVIDIA_VISIBLE_DEVICES={promised(after)}" in inside(cluster, "next")
    state = read(cluster, f"{PODS}/stays")["status"]
    assert (state["phase"], state["containerStatuses"][0]["restartCount"]) == ("Running", 0)
    remove(cluster, "stays", "next")


def test_a_pod_that_no_scheduler_allocated_for_is_rejected_in_words(cluster: KubeletCluster) -> None:
    """Its nodeName is set by hand: kubelet's own choice might be a card of another pod."""
    manifest = json.loads(json.dumps(pod("forced").gpus(1).manifest))
    manifest["spec"]["nodeName"] = cluster.node
    assert cluster.call(Request("POST", PODS, orjson.dumps(manifest))).code == 201
    assert cluster.wait(lambda: read(cluster, f"{PODS}/forced")["status"].get("phase") == "Failed", within=WITHIN)
    status = read(cluster, f"{PODS}/forced")["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "expected the annotation scheduling.koordinator.sh/device-allocated, found none" in status["message"]
    remove(cluster, "forced")
