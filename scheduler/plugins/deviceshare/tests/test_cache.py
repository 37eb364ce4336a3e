"""One device cache for all profiles."""

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.device import DEVICE_ALLOCATED, parse_allocations
from seatrial.scheduler.config import parse
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.plugins.deviceshare.cache import DeviceCache
from seatrial.scheduler.plugins.deviceshare.plugin import DeviceShare
from seatrial.scheduler.tests.rig import Rig


def two_profiles() -> Rig:
    packs = {"name": "DeviceShare", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
    return Rig(
        parse(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [
                    {"schedulerName": "default-scheduler"},
                    {"schedulerName": "packer", "pluginConfig": [packs]},
                ],
            }
        )
    )


def test_profiles_with_different_arguments_share_the_devices() -> None:
    rig = two_profiles()
    rig.node("n", gpus=3)
    for name, scheduler in (("a", "default-scheduler"), ("b", "packer"), ("c", "default-scheduler"), ("d", "packer")):
        rig.submit(pod(name).gpu_share(30).scheduler(scheduler))
        rig.run()
    minors = [parse_allocations(rig.binding(name).annotations)["gpu"][0].minor for name in "abcd"]
    assert minors == [0, 0, 1, 0]


def test_each_profile_scores_with_its_own_weights() -> None:
    rig = two_profiles()
    for name in ("m", "n"):
        rig.node(name, gpus=2)
    rig.running(pod("there").annotation(*allocated(0)).gpu_share(50), "m")
    rig.submit(pod("spread").gpu_share(50), pod("pack").gpu_share(50).scheduler("packer"))
    rig.run()
    assert (rig.where("spread"), rig.where("pack")) == ("n", "m")


def allocated(minor: int) -> tuple[str, str]:
    share = '{"koordinator.sh/gpu-core":"50","koordinator.sh/gpu-memory":"40Gi","koordinator.sh/gpu-memory-ratio":"50"}'
    return "scheduling.koordinator.sh/device-allocated", f'{{"gpu":[{{"minor":{minor},"resources":{share}}}]}}'


def test_errors_of_a_device_object_are_reported_once() -> None:
    rig = two_profiles()
    rig.node("n", gpus=1)
    rig.device("n", 1, gpu_memory="lots")
    assert len(rig.complaints()) == 1


def allocation(minor: int, percent: int) -> str:
    share = f'{{"koordinator.sh/gpu-core":"{percent}","koordinator.sh/gpu-memory-ratio":"{percent}"}}'
    return f'{{"gpu":[{{"minor":{minor},"resources":{share}}}]}}'


def percent_taken(rig: Rig, minor: int) -> int:
    devices = DeviceCache.of(rig.core.handle).find("n")
    assert devices is not None
    return 100 - devices.state.frees[minor]["koordinator.sh/gpu-memory-ratio"]


def test_a_reserved_pod_counts_once_when_the_api_server_confirms_it() -> None:
    rig = Rig()
    rig.node("n", gpus=1)
    rig.submit(pod("a").gpu_share(60))
    rig.run()
    rig.running(
        pod("a").gpu_share(60).annotation(DEVICE_ALLOCATED, rig.binding("a").annotations[DEVICE_ALLOCATED]), "n"
    )
    assert percent_taken(rig, 0) == 60
    rig.delete("a")
    assert percent_taken(rig, 0) == 0


def test_another_allocation_of_the_same_pod_replaces_the_first() -> None:
    rig = Rig()
    rig.node("n", gpus=2)
    rig.running(pod("a").gpu_share(60).annotation(DEVICE_ALLOCATED, allocation(0, 60)), "n")
    rig.running(pod("a").gpu_share(60).annotation(DEVICE_ALLOCATED, allocation(1, 30)), "n")
    assert (percent_taken(rig, 0), percent_taken(rig, 1)) == (0, 30)


def test_removing_and_adding_a_pod_in_a_dry_run_changes_nothing() -> None:
    rig = Rig()
    rig.node("n", gpus=1)
    victim = rig.running(pod("a").gpu_share(60).annotation(DEVICE_ALLOCATED, allocation(0, 60)), "n")
    plugin = DeviceShare(rig.core.handle)
    cycle, node = CycleState(), rig.core.cache.find("n")
    current_pod = rig.pod(pod("b").gpu_share(50))
    assert node is not None
    assert plugin.pre_filter(cycle, current_pod).ok
    assert not plugin.filter(cycle, current_pod, node).ok
    info = node.pods[victim.metadata.uid]
    plugin.victim_removed(cycle, info, node)
    assert plugin.filter(cycle, current_pod, node).ok
    plugin.victim_returned(cycle, info, node)
    plugin.victim_returned(cycle, info, node)
    assert not plugin.filter(cycle, current_pod, node).ok
    plugin.victim_removed(cycle, info, node)
    plugin.victim_removed(cycle, info, node)
    assert plugin.filter(cycle, current_pod, node).ok
    assert percent_taken(rig, 0) == 60, "all that was simulated"


def test_an_init_container_in_another_spelling_makes_the_request_invalid() -> None:
    rig = Rig()
    rig.node("n", gpus=1)
    builder = pod("a").gpus(1)
    builder.manifest["spec"]["initContainers"] = [{"name": "i", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]
    rig.submit(builder)
    rig.run()
    assert "invalid resource device requests: [koordinator.sh/gpu nvidia.com/gpu]" in rig.message("a")


def test_a_request_without_amounts_allocates_nothing() -> None:
    rig = Rig()
    rig.node("n", gpus=1)
    rig.submit(pod("a").gpu_share(0))
    rig.run()
    assert rig.where("a") == "n"
    assert rig.binding("a").annotations == {}


def test_a_card_allocated_twice_needs_several_victims() -> None:
    rig = Rig()
    rig.node("n", gpus=2)
    for minor in (0, 1):
        for name in (f"one-{minor}", f"two-{minor}"):
            rig.running(pod(name).gpus(1).annotation(DEVICE_ALLOCATED, allocation(minor, 100)), "n")
    plugin = DeviceShare(rig.core.handle)
    cycle, node = CycleState(), rig.core.cache.find("n")
    current_pod = rig.pod(pod("p").gpus(1))
    assert node is not None
    assert plugin.pre_filter(cycle, current_pod).ok
    for minor in (0, 1):
        plugin.victim_removed(cycle, node.pods[f"uid-one-{minor}"], node)
    assert plugin.filter(cycle, current_pod, node).message == "Insufficient gpu devices"
    plugin.victim_removed(cycle, node.pods["uid-two-1"], node)
    assert plugin.filter(cycle, current_pod, node).ok
