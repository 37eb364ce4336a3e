"""Slice templates of vendors: DEV-E13."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.core import ConfigMap
from seatrial.scheduler.api.device import (
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_MODEL_LABEL,
    GPU_SHARED,
    GPU_VENDOR_LABEL,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    Device,
    DeviceInfo,
    DeviceSpec,
    DeviceTopology,
    parse_allocations,
)
from seatrial.scheduler.api.quantity import Amounts
from seatrial.scheduler.api.wire import ObjectMeta, ResourceList
from seatrial.scheduler.plugins.deviceshare.slices import SliceRegistry
from seatrial.scheduler.tests.rig import Rig

SOURCE = "koordinator-system/gpu-shared-resource-templates"
HUAWEI = {GPU_VENDOR_LABEL: "huawei", GPU_MODEL_LABEL: "Ascend-310P"}


def size(memory: int, core: int, cpu: int, dvpp: int | None) -> ResourceList:
    allocatable: ResourceList = {GPU_MEMORY: f"{memory}Gi", NPU_CORE: core, NPU_CPU: cpu}
    return allocatable if dvpp is None else allocatable | {NPU_DVPP: dvpp}


SIZES = {
    "vir01": size(3, 1, 1, 12),
    "vir02": size(6, 2, 2, 25),
    "vir02_1c": size(6, 2, 1, 25),
    "vir04": size(12, 4, 4, 50),
    "vir04_3c": size(12, 4, 3, 50),
    "vir04_3c_ndvpp": size(12, 4, 3, None),
    "vir04_4c_dvpp": size(12, 4, 4, 100),
}


def config_map(sizes: Any = None) -> ConfigMap:
    text = msgspec.json.encode({"huawei-Ascend-310P": sizes or SIZES}).decode()  # JSON is YAML
    return ConfigMap(data={"data.yaml": text})


def npus(cards: int) -> list[DeviceInfo]:
    """Cards of 24 GiB, each on a switch of its own."""
    each: ResourceList = {GPU_MEMORY: "24Gi", GPU_MEMORY_RATIO: 100, NPU_CORE: 8, NPU_CPU: 7, NPU_DVPP: 100}
    return [
        DeviceInfo(
            "gpu",
            minor,
            f"NPU-{minor}",
            health=True,
            resources=each,
            topology=DeviceTopology(0, 0, f"s{minor}", f"0000:{minor}"),
        )
        for minor in range(cards)
    ]


def ascend(rig: Rig, *, labels: dict[str, str] | None = None, cards: int = 8) -> None:
    plenty: ResourceList = {GPU_MEMORY: "192Gi", GPU_SHARED: 800, NPU_CORE: 64, NPU_CPU: 56, NPU_DVPP: 800}
    rig.node("n", more={**plenty, GPU_MEMORY_RATIO: 800}, labels=labels or {})
    rig.core.intake.set_device("n", Device(ObjectMeta(name="n"), DeviceSpec(tuple(npus(cards)))))


def ask(rig: Rig, name: str, allocatable: ResourceList) -> None:
    rig.submit(pod(name).resources({GPU_SHARED: 1, **allocatable}))
    rig.run()


def got(rig: Rig, name: str) -> tuple[int, str, object]:
    (one,) = parse_allocations(rig.binding(name).annotations)["gpu"]
    template = one.extension.gpu_shared_resource_template if one.extension else ""
    return one.minor, template, one.resources[GPU_MEMORY_RATIO]


@pytest.mark.parametrize(
    ("used", "allocatable", "want"),
    [
        pytest.param(1, size(3, 1, 1, 12), (0, "vir01", "12"), id="beside-another-slice"),
        pytest.param(1, size(12, 4, 4, 100), (1, "vir04_4c_dvpp", "50"), id="not-beside-one-that-has-half-the-dvpp"),
        pytest.param(0, size(12, 4, 3, None), (0, "vir04_3c_ndvpp", "50"), id="without-dvpp"),
    ],
)
def test_slices_are_named(used: int, allocatable: ResourceList, want: tuple[int, str, str]) -> None:
    rig = Rig()
    rig.core.intake.set_config_map(SOURCE, config_map())
    ascend(rig, labels=HUAWEI)
    for number in range(used):
        ask(rig, f"there-{number}", SIZES["vir04"])
    ask(rig, "p", allocatable)
    assert got(rig, "p") == want


@pytest.mark.parametrize(
    ("used", "labels", "allocatable", "message"),
    [
        pytest.param(2, HUAWEI, size(12, 4, 4, 100), "Insufficient GPU Devices", id="no-card-has-all-its-dvpp"),
        pytest.param(0, {}, size(12, 4, 4, 100), "no matched GPU shared resource template", id="a-node-of-no-model"),
        pytest.param(0, HUAWEI, size(6, 2, 3, 25), "no matched GPU shared resource template", id="no-such-size"),
    ],
)
def test_no_slice(used: int, labels: dict[str, str], allocatable: ResourceList, message: str) -> None:
    rig = Rig()
    rig.core.intake.set_config_map(SOURCE, config_map())
    ascend(rig, labels=labels, cards=2)
    for number in range(used):
        ask(rig, f"there-{number}", size(12, 4, 4, 50))
        ask(rig, f"more-{number}", size(3, 1, 1, 12))
    ask(rig, "p", allocatable)
    assert message in rig.message("p")


def test_whole_cards_and_slices_of_other_things_have_no_sizes() -> None:
    rig = Rig()
    ascend(rig, labels=HUAWEI)
    rig.submit(pod("whole").resources({NPU_CORE: 16, GPU_MEMORY_RATIO: 200}))
    rig.submit(pod("memory").resources({GPU_MEMORY: "5Gi"}))
    rig.run()
    gpu = parse_allocations(rig.binding("whole").annotations)["gpu"]
    assert [(entry.minor, entry.resources[NPU_CORE], entry.extension) for entry in gpu] == [
        (0, "8", None),
        (1, "8", None),
    ]
    assert got(rig, "memory")[1] == ""


def test_two_names_for_one_size_are_not_written() -> None:
    rig = Rig()
    rig.core.intake.set_config_map(SOURCE, config_map({"one": size(3, 1, 1, 12), "other": size(3, 1, 1, 12)}))
    ascend(rig, labels=HUAWEI)
    ask(rig, "p", size(3, 1, 1, 12))
    assert got(rig, "p") == (0, "", "12")


def test_pods_wait_for_their_size_to_be_named() -> None:
    rig = Rig()
    ascend(rig, labels=HUAWEI)
    ask(rig, "p", SIZES["vir01"])
    assert "no matched GPU shared resource template" in rig.message("p")
    rig.core.intake.set_config_map(SOURCE, config_map())
    rig.clock.advance(1)
    rig.run()
    assert got(rig, "p")[1] == "vir01"
    rig.core.intake.set_config_map(SOURCE, None)
    ask(rig, "q", SIZES["vir01"])
    assert rig.where("q") == ""


REQUEST: Amounts = {GPU_MEMORY: 3 << 30, NPU_CORE: 1, NPU_CPU: 1, NPU_DVPP: 12}


@pytest.mark.parametrize("text", ["]", "huawei-Ascend-310P: [vir01]", "a-b: {x: {koordinator.sh/gpu-memory: lots}}"])
def test_an_invalid_config_map_changes_nothing(text: str) -> None:
    registry = SliceRegistry()
    assert registry.replace(SOURCE, config_map()) == (True, [])
    changed, (complaint,) = registry.replace(SOURCE, ConfigMap(data={"data.yaml": text}))
    assert not changed
    assert complaint.startswith(f"ConfigMap {SOURCE}: data.yaml: ")
    assert registry.named(SOURCE, REQUEST) == (("huawei-Ascend-310P", "vir01"),)
    assert registry.replace(SOURCE, config_map()) == (False, [])
    assert registry.replace(SOURCE, None) == (True, [])
    assert registry.named(SOURCE, REQUEST) == ()
