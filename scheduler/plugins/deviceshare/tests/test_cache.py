"""One book of devices for all profiles."""

from scheduler.api.builders import pod
from scheduler.api.device import parse_allocations
from scheduler.config import parse
from scheduler.tests.rig import Rig


def two_profiles() -> Rig:
    packs = {"name": "DeviceShare", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
    return Rig(
        parse({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [
                {"schedulerName": "default-scheduler"},
                {"schedulerName": "packer", "pluginConfig": [packs]},
            ],
        })
    )  # fmt: skip


def test_profiles_judge_the_same_devices_each_in_its_own_way() -> None:
    rig = two_profiles()
    rig.node("n", gpus=3)
    for name, scheduler in (("a", "default-scheduler"), ("b", "packer"), ("c", "default-scheduler"), ("d", "packer")):
        rig.submit(pod(name).gpu_share(30).scheduler(scheduler))
        rig.run()
    minors = [parse_allocations(rig.binding(name).annotations)["gpu"][0].minor for name in "abcd"]
    assert minors == [0, 0, 1, 0]


def test_nodes_are_weighed_by_each_profiles_own_weights() -> None:
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


def test_what_a_device_object_has_wrong_is_said_once() -> None:
    rig = two_profiles()
    rig.node("n", gpus=1)
    rig.device("n", 1, gpu_memory="lots")
    assert len(rig.core.complaints) == 1
