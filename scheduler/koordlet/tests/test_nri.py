"""The agent as an NRI plugin, over a real socket: the test plays the runtime, with framing of its own."""

import asyncio
import contextlib
import json
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.scheduler.api.clock import WallClock
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.protobuf import decode, encode
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.koordlet.nri import EVENTS, NriConfig, Plugin
from seatrial.scheduler.koordlet.nri_messages import (
    PLUGIN_SERVICE,
    RUNNING,
    ConfigureRequest,
    ConfigureResponse,
    Container,
    ContainerAdjustment,
    ContainerRequest,
    CreateContainerResponse,
    LinuxContainer,
    LinuxCpu,
    LinuxDevice,
    LinuxMemory,
    LinuxPod,
    LinuxResources,
    Number,
    PodSandbox,
    RegisterPluginRequest,
    Request,
    Response,
    Status,
    SynchronizeRequest,
    UpdatesResponse,
)
from seatrial.scheduler.koordlet.tests.setting import GI, Setting

SPEC = "node.koordinator.sh/extended-resource-spec"
BATCH = (
    '{"containers":{"c":{"limits":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"1Gi"},'
    '"requests":{"kubernetes.io/batch-cpu":"500","kubernetes.io/batch-memory":"1Gi"}}}}'
)
BOUND = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"2-3,6"}'}


class Runtime:
    """The runtime's side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._stream, self._bytes = reader, writer, 1, b""

    async def message(self, connection: int) -> tuple[int, int, bytes]:
        """Stream, type and payload of the next message."""
        while True:
            if len(self._bytes) >= 10:
                size, stream, kind, _ = struct.unpack(">IIBB", self._bytes[:10])
                if len(self._bytes) >= 10 + size:
                    payload, self._bytes = self._bytes[10 : 10 + size], self._bytes[10 + size :]
                    return stream, kind, payload
            number, size = struct.unpack(">II", await self._reader.readexactly(8))
            assert number == connection
            assert size <= 4096, "containerd reads a frame into a buffer of this size"
            self._bytes += await self._reader.readexactly(size)

    def send(self, connection: int, stream: int, kind: int, payload: bytes) -> None:
        """In two frames, the first of which ends within the header."""
        data = struct.pack(">IIBB", len(payload), stream, kind, 0) + payload
        for piece in (data[:7], data[7:]):
            self._writer.write(struct.pack(">II", connection, len(piece)) + piece)

    async def register(self) -> RegisterPluginRequest:
        stream, kind, payload = await self.message(2)
        call = decode(payload, Request)
        assert (stream, kind, call.method) == (1, 1, "RegisterPlugin")
        self.send(2, 1, 2, encode(Response()))
        return decode(call.payload, RegisterPluginRequest)

    async def call(self, method: str, request: Any, kind: type = UpdatesResponse, service: str = PLUGIN_SERVICE) -> Any:
        """The plugin's answer; if it failed, the status."""
        self._stream += 2
        self.send(1, self._stream, 1, encode(Request(service, method, encode(request))))
        stream, type_, payload = await self.message(1)
        assert (stream, type_) == (self._stream, 2)
        response = decode(payload, Response)
        return response.status or decode(response.payload, kind)

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


def pod(kind: str = "besteffort", qos: str = "BE", **annotations: str) -> PodSandbox:
    """The sandbox of the pod p, whose ID is p1."""
    labels = {"koordinator.sh/qosClass": qos} if qos else {}
    folder = f"/kubepods/{kind}/podp".replace("//", "/")
    return PodSandbox("p1", "p", "p", "d", labels, annotations, LinuxPod(folder))


def container(quota: int | None = None, **more: Any) -> Container:
    cpu = None if quota is None else LinuxCpu(quota=Number(quota))
    return Container("c1", "p1", "c", linux=LinuxContainer(LinuxResources(cpu=cpu)), **more)


