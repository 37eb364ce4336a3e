"""This machine as a node: what it reads from the kernel and the vendors' libraries, and what its agent publishes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.fake_devices import faults
from seatrial.harness.devices.provider import Missing
from seatrial.harness.devices.rdma import RdmaProvider
from seatrial.harness.devices.tests.boundaries import Boundary, dcmi_library, nvml_object
from seatrial.harness.errors import DeviceError
from seatrial.harness.nodes.local import LocalHardware, LocalMachine, address, facts, this_machine
from seatrial.harness.nodes.local_agent import LocalAgent
from seatrial.harness.nodes.runtimes.simulated import SimulatedRuntime, Stages
from seatrial.harness.nodes.tests.little_api import LittleApi
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.clock import SimClock

DEVICE = "/apis/scheduling.koordinator.sh/v1alpha1/devices/box"
PODS = "/api/v1/namespaces/default/pods"
SIZE = LocalMachine(cpu=16, memory=64 << 30)


@pytest.fixture
def boundary(tmp_path: Path) -> Iterator[Boundary]:
    with nvml_object(tmp_path) as made:
        yield made


@pytest.fixture
def hardware(boundary: Boundary, tmp_path: Path) -> Iterator[LocalHardware]:
    with LocalHardware([boundary.provider(), RdmaProvider(root=tmp_path / "empty")], SIZE) as opened:
        yield opened


class Rig:
    """The agent of node `box`, with everything else simulated."""

    def __init__(self, hardware: LocalHardware, xpu_folder: Path | None = None) -> None:
        self.clock = SimClock()
        self.api = LittleApi(self.clock)
        runtime = SimulatedRuntime(self.clock, stages=Stages(start=(1.0, 1.0)))
        self.agent = LocalAgent(
            self.api,
            self.clock,
            "box",
            hardware,
            runtime,
            run_blocking=lambda ask, answer: answer(ask()),
            annotations={"seatrial.dev/limits": "cgroup v2"},
            xpu_folder=xpu_folder,
        )
        self.agent.start()
        self.clock.settle()

    def node(self) -> dict[str, Any]:
        return self.api.get("/api/v1/nodes/box")

    def healthy(self) -> list[bool]:
        return [device["health"] for device in self.api.get(DEVICE)["spec"]["devices"] if device["type"] == "gpu"]


@pytest.fixture
def rig(hardware: LocalHardware) -> Iterator[Rig]:
    made = Rig(hardware)
    yield made
    made.agent.stop()


def test_the_node_says_what_the_machine_is(rig: Rig) -> None:
    status = rig.node()["status"]
    assert (status["capacity"]["cpu"], status["capacity"]["nvidia.com/gpu"]) == ("16", "8")
    assert status["addresses"][0]["address"] == address()
    assert status["nodeInfo"]["kernelVersion"] == facts()["kernelVersion"]
    assert rig.node()["metadata"]["annotations"] == {"seatrial.dev/limits": "cgroup v2"}
    assert "seatrial.dev/simulated" not in rig.node()["metadata"]["labels"]
    assert len(rig.healthy()) == 8


def test_a_card_that_fails_is_told_within_a_second(rig: Rig, boundary: Boundary) -> None:
    at = boundary.position(2)
    faults.apply(boundary.table, at, "critical", {"xid": 79}, now=1.0)
    assert all(rig.healthy())
    rig.clock.advance(1.0)
    dead = [
        device for device in rig.api.get(DEVICE)["spec"]["devices"] if device["type"] == "gpu" and not device["health"]
    ]
    assert [device["minor"] for device in dead] == [boundary.table.devices[at].minor]
    assert rig.node()["status"]["allocatable"]["nvidia.com/gpu"] == "7"


def test_pods_of_this_node_alone_are_run(rig: Rig) -> None:
    for name, home in (("mine", "box"), ("other", "elsewhere")):
        manifest = pod(name).node_name(home).namespace("default").manifest
        manifest["status"] = {}
        rig.api.put(PODS, manifest)
    rig.clock.advance(2.0)
    mine = rig.api.get(f"{PODS}/mine")["status"]
    assert (mine["phase"], mine["hostIP"]) == ("Running", address())
    assert mine["podIP"].startswith("127.64."), "an address of its own, on this machine alone"
    assert "phase" not in rig.api.get(f"{PODS}/other")["status"]
    assert rig.agent.logs("default", "mine", "") is not None
    assert rig.agent.logs("default", "other", "") is None


def test_a_node_that_is_deleted_ends_its_pods(rig: Rig) -> None:
    manifest = pod("mine").node_name("box").namespace("default").manifest
    manifest["status"] = {}
    rig.api.put(PODS, manifest)
    rig.clock.advance(2.0)
    rig.api.drop("/api/v1/nodes/box")
    rig.clock.advance(2.0)
    assert rig.agent.logs("default", "mine", "") is None


def test_vendors_that_are_not_here_say_why(hardware: LocalHardware, boundary: Boundary) -> None:
    assert set(hardware.missing) == {"mellanox"}
    assert hardware.driver("nvidia").driver
    assert hardware.driver("mellanox").driver == ""
    assert hardware.links()


def test_usage_comes_by_uuid(hardware: LocalHardware, boundary: Boundary) -> None:
    with boundary.table.writing(boundary.table.devices[boundary.position(0)]) as record:
        record.core_use = 63
    usage = hardware.usage()
    first = next(device for device in hardware.devices() if device.index == 0)
    assert usage[first.uuid].core == 63.0
    assert len(usage) == 8


def test_everything_is_read_again_now_and_then(hardware: LocalHardware, boundary: Boundary) -> None:
    assert not any(hardware.look() for _ in range(3))
    faults.apply(boundary.table, boundary.position(0), "critical", {"xid": 79}, now=1.0)
    assert hardware.look()
    assert not any(hardware.look() for _ in range(60))
    assert [device.health.ok for device in hardware.devices()].count(False) == 1


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        pytest.param("MemFree: 1 kB\nMemTotal:       16384 kB\n", 16 << 20, id="a-total-in-kib"),
        pytest.param("MemFree: 1 kB\n", None, id="no-total"),
        pytest.param("MemTotal: much\n", None, id="a-total-that-is-no-number"),
    ],
)
def test_the_machines_size(tmp_path: Path, text: str, memory: int | None) -> None:
    (tmp_path / "meminfo").write_text(text)
    if memory is None:
        with pytest.raises(DeviceError, match="expected a line `MemTotal"):
            this_machine(tmp_path)
    else:
        assert this_machine(tmp_path).memory == memory
        assert this_machine(tmp_path).cpu >= 1


def test_a_provider_that_finds_nothing_is_never_opened(tmp_path: Path) -> None:
    absent = RdmaProvider(root=tmp_path).probe()
    assert isinstance(absent, Missing)
    with LocalHardware([RdmaProvider(root=tmp_path)], SIZE) as opened:
        assert opened.missing == {"mellanox": absent.why}
        assert opened.devices() == ()


def test_a_node_of_npus_is_published_through_the_daemon_s_file(tmp_path: Path) -> None:
    """What the daemon wrote, the agent publishes; a chip that fails is in both within a second."""
    with dcmi_library(tmp_path) as boundary, LocalHardware([boundary.provider()], SIZE) as opened:
        rig = Rig(opened, xpu_folder=tmp_path / "xpus")
        file = tmp_path / "xpus" / "ic-device"
        assert rig.node()["metadata"]["labels"]["node.koordinator.sh/gpu-model"] == "Ascend-910B3"
        assert [info["uuid"] for info in json.loads(file.read_bytes())] == [
            info["id"] for info in rig.api.get(DEVICE)["spec"]["devices"]
        ]
        faults.apply(boundary.table, boundary.position(2), "critical", {}, now=1.0)
        rig.clock.advance(1.0)
        ill = [info["uuid"] for info in json.loads(file.read_bytes()) if not info["status"]["healthy"]]
        assert ill == [device["id"] for device in rig.api.get(DEVICE)["spec"]["devices"] if not device["health"]]
        assert len(ill) == 1
        rig.agent.stop()
        assert not file.exists()


@pytest.mark.parametrize("limits", [{}, {"nvidia.com/gpu": "2"}], ids=["no-card", "two-cards"])
def test_faults_are_told_whatever_pods_hold(rig: Rig, boundary: Boundary, limits: dict[str, str]) -> None:
    """One after the other, with a pod beside them that holds none or several."""
    manifest = pod("mine").node_name("box").namespace("default").manifest
    manifest["spec"]["containers"][0]["resources"] = {"limits": limits}
    manifest["status"] = {}
    rig.api.put(PODS, manifest)
    rig.clock.advance(2.0)
    for ill in (1, 2):
        faults.apply(boundary.table, boundary.position(ill), "critical", {"xid": 79}, now=1.0)
        rig.clock.advance(1.0)
        assert rig.healthy().count(False) == ill


def test_a_plugin_s_pod_says_that_its_card_failed(rig: Rig, boundary: Boundary) -> None:
    """The pod keeps running, as under kubelet; its status names the device that is unhealthy."""
    manifest = pod("mine").gpus(1).node_name("box").namespace("default").manifest
    manifest["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    manifest["status"] = {}
    rig.api.put(PODS, manifest)
    rig.clock.advance(2.0)

    def held() -> tuple[str, str]:
        (status,) = rig.api.get(f"{PODS}/mine")["status"]["containerStatuses"]
        (one,) = status["allocatedResourcesStatus"][0]["resources"]
        return one["resourceID"], one["health"]

    uuid, health = held()
    assert health == "Healthy"
    at = boundary.table.position(uuid)
    assert at is not None
    faults.apply(boundary.table, at, "critical", {"xid": 79}, now=1.0)
    rig.clock.advance(1.0)
    assert held() == (uuid, "Unhealthy")
    assert rig.api.get(f"{PODS}/mine")["status"]["phase"] == "Running"
