"""Our node agent as an NRI plugin of a real containerd under a real kubelet. Skipped in words."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import orjson
import pytest

from seatrial.harness.clusters.abandoned import CGROUPS
from seatrial.harness.clusters.kubelet import KubeletBackend, KubeletCluster
from seatrial.harness.clusters.machine_kubelet import missing_parts
from seatrial.harness.clusters.tests.on_kubelet import WITHIN, remove, run
from seatrial.harness.processes import program, start_logged
from seatrial.harness.subject.protocol import OURS, open_subject
from seatrial.scheduler.api.builders import pod

BATCH = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}


def why_not() -> str | None:
    """Why a container cannot be changed by NRI here."""
    missing = missing_parts()
    if missing is not None:
        return f"no real kubelet here: {missing}"
    if (CGROUPS / "cgroup.controllers").exists():
        return "the test reads files of cgroup v1"
    done = subprocess.run([shutil.which("containerd") or "", "--version"], capture_output=True, text=True, check=False)
    version = re.search(r"\bv?(\d+)\.\d+\.", done.stdout)
    if version is None or int(version[1]) < 2:
        return f"expected containerd 2 or later, which has NRI switched on, found {done.stdout.strip()!r}"
    return None


MISSING = why_not()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeletCluster]:
    """A node with our scheduler and our agent, whose rounds come too late to be what the test sees."""
    with KubeletBackend(fake="a10:1").start() as cluster, open_subject(OURS, cluster), ExitStack() as cleanup:
        assert cluster.endpoint is not None
        folder = cluster.machine.folder
        options = {
            "--node-name": cluster.node,
            "--kubeconfig": cluster.endpoint.kubeconfig,
            "--cgroup-parent": re.search(r"cgroupRoot: /(\S+)", (folder / "kubelet.yaml").read_text())[1],  # type: ignore[index]
            "--runtime-hooks-nri-socket-path": folder / "run/nri/nri.sock",
            "--feature-gates": "BECPUSuppress=false,OOMScoreAdj=true,GPUEnvInject=true,HamiCoreVGPUMonitor=true",
            "--hami-core-library-directory-path": folder / "vgpu/libvgpu.so",
        }
        command = [*program("seatrial.scheduler.koordlet"), "--enable-nri-runtime-hook"]
        command += [str(word) for option in options.items() for word in option]
        (folder / "vgpu").mkdir()
        (folder / "vgpu/libvgpu.so").touch()
        log = folder / "koordlet.log"
        process = start_logged(command, log, cleanup)
        assert cluster.wait(
            lambda: "NRI: plugin of containerd" in log.read_text() or process.poll() is not None, within=WITHIN
        )
        assert "NRI: plugin of containerd" in log.read_text(), log.read_text()
        yield cluster


@pytest.fixture
def lock() -> Iterator[Path]:
    """HAMi-core's folder of locks, which nodes with it have."""
    path = Path("/tmp/vgpulock")
    there = path.exists()
    path.mkdir(exist_ok=True)
    yield path
    if not there:
        path.rmdir()


def test_a_batch_container_starts_with_its_limits(cluster: KubeletCluster) -> None:
    """The runtime's own specification of the container has them: nobody has written them afterwards."""
    spec = {"containers": {"main": {"requests": BATCH, "limits": BATCH}}}
    one = (
        pod("batch")
        .label("koordinator.sh/qosClass", "BE")
        .annotation("node.koordinator.sh/extended-resource-spec", orjson.dumps(spec).decode())
        .annotation("koordinator.sh/oom-score-adj", "777")
    )
    (body,) = run(cluster, one)
    name = body["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    bundle = cluster.machine.folder / f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{name}/config.json"
    config = orjson.loads(bundle.read_bytes())
    resources = config["linux"]["resources"]
    assert (resources["cpu"]["shares"], resources["cpu"]["quota"]) == (512, 50_000)
    assert resources["memory"]["limit"] == 64 << 20
    assert config["process"]["oomScoreAdj"] == 777
    uid = body["metadata"]["uid"]
    (group,) = CGROUPS.glob(f"memory/seatrial-kubelet-*/**/pod{uid}/{name}")
    assert (group / "memory.limit_in_bytes").read_text().strip() == str(64 << 20)
    remove(cluster, "batch")


def test_a_container_is_made_with_its_part_of_a_card(cluster: KubeletCluster, lock: Path) -> None:
    """As Koordinator's scheduler writes it; the pod requests none, so that a device plugin adds nothing."""
    amounts = {f"koordinator.sh/gpu-{name}": text for name, text in {"memory-ratio": "50", "memory": "8Gi"}.items()}
    cards = {"gpu": [{"minor": 3, "resources": amounts}]}
    one = (
        pod("cards")
        .label("koordinator.sh/gpu-isolation-provider", "HAMi-core")
        .annotation("scheduling.koordinator.sh/device-allocated", orjson.dumps(cards).decode())
    )
    (body,) = run(cluster, one)
    name = body["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    bundle = cluster.machine.folder / f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{name}/config.json"
    config = orjson.loads(bundle.read_bytes())
    assert {"NVIDIA_VISIBLE_DEVICES=3", f"CUDA_DEVICE_MEMORY_LIMIT={8 << 30}"} <= set(config["process"]["env"])
    library = f"{cluster.machine.folder}/vgpu/libvgpu.so"
    sources = {each["destination"]: each["source"] for each in config["mounts"]}
    monitored = f"{cluster.machine.folder}/vgpu/containers/{body['metadata']['uid']}_main"
    assert sources.items() >= {library: library, str(lock): str(lock), str(Path(library).parent): monitored}.items()
    remove(cluster, "cards")