def with_runtime(
    tmp_path: Path, setting: Setting, act: Callable[["asyncio.Queue[Runtime]"], Awaitable[None]], **config: Any
) -> None:
    """Run the plugin of an agent; `act` gets a runtime for each connection."""

    async def main() -> None:
        runtimes: asyncio.Queue[Runtime] = asyncio.Queue()
        every: list[Runtime] = []

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            every.append(Runtime(reader, writer))
            runtimes.put_nowait(every[-1])

        server = await asyncio.start_unix_server(accept, str(tmp_path / "nri.sock"))
        for informer in setting.agent._informers:
            informer.synced = True
        plugin = Plugin(NriConfig(tmp_path / "nri.sock", backoff=0.01, **config), setting.agent, WallClock())
        plugin.start()
        try:
            await asyncio.wait_for(act(runtimes), 30)
        finally:
            plugin.stop()
            server.close()
            for runtime in every:
                await runtime.close()

    tmp_path.mkdir(exist_ok=True)
    asyncio.run(main())


def test_registration_names_the_plugin_and_its_events(tmp_path: Path) -> None:
    async def act(runtimes: "asyncio.Queue[Runtime]") -> None:
        runtime = await runtimes.get()
        assert await runtime.register() == RegisterPluginRequest("koordlet_nri", "00")
        answer = await runtime.call("Configure", ConfigureRequest("containerd", "v2"), ConfigureResponse)
        assert answer == ConfigureResponse(EVENTS) == ConfigureResponse(0b1000_1001)
        assert (await runtime.call("StateChange", ConfigureRequest())).code == 12
        assert (await runtime.call("Configure", ConfigureRequest(), service="other")).code == 12

    with_runtime(tmp_path, Setting(tmp_path / "root"), act)


@pytest.mark.parametrize(
    ("sandbox", "gates", "ratio", "resources", "score"),
    [
        (
            pod(**{SPEC: BATCH}),
            {},
            "",
            LinuxResources(LinuxMemory(Number(GI)), LinuxCpu(Number(512), Number(100_000))),
            None,
        ),
        (pod("", "LSR", **BOUND), {}, "", LinuxResources(None, LinuxCpu(None, Number(-1), "2-3,6")), None),
        (
            pod("burstable", "LS"),
            {"CPUNormalization": True},
            "1.5",
            LinuxResources(None, LinuxCpu(None, Number(133_334))),
            None,
        ),
        (pod("burstable", "LS"), {}, "1.5", None, None),
        (pod("", "LSR", **BOUND), {"CPUSetAllocator": False}, "", None, None),
        (pod(**{"koordinator.sh/oom-score-adj": "0"}), {"OOMScoreAdj": True}, "", None, Number(0)),
    ],
    ids=["batch", "bound-cpus", "normalized", "normalization-off", "cpuset-off", "oom-score"],
)
def test_a_container_is_made_with_what_the_rounds_would_write(  # noqa: PLR0917
    tmp_path: Path,
    sandbox: PodSandbox,
    gates: dict[str, bool],
    ratio: str,
    resources: LinuxResources | None,
    score: Number | None,
) -> None:
    """HK-5, HK-7, HK-8, HK-12."""
    setting = Setting(tmp_path / "root", gates=gates)
    if ratio:
        annotations = {"node.koordinator.sh/cpu-normalization-ratio": ratio}
        setting.agent._set_node(Node(metadata=ObjectMeta(annotations=annotations)))

    async def act(runtimes: "asyncio.Queue[Runtime]") -> None:
        runtime = await runtimes.get()
        await runtime.register()
        request = ContainerRequest(sandbox, container(200_000))
        answer = await runtime.call("CreateContainer", request, CreateContainerResponse)
        linux = answer.adjust and answer.adjust.linux
        assert (linux and linux.resources, linux and linux.oom_score_adj) == (resources, score)

    with_runtime(tmp_path, setting, act)


PERCENT = {f"koordinator.sh/gpu-{name}": "50" for name in ("core", "memory-ratio")}
ONE = {"minor": 1, "resources": PERCENT}
HALF = {"minor": 1, "resources": {**PERCENT, "koordinator.sh/gpu-memory": "16Gi"}}
WHOLE = [{"minor": minor, "resources": {"koordinator.sh/gpu-memory-ratio": "100"}} for minor in (0, 1)]
HAMI = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}


