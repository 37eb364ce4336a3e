"""The REST views of a node's devices."""

from typing import Any

import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.device import DEVICE_ALLOCATED, Device, DeviceSpec
from seatrial.scheduler.api.wire import ObjectMeta, to_plain
from seatrial.scheduler.plugins.deviceshare.cache import DeviceCache
from seatrial.scheduler.plugins.deviceshare.summary import summaries, summary_of
from seatrial.scheduler.plugins.deviceshare.tests.machines import paired
from seatrial.scheduler.tests.rig import Rig

CORE, MEMORY, RATIO = (f"koordinator.sh/gpu-{name}" for name in ("core", "memory", "memory-ratio"))
CARD = {CORE: "100", MEMORY: "80Gi", RATIO: "100"}
HALF = {CORE: "50", MEMORY: "40Gi", RATIO: "50"}
NOTHING = {CORE: "0", MEMORY: "0", RATIO: "0"}


def node_summary(rig: Rig, name: str = "n") -> dict[str, Any]:
    summary = summary_of(DeviceCache.of(rig.core.handle), rig.core.cache, name)
    assert summary is not None
    plain: dict[str, Any] = to_plain(summary)
    return plain


def placed(rig: Rig, *pod: PodBuilder) -> None:
    for item in pod:
        rig.submit(item)
        rig.run()


def test_an_unused_node() -> None:
    rig = Rig()
    rig.node("n", gpus=2)
    assert node_summary(rig) == {
        "deviceTotal": {CORE: "200", MEMORY: "160Gi", RATIO: "200"},
        "deviceFree": {CORE: "200", MEMORY: "160Gi", RATIO: "200"},
        "deviceUsed": {},
        "deviceTotalDetail": {"gpu": {"0": CARD, "1": CARD}},
        "deviceFreeDetail": {"gpu": {"0": CARD, "1": CARD}},
        "deviceUsedDetail": {},
        "allocateSet": {},
    }


def test_holders_of_devices() -> None:
    rig = Rig()
    rig.node("n", gpus=2)
    placed(rig, pod("whole").gpus(1), pod("half").gpu_share(50))
    results = node_summary(rig)
    assert results["allocateSet"] == {"gpu": {"default/whole": {"0": CARD}, "default/half": {"1": HALF}}}
    assert results["deviceUsed"] == {CORE: "150", MEMORY: "120Gi", RATIO: "150"}
    assert results["deviceFree"] == HALF
    assert results["deviceUsedDetail"] == {"gpu": {"0": CARD, "1": HALF}}
    assert results["deviceFreeDetail"] == {"gpu": {"0": NOTHING, "1": HALF}}


def test_two_pods_on_one_card_add_up() -> None:
    rig = Rig()
    rig.node("n", gpus=1)
    placed(rig, pod("a").gpu_share(50), pod("b").gpu_share(50))
    results = node_summary(rig)
    assert results["allocateSet"]["gpu"] == {"default/a": {"0": HALF}, "default/b": {"0": HALF}}
    assert results["deviceUsedDetail"] == {"gpu": {"0": CARD}}
    rig.delete("a")
    assert node_summary(rig)["deviceUsedDetail"] == {"gpu": {"0": HALF}}
    rig.delete("b")
    assert node_summary(rig)["allocateSet"] == {}


def test_types_are_kept_apart_and_summed_together() -> None:
    rig = Rig()
    rig.node("n", gpus=8, more={"koordinator.sh/rdma": 400})
    rig.core.intake.set_device("n", Device(ObjectMeta(name="n"), DeviceSpec(tuple(paired()))))
    placed(rig, pod("a").gpus(2).rdma(100).jointly("gpu", "rdma"))
    results = node_summary(rig)
    assert results["deviceTotal"]["koordinator.sh/rdma"] == "400"
    assert results["deviceUsed"] == {CORE: "200", MEMORY: "160Gi", RATIO: "200", "koordinator.sh/rdma": "100"}
    assert list(results["deviceTotalDetail"]["rdma"]) == ["1", "2", "3", "4"]
    assert results["allocateSet"]["rdma"] == {"default/a": {"1": {"koordinator.sh/rdma": "100"}}}


def test_an_unhealthy_card_is_listed_without_amounts() -> None:
    rig = Rig()
    rig.node("n", gpus=2)
    placed(rig, pod("a").gpus(1))
    rig.device("n", 2, sick=(0,))
    results = node_summary(rig)
    assert results["deviceTotalDetail"] == {"gpu": {"0": {}, "1": CARD}}
    assert results["deviceFreeDetail"] == {"gpu": {"0": {}, "1": CARD}}
    assert results["deviceUsedDetail"] == {"gpu": {"0": CARD}}, "its pod still has it"


@pytest.mark.parametrize(
    "cards", [pytest.param(1, id="a-card-that-is-listed-no-more"), pytest.param(None, id="a-device-object-that-went")]
)
def test_used_amounts_outlive_the_object(cards: int | None) -> None:
    rig = Rig()
    rig.node("n", gpus=2)
    placed(rig, pod("a").gpus(2))
    if cards is None:
        rig.core.intake.set_device("n", None)
    else:
        rig.device("n", cards)
    results = node_summary(rig)
    assert results["deviceUsedDetail"] == {"gpu": {"0": CARD, "1": CARD}}
    assert results["deviceTotalDetail"]["gpu"]["1"] == {}
    assert results["deviceFreeDetail"]["gpu"]["1"] == {}
    assert results["allocateSet"]["gpu"]["default/a"].keys() == {"0", "1"}


def test_minors_in_order_of_their_numbers() -> None:
    rig = Rig()
    rig.node("n", gpus=12)
    assert list(node_summary(rig)["deviceTotalDetail"]["gpu"]) == [str(number) for number in range(12)]


def test_all_nodes_by_name_and_no_missing_node() -> None:
    rig = Rig()
    for name in ("n2", "n1"):
        rig.node(name, gpus=1)
    rig.node("plain")
    share = '{"gpu":[{"minor":3,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory-ratio":"50"}}]}'
    rig.running(pod("a").gpu_share(50).annotation(DEVICE_ALLOCATED, share), "early")
    devices = DeviceCache.of(rig.core.handle)
    results = summaries(devices, rig.core.cache)
    assert list(results) == ["early", "n1", "n2"]
    assert results["early"].allocate_set == {"gpu": {"default/a": {"3": {CORE: "50", RATIO: "50"}}}}
    assert summary_of(devices, rig.core.cache, "plain") is None
