"""Allocation of cards and its annotation: DEV-E4, DEV-E11 and DEV-E12."""

from typing import Any

import pytest

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.device import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    RDMA,
    DeviceInfo,
    parse_allocations,
)
from seatrial.scheduler.api.quantity import Amounts
from seatrial.scheduler.plugins.deviceshare.allocator import allocate, fill_memory, verdict
from seatrial.scheduler.plugins.deviceshare.gpus import Policy
from seatrial.scheduler.plugins.deviceshare.request import DeviceRequest
from seatrial.scheduler.plugins.deviceshare.scoring import Scorer
from seatrial.scheduler.plugins.deviceshare.shares import Share
from seatrial.scheduler.plugins.deviceshare.states import Choice, DeviceState, StateCache
from seatrial.scheduler.tests.rig import Rig, profile

GIB = 1 << 30


def state(
    cards: int, *, memory: int = 8, sick: tuple[int, ...] = (), used: dict[int, int] | None = None
) -> DeviceState:
    """`cards` with the given GiB each, minors from 1; `used` percent of some."""
    states = StateCache()
    infos = [
        DeviceInfo(
            "gpu",
            minor,
            health=minor not in sick,
            resources={GPU_CORE: 100, GPU_MEMORY_RATIO: 100, GPU_MEMORY: f"{memory}Gi"},
        )
        for minor in range(1, cards + 1)
    ]
    template, wrong = states.template(infos)
    assert not wrong
    shares = [
        Share(
            "gpu",
            minor,
            tuple({GPU_CORE: percent, GPU_MEMORY_RATIO: percent, GPU_MEMORY: memory * GIB * percent // 100}.items()),
        )
        for minor, percent in (used or {}).items()
    ]
    return states.untouched(template).moved(shares, 1)


def minors(result: object) -> list[int]:
    assert isinstance(result, Choice), result
    return [share.minor for share in result.holding.shares]


HALF: Amounts = {GPU_CORE: 50, GPU_MEMORY_RATIO: 50}


@pytest.mark.parametrize(
    ("have", "ask", "scorer", "want"),
    [
        pytest.param(state(4, used={1: 50, 2: 50}), HALF, Scorer(), [3], id="least-allocated-takes-an-empty-card"),
        pytest.param(
            state(4, used={3: 50, 4: 50}), HALF, Scorer("MostAllocated"), [3], id="most-allocated-fills-up-a-card"
        ),
        pytest.param(state(2, sick=(1,)), HALF, Scorer(), [2], id="a-sick-card-is-passed-over"),
        pytest.param(
            state(4, used={2: 10}), {GPU_CORE: 200, GPU_MEMORY_RATIO: 200}, Scorer(), [1, 3], id="whole-cards"
        ),
        pytest.param(
            state(4, used={1: 60}), {GPU_MEMORY: 4 * GIB}, Scorer("MostAllocated"), [2], id="bytes-that-do-not-fit"
        ),
        pytest.param(
            state(4, used={1: 50}), {GPU_MEMORY: 4 * GIB}, Scorer("MostAllocated"), [1], id="bytes-that-just-fit"
        ),
    ],
)
def test_cards_chosen(have: DeviceState, ask: Amounts, scorer: Scorer, want: list[int]) -> None:
    request = DeviceRequest.of(ask)
    assert request is not None
    assert minors(allocate(have, request, Policy(scorer))) == want


def test_two_halves_are_not_a_whole() -> None:
    request = DeviceRequest.of({GPU_CORE: 100, GPU_MEMORY_RATIO: 100})
    assert request is not None
    allocation = allocate(state(2, used={1: 50, 2: 50}), request, Policy())
    assert not isinstance(allocation, Choice)
    assert allocation.message == "Insufficient gpu devices"
    assert allocation.rejected


def after(have: DeviceState, *requests: Amounts) -> DeviceState:
    """The state after these requests in turn; each must get devices."""
    for amounts in requests:
        request = DeviceRequest.of(amounts)
        assert request is not None
        allocation = allocate(have, request, Policy())
        assert isinstance(allocation, Choice), amounts
        have = allocation.after
    return have


@pytest.mark.parametrize(
    ("before", "percent"),
    [
        pytest.param([{GPU_MEMORY: 10 * GIB}], 79, id="20.8-percent"),
        pytest.param([{GPU_MEMORY: GIB}] * 3, 93, id="three-times-2.1-percent"),
        pytest.param([{GPU_MEMORY_RATIO: 33}, {GPU_MEMORY: 10 * GIB}], 46, id="percent-and-bytes"),
        pytest.param([{GPU_MEMORY_RATIO: 33}, {GPU_MEMORY_RATIO: 33}], 34, id="percent-alone-loses-nothing"),
        pytest.param([{GPU_MEMORY: 12 * GIB}], 75, id="bytes-that-are-whole-percent"),
    ],
)
def test_percent_that_is_free_is_free_in_bytes_too(before: list[Amounts], percent: int) -> None:
    """Bytes become percent rounded down. A later request in percent gets no bytes that another pod holds."""
    there = after(state(1, memory=48), *before)
    for ask, fits in ((percent, True), (percent + 1, False)):
        request = DeviceRequest.of({GPU_MEMORY_RATIO: ask})
        assert request is not None
        assert verdict(there, request, Policy()).ok is fits, ask
        allocation = allocate(there, request, Policy())
        assert isinstance(allocation, Choice) is fits, ask
    used = dict(zip(there.template.totals[0], after(there, {GPU_MEMORY_RATIO: percent}).used[0], strict=True))
    assert used[GPU_MEMORY] <= 48 * GIB


@pytest.mark.parametrize(
    ("amounts", "want"),
    [
        pytest.param({GPU_CORE: 50, GPU_MEMORY_RATIO: 50}, {GPU_MEMORY: 16 * GIB}, id="bytes-from-percent"),
        pytest.param({GPU_CORE: 50, GPU_MEMORY: 16 * GIB}, {GPU_MEMORY_RATIO: 50}, id="percent-from-bytes"),
        pytest.param({GPU_MEMORY: 16 * GIB, GPU_MEMORY_RATIO: 60}, {}, id="both-given"),
        pytest.param({GPU_MEMORY: 1 * GIB}, {GPU_MEMORY_RATIO: 3}, id="percent-is-cut-not-rounded"),
    ],
)
def test_memory_is_written_in_bytes_and_percent(amounts: Amounts, want: Amounts) -> None:
    filled = dict(amounts)
    fill_memory(filled, {GPU_MEMORY: 32 * GIB, GPU_MEMORY_RATIO: 100})
    assert filled == amounts | want


@pytest.mark.parametrize(
    ("strategy", "total", "free", "ask", "want"),
    [
        ("LeastAllocated", (100, 16), (100, 16), {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}, 50),
        ("LeastAllocated", (200, 32), (200, 32), {GPU_CORE: 50, GPU_MEMORY_RATIO: 50}, 87),
        ("LeastAllocated", (100, 16), (75, 12), {GPU_CORE: 50, GPU_MEMORY_RATIO: 50}, 50),
        ("LeastAllocated", (100, 16), (75, 12), {GPU_CORE: 50, GPU_MEMORY: 8 * GIB}, 50),
        ("MostAllocated", (100, 16), (75, 12), {GPU_CORE: 50, GPU_MEMORY_RATIO: 50}, 50),
    ],
)
def test_node_score(strategy: Any, total: tuple[int, int], free: tuple[int, int], ask: Amounts, want: int) -> None:
    def amounts(ratio: int, memory: int) -> Amounts:
        return {GPU_CORE: ratio, GPU_MEMORY_RATIO: ratio, GPU_MEMORY: memory * GIB}

    assert Scorer(strategy).score(amounts(*total), amounts(*free), ask) == want


def test_the_node_score_adds_up_the_types() -> None:
    gpu = Scorer().score(
        {GPU_MEMORY_RATIO: 1000, GPU_MEMORY: 160 * GIB},
        {GPU_MEMORY_RATIO: 975, GPU_MEMORY: 156 * GIB},
        {GPU_MEMORY_RATIO: 50},
    )
    rdma = Scorer().score({RDMA: 1000}, {RDMA: 950}, {RDMA: 25})
    assert (gpu, rdma) == (94, 92)


def test_the_annotation_has_koordinators_format() -> None:
    rig = Rig()
    rig.node("n", gpus=2)
    rig.submit(pod("p").gpu_share(50))
    rig.run()
    annotation = rig.binding("p").annotations["scheduling.koordinator.sh/device-allocated"]
    assert annotation == (
        '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"40Gi",'
        '"koordinator.sh/gpu-memory-ratio":"50"},"id":"GPU-n-0"}]}'
    )
    assert parse_allocations({"scheduling.koordinator.sh/device-allocated": annotation})["gpu"][0].minor == 0


def test_two_cards_are_in_one_list() -> None:
    rig = Rig()
    rig.node("n", gpus=2)
    rig.submit(pod("p").gpus(2))
    rig.run()
    allocations = parse_allocations(rig.binding("p").annotations)
    assert [(item.minor, item.id) for item in allocations["gpu"]] == [(0, "GPU-n-0"), (1, "GPU-n-1")]


def test_two_shares_pack_on_one_card_when_the_profile_packs() -> None:
    packs = {"name": "DeviceShare", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
    rig = Rig(profile(pluginConfig=[packs]))
    rig.node("n", gpus=2)
    rig.submit(pod("a").gpu_share(50), pod("b").gpu_share(50))
    rig.run()
    assert [parse_allocations(rig.binding(name).annotations)["gpu"][0].minor for name in ("a", "b")] == [0, 0]


def test_an_assumed_allocation_counts_for_the_next_pod() -> None:
    rig = Rig()
    rig.node("n", gpus=2)
    rig.submit(pod("a").gpu_share(60), pod("b").gpu_share(60), pod("c").gpu_share(60))
    rig.run()
    assert (rig.where("a"), rig.where("b"), rig.where("c")) == ("n", "n", "")
    assert "1 Insufficient gpu devices" in rig.message("c"), "80 percent are free, but on no one card"


def test_devices_of_a_deleted_pod_are_free_again() -> None:
    rig = Rig()
    rig.node("n", gpus=1)
    rig.submit(pod("a").gpus(1))
    rig.run()
    rig.submit(pod("b").gpus(1))
    rig.run()
    rig.delete("a")
    rig.clock.advance(1)
    rig.run()
    assert rig.where("b") == "n"


def test_a_failed_binding_releases_all_devices() -> None:
    rig = Rig()
    rig.node("n", gpus=1)
    rig.submit(pod("a").gpus(1))
    rig.run(bind=False)
    rig.core.bind_failed("uid-a", "etcd is on holiday")
    assert rig.where("a") == ""
    rig.clock.advance(1)
    rig.run()
    assert rig.where("a") == "n"


def test_allocations_outlive_the_device_object() -> None:
    """Deleted and created again while pods run: free comes back to total less used, not to total."""
    rig = Rig()
    rig.node("n", gpus=2)
    rig.submit(pod("a").gpu_share(70), pod("b").gpu_share(70))
    rig.run()
    rig.core.intake.set_device("n", None)
    rig.device("n", 2)
    rig.submit(pod("c").gpu_share(40))
    rig.run()
    assert "Insufficient gpu devices" in rig.message("c")


def test_a_node_whose_device_object_was_deleted_has_no_cards_left() -> None:
    """Until the object comes back, or the node goes and one of its name comes without an object."""
    rig = Rig()
    rig.node("n", gpus=1)
    rig.core.intake.set_device("n", None)
    rig.submit(pod("a").gpus(1))
    rig.run()
    assert "Insufficient gpu devices" in rig.message("a")
    rig.device("n", 1)
    rig.clock.advance(1)
    rig.run()
    assert rig.where("a") == "n"
    rig.core.intake.set_device("n", None)
    rig.delete("a")
    rig.core.intake.remove_node("n")
    rig.node("n", more={GPU: 100})
    rig.submit(pod("b").gpus(1))
    rig.run()
    assert rig.where("b") == "n", "the kubelet's device plugin decides (DEV-R22)"


def test_an_unhealthy_card_leaves_the_pool_and_comes_back() -> None:
    rig = Rig()
    rig.node("n", gpus=1)
    rig.device("n", 1, sick=(0,))
    rig.submit(pod("a").gpus(1))
    rig.run()
    assert "Insufficient gpu devices" in rig.message("a")
    rig.device("n", 1)
    rig.clock.advance(1)
    rig.run()
    assert rig.where("a") == "n"


def test_a_device_object_may_come_before_its_node() -> None:
    rig = Rig()
    rig.device("n", 1)
    rig.node("n", more={GPU_CORE: 200, GPU_MEMORY_RATIO: 200})
    rig.submit(pod("a").gpu_share(100), pod("b").gpu_share(50))
    rig.run()
    assert rig.where("a") == "n"
    assert "Insufficient gpu devices" in rig.message("b")


def test_a_node_without_a_device_object_is_left_to_its_device_plugin() -> None:
    rig = Rig()
    rig.node("n", more={"nvidia.com/gpu": 2})
    rig.submit(pod("a").nvidia(2))
    rig.run()
    assert rig.where("a") == "n"
    assert rig.binding("a").annotations == {}


def test_isolation_matters_for_shared_cards_only() -> None:
    rig = Rig()
    rig.node("n", gpus=1)
    rig.submit(pod("shared").gpu_share(50).isolated(), pod("whole").gpus(1).isolated())
    rig.run()
    assert "GPUIsolationProviderHAMICore not found on the node" in rig.message("shared")
    assert rig.where("whole") == "n"
    rig.node("m", gpus=1, labels={"koordinator.sh/gpu-isolation-provider": "HAMi-core"})
    rig.clock.advance(1)
    rig.run()
    assert rig.where("shared") == "m"


def test_deprecated_names_are_accepted() -> None:
    rig = Rig()
    rig.node("n", gpus=1, gpu_memory="8Gi")
    rig.submit(pod("half").resources({"kubernetes.io/gpu-core": 50, "kubernetes.io/gpu-memory": "4Gi"}))
    rig.run()
    share = parse_allocations(rig.binding("half").annotations)["gpu"][0]
    assert share.resources == {GPU_CORE: "50", GPU_MEMORY: "4Gi", GPU_MEMORY_RATIO: "50"}


def test_an_invalid_device_entry_is_ignored_and_reported() -> None:
    rig = Rig()
    rig.node("n", gpus=1)
    rig.device("n", 1, gpu_memory="lots")
    (complaint,) = rig.complaints()
    assert complaint.startswith("Device n: gpu 0: koordinator.sh/gpu-memory: 'lots' is not a quantity; expected")