def devices(labels: dict[str, str], **allocated: Any) -> PodSandbox:
    annotations = {"scheduling.koordinator.sh/device-allocated": json.dumps(allocated)}
    return PodSandbox("p1", "p", "p", "d", labels, annotations, LinuxPod("/kubepods/burstable/podp"))


def made(tmp_path: Path, sandbox: PodSandbox, *gates: str, **config: Any) -> ContainerAdjustment | Status | None:
    """What the runtime is told when it makes the container c, and then, when kubelet updates it, nothing."""
    answers: list[Any] = []

    async def act(runtimes: "asyncio.Queue[Runtime]") -> None:
        runtime = await runtimes.get()
        await runtime.register()
        request = ContainerRequest(sandbox, container())
        answers.append(await runtime.call("CreateContainer", request, CreateContainerResponse))
        for path in (tmp_path / "vgpu").glob("containers/*"):
            (path / "in-use").touch()
        assert await runtime.call("UpdateContainer", request) == UpdatesResponse()
        assert all(any(path.iterdir()) for path in (tmp_path / "vgpu").glob("containers/*"))

    root = tmp_path / "root"
    setting = Setting(root, gates=dict.fromkeys(gates, True), library=tmp_path / "vgpu/libvgpu.so")
    verbs = root / "sys/bus/pci/devices/0000:5e:00.1/infiniband_verbs/uverbs3"
    for folder, numbers in ((verbs, "231:195"), (root / "sys/class/misc/rdma_cm", "10:58")):
        folder.mkdir(parents=True)
        (folder / "dev").write_text(f"{numbers}\n")
    with_runtime(tmp_path, setting, act, **config)
    return getattr(answers[0], "adjust", answers[0])


