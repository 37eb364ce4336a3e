"""Random pods come and go: no device is allocated twice, and annotations restore the cache."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.scheduler.api.device import (
    DEVICE_ALLOCATED,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    RDMA,
    Device,
    DeviceInfo,
    DeviceSpec,
    parse_allocations,
)
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.classes import ClassRegistry
from seatrial.scheduler.cache.columns import NodeColumns
from seatrial.scheduler.cache.resources import ResourceIndex
from seatrial.scheduler.plugins.deviceshare.allocator import allocate, verdict
from seatrial.scheduler.plugins.deviceshare.cache import DeviceCache
from seatrial.scheduler.plugins.deviceshare.gpus import Policy
from seatrial.scheduler.plugins.deviceshare.request import DeviceRequest
from seatrial.scheduler.plugins.deviceshare.scoring import Scorer
from seatrial.scheduler.plugins.deviceshare.shares import shares_of
from seatrial.scheduler.plugins.deviceshare.states import Choice, DeviceState, StateCache
from seatrial.scheduler.plugins.deviceshare.tests.machines import FUNCTIONS, JOINT, ask, card, paired, single, whole

PARTITIONS = msgspec.json.encode(
    {
        size: [{"minors": list(range(at, at + size)), "allocationScore": 1} for at in range(0, 8, size)]
        for size in (2, 4)
    }
).decode()
MACHINES: dict[str, Device] = {
    "paired": Device(ObjectMeta(name="paired"), DeviceSpec(tuple(paired()))),
    "single": Device(
        ObjectMeta(
            name="single",
            labels={"node.koordinator.sh/gpu-partition-policy": "Honor"},
            annotations={"scheduling.koordinator.sh/gpu-partitions": PARTITIONS},
        ),
        DeviceSpec(tuple(single())),
    ),
    "bare": Device(ObjectMeta(name="bare"), DeviceSpec(tuple(card(minor, health=minor != 1) for minor in range(3)))),
}
REQUESTS: list[DeviceRequest] = [
    ask({GPU_CORE: 30, GPU_MEMORY_RATIO: 20}),
    ask({GPU_CORE: 10, GPU_MEMORY: 7 << 30}),
    ask({GPU_SHARED: 2, GPU_MEMORY_RATIO: 120}),
    ask(whole(1)),
    ask(whole(2)),
    ask(whole(4), hint={"gpu": {"requiredTopologyScope": "NUMANode"}}),
    ask(whole(2), partition={}),
    ask(whole(2, rdma=1), hint=FUNCTIONS, joint=JOINT | {"requiredScope": "SamePCIe"}),
    ask(whole(3, rdma=100), joint=JOINT),
    ask({RDMA: 30}),
    ask({RDMA: 2}, hint={"rdma": {"allocateStrategy": "RequestsAsCount", "vfSelector": {}}}),
    ask({GPU_CORE: 200, GPU_MEMORY_RATIO: 100}),
]
POLICIES = [Policy(Scorer()), Policy(Scorer("MostAllocated"))]


def device_cache() -> DeviceCache:
    resources = ResourceIndex()
    devices = DeviceCache(Cache(NodeColumns(resources), ClassRegistry(resources)))
    for name, device in MACHINES.items():
        assert devices.set_device(name, device) == []
    return devices


def state(devices: DeviceCache, name: str) -> DeviceState:
    device = devices.find(name)
    assert device is not None
    return device.state


moves = st.tuples(
    st.sampled_from(sorted(MACHINES)), st.integers(0, len(REQUESTS) - 1), st.integers(0, 1), st.integers(0, 5)
)


@settings(max_examples=150)
@given(story=st.lists(moves, max_size=40))
def test_no_device_is_allocated_twice(story: list[tuple[str, int, int, int]]) -> None:
    devices = device_cache()
    annotations: dict[str, tuple[str, str]] = {}  # by uid: node and annotation
    for number, (name, which, policy, luck) in enumerate(story):
        if luck == 0 and annotations:
            uid = sorted(annotations)[which % len(annotations)]
            devices.release(annotations.pop(uid)[0], uid)
        else:
            node = devices.find(name)
            assert node is not None
            request = REQUESTS[which]
            allocation = allocate(node.state, request, POLICIES[policy])
            assert verdict(node.state, request, POLICIES[policy]).ok == isinstance(allocation, Choice)
            if isinstance(allocation, Choice):
                before = node.state
                assert allocation.after.moved(allocation.holding.shares, -1) is before, (
                    "what is freed is what was taken"
                )
                check_exclusive(before, allocation, request)
                devices.settle(node, f"u{number:03}", allocation)
                annotations[f"u{number:03}"] = (name, allocation.holding.annotation(node.ids))
        for node in devices:
            check_limits(node.state)
    again = device_cache()
    for uid, (name, text) in annotations.items():
        again.assign(name, uid, shares_of(parse_allocations({DEVICE_ALLOCATED: text})))
    for name in MACHINES:
        live, rebuilt = state(devices, name), state(again, name)
        assert (live.used, live.functions, live.frees) == (rebuilt.used, rebuilt.functions, rebuilt.frees)
    for uid, (name, _) in annotations.items():
        devices.release(name, uid)
    for name in MACHINES:
        left = state(devices, name)
        assert not left.functions
        assert not any(left.touched(number) for number in range(len(left.used)))


def check_limits(state: DeviceState) -> None:
    for slot, used in zip(state.template.slots, state.used, strict=True):
        for (resource, total), taken in zip(slot.total, used, strict=True):
            assert 0 <= taken <= total, (slot.type, slot.minor, resource)
    assert len(set(state.functions)) == len(state.functions), "a virtual function has one owner"


def check_exclusive(before: DeviceState, choice: Choice, request: DeviceRequest) -> None:
    gpu = request.get("gpu")
    for share in choice.holding.shares:
        number = before.template.index[share.type, share.minor]
        assert before.frees[number], "unhealthy devices are not allocated"
        if share.type == "gpu" and gpu is not None and not gpu.shared:
            assert not before.used[number][list(before.template.totals[number]).index(GPU_MEMORY_RATIO)]


memory = st.tuples(st.just(GPU_MEMORY), st.integers(1, 80 << 30)) | st.tuples(
    st.just(GPU_MEMORY_RATIO), st.integers(1, 100)
)


@given(requests=st.lists(memory, max_size=12))
def test_one_card_is_full_of_bytes_and_percent_but_not_too_full(requests: list[tuple[str, int]]) -> None:
    """Requests in bytes and percent in any order, and a last one for each percent that is free by both measures."""
    states = StateCache()
    template, _ = states.template([card(0)])
    there = states.untouched(template)
    for name, amount in requests:
        allocation = allocate(there, ask({name: amount}), POLICIES[0])
        there = allocation.after if isinstance(allocation, Choice) else there
        check_limits(there)
    free = there.frees[0]
    for percent in range(1, 101):
        fits = percent <= free[GPU_MEMORY_RATIO] and percent * (80 << 30) // 100 <= free[GPU_MEMORY]
        assert verdict(there, ask({GPU_MEMORY_RATIO: percent}), POLICIES[0]).ok is fits, percent


def test_a_changed_device_object_keeps_the_allocations() -> None:
    devices = device_cache()
    node = devices.find("paired")
    assert node is not None
    allocation = allocate(node.state, REQUESTS[7], POLICIES[0])
    assert isinstance(allocation, Choice)
    devices.settle(node, "u", allocation)
    taken = node.state
    devices.set_device("paired", None)
    devices.set_device("paired", MACHINES["paired"])
    assert node.state is taken, "cards and virtual functions alike"
    devices.set_device("paired", Device(ObjectMeta(name="paired"), DeviceSpec((DeviceInfo("gpu", 0),))))
    devices.release("paired", "u")
    devices.set_device("paired", MACHINES["paired"])
    assert not node.state.functions
    assert not any(node.state.touched(number) for number in range(12))
