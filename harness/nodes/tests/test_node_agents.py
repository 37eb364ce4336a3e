"""The agents against a little API: what they write, when, and what a pod finds in its container."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from seatrial.harness.nodes.fleet import node_manifest
from seatrial.harness.nodes.node_agents import NodeAgents
from seatrial.harness.nodes.runtimes.simulated import SimulatedRuntime, Stages
from seatrial.harness.nodes.tests.little_api import LittleApi
from seatrial.scheduler.api.builders import NodeBuilder, PodBuilder, node, pod
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.device import DEVICE_ALLOCATED

DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
PODS = "/api/v1/namespaces/default/pods"


class Rig:
    """A clock, a little API and the agents on it."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.api = LittleApi(self.clock)
        self.agents = self.start()

    def start(self) -> NodeAgents:
        stages = Stages(start=(1.0, 1.0), stop=(2.0, 2.0))
        agents = NodeAgents(self.api, self.clock, runtime=SimulatedRuntime(self.clock, stages=stages))
        agents.start()
        self.clock.settle()
        return agents

    def restart(self) -> None:
        """A new agent takes the place of one that died."""
        self.agents.stop()
        self.agents = self.start()

    def add(self, *builders: NodeBuilder) -> None:
        for builder in builders:
            self.api.put("/api/v1/nodes", node_manifest(builder.manifest))
        self.clock.settle()

    def bind(self, builder: PodBuilder, to: str, allocated: dict[str, Any] | None = None) -> None:
        if allocated is not None:
            builder.annotation(DEVICE_ALLOCATED, json.dumps(allocated))
        manifest = builder.node_name(to).namespace("default").manifest
        manifest["status"] = {"conditions": [{"type": "PodScheduled", "status": "True"}]}
        self.api.put(PODS, manifest)
        self.clock.settle()

    def fault(self, node: str, *entries: dict[str, Any]) -> None:
        """Set a node's fault script."""
        annotations = {"seatrial.dev/faults": json.dumps(entries)}
        self.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": annotations}})
        self.clock.settle()

    def node(self, name: str) -> dict[str, Any]:
        return self.api.get(f"/api/v1/nodes/{name}")

    def pod(self, name: str) -> dict[str, Any]:
        return self.api.get(f"{PODS}/{name}")

    def device(self, name: str) -> dict[str, Any]:
        return self.api.get(f"{DEVICES}/{name}")

    def printed(self, name: str) -> list[str]:
        return (self.agents.logs("default", name, "main") or b"").decode().splitlines()


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.agents.stop()


def gpu(minor: int, core: int = 100, ratio: int = 100, memory: str = "80Gi") -> dict[str, Any]:
    return {
        "minor": minor,
        "resources": {
            "koordinator.sh/gpu-core": str(core),
            "koordinator.sh/gpu-memory": memory,
            "koordinator.sh/gpu-memory-ratio": str(ratio),
        },
    }


def condition(thing: dict[str, Any], kind: str) -> dict[str, Any]:
    condition: dict[str, Any] = next(item for item in thing["status"]["conditions"] if item["type"] == kind)
    return condition