@pytest.mark.parametrize(
    ("labels", "gpu", "gates", "variables", "mounts"),
    [
        ({}, WHOLE, [], {"NVIDIA_VISIBLE_DEVICES": "0,1"}, []),
        (HAMI, WHOLE, ["HamiCoreVGPUMonitor"], {"NVIDIA_VISIBLE_DEVICES": "0,1"}, []),
        ({}, [HALF], [], {"NVIDIA_VISIBLE_DEVICES": "1"}, []),
        (HAMI, [HALF], [], {}, ["vgpu/libvgpu.so", "/tmp/vgpulock"]),
        (HAMI, [HALF], ["HamiCoreVGPUMonitor"], {}, ["vgpu/libvgpu.so", "/tmp/vgpulock", "vgpu"]),
    ],
    ids=["two-cards", "whole-cards", "no-provider", "hami", "monitored"],
)
def test_a_container_gets_the_cards_of_its_pod(  # noqa: PLR0917
    tmp_path: Path, labels: dict[str, str], gpu: Any, gates: list[str], variables: dict[str, str], mounts: list[str]
) -> None:
    """HK-10, E17; the folder that a monitor reads is made for a new container alone."""
    adjustment = made(tmp_path, devices(labels, gpu=gpu), "GPUEnvInject", *gates)
    assert isinstance(adjustment, ContainerAdjustment)
    if mounts:
        variables = {
            "NVIDIA_VISIBLE_DEVICES": "1",
            "CUDA_DEVICE_MEMORY_LIMIT": "17179869184",
            "CUDA_DEVICE_SM_LIMIT": "50",
            "LD_PRELOAD": str(tmp_path / "vgpu/libvgpu.so"),
        }
    if gates and mounts:
        variables["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = str(tmp_path / "vgpu/p_c.cache")
        assert (tmp_path / "vgpu/containers/p_c").stat().st_mode & 0o777 == 0o777
        assert adjustment.mounts[-1].source == str(tmp_path / "vgpu/containers/p_c")
    assert {each.key: each.value for each in adjustment.env} == variables
    assert [each.destination for each in adjustment.mounts] == [str(tmp_path / mount) for mount in mounts]
    assert {(each.type, each.options) for each in adjustment.mounts} <= {("bind", ("rbind",))}


@pytest.mark.parametrize(
    "nic",
    [
        {"id": "0000:5e:00.1", "minor": 0, "resources": {}},
        {"id": "x", "minor": 0, "resources": {}, "extension": {"vfs": [{"busID": "0000:5e:00.1"}]}},
    ],
    ids=["physical", "virtual"],
)
def test_a_container_gets_the_files_of_its_nics(tmp_path: Path, nic: dict[str, Any]) -> None:
    """HK-11."""
    adjustment = made(tmp_path, devices({}, rdma=[nic]), "RDMADeviceInject")
    assert isinstance(adjustment, ContainerAdjustment)
    assert adjustment.linux is not None
    assert adjustment.linux.devices == (
        LinuxDevice("/dev/infiniband/rdma_cm", "c", 10, 58, Number(0o666)),
        LinuxDevice("/dev/infiniband/uverbs3", "c", 231, 195, Number(0o666)),
    )


@pytest.mark.parametrize(
    ("labels", "allocated", "message"),
    [
        (HAMI, {"gpu": [{"minor": 0, "resources": {}}]}, "gpu memory ratio not found in gpu resource"),
        (HAMI, {"gpu": [ONE]}, "gpu memory not found in gpu resource"),
        ({}, {"gpu": 1}, "Expected `array`, got `int`"),
        ({}, {"rdma": [{"id": "../../x", "minor": 0, "resources": {}}]}, "expected the address of a PCI device"),
        ({}, {"rdma": [{"id": "0000:00:00.0", "minor": 0, "resources": {}}]}, "infiniband_verbs, found none"),
    ],
)
def test_an_allocation_that_cannot_be_given_is_named(
    tmp_path: Path, labels: dict[str, str], allocated: dict[str, Any], message: str
) -> None:
    """D4-6; the container is made without it by default."""
    answer = made(tmp_path, devices(labels, **allocated), "GPUEnvInject", "RDMADeviceInject", fail=True)
    assert isinstance(answer, Status)
    assert answer.message.startswith("pod d/p: ")
    assert message in answer.message
    assert made(tmp_path / "more", devices(labels, **allocated), "GPUEnvInject", "RDMADeviceInject") is None


def test_devices_are_the_runtime_s_unless_a_gate_says_so(tmp_path: Path) -> None:
    assert made(tmp_path, devices(HAMI, gpu=[HALF], rdma=[{"id": "x", "minor": 0, "resources": {}}])) is None


def test_a_pod_has_its_resctrl_group_before_its_containers(tmp_path: Path) -> None:
    """RC-6; with an annotation that cannot be read there is no group, and none is named."""
    setting = Setting(tmp_path / "root", gates={"Resctrl": True})
    setting.root.mount_resctrl()

    async def act(runtimes: "asyncio.Queue[Runtime]") -> None:
        runtime = await runtimes.get()
        await runtime.register()
        for annotation, rdt_class in (('{"llc":{"schemata":{"range":[0,50]}}}', "koordlet-p"), ("{", None)):
            sandbox = pod("burstable", "LS", **{"node.koordinator.sh/resctrl": annotation})
            await runtime.call("RunPodSandbox", ContainerRequest(sandbox))
            request = ContainerRequest(sandbox, container())
            answer = await runtime.call("CreateContainer", request, CreateContainerResponse)
            linux = answer.adjust and answer.adjust.linux
            assert (linux and linux.resources.rdt_class and linux.resources.rdt_class.value) == rdt_class
            folder = setting.root.resctrl / "koordlet-p"
            assert folder.exists() == (rdt_class is not None)
            if rdt_class:
                assert "L3:0=f" in (folder / "schemata").read_text()
                (folder / "schemata").unlink()
                folder.rmdir()

    with_runtime(tmp_path, setting, act)


def test_updates_of_kubelet_keep_what_the_pod_has(tmp_path: Path) -> None:
    """UpdateContainer has kubelet's new resources; Synchronize has what ran before the agent."""

    async def act(runtimes: "asyncio.Queue[Runtime]") -> None:
        runtime = await runtimes.get()
        await runtime.register()
        request = ContainerRequest(pod(**{SPEC: BATCH}), container(), LinuxResources(cpu=LinuxCpu(Number(2))))
        (update,) = (await runtime.call("UpdateContainer", request)).update
        assert (update.container_id, update.ignore_failure) == ("c1", False)
        assert update.linux.resources.cpu == LinuxCpu(Number(512), Number(100_000))
        more = SynchronizeRequest((pod("", "LSR", **BOUND),), (), True)
        assert await runtime.call("Synchronize", more) == UpdatesResponse((), True)
        rest = SynchronizeRequest((), (container(state=RUNNING), Container("c2", "p1", "c", 4)))
        (update,) = (await runtime.call("Synchronize", rest)).update
        assert (update.container_id, update.ignore_failure) == ("c1", True)
        assert update.linux.resources.cpu.cpus == "2-3,6"

    with_runtime(tmp_path, Setting(tmp_path / "root"), act)


def test_the_group_of_a_pod_is_written_before_its_containers(tmp_path: Path) -> None:
    setting = Setting(tmp_path / "root")
    folder = setting.root.pod("besteffort", "p", "other")
    setting.root.pod("", "p")

    async def act(runtimes: "asyncio.Queue[Runtime]") -> None:
        runtime = await runtimes.get()
        await runtime.register()
        assert await runtime.call("RunPodSandbox", ContainerRequest(pod(**{SPEC: BATCH}))) == UpdatesResponse()
        assert setting.file("kubepods/besteffort/podp", "cpu.shares") == "512"
        assert setting.file("kubepods/besteffort/podp", "memory.limit_in_bytes", "memory") == str(GI)
        setting.root._write(setting.root.cgroup / "cpu/kubepods/podp/cpu.cfs_quota_us", "200000")
        await runtime.call("RunPodSandbox", ContainerRequest(pod("", "LSR", **BOUND)))
        assert setting.file("kubepods/podp", "cpu.cfs_quota_us") == "-1"

    assert folder
    with_runtime(tmp_path, setting, act)


@pytest.mark.parametrize("fail", [False, True], ids=["Ignore", "Fail"])
def test_an_unreadable_annotation_costs_one_hook_or_the_container(tmp_path: Path, fail: bool) -> None:
    annotations = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"x"}', SPEC: BATCH}

    async def act(runtimes: "asyncio.Queue[Runtime]") -> None:
        runtime = await runtimes.get()
        await runtime.register()
        request = ContainerRequest(pod(**annotations), container())
        answer = await runtime.call("CreateContainer", request, CreateContainerResponse)
        if fail:
            assert answer.message.startswith("pod d/p: ")
        else:
            assert answer.adjust.linux.resources.cpu == LinuxCpu(Number(512), Number(100_000))

    with_runtime(tmp_path, Setting(tmp_path / "root"), act, fail=fail)


