"""Our driver of claims with a real kubelet: restarts and failures. `suites/dra/test_machine.py` has the rest."""

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from seatrial.harness.clusters.kubelet import KubeletBackend, KubeletClaimsBackend, KubeletCluster
from seatrial.harness.clusters.machine_kubelet import PLUGIN, missing_parts
from seatrial.harness.clusters.tests.on_kubelet import PODS, WITHIN, inside, read, remove
from seatrial.harness.devices.stand_in import stand_in
from seatrial.harness.nodes.faults import FAULTS_ANNOTATION
from seatrial.harness.nodes.slices import CLASSES, SLICES, classes
from seatrial.harness.nodes.slices import slices as node_slices
from seatrial.harness.subject.protocol import OURS, open_subject
from seatrial.scheduler.api.builders import PROBE_COMMAND, PROBE_IMAGE
from seatrial.scheduler.api.transport import MERGE_PATCH, Request


def containerd_without_cdi() -> str | None:
    """Why containerd passes no CDI devices to containers: it does since 1.7."""
    program = shutil.which("containerd") or ""
    text = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"\b(\d+)\.(\d+)\.", text)
    if version is None or (int(version[1]), int(version[2])) < (1, 7):
        return f"expected containerd 1.7 or later, which knows CDI, found {text.strip()!r}"
    return None


CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
EXAMPLE = "dra-example-kubeletplugin"
NVIDIAS = "gpu-kubelet-plugin"
MISSING = missing_parts() or containerd_without_cdi()

