"""Whole scheduling decisions on nodes with topology, partition tables and functions."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.device import (
    DEVICE_ALLOCATE_HINT,
    DEVICE_JOINT_ALLOCATE,
    GPU_MODEL_LABEL,
    GPU_PARTITION_POLICY_LABEL,
    GPU_PARTITIONS,
    GPU_VENDOR_LABEL,
    RDMA,
    SECONDARY_PLANNED_LABEL,
    Device,
    DeviceInfo,
    DeviceSpec,
    parse_allocations,
)
from seatrial.scheduler.api.wire import ObjectMeta, ResourceList
from seatrial.scheduler.plugins.deviceshare.tests.machines import FUNCTIONS, JOINT, card, nic, paired, single
from seatrial.scheduler.tests.rig import Rig, profile

SAME_PCIE = JOINT | {"requiredScope": "SamePCIe"}


def machine(rig: Rig, name: str, infos: list[DeviceInfo], *, labels: Any = None, **marks: Any) -> None:
    rig.node(name, gpus=8, more={RDMA: 1000}, labels=labels)
    rig.core.intake.set_device(name, Device(ObjectMeta(name=name, **marks), DeviceSpec(tuple(infos))))


def wishing(builder: PodBuilder, **hints: Any) -> PodBuilder:
    names = {"joint": DEVICE_JOINT_ALLOCATE, "hint": DEVICE_ALLOCATE_HINT}
    for word, value in hints.items():
        builder.annotation(names[word], msgspec.json.encode(value).decode())
    return builder


def minors(rig: Rig, name: str) -> dict[str, list[int]]:
    allocations = parse_allocations(rig.binding(name).annotations)
    return {kind: [entry.minor for entry in entries] for kind, entries in allocations.items()}


def test_a_pod_that_fits_only_after_another_allocation() -> None:
    """The cards that topology prefers have no NIC; once one of them is taken, it prefers others."""
    rig = Rig()
    machine(rig, "n", paired())
    rig.submit(wishing(pod("first").gpus(1).resources({RDMA: 100}), joint=JOINT))
    rig.submit(wishing(pod("three").gpus(3).resources({RDMA: 1}), joint=SAME_PCIE))
    rig.run()
    assert "node(s) Device Joint-Allocate rules violation" in rig.message("three")
    rig.submit(pod("other").gpus(1))
    rig.run()
    assert minors(rig, "other") == {"gpu": [1]}
    rig.clock.advance(1)  # its backoff
    rig.run()
    assert minors(rig, "three") == {"gpu": [4, 5, 6], "rdma": [3, 4]}


def test_new_node_labels_enable_the_partition_table() -> None:
    rig = Rig()
    h800 = {GPU_VENDOR_LABEL: "nvidia", GPU_MODEL_LABEL: "H800"}
    machine(rig, "n", single(), labels=h800)
    rig.submit(pod("a").gpus(3))
    rig.run()
    assert minors(rig, "a") == {"gpu": [0, 1, 2]}
    rig.delete("a")
    rig.node("n", more={RDMA: 1000}, labels=h800 | {GPU_PARTITION_POLICY_LABEL: "Honor"})
    machine(rig, "n", single(), labels=h800 | {GPU_PARTITION_POLICY_LABEL: "Honor"})
    rig.submit(pod("b").gpus(3))
    rig.run()
    assert "1 node(s) Unsupported number of GPU requests" in rig.message("b")
    machine(rig, "n", single(), labels={})
    rig.clock.advance(10)
    rig.run()
    assert rig.where("b") == "n"


def test_labels_alone_are_enough() -> None:
    rig = Rig()
    machine(rig, "n", [card(minor) for minor in range(8)], labels={GPU_MODEL_LABEL: "H20"})
    more = {"koordinator.sh/gpu": 800, "koordinator.sh/gpu-core": 800, "koordinator.sh/gpu-memory-ratio": 800}
    rig.node("n", more={**more}, labels={GPU_MODEL_LABEL: "H20", GPU_PARTITION_POLICY_LABEL: "Honor"})
    rig.submit(pod("b").gpus(3))
    rig.run()
    assert "Unsupported number of GPU requests" in rig.message("b")


def test_an_invalid_table_is_reported_and_ignored() -> None:
    rig = Rig()
    machine(rig, "n", single(), annotations={GPU_PARTITIONS: "?"}, labels=None)
    assert rig.complaints()[-1].startswith("Device n: gpu-partitions is not a partition table: ")
    rig.submit(pod("a").gpus(3))
    rig.run()
    assert rig.where("a") == "n"


@pytest.mark.parametrize(
    ("infos", "shared", "message"),
    [
        pytest.param(paired(), False, "1 Insufficient GPU Devices", id="where-cards-sit-is-known"),
        pytest.param([card(minor) for minor in range(8)], False, "1 Insufficient gpu devices", id="or-not"),
        pytest.param(paired(), True, "1 Insufficient gpu devices", id="nor-does-it-matter-to-slices-of-several"),
    ],
)
def test_the_reason_depends_on_the_method_that_was_tried(infos: list[DeviceInfo], shared: bool, message: str) -> None:
    rig = Rig()
    machine(rig, "n", infos)
    for number in range(8):
        rig.submit(pod(f"there-{number}").gpu_share(30))
        rig.run()
    builder = pod("p").gpus(8)
    if shared:
        many: ResourceList = {"koordinator.sh/gpu.shared": 8, "koordinator.sh/gpu-memory-ratio": 8 * 90}
        rig.node("n", more={RDMA: 1000, **dict.fromkeys(many, 8000)})
        builder = pod("p").resources(many)
    else:
        rig.node("n", more={"koordinator.sh/gpu": 8000, "koordinator.sh/gpu-core": 8000})
        builder = pod("p").resources({"koordinator.sh/gpu": 800})
    rig.submit(builder)
    rig.run()
    assert message in rig.message("p")


def test_missing_well_planned_nics_fail_at_reserve() -> None:
    rig = Rig()
    nics = [info for info in paired() if info.type == "gpu" or info.minor == 1]
    machine(rig, "n", nics, labels=None)
    rig.core.intake.set_device(
        "n", Device(ObjectMeta(name="n", labels={SECONDARY_PLANNED_LABEL: "true"}), DeviceSpec(tuple(nics)))
    )
    rig.submit(wishing(pod("a").gpus(1).resources({RDMA: 100}), joint=JOINT))
    rig.run()
    rig.submit(wishing(pod("b").gpus(1).resources({RDMA: 100}), joint=JOINT))
    rig.run()
    assert (rig.where("a"), rig.where("b")) == ("n", "")
    assert "Insufficient rdma devices" in rig.message("b")


def test_virtual_functions_come_back_with_a_failed_binding() -> None:
    rig = Rig()
    machine(rig, "n", paired())
    for _ in range(2):
        rig.submit(wishing(pod("a").gpus(1).resources({RDMA: 1}), joint=JOINT, hint=FUNCTIONS))
        rig.run(bind=False)
        entry = parse_allocations(rig.binding("a").annotations)["rdma"][0]
        assert entry.extension is not None
        assert [item.bus_id for item in entry.extension.vfs] == ["0000:1f:00.2"]
        rig.core.bind_failed("uid-a", "the network is down", retry=False)


def test_unshareable_models_are_not_shared() -> None:
    refused = {"gpuShareUnsupportedModels": [{"vendor": "nvidia", "model": "V100"}]}
    rig = Rig(profile(pluginConfig=[{"name": "DeviceShare", "args": refused}]))
    rig.node("n", gpus=2, labels={GPU_VENDOR_LABEL: "nvidia", GPU_MODEL_LABEL: "V100"})
    rig.submit(pod("half").gpu_share(50), pod("whole").gpus(1))
    rig.run()
    assert '1 model "V100" of vendor "nvidia" does not support GPU Share' in rig.message("half")
    assert rig.where("whole") == "n"
    rig.node("m", gpus=1, labels={GPU_VENDOR_LABEL: "nvidia", GPU_MODEL_LABEL: "T4"})
    rig.clock.advance(10)
    rig.run()
    assert rig.where("half") == "m"


def test_preemption_clears_a_whole_partition_and_no_more() -> None:
    rig = Rig()
    machine(rig, "n", single(), labels={GPU_MODEL_LABEL: "H800", GPU_PARTITION_POLICY_LABEL: "Honor"})
    for number in range(8):
        rig.submit(pod(f"low-{number}").gpus(1))
        rig.run()
    held = {f"low-{number}": minors(rig, f"low-{number}")["gpu"][0] for number in range(8)}
    rig.submit(pod("high").gpus(4).priority(10))
    rig.run()
    cleared = {held[name] for name in rig.victims()}
    assert cleared in ({0, 1, 2, 3}, {4, 5, 6, 7})
    for name in rig.victims():
        rig.delete(name)
    rig.clock.advance(10)
    rig.run()
    assert set(minors(rig, "high")["gpu"]) == cleared


def test_preemption_frees_virtual_functions() -> None:
    rig = Rig()
    bus = "0000:1f:00"
    infos = [*(info for info in paired() if info.type == "gpu"), nic(1, switch="s0", bus=bus)]
    machine(rig, "n", infos)
    for number in range(4):
        rig.submit(wishing(pod(f"low-{number}").resources({RDMA: 1}), hint=FUNCTIONS))
        rig.run()
    rig.submit(wishing(pod("equal").resources({RDMA: 1}), hint=FUNCTIONS))
    rig.run()
    assert rig.where("equal") == ""
    assert "1 Insufficient rdma devices" in rig.message("equal"), "the card has 96 percent left, but no function"
    rig.submit(wishing(pod("high").resources({RDMA: 1}).priority(10), hint=FUNCTIONS))
    rig.run()
    (victim,) = rig.victims()
    held = parse_allocations(rig.binding(victim).annotations)["rdma"][0].extension
    rig.delete(victim)
    rig.clock.advance(10)
    rig.run()
    assert parse_allocations(rig.binding("high").annotations)["rdma"][0].extension == held