def test_it_connects_again_to_a_runtime_that_was_restarted_or_is_silent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def act(runtimes: "asyncio.Queue[Runtime]") -> None:
        first = await runtimes.get()
        await first.register()
        await first.call("Configure", ConfigureRequest(), ConfigureResponse)
        await first.close()
        second = await runtimes.get()
        await second.register()  # and no word of it any more
        third = await runtimes.get()
        assert await third.register() == RegisterPluginRequest("koordlet_nri", "00")
        third.send(1, 3, 1, b"\xff")  # no message
        await (await runtimes.get()).register()

    with_runtime(tmp_path, Setting(tmp_path / "root"), act, connect_timeout=0.05)
    assert "closed by the runtime" in caplog.text
    assert "no registration within 0.05 s" in caplog.text


def test_a_long_answer_is_cut_into_frames_that_containerd_reads(tmp_path: Path) -> None:
    """More than 4,096 bytes."""
    many = tuple(container(state=RUNNING) for _ in range(300))

    async def act(runtimes: "asyncio.Queue[Runtime]") -> None:
        runtime = await runtimes.get()
        await runtime.register()
        answer = await runtime.call("Synchronize", SynchronizeRequest((pod("", "LSR", **BOUND),), many))
        assert len(answer.update) == 300

    with_runtime(tmp_path, Setting(tmp_path / "root"), act)