pytestmark = pytest.mark.skipif(MISSING is not None, reason=f"no real kubelet here: {MISSING}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeletCluster]:
    """A node with four A10 of the stand-in, and our scheduler."""
    with KubeletClaimsBackend(fake="a10:4").start() as cluster, open_subject(OURS, cluster):
        yield cluster


def claim(cluster: KubeletCluster, name: str, **request: Any) -> None:
    """Create a claim with the request `gpu`."""
    exactly = {"deviceClassName": "gpu.nvidia.com", **request}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    assert cluster.call(Request("POST", CLAIMS, orjson.dumps(body))).code == 201


def start(cluster: KubeletCluster, name: str, claim: str) -> None:
    """Create a pod whose container `main` uses a claim and whose container `other` uses none."""
    containers: list[dict[str, Any]] = [
        {"name": each, "image": PROBE_IMAGE, "imagePullPolicy": "Never", "command": PROBE_COMMAND}
        for each in ("main", "other")
    ]
    containers[0]["resources"] = {"claims": [{"name": "cards"}]}
    spec = {"containers": containers, "resourceClaims": [{"name": "cards", "resourceClaimName": claim}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    def created() -> bool:
        return cluster.call(Request("POST", PODS, orjson.dumps(body))).code in {201, 409}

    assert cluster.wait(created, within=WITHIN)


def runs(cluster: KubeletCluster, name: str) -> None:
    assert cluster.wait(lambda: read(cluster, f"{PODS}/{name}")["status"].get("phase") == "Running", within=WITHIN), (
        read(cluster, f"{PODS}/{name}")["status"],
        cluster.machine.log(PLUGIN),
    )


def events(cluster: KubeletCluster, name: str) -> str:
    """The messages of a pod's events."""
    items = read(cluster, f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}")["items"]
    return "\n".join(item["message"] for item in items)


def waits_with(cluster: KubeletCluster, name: str, *parts: str) -> None:
    """Wait until kubelet has said in an event of the pod why it does not start it."""
    seen = lambda: all(part in events(cluster, name) for part in parts)  # noqa: E731
    assert cluster.wait(seen, within=WITHIN), events(cluster, name)


def drop(cluster: KubeletCluster, *names: str) -> None:
    """Delete the pods and claims of these names; nothing of them stays in the API or on the node."""
    remove(cluster, *names)
    for name in names:
        assert cluster.call(Request("DELETE", f"{CLAIMS}/{name}")).ok

    def gone() -> bool:
        codes = {cluster.call(Request("GET", f"{CLAIMS}/{name}")).code for name in names}
        return codes == {404} and not prepared(cluster)

    assert cluster.wait(gone, within=WITHIN), (prepared(cluster), cluster.machine.log(PLUGIN))


def cdi(cluster: KubeletCluster) -> Path:
    return cluster.machine.folder / "run" / "cdi"


def prepared(cluster: KubeletCluster) -> list[str]:
    """The CDI files of claims; drivers name them by UIDs."""
    return [path.name for path in cdi(cluster).glob("k8s.*_*-*")]


def slices(cluster: KubeletCluster, driver: str = "gpu.nvidia.com") -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = read(cluster, f"{SLICES}?fieldSelector=spec.nodeName={cluster.node}")["items"]
    return [entry for entry in entries if entry["spec"]["driver"] == driver]


def taints(cluster: KubeletCluster) -> dict[str, list[tuple[str, str, str]]]:
    """Key, value and effect of the taints of devices that have some."""
    devices = [device for each in slices(cluster) for device in each["spec"]["devices"]]
    return {
        device["name"]: [(taint["key"], taint["value"], taint["effect"]) for taint in device["taints"]]
        for device in devices
        if "taints" in device
    }


def test_a_claim_that_two_pods_use_is_prepared_once(cluster: KubeletCluster) -> None:
    claim(cluster, "shared")
    for name in ("first", "second"):
        start(cluster, name, "shared")
        runs(cluster, name)
    assert cluster.machine.log(PLUGIN).count(" prepared driver=gpu.nvidia.com claim=default/shared") == 1
    remove(cluster, "first")
    start(cluster, "shared", "shared")
    runs(cluster, "shared")
    assert len(prepared(cluster)) == 1
    remove(cluster, "second")
    drop(cluster, "shared")


def test_a_driver_that_vanishes_delays_pods_and_loses_nothing(cluster: KubeletCluster) -> None:
    """SIGKILL; then a damaged checkpoint. A pod that runs keeps its card, and one that came meanwhile starts."""
    claim(cluster, "before")
    start(cluster, "before", "before")
    runs(cluster, "before")
    cluster.machine.kill_plugin()
    claim(cluster, "during")
    start(cluster, "during", "during")
    waits_with(cluster, "during", "Failed to prepare dynamic resources")
    checkpoint = cluster.machine.folder / "lib" / "kubelet" / "plugins" / "gpu.nvidia.com" / "prepared.json"
    checkpoint.write_bytes(b"{")
    cluster.machine.start_plugin()
    runs(cluster, "during")
    devices = [
        result["device"]
        for name in ("before", "during")
        for result in read(cluster, f"{CLAIMS}/{name}")["status"]["allocation"]["devices"]["results"]
    ]
    assert len(set(devices)) == 2
    assert len(prepared(cluster)) == 2
    assert "expected the prepared claims, found" in cluster.machine.log(PLUGIN)
    drop(cluster, "before", "during")


def test_slices_that_kubelet_deletes_come_back(cluster: KubeletCluster) -> None:
    """It does so when it starts (DRA-R151)."""
    before = {entry["metadata"]["uid"] for entry in slices(cluster)}
    cluster.machine.restart_kubelet()

    def new() -> bool:
        now = slices(cluster)
        return bool(now) and not before & {entry["metadata"]["uid"] for entry in now}

    assert cluster.wait(new, within=WITHIN), cluster.machine.log(PLUGIN)
    claim(cluster, "after")
    start(cluster, "after", "after")
    runs(cluster, "after")
    drop(cluster, "after")


def test_a_card_that_fails_has_a_taint_until_it_is_well(cluster: KubeletCluster) -> None:
    """The pod that has it keeps running, and its status says what kubelet knows of the card's health."""
    claim(cluster, "all", allocationMode="All")
    start(cluster, "all", "all")
    runs(cluster, "all")
    cluster.inject({"node": cluster.node, "device": 2, "verb": "critical", "xid": 79})
    tainted = [("gpu.nvidia.com/unhealthy", "Xid79", "NoSchedule")]
    assert cluster.wait(lambda: list(taints(cluster).values()) == [tainted], within=WITHIN), taints(cluster)

    def sick() -> list[str]:
        (main,) = (
            status for status in read(cluster, f"{PODS}/all")["status"]["containerStatuses"] if status["name"] == "main"
        )
        return [entry["health"] for each in main.get("allocatedResourcesStatus", ()) for entry in each["resources"]]

    assert cluster.wait(lambda: sorted(sick()) == ["Healthy"] * 3 + ["Unhealthy"], within=WITHIN), sick()
    patch = orjson.dumps({"metadata": {"annotations": {FAULTS_ANNOTATION: None}}})
    assert cluster.call(Request("PATCH", f"/api/v1/nodes/{cluster.node}", patch, MERGE_PATCH)).ok
    assert cluster.wait(lambda: not taints(cluster), within=WITHIN), taints(cluster)
    drop(cluster, "all")


def test_a_cdi_file_that_cannot_be_written_is_in_the_events(cluster: KubeletCluster) -> None:
    """A folder has its name. A pod that waits can be deleted; another one starts once the folder is gone."""
    folders = []
    for name in ("late", "never"):
        claim(cluster, name)
        uid = read(cluster, f"{CLAIMS}/{name}")["metadata"]["uid"]
        folders.append(cdi(cluster) / f"k8s.gpu.nvidia.com-claim_{uid}.json")
        folders[-1].mkdir()
        start(cluster, name, name)
        waits_with(cluster, name, "CDI folder /var/run/cdi: expected one that can be written")
    remove(cluster, "never")
    for folder in folders:
        folder.rmdir()
    runs(cluster, "late")
    assert cluster.call(Request("DELETE", f"{CLAIMS}/never")).ok
    drop(cluster, "late")


def test_a_device_that_is_not_here_is_in_the_events(cluster: KubeletCluster) -> None:
    """An allocation of another writer. The pod can be deleted."""
    claim(cluster, "odd")
    body = read(cluster, f"{CLAIMS}/odd")
    result = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": cluster.node, "device": "gpu-99"}
    body["status"] = {"allocation": {"devices": {"results": [result]}}}
    assert cluster.call(Request("PUT", f"{CLAIMS}/odd/status", orjson.dumps(body))).ok
    start(cluster, "odd", "odd")
    waits_with(cluster, "odd", "device gpu-99 of driver gpu.nvidia.com is not on this node")
    drop(cluster, "odd")


def test_a_driver_of_another_project_prepares_claims_beside_ours(cluster: KubeletCluster) -> None:
    """The unmodified kubelet plugin of dra-example-driver, with the DeviceClass of its chart and the pod of its demo
    basic-resourceclaimtemplate (kubernetes-sigs/dra-example-driver@v0.4.0)."""
    program = shutil.which(EXAMPLE)
    if program is None:
        pytest.skip(f"{EXAMPLE}: not found on PATH; `.ci/scheduler-programs` builds it")
    spec = {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.example.com"},
        "spec": spec,
    }
    assert cluster.call(Request("POST", CLASSES, orjson.dumps(body))).code == 201
    folders = ["--cdi-root=/var/run/cdi", f"--kubeconfig={cluster.machine.kubeconfig}"]
    cluster.machine.start_program(EXAMPLE, [program, *folders, f"--node-name={cluster.node}", "--num-devices=3"])
    assert cluster.wait(lambda: bool(slices(cluster, "gpu.example.com")), within=WITHIN), cluster.machine.log(EXAMPLE)
    claim(cluster, "example", deviceClassName="gpu.example.com", count=2)
    start(cluster, "example", "example")
    runs(cluster, "example")
    results = read(cluster, f"{CLAIMS}/example")["status"]["allocation"]["devices"]["results"]
    names = {result["device"] for result in results}
    lines = inside(cluster, "example")
    assert len(names) == 2
    assert {f"GPU_DEVICE_{name.removeprefix('gpu-')}={name}" for name in names} == {
        line for line in lines if re.fullmatch(r"GPU_DEVICE_\d+=.*", line)
    }
    assert not any(line.startswith("GPU_DEVICE_") for line in inside(cluster, "example", "other"))
    drop(cluster, "example")


def write_driver_root(root: Path, libraries: Path, version: str) -> None:
    """What NVIDIA's driver looks for: the library, a program nvidia-smi that it only has to find, and device nodes."""
    for folder in ("usr/bin", "usr/lib64", "dev", "cdi", "plugins", "registry"):
        (root / folder).mkdir(parents=True)
    (root / "usr/lib64/libnvidia-ml.so.1").symlink_to(libraries / "libnvidia-ml.so.1")
    (root / f"usr/lib64/libcuda.so.{version}").touch()
    (root / "usr/bin/nvidia-smi").symlink_to("/bin/true")
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"):
        os.mknod(root / "dev" / name, stat.S_IFCHR | 0o666, os.makedev(1, 3))  # of /dev/null


def by_name(entries: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The devices of slices."""
    devices = {device["name"]: device for each in entries for device in each["spec"]["devices"]}
    for device in devices.values():
        for name in ("pcieRoot", "numaNode"):  # of the machine's /sys, which the program reads where the kernel has it
            device["attributes"].pop(f"resource.kubernetes.io/{name}", None)
    return devices


def test_nvidias_driver_publishes_and_prepares_the_cards_of_the_stand_in(tmp_path: Path) -> None:
    """The unmodified kubelet plugin of NVIDIA/k8s-dra-driver-gpu, whose devices are those that our driver publishes."""
    program = shutil.which(NVIDIAS)
    if program is None:
        pytest.skip(f"{NVIDIAS}: not found on PATH; docs/claims.md says how it is built")
    with stand_in("a10:2") as cards, KubeletBackend(fake="").start() as cluster, open_subject(OURS, cluster):
        assert cards.libraries is not None
        with cards.providers()[0] as provider:
            devices, driver = provider.devices(), provider.driver()
        write_driver_root(tmp_path, cards.libraries, driver.driver)
        folders = {
            "cdi-root": "/var/run/cdi",
            "nvidia-driver-root": tmp_path,
            "container-driver-root": tmp_path,
            "nvidia-cdi-hook-path": "/bin/true",
            "kubeconfig": cluster.machine.kubeconfig,
            "node-name": cluster.node,
            "namespace": "default",
            "image-name": "none",
            "healthcheck-port": -1,
        }
        cluster.machine.start_program(NVIDIAS, [program, *(f"--{name}={value}" for name, value in folders.items())])
        assert cluster.wait(lambda: bool(slices(cluster)), within=WITHIN), cluster.machine.log(NVIDIAS)
        (ours,) = node_slices(cluster.node, "", {"nvidia": devices}, lambda _: driver, 1, way="whole")
        assert by_name(slices(cluster)) == by_name([ours])
        for body in classes(["nvidia"]):
            assert cluster.call(Request("POST", CLASSES, orjson.dumps(body))).code == 201
        claim(cluster, "one")
        start(cluster, "one", "one")
        assert cluster.wait(lambda: read(cluster, f"{PODS}/one")["status"].get("phase") == "Running", within=WITHIN), (
            events(cluster, "one"),
            cluster.machine.log(NVIDIAS),
        )
        (result,) = read(cluster, f"{CLAIMS}/one")["status"]["allocation"]["devices"]["results"]
        card = f"device=/dev/nvidia{result['device'].removeprefix('gpu-')}"
        assert [line for line in inside(cluster, "one") if re.fullmatch(r"device=/dev/nvidia\d+", line)] == [card]
        assert not any("nvidia" in line for line in inside(cluster, "one", "other"))
        drop(cluster, "one")
