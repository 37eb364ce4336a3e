"""Slices, bytes and NICs over gRPC: what the container gets is what the annotation says, and ends with the pod."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from msgspec.structs import replace

from seatrial.fake_devices import mailbox
from seatrial.harness.deviceplugin.daemon import answer_on_pod
from seatrial.harness.deviceplugin.kubelet import KubeletFolder
from seatrial.harness.deviceplugin.plugin import SLICES_EVERY, DevicePlugin
from seatrial.harness.deviceplugin.slices import FOLDER, PodSlices
from seatrial.harness.deviceplugin.tests.fake_kubelet import FakeKubelet
from seatrial.harness.devices.stand_in import StandIn, stand_in
from seatrial.harness.nodes.local import LocalHardware
from seatrial.harness.nodes.pods import BoundPod, decode_pod
from seatrial.harness.nodes.tests.little_api import LittleApi
from seatrial.harness.nodes.writer import Writer
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.device import (
    DEVICE_ALLOCATED,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    NPU_CORE,
    RDMA,
)
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.wire import to_json

GIB = 1 << 30
VCORE = "cambricon.com/mlu.smlu.vcore"


@dataclass
class Rig:
    """A plugin of a stand-in's cards, a kubelet, and the pods that the API server has."""

    folder: Path
    cards: StandIn
    hardware: LocalHardware
    pods: list[BoundPod] = field(default_factory=list)
    api: LittleApi = field(default_factory=lambda: LittleApi(SimClock()))

    def __post_init__(self) -> None:
        self.kubelet = FakeKubelet(self.folder)
        self.plugin = self.new_plugin()

    def new_plugin(self) -> DevicePlugin:
        kubelet = KubeletFolder(self.folder)

        async def read() -> Sequence[BoundPod]:
            return self.pods

        return DevicePlugin(
            self.hardware.devices,
            kubelet,
            read,
            root=self.folder / "root",
            simulated=True,
            slices=PodSlices(kubelet.plugins / FOLDER, self.hardware, asyncio.to_thread),
            answer=lambda pod, annotations: answer_on_pod(Writer(self.api, SimClock()), "n1", pod, annotations),
        )

    async def up(self, resource: str) -> None:
        """Start kubelet and register all resources."""
        await self.kubelet.start()
        await self.plugin.tick()
        await self.kubelet.until("inventory", lambda: resource in self.kubelet.health)

    def cut(self) -> dict[int, list[str]]:
        """The slices on the cards by minor, as the library says."""
        for _ in range(60):  # every 60th look reads everything
            self.hardware.look()
        return {
            device.minor: [f"{part.template} {part.cores} {part.memory}" for part in device.slices]
            for device in self.hardware.devices()
            if device.slices
        }


def on_rig(model: str, scenario: Callable[[Rig], Awaitable[None]]) -> None:
    """Run a scenario while requests to the libraries are answered."""

    async def attend(rig: Rig) -> None:
        while True:
            rig.cards.attend()
            await asyncio.sleep(mailbox.POLL_INTERVAL)

    async def run(rig: Rig) -> None:
        attending = asyncio.create_task(attend(rig))
        try:
            await scenario(rig)
        finally:
            attending.cancel()
            await rig.plugin.stop()
            await rig.kubelet.stop()

    with private_folder() as folder, stand_in(model) as cards, LocalHardware(cards.providers()) as hardware:
        asyncio.run(run(Rig(folder, cards, hardware)))


def pod(name: str, limits: Mapping[str, int], allocated: Mapping[str, Any], **annotations: str) -> BoundPod:
    """A pod with one container, and the devices that the scheduler wrote into its annotation."""
    container = {"name": "main", "resources": {"limits": {key: str(value) for key, value in limits.items()}}}
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "annotations": {DEVICE_ALLOCATED: json.dumps(allocated), **annotations},
    }
    return decode_pod(to_json({"metadata": metadata, "spec": {"containers": [container]}}))


def vnpu(name: str, minor: int) -> BoundPod:
    resources = {NPU_CORE: 5, "huawei.com/npu-cpu": 1, "huawei.com/npu-dvpp": 25, GPU_MEMORY: 16 * GIB}
    entry = {
        "minor": minor,
        "resources": {**resources, GPU_MEMORY_RATIO: 25},
        "extension": {"gpuSharedResourceTemplate": "vir05_1c_16g"},
    }
    return pod(name, {NPU_CORE: 5, GPU_SHARED: 1}, {"gpu": [entry]})


