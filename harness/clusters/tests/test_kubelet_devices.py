"""Slices and NICs with a real kubelet: what reaches the container is what the annotation says. Skipped in words."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import orjson
import pytest

from seatrial.harness.allocations import parse_allocations
from seatrial.harness.clusters.kubelet import KubeletBackend, KubeletCluster
from seatrial.harness.clusters.machine_kubelet import PLUGIN, missing_parts
from seatrial.harness.clusters.tests.on_kubelet import PODS, WITHIN, inside, read, remove, run
from seatrial.harness.devices.provider import Device
from seatrial.harness.devices.survey import survey
from seatrial.harness.subject.protocol import OURS, open_subject
from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.device import GPU_MEMORY, GPU_SHARED, NPU_CORE, NPU_CPU, NPU_DVPP, DeviceAllocation
from seatrial.scheduler.api.transport import Request

MISSING = missing_parts()
VERBS = "mount=/dev/infiniband/"
TEMPLATE = "vir05_1c_16g"  # a quarter of a 910B3
TEMPLATES = {"huawei-Ascend-910B3": {TEMPLATE: {GPU_MEMORY: "16Gi", NPU_CORE: 5, NPU_CPU: 1, NPU_DVPP: 25}}}

pytestmark = pytest.mark.skipif(MISSING is not None, reason=f"no real kubelet here: {MISSING}")


@contextmanager
def machine(fake: str) -> Iterator[KubeletCluster]:
    """This machine as a node with the devices of a stand-in, and our scheduler."""
    with KubeletBackend(fake=fake).start() as cluster, open_subject(OURS, cluster):
        yield cluster


def test_an_smlu_lives_as_long_as_its_pod() -> None:
    """A container asks for 10 % and 1 GiB of an MLU: kubelet mounts the instance's node, and the plugin removes it."""
    with machine("mlu370-x8:2") as cluster:
        amounts: dict[str, str | int | float] = {
            "koordinator.sh/gpu.shared": 1,
            "koordinator.sh/gpu-core": 10,
            "koordinator.sh/gpu-memory": 1 << 30,
            "cambricon.com/mlu.smlu.vcore": 10,
            "cambricon.com/mlu.smlu.vmemory": 4,
        }
        (one,) = run(cluster, pod("slice").resources(amounts))
        (entry,) = parse_allocations(one["metadata"]["annotations"])["gpu"]
        assert f"mount=/dev/cambricon-caps/cap_dev{entry.minor}_mi1" in inside(cluster, "slice")
        assert cluster.wait(
            lambda: read(cluster, f"{PODS}/slice")["metadata"]["annotations"].get("CAMBRICON_DSMLU_ASSIGHED") == "true",
            within=WITHIN,
        )
        assert cluster.machine.log(PLUGIN).count("slice created") == 1
        remove(cluster, "slice")
        assert cluster.wait(lambda: "slice removed" in cluster.machine.log(PLUGIN), within=WITHIN)


def vnpu(name: str) -> PodBuilder:
    return pod(name).resources({GPU_SHARED: 1, NPU_CORE: 5, NPU_CPU: 1, NPU_DVPP: 25, GPU_MEMORY: "16Gi"})


def test_vnpus_live_as_long_as_their_pods() -> None:
    """Five quarters on two chips: each container sees a vNPU of its own, which the plugin made on the promised chip."""
    with machine("ascend-910b3:2") as cluster:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "gpu-shared-resource-templates"},
            "data": {"data.yaml": json.dumps(TEMPLATES)},
        }
        made = cluster.call(Request("POST", "/api/v1/namespaces/koordinator-system/configmaps", orjson.dumps(body)))
        assert made.code == 201
        names = [f"quarter{number}" for number in range(5)]
        pods = run(cluster, *map(vnpu, names))
        chips: dict[str, int] = {}
        for one in pods:
            name = one["metadata"]["name"]
            (entry,) = parse_allocations(one["metadata"]["annotations"])["gpu"]
            lines = inside(cluster, name)
            assert "ASCEND_RUNTIME_OPTIONS=VIRTUAL" in lines
            assert not any(line.startswith("ASCEND_VNPU_SPECS=") for line in lines), "the runtime would make another"
            (number,) = (line.partition("=")[2] for line in lines if line.startswith("ASCEND_VISIBLE_DEVICES="))
            assert f"mount=/dev/davinci{number}" in lines
            chips[number] = entry.minor
            created = f"slice created pod={one['metadata']['uid']} device={entry.minor} slice={number} kind="
            assert created in cluster.machine.log(PLUGIN)
        assert len(chips) == len(names), f"two pods see one vNPU: {chips}"
        assert sorted(chips.values()).count(0) in {1, 2, 3, 4}, "all on one chip, which has room for four"
        remove(cluster, *names)
        log = cluster.machine.log
        assert cluster.wait(lambda: log(PLUGIN).count("slice removed") == len(names), within=WITHIN)
        assert log(PLUGIN).count("slice created") == len(names)


def verbs_nodes(nics: list[Device], parts: Sequence[DeviceAllocation]) -> set[str]:
    """The mounts of a container with these parts of NICs: those of the NIC, or of its virtual functions."""
    nodes = {"/dev/infiniband/rdma_cm"}
    for part in parts:
        (nic,) = (nic for nic in nics if nic.minor == part.minor)
        buses = {function.bus_id for function in part.extension.vfs} if part.extension is not None else set()
        functions = {f"/dev/infiniband/uverbs{one.uverbs}" for one in nic.functions if one.bus_id in buses}
        assert len(functions) == len(buses)
        nodes |= functions or set(nic.nodes)
    return {f"mount={node}" for node in nodes}


def test_a_container_gets_the_nics_of_its_annotation() -> None:
    """Cards with NICs of their switches, a NIC, virtual functions, and the rest: own verbs nodes and no others."""
    nics = [device for device in survey("dgx-h100")[0] if device.kind == "rdma"]
    with machine("dgx-h100") as cluster:
        joint = [pod(f"joint{number}").gpus(1).rdma(100).jointly("gpu", "rdma", same_pcie=True) for number in range(2)]
        tenants = [pod(f"tenant{number}").rdma(1).hint("rdma", vfSelector={}) for number in range(2)]
        pods = run(cluster, *joint, pod("nic").rdma(100), *tenants)
        parts = {one["metadata"]["name"]: parse_allocations(one["metadata"]["annotations"]) for one in pods}
        used = {part.minor for mine in parts.values() for part in mine["rdma"]}
        (rest,) = run(cluster, pod("rest").rdma(100 * (len(nics) - len(used))))
        parts["rest"] = parse_allocations(rest["metadata"]["annotations"])
        assert used | {part.minor for part in parts["rest"]["rdma"]} == {nic.minor for nic in nics}
        seen: list[str] = []
        for name, mine in parts.items():
            lines = inside(cluster, name)
            mounts = {line for line in lines if line.startswith(VERBS)}
            assert mounts == verbs_nodes(nics, mine["rdma"]), name
            seen += mounts
            cards = ",".join(str(part.minor) for part in mine.get("gpu", ()))
            assert not cards or f"NVIDIA_VISIBLE_DEVICES={cards}" in lines
        assert {line for line in seen if seen.count(line) > 1} == {f"{VERBS}rdma_cm"}, "two pods have one function"
        assert any(part.extension is not None and part.extension.vfs for part in parts["tenant0"]["rdma"])
        remove(cluster, *parts)
