"""Packing and spreading between cards and between nodes, by arguments (DEV-E11, DEV-E12)."""

import numpy as np
import pytest

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.device import (
    DEVICE_ALLOCATE_HINT,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    RDMA,
    Device,
    DeviceInfo,
    DeviceSpec,
    parse_allocations,
)
from seatrial.scheduler.config import Configuration
from seatrial.scheduler.framework.extension_points import ByMaximum
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.plugins.deviceshare.args import DeviceShareArgs
from seatrial.scheduler.plugins.deviceshare.gpus import Policy
from seatrial.scheduler.plugins.deviceshare.plugin import DeviceShare
from seatrial.scheduler.plugins.deviceshare.scoring import Scorer, StrategyType
from seatrial.scheduler.plugins.deviceshare.shares import Share
from seatrial.scheduler.plugins.deviceshare.tests.machines import HALF, ask, card, chosen, nic, state, whole
from seatrial.scheduler.tests.rig import Rig, profile


def arguments(strategy: str) -> Configuration:
    args = {"scoringStrategy": {"type": strategy}}
    return profile(pluginConfig=[{"name": "DeviceShare", "args": args}])


@pytest.mark.parametrize(
    ("strategy", "used", "want"),
    [
        pytest.param("LeastAllocated", {0: 50, 1: 50}, 2, id="least-takes-an-empty-card"),
        pytest.param("MostAllocated", {2: 50, 3: 50}, 2, id="most-takes-a-card-in-use"),
        pytest.param("MostAllocated", {1: 20, 3: 40}, 3, id="most-takes-the-fullest"),
        pytest.param("LeastAllocated", {0: 40, 1: 20, 2: 30, 3: 30}, 1, id="least-takes-the-emptiest"),
    ],
)
def test_between_cards(strategy: StrategyType, used: dict[int, int], want: int) -> None:
    have = state([card(minor) for minor in range(4)], cards=used)
    assert chosen(have, ask(HALF), Policy(Scorer(strategy))) == {"gpu": [want]}


def test_between_nics() -> None:
    have = state([nic(minor) for minor in range(3)], nics={1: 50})
    assert chosen(have, ask({RDMA: 50}), Policy(Scorer("MostAllocated"))) == {"rdma": [1]}
    assert chosen(have, ask({RDMA: 50}), Policy(Scorer("LeastAllocated"))) == {"rdma": [0]}


@pytest.mark.parametrize(("strategy", "want"), [("LeastAllocated", "empty"), ("MostAllocated", "busy")])
def test_between_nodes(strategy: str, want: str) -> None:
    rig = Rig(arguments(strategy))
    rig.node("busy", gpus=2, cpu="128")  # equal cpu scores
    rig.node("empty", gpus=2)
    rig.submit(pod("there").gpu_share(50).select({"kubernetes.io/hostname": "busy"}))
    rig.node("busy", gpus=2, cpu="128", labels={"kubernetes.io/hostname": "busy"})
    rig.run()
    assert rig.where("there") == "busy"
    rig.submit(pod("p").gpu_share(50))
    rig.run()
    assert rig.where("p") == want


def test_weights_decide_which_card_is_emptier() -> None:
    """One card has its memory allocated, the other its cores; the weights decide which counts as emptier."""
    have = state([card(0), card(1)])
    full_of_memory = have.moved(have_shares(0, GPU_MEMORY_RATIO), 1)
    crowded = full_of_memory.moved(have_shares(1, GPU_CORE), 1)
    request = ask({GPU_CORE: 10, GPU_MEMORY_RATIO: 10})
    assert chosen(crowded, request, Policy(Scorer(weights=((GPU_CORE, 1),)))) == {"gpu": [0]}
    assert chosen(crowded, ask({GPU_CORE: 10, GPU_MEMORY_RATIO: 10}), Policy(Scorer())) == {"gpu": [1]}
    weighed = DeviceShareArgs().policy().scorer.weights
    assert dict(weighed) == dict.fromkeys((GPU_MEMORY_RATIO, GPU_MEMORY, RDMA, "koordinator.sh/fpga"), 1)


def have_shares(minor: int, name: str) -> list[Share]:
    return [Share("gpu", minor, ((name, 60),))]


def test_a_nodes_score_is_the_sum_over_types() -> None:
    """Cards of 1000 percent with 25 used and a NIC of 1000 with 50 used: 94 and 92."""
    rig = Rig()
    rig.node("n")
    card_of_ten = DeviceInfo(
        "gpu", 0, health=True, resources={GPU_CORE: 1000, GPU_MEMORY_RATIO: 1000, GPU_MEMORY: "160Gi"}
    )
    nic_of_ten = DeviceInfo("rdma", 0, health=True, resources={RDMA: 1000})
    plugin = DeviceShare(rig.core.handle)
    plugin.devices.set_device("n", Device(spec=DeviceSpec((card_of_ten, nic_of_ten))))
    taken = ((GPU_CORE, 25), (GPU_MEMORY, 4 << 30), (GPU_MEMORY_RATIO, 25))
    plugin.devices.assign("n", "u", (Share("gpu", 0, taken), Share("rdma", 0, ((RDMA, 50),))))
    cycle = CycleState()
    current_pod = rig.pod(pod("p").resources({GPU_CORE: 50, GPU_MEMORY_RATIO: 50, RDMA: 25}))
    assert plugin.pre_filter(cycle, current_pod).ok
    info = rig.core.cache.find("n")
    assert info is not None
    assert plugin.score(cycle, current_pod, info) == 94 + 92


@pytest.mark.parametrize(
    ("raw", "want"), [([10], [100]), ([200, 10], [100, 5]), ([0], [0])], ids=["one", "two", "nothing"]
)
def test_scores_are_normalised_to_100(raw: list[int], want: list[int]) -> None:
    rows = np.array([raw], np.int64)
    assert DeviceShare.normalizer.apply(rows, rows.max(axis=1, keepdims=True))[0].tolist() == want
    assert isinstance(DeviceShare.normalizer, ByMaximum)


def test_hinted_devices_alone_are_scored() -> None:
    """Both nodes are alike in sum; the labelled cards are in use on one, the other cards on the other."""
    rig = Rig(arguments("MostAllocated"))
    hint = '{"gpu":{"selector":{"matchLabels":{"bin":"a"}}}}'
    for name in ("m", "n"):
        rig.node(name, gpus=4)
        infos = tuple(
            DeviceInfo("gpu", minor, health=True, labels={"bin": "ab"[minor % 2]}, resources=card(0).resources)
            for minor in range(4)
        )
        rig.core.intake.set_device(name, Device(spec=DeviceSpec(infos)))
    for name, minor in (("m", 1), ("n", 0)):
        text = f'{{"gpu":[{{"minor":{minor},"resources":{{"{GPU_CORE}":"50","{GPU_MEMORY_RATIO}":"50"}}}}]}}'
        rig.running(
            pod(f"on-{name}").gpu_share(50).annotation("scheduling.koordinator.sh/device-allocated", text), name
        )
    rig.submit(pod("p").gpu_share(50).annotation(DEVICE_ALLOCATE_HINT, hint))
    rig.run()
    assert rig.where("p") == "n"
    assert parse_allocations(rig.binding("p").annotations)["gpu"][0].minor == 0


def test_whole_cards_are_not_scored_where_topology_is_known() -> None:
    infos = [card(minor, switch="s") for minor in range(3)]
    for strategy in ("MostAllocated", "LeastAllocated"):
        assert chosen(state(infos), ask(whole(2)), Policy(Scorer(strategy))) == {"gpu": [0, 1]}