def test_a_vnpu_of_the_template_on_the_promised_chip_until_the_pod_ends() -> None:
    """Of two chips the second is promised. Two resources mean one vNPU; a restarted plugin knows it."""

    async def scenario(rig: Rig) -> None:
        await rig.up(NPU_CORE)
        rig.pods = [vnpu("a", 1)]
        answers = [await rig.kubelet.admit("a", name, count) for name, count in ((NPU_CORE, 5), (GPU_SHARED, 1))]
        assert rig.cut() == {1: [f"vir05_1c_16g 5 {16 * GIB}"]}
        (part,) = rig.hardware.devices()[1].slices
        for answer in answers:
            assert answer.envs == {"ASCEND_VISIBLE_DEVICES": part.id, "ASCEND_RUNTIME_OPTIONS": "VIRTUAL"}
            assert f"/dev/davinci{part.id}" in [mount.container_path for mount in answer.mounts]
        await rig.plugin.stop()
        rig.plugin = rig.new_plugin()
        rig.pods = []
        for _ in range(SLICES_EVERY):
            await rig.plugin.tick()
        assert rig.cut() == {}

    on_rig("ascend-910b3:2", scenario)


def test_a_chip_without_room_for_the_template_refuses_the_pod() -> None:
    """Four vNPUs fill the chip; the first pod ends, and the next one gets its place at once."""

    async def scenario(rig: Rig) -> None:
        await rig.up(NPU_CORE)
        npu = rig.hardware.devices()[0]
        for _ in range(3):
            await asyncio.to_thread(rig.hardware.slice, npu.uuid, "vir05_1c_16g")  # of another program
        rig.pods = [vnpu("a", 0), vnpu("b", 0)]
        await rig.kubelet.admit("a", NPU_CORE, 5)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rig.kubelet.admit("b", NPU_CORE, 5)
        assert "gpu 0: a slice vir05_1c_16g cannot be made: huawei: dcmi_create_vdevice" in str(caught.value.details())
        rig.pods = [vnpu("b", 0)]
        del rig.kubelet.devices["default", "a", "main"]
        await rig.kubelet.admit("b", NPU_CORE, 5)
        assert len(rig.cut()[0]) == 4

    on_rig("ascend-910b3:1", scenario)


def test_an_smlu_of_percent_and_bytes_is_answered_on_the_pod() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.up(VCORE)
        resources = {GPU_CORE: 10, GPU_MEMORY: GIB, GPU_MEMORY_RATIO: 2}
        rig.pods = [
            pod(
                "a",
                {VCORE: 10, GPU_SHARED: 1},
                {"gpu": [{"minor": 1, "resources": resources}]},
                CAMBRICON_DSMLU_ASSIGHED="false",
                CAMBRICON_DSMLU_PROFILE="1_10_4",
            )
        ]
        answer = await rig.kubelet.admit("a", VCORE, 10)
        written = {"CAMBRICON_DSMLU_ASSIGHED": "true"}
        metadata = rig.pods[0].metadata
        metadata = replace(metadata, annotations={**metadata.annotations, **written})
        rig.pods = [replace(rig.pods[0], metadata=metadata)]
        await rig.kubelet.admit("a", GPU_SHARED, 1)
        assert [line.split()[1:] for line in rig.cut()[1]] == [["10", str(GIB)]]
        assert rig.cut().keys() == {1}
        (part,) = rig.hardware.devices()[1].slices
        assert "/dev/cambricon-caps/cap_dev1_mi1" in part.nodes
        assert set(part.nodes) <= {mount.container_path for mount in answer.mounts}
        sent = [(request.path, json.loads(request.body)["metadata"]["annotations"]) for request in rig.api.sent]
        assert sent == [
            ("/api/v1/namespaces/default/pods/a", written | {"CAMBRICON_DSMLU_PROFILE_INSTANCE": f"1_10_4_{part.id}"}),
            ("/api/v1/nodes/n1", {"cambricon.com/dsmlu.lock": None}),
        ]

    on_rig("mlu370-x8:2", scenario)


def test_bytes_reach_the_container_by_the_resource_that_the_webhook_adds() -> None:
    """`gpu-memory` has no IDs; the webhook adds `gpu.shared: 1` (DEV-R64), which has."""

    async def scenario(rig: Rig) -> None:
        await rig.up(GPU_SHARED)
        entry = {"minor": 1, "resources": {GPU_MEMORY: 8 * GIB, GPU_MEMORY_RATIO: 34}}
        rig.pods = [pod("a", {GPU_MEMORY: 8 * GIB, GPU_SHARED: 1}, {"gpu": [entry]})]
        answer = await rig.kubelet.admit("a", GPU_SHARED, 1)
        assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == "1"

    on_rig("a10:2", scenario)


def test_a_container_gets_the_nic_and_its_function_of_the_annotation() -> None:
    """The promise names the third NIC, and one of its virtual functions by its address."""

    async def scenario(rig: Rig) -> None:
        await rig.up(RDMA)
        nic = next(device for device in rig.hardware.devices() if device.kind == "rdma" and device.minor == 2)
        whole = {"minor": 2, "resources": {RDMA: 100}}
        rig.pods = [pod("a", {RDMA: 100}, {"rdma": [whole]})]
        answer = await rig.kubelet.admit("a", RDMA, 100)
        paths = {mount.container_path for mount in answer.mounts}
        assert paths == {"/dev/infiniband/rdma_cm", *nic.nodes}

    on_rig("dgx-h100", scenario)
