"""Edge cases of section 16 of the device page."""

import pytest

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.device import DEVICE_ALLOCATED, RDMA, parse_allocations
from seatrial.scheduler.framework.decisions import Bind
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.plugins.deviceshare.cache import DeviceCache, NodeDevices
from seatrial.scheduler.plugins.deviceshare.plugin import DeviceShare
from seatrial.scheduler.plugins.deviceshare.tests.machines import (
    FUNCTIONS,
    HALF,
    JOINT,
    ask,
    card,
    chosen,
    paired,
    state,
)
from seatrial.scheduler.plugins.deviceshare.tests.test_nodes import machine, wishing
from seatrial.scheduler.tests.rig import Rig


def devices_of(rig: Rig, name: str = "n") -> NodeDevices:
    devices = DeviceCache.of(rig.core.handle).find(name)
    assert devices is not None
    return devices


def elsewhere(minor: int, percent: int) -> str:
    share = f'{{"koordinator.sh/gpu-core":"{percent}","koordinator.sh/gpu-memory-ratio":"{percent}"}}'
    return f'{{"gpu":[{{"minor":{minor},"resources":{share}}}]}}'


def test_a_shared_pod_with_a_partition_spec_needs_no_table() -> None:
    """Edge case 11, second half."""
    assert chosen(state([card(0), card(1)]), ask(HALF, partition={"allocatePolicy": "Restricted"})) == {"gpu": [0]}


def test_a_failed_binding_releases_functions_and_percent() -> None:
    """Edge case 20."""
    rig = Rig()
    machine(rig, "n", paired())
    before = devices_of(rig).state
    rig.submit(wishing(pod("a").gpus(1).resources({RDMA: 100}), joint=JOINT, hint=FUNCTIONS))
    rig.run(bind=False)
    during = devices_of(rig).state
    assert during.functions
    assert during.used != before.used
    rig.core.bind_failed("uid-a", "the network is down", retry=False)
    assert devices_of(rig).state is before


def test_adding_and_removing_a_placed_pod_in_a_dry_run_counts_it_once() -> None:
    """Edge case 19: a placed pod is not counted twice, and a pod without devices changes nothing."""
    rig = Rig()
    rig.node("n", gpus=1)
    rig.running(pod("there").gpu_share(60).annotation(DEVICE_ALLOCATED, elsewhere(0, 60)), "n")
    rig.running(pod("bare").request(cpu=1), "n")
    plugin, cycle, node = DeviceShare(rig.core.handle), CycleState(), rig.core.cache.find("n")
    current_pod = rig.pod(pod("wants").gpu_share(50))
    assert node is not None
    assert plugin.pre_filter(cycle, current_pod).ok
    for name in ("there", "bare"):
        plugin.victim_returned(cycle, node.pods[f"uid-{name}"], node)
    assert not plugin.filter(cycle, current_pod, node).ok
    plugin.victim_removed(cycle, node.pods["uid-bare"], node)
    assert not plugin.filter(cycle, current_pod, node).ok
    plugin.victim_removed(cycle, node.pods["uid-there"], node)
    assert plugin.filter(cycle, current_pod, node).ok
    plugin.victim_returned(cycle, node.pods["uid-there"], node)
    assert not plugin.filter(cycle, current_pod, node).ok


@pytest.mark.parametrize("message", [elsewhere(1, 100), elsewhere(7, 100), "no JSON"])
def test_an_allocation_on_an_unscheduled_pod_is_overwritten(message: str) -> None:
    """DEV-R18: the scheduler decides, whatever is in the annotation of a pod without node."""
    rig = Rig()
    rig.node("n", gpus=3)
    rig.submit(pod("a").gpu_share(50).annotation(DEVICE_ALLOCATED, message))
    rig.run()
    text = rig.binding("a").annotations[DEVICE_ALLOCATED]
    assert [card.minor for card in parse_allocations({DEVICE_ALLOCATED: text})["gpu"]] == [0]
    rig.running(pod("a").gpu_share(50).annotation(DEVICE_ALLOCATED, text), "n")
    used = [dict(free) for free in devices_of(rig).state.frees]
    assert [item["koordinator.sh/gpu-core"] for item in used] == [50, 100, 100]


def test_the_allocation_of_a_refused_pod_is_free() -> None:
    rig = Rig()
    rig.node("n", gpus=1)
    rig.submit(pod("a").gpu_share(50).annotation(DEVICE_ALLOCATED, elsewhere(0, 50)))
    rig.run(bind=False)
    rig.core.bind_failed("uid-a", "the network is down", retry=False)
    rig.submit(pod("b").gpus(1))
    assert [item.info.pod.metadata.name for item in rig.run() if isinstance(item, Bind)] == ["b"]