def test_a_node_is_ready_with_its_devices_resources_and_labels(rig: Rig) -> None:
    rig.add(node("n1").server("dgx-h100").label("pool", "train").taint("dedicated", "train"))

    n1 = rig.node("n1")
    assert condition(n1, "Ready")["status"] == "True"
    assert n1["status"]["allocatable"]["koordinator.sh/gpu"] == "800"
    assert n1["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert n1["metadata"]["labels"]["node.koordinator.sh/gpu-model"] == "H100-80GB-HBM3"
    assert n1["metadata"]["labels"]["pool"] == "train"
    assert n1["spec"]["taints"] == [{"key": "dedicated", "value": "train", "effect": "NoSchedule"}]
    assert [device["type"] for device in rig.device("n1")["spec"]["devices"]] == ["gpu"] * 8 + ["rdma"] * 8
    assert rig.api.has("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1")


def test_a_node_offers_what_device_plugins_of_others_would(rig: Rig) -> None:
    rig.add(node("n1").cpu(4).extended("example.com/fpga", 2).annotation("example.com/rack", "7"))

    n1 = rig.node("n1")
    assert n1["status"]["allocatable"]["example.com/fpga"] == "2"
    assert n1["metadata"]["annotations"]["example.com/rack"] == "7"


def test_ready_is_said_last(rig: Rig) -> None:
    rig.add(node("n1").gpus("a10", 1))
    order = [request.path for request in rig.api.sent if request.method != "GET"]
    assert order.index(DEVICES) < order.index("/api/v1/nodes/n1") < order.index("/api/v1/nodes/n1/status")


def test_a_node_that_names_an_unknown_model_says_so_on_itself(rig: Rig) -> None:
    rig.add(node("n1").gpus("h100", 1))
    ready = condition(rig.node("n1"), "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "FleetEntryRefused")
    assert "near: h100-80g" in ready["message"]


def test_a_device_object_of_an_earlier_life_keeps_what_others_wrote(rig: Rig) -> None:
    rig.api.put(DEVICES, {"metadata": {"name": "n1", "labels": {"hand": "set"}}, "spec": {"devices": []}})
    rig.add(node("n1").gpus("a10", 1))
    labels = rig.device("n1")["metadata"]["labels"]
    assert labels["hand"] == "set"
    assert labels["node.koordinator.sh/gpu-vendor"] == "nvidia"
    assert len(rig.device("n1")["spec"]["devices"]) == 1


def test_a_whole_card_pod_runs_and_sees_its_card_alone(rig: Rig) -> None:
    rig.add(node("n1").gpus("a100-80g", 4))
    rig.bind(pod("a").gpus(1), "n1", {"gpu": [gpu(2)]})
    assert "phase" not in rig.pod("a")["status"]
    rig.clock.advance(1)

    a = rig.pod("a")
    assert a["status"]["phase"] == "Running"
    assert condition(a, "Ready")["status"] == "True"
    assert condition(a, "PodScheduled")["status"] == "True", "a status write leaves others' conditions alone"
    assert a["status"]["containerStatuses"][0]["state"]["running"]
    assert a["status"]["podIP"] != rig.node("n1")["status"]["addresses"][0]["address"]
    printed = rig.printed("a")
    assert "NVIDIA_VISIBLE_DEVICES=2" in printed
    assert "device=/dev/nvidia2" in printed
    assert "device=/dev/nvidia0" not in printed
    assert not [line for line in printed if "libvgpu" in line]
    assert len(rig.api.writes("/pods/a")) == 1, "one write from bound to running"


def test_a_shared_card_pod_gets_hami_around_it(rig: Rig) -> None:
    rig.add(node("n1").gpus("a100-80g", 1))
    rig.bind(pod("a").gpu_share(50).isolated(), "n1", {"gpu": [gpu(0, 50, 50, "40Gi")]})
    rig.clock.advance(1)
    printed = rig.printed("a")
    assert f"CUDA_DEVICE_MEMORY_LIMIT={40 << 30}" in printed
    assert "CUDA_DEVICE_SM_LIMIT=50" in printed
    assert "LD_PRELOAD=/usr/local/vgpu/libvgpu.so" in printed
    assert "mount=/usr/local/vgpu/libvgpu.so" in printed
    assert "mount=/tmp/vgpulock" in printed


def test_the_plugin_chooses_for_a_pod_without_a_promise(rig: Rig) -> None:
    rig.add(node("n1").gpus("a10", 2))
    rig.bind(pod("a").nvidia(1), "n1")
    rig.bind(pod("b").nvidia(1), "n1")
    rig.clock.advance(1)
    assert "NVIDIA_VISIBLE_DEVICES=0" in rig.printed("a")
    assert "NVIDIA_VISIBLE_DEVICES=1" in rig.printed("b")
    granted = rig.pod("b")["status"]["containerStatuses"][0]["allocatedResourcesStatus"]
    assert rig.pod("b")["status"]["containerStatuses"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert granted[0]["name"] == "nvidia.com/gpu"
    assert granted[0]["resources"][0]["resourceID"] == rig.device("n1")["spec"]["devices"][1]["id"]


@pytest.mark.parametrize(
    ("builder", "allocated", "reason", "words"),
    [
        pytest.param(
            pod("a").gpus(1), {"gpu": [gpu(7)]}, "UnexpectedAdmissionError", "gpu 7 is not on", id="no-such-card"
        ),
        pytest.param(pod("a").nvidia(3), None, "OutOfnvidia.com/gpu", "requested: 3", id="more-than-there-are"),
        pytest.param(pod("a").request(cpu=1000), None, "OutOfcpu", "requested: 1000000", id="too-many-cores"),
        pytest.param(
            pod("a").gpu_share(80),
            {"gpu": [gpu(0, 80, 80, "8Gi")]},
            "UnexpectedAdmissionError",
            "50 of 100 koordinator.sh/gpu-core left",
            id="promised-twice",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_kubelets_words(
    rig: Rig, builder: PodBuilder, allocated: dict[str, Any] | None, reason: str, words: str
) -> None:
    rig.add(node("n1").gpus("a10", 2))
    rig.bind(pod("first").gpu_share(50), "n1", {"gpu": [gpu(0, 50, 50, "11Gi")]})
    rig.bind(builder, "n1", allocated)
    rig.clock.advance(5)
    status = rig.pod("a")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", reason)
    assert words in status["message"]
    assert len(rig.api.writes("/pods/a")) == 1, "a refused pod is refused once"


def test_a_deleted_pod_ends_within_its_grace_and_gives_its_card_back(rig: Rig) -> None:
    rig.add(node("n1").gpus("a10", 1))
    rig.bind(pod("a").gpus(1), "n1", {"gpu": [gpu(0, memory="22Gi")]})
    rig.clock.advance(1)
    rig.api.patch(
        f"{PODS}/a", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 1}}
    )
    rig.clock.settle()
    assert rig.api.has(f"{PODS}/a")
    rig.clock.advance(1)
    assert not rig.api.has(f"{PODS}/a"), "grace of one second is shorter than the two that it would have taken"
    rig.bind(pod("b").gpus(1), "n1", {"gpu": [gpu(0, memory="22Gi")]})
    rig.clock.advance(1)
    assert rig.pod("b")["status"]["phase"] == "Running"


def test_a_pod_deleted_by_force_gives_its_card_back(rig: Rig) -> None:
    rig.add(node("n1").gpus("a10", 1))
    rig.bind(pod("a").nvidia(1), "n1")
    rig.clock.advance(1)
    rig.api.drop(f"{PODS}/a")
    rig.clock.settle()
    rig.bind(pod("b").nvidia(1), "n1")
    rig.clock.advance(1)
    assert rig.pod("b")["status"]["phase"] == "Running"


def test_a_new_agent_finds_pods_and_cards_as_they_were(rig: Rig) -> None:
    rig.add(node("n1").gpus("a10", 2))
    rig.bind(pod("a").nvidia(1), "n1")
    rig.bind(pod("b").gpus(1), "n1", {"gpu": [gpu(1, memory="22Gi")]})
    rig.clock.advance(1)
    written = len(rig.api.writes("/pods/"))

    rig.restart()
    rig.clock.advance(5)

    assert len(rig.api.writes("/pods/")) == written, "nothing about running pods is written again"
    assert "NVIDIA_VISIBLE_DEVICES=0" in rig.printed("a")
    rig.bind(pod("c").gpus(1), "n1", {"gpu": [gpu(0, memory="22Gi")]})
    assert rig.pod("c")["status"]["phase"] == "Failed", "the plugin's own choice is still held"


def test_a_failed_card_leaves_the_pool_within_a_second_and_comes_back(rig: Rig) -> None:
    rig.add(node("n1").gpus("a10", 2))
    rig.fault("n1", {"verb": "critical", "device": 1, "xid": 79, "at": 10, "for": 60})
    assert [device["health"] for device in rig.device("n1")["spec"]["devices"]] == [True, True]
    rig.clock.advance(11)
    first, second = rig.device("n1")["spec"]["devices"]
    assert (first["health"], second["health"]) == (True, False)
    assert second["conditions"][0]["reason"] == "Xid79"
    status = rig.node("n1")["status"]
    assert status["allocatable"]["koordinator.sh/gpu"] == "100"
    assert (status["capacity"]["nvidia.com/gpu"], status["allocatable"]["nvidia.com/gpu"]) == ("2", "1")
    rig.clock.advance(60)
    assert [device["health"] for device in rig.device("n1")["spec"]["devices"]] == [True, True]
    assert rig.node("n1")["status"]["allocatable"]["koordinator.sh/gpu"] == "200"


def test_the_last_card_takes_koordinators_names_with_it(rig: Rig) -> None:
    rig.add(node("n1").gpus("a10", 1))
    rig.fault("n1", {"verb": "lost", "device": 0})
    rig.clock.advance(1)
    allocatable = rig.node("n1")["status"]["allocatable"]
    assert not [name for name in allocatable if name.startswith("koordinator.sh/gpu")]
    assert allocatable["nvidia.com/gpu"] == "0"
    rig.api.patch("/api/v1/nodes/n1", {"metadata": {"annotations": {"seatrial.dev/faults": "[]"}}})
    rig.clock.advance(1)
    assert rig.node("n1")["status"]["allocatable"]["koordinator.sh/gpu"] == "100", "an entry taken out heals"


def test_a_frozen_node_neither_acts_nor_renews(rig: Rig) -> None:
    rig.add(node("n1").cpu(4))
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"
    rig.clock.advance(30)
    before = rig.api.get(lease)["spec"]["renewTime"]
    assert before != rig.api.writes("/leases")[0].body
    rig.fault("n1", {"verb": "frozen", "for": 100})
    rig.clock.advance(60)
    frozen_at = rig.api.get(lease)["spec"]["renewTime"]
    rig.clock.advance(30)
    assert rig.api.get(lease)["spec"]["renewTime"] == frozen_at
    rig.clock.advance(30)
    assert rig.api.get(lease)["spec"]["renewTime"] > frozen_at


def test_thousands_of_nodes_share_a_fixed_budget_of_lease_writes(rig: Rig) -> None:
    rig.add(*(node(f"n{number}") for number in range(2000)))
    rig.clock.advance(60)
    before = len(rig.api.writes("/leases/"))
    rig.clock.advance(40)
    assert len(rig.api.writes("/leases/")) - before == pytest.approx(2000, abs=60), "each once in its 40 seconds"


def test_a_write_that_the_server_is_too_busy_for_is_sent_again(rig: Rig) -> None:
    rig.add(node("n1").cpu(4))
    rig.bind(pod("a").request(cpu=1), "n1")
    rig.api.refuse.extend([429, 503])
    rig.clock.advance(5)
    assert rig.pod("a")["status"]["phase"] == "Running"


def test_a_pod_bound_before_its_node_is_known_starts_when_it_is(rig: Rig) -> None:
    rig.bind(pod("a").request(cpu=1), "late")
    rig.add(node("late").cpu(4))
    rig.clock.advance(2)
    assert rig.pod("a")["status"]["phase"] == "Running"


def test_a_removed_node_takes_its_pods_timers_along(rig: Rig) -> None:
    rig.add(node("n1").cpu(4))
    rig.bind(pod("a").request(cpu=1), "n1")
    rig.api.drop("/api/v1/nodes/n1")
    rig.clock.advance(30)
    assert "phase" not in rig.pod("a")["status"]
    assert not rig.api.writes("/pods/a")


def test_a_container_that_ends_makes_its_pod_succeed_and_frees_the_card(rig: Rig) -> None:
    rig.add(node("n1").gpus("a10", 1))
    job = pod("job").nvidia(1)
    job.manifest["spec"]["restartPolicy"] = "Never"
    job.manifest["spec"]["containers"][0]["command"] = ["sh", "-c", "echo done; sleep 5"]
    rig.bind(job, "n1")
    rig.clock.advance(1)
    assert rig.pod("job")["status"]["phase"] == "Running"
    rig.clock.advance(5)
    assert rig.pod("job")["status"]["phase"] == "Succeeded"
    assert rig.agents.logs("default", "job", "main") == b"done\n"
    rig.bind(pod("next").nvidia(1), "n1")
    rig.clock.advance(1)
    assert rig.pod("next")["status"]["phase"] == "Running"


def test_a_vnpu_and_an_smlu_reach_the_container_under_their_own_names(rig: Rig) -> None:
    rig.add(node("npu").server("atlas-800t-a2"), node("mlu").server("mlu370-x8-8"))
    share = {"koordinator.sh/gpu-memory": "16Gi", "koordinator.sh/gpu-memory-ratio": "25", "huawei.com/npu-core": "5"}
    entry = {"minor": 3, "resources": share, "extension": {"gpuSharedResourceTemplate": "vir05_1c_16g"}}
    rig.bind(pod("v"), "npu", {"gpu": [entry]})
    smlu = pod("m").annotation("CAMBRICON_DSMLU_PROFILE", "2_10_4").annotation("CAMBRICON_DSMLU_ASSIGHED", "false")
    rig.bind(smlu, "mlu", {"gpu": [gpu(2, 10, 2, "1Gi")]})
    rig.clock.advance(1)
    assert "ASCEND_VNPU_SPECS=vir05_1c_16g" in rig.printed("v")
    assert "device=/dev/davinci148" in rig.printed("v")
    assert "device=/dev/davinci3" not in rig.printed("v")
    assert rig.pod("m")["metadata"]["annotations"]["CAMBRICON_DSMLU_ASSIGHED"] == "true"
    assert "device=/dev/cambricon_dev2" in rig.printed("m")


def test_a_nic_gives_the_container_its_virtual_function_alone(rig: Rig) -> None:
    rig.add(node("n1").server("dgx-h100"))
    nic = next(
        device for device in rig.device("n1")["spec"]["devices"] if device["type"] == "rdma" and device["minor"] == 1
    )
    bus = nic["vfGroups"][0]["vfs"][2]["busID"]
    entry = {
        "minor": 1,
        "resources": {"koordinator.sh/rdma": "1"},
        "id": nic["id"],
        "extension": {"vfs": [{"minor": -1, "busID": bus}]},
    }
    rig.bind(pod("a"), "n1", {"rdma": [entry]})
    rig.clock.advance(1)
    verbs = [line for line in rig.printed("a") if line.startswith("device=/dev/infiniband/")]
    assert verbs == ["device=/dev/infiniband/rdma_cm", "device=/dev/infiniband/uverbs82"]


def test_a_node_that_wakes_up_catches_up(rig: Rig) -> None:
    """What happened to its pods and cards while it was frozen is done and said at once."""
    rig.add(node("n1").gpus("a10", 1))
    rig.bind(pod("a").request(cpu=1), "n1")
    rig.clock.advance(5)
    rig.fault("n1", {"verb": "frozen"}, {"verb": "lost", "device": 0})
    rig.api.patch(f"{PODS}/a", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    rig.bind(pod("b").request(cpu=1), "n1")
    rig.api.patch("/api/v1/nodes/n1", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})
    rig.clock.advance(60)
    assert rig.api.has(f"{PODS}/a")
    assert "phase" not in rig.pod("b")["status"]
    assert rig.device("n1")["spec"]["devices"][0]["health"] is True, "the hardware was not read again"

    rig.fault("n1", {"verb": "lost", "device": 0})
    assert condition(rig.node("n1"), "Ready")["status"] == "True"
    assert rig.device("n1")["spec"]["devices"][0]["health"] is False
    rig.clock.advance(40)
    assert not rig.api.has(f"{PODS}/a")
    assert rig.pod("b")["status"]["phase"] == "Running"


def test_readiness_gates_keep_a_running_pod_from_being_ready(rig: Rig) -> None:
    """Its containers are ready at once; the pod is when another client has written the condition of each gate."""
    rig.add(node("n1"))
    builder = pod("web")
    builder.manifest["spec"]["readinessGates"] = [
        {"conditionType": "example.com/a"},
        {"conditionType": "example.com/b"},
    ]
    rig.bind(builder, "n1")
    rig.clock.advance(5)
    assert condition(rig.pod("web"), "ContainersReady")["status"] == "True"
    words = condition(rig.pod("web"), "Ready")
    assert (words["status"], words["reason"]) == ("False", "ReadinessGatesNotReady")
    assert 'corresponding condition of pod readiness gate "example.com/b" does not exist.' in words["message"]

    for a, b, ready in (("True", "False", "False"), ("True", "True", "True"), ("Unknown", "True", "False")):
        values = [{"type": "example.com/a", "status": a}, {"type": "example.com/b", "status": b}]
        current_pod = rig.pod("web")
        kept = [each for each in current_pod["status"]["conditions"] if not each["type"].startswith("example.com/")]
        rig.api.put(PODS, {**current_pod, "status": {**current_pod["status"], "conditions": kept + values}})
        rig.clock.advance(1)
        words = condition(rig.pod("web"), "Ready")
        assert (words["status"], "reason" in words, "message" in words) == (ready, ready == "False", ready == "False")
    assert condition(rig.pod("web"), "Ready")["message"] == (
        'the status of pod readiness gate "example.com/a" is not "True", but Unknown'
    )
