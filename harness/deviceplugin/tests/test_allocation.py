"""Which container kubelet asks for, and what it gets, from the node's pods and kubelet's list."""

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.harness.deviceplugin.allocation import NoPromise, find_target, response_of
from seatrial.harness.deviceplugin.messages import ContainerDevices, ContainerResources, PluginMount, PodResources
from seatrial.harness.devices.provider import ContainerGrant, Device
from seatrial.harness.devices.survey import survey
from seatrial.harness.nodes.admission import AdmissionError
from seatrial.harness.nodes.pods import BoundPod, decode_pod
from seatrial.scheduler.api.device import DEVICE_ALLOCATED, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from seatrial.scheduler.api.wire import to_json

GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def cards() -> list[Device]:
    """Two A10 behind the vendor's library."""
    return sorted(survey("a10:2")[0], key=lambda device: device.minor)


def pod(name: str, limits: dict[str, int], minors: dict[int, int] | None, **spec: Any) -> BoundPod:
    """A pod in namespace `default` with one container; `minors`: promised percent of cards, None without promise."""
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    if minors is not None:
        entries = [
            {"minor": minor, "resources": {GPU_CORE: percent, GPU_MEMORY_RATIO: percent, GPU_MEMORY: percent << 20}}
            for minor, percent in minors.items()
        ]
        metadata["annotations"] = {DEVICE_ALLOCATED: json.dumps({"gpu": entries})}
    container = {"name": "main", "resources": {"limits": {key: str(value) for key, value in limits.items()}}}
    return decode_pod(to_json({"metadata": metadata, "spec": {"containers": [container], **spec}}))


def listed(name: str, *resources: str, container: str = "main") -> PodResources:
    """A pod as kubelet lists it; `resources` are those that its container has devices of."""
    groups = tuple(ContainerDevices(resource, ("x",)) for resource in resources)
    return PodResources(name, "default", (ContainerResources(container, groups),))


def test_the_listed_pod_without_devices_is_meant(cards: list[Device]) -> None:
    """Of three equal pods one has its devices and one is not being started yet."""
    pods = [pod("a", {GPU_CORE: 50}, {0: 50}), pod("b", {GPU_CORE: 50}, {1: 50}), pod("c", {GPU_CORE: 50}, {0: 50})]
    target = find_target(pods, [listed("a", GPU_CORE), listed("b")], cards, GPU_CORE, 50)
    assert target.pod.metadata.name == "b"
    assert target.grant("gpu").env["NVIDIA_VISIBLE_DEVICES"] == "1"


def test_the_count_tells_pods_apart(cards: list[Device]) -> None:
    pods = [pod("a", {GPU_CORE: 30}, {0: 30}), pod("b", {GPU_CORE: 40}, {1: 40})]
    assert find_target(pods, [listed("a"), listed("b")], cards, GPU_CORE, 40).pod.metadata.name == "b"


def test_each_resource_of_a_container_is_asked_for_once(cards: list[Device]) -> None:
    """The container has its share of cores and waits for that of memory."""
    pods = [pod("a", {GPU_CORE: 50, GPU_MEMORY_RATIO: 50}, {1: 50})]
    target = find_target(pods, [listed("a", GPU_CORE)], cards, GPU_MEMORY_RATIO, 50)
    assert [device.minor for device in target.devices("gpu")] == [1]


def test_two_waiting_pods_with_different_promises_are_refused(cards: list[Device]) -> None:
    pods = [pod("a", {GPU_CORE: 50}, {0: 50}), pod("b", {GPU_CORE: 50}, {1: 50})]
    with pytest.raises(
        NoPromise, match=r"pods default/a, default/b all wait for 50 koordinator\.sh/gpu-core, with diff"
    ):
        find_target(pods, [listed("a"), listed("b")], cards, GPU_CORE, 50)


@pytest.mark.parametrize(
    ("pods", "entries", "says"),
    [
        pytest.param([], [], "no pod that kubelet is starting has a container with 1 nvidia.com/gpu", id="no-pod"),
        pytest.param([pod("a", {GPU: 1}, {0: 100})], [], "no pod that kubelet is starting", id="not-listed"),
        pytest.param(
            [pod("a", {GPU: 2}, {0: 100})], [listed("a")], "no pod that kubelet is starting", id="other-count"
        ),
        pytest.param(
            [pod("a", {GPU: 1}, None)], [listed("a")], "pod default/a: expected the annotation", id="no-annotation"
        ),
    ],
)
def test_without_a_promise_nothing_is_given(
    cards: list[Device], pods: list[BoundPod], entries: list[PodResources], says: str
) -> None:
    with pytest.raises(NoPromise, match=says):
        find_target(pods, entries, cards, GPU, 1)


def test_a_card_that_others_fill_is_not_given_again(cards: list[Device]) -> None:
    pods = [pod("a", {GPU_CORE: 60}, {0: 60}), pod("b", {GPU_CORE: 50}, {0: 50})]
    with pytest.raises(AdmissionError, match=r"gpu 0 has 40 of 100 koordinator.sh/gpu-core left, 50 promised"):
        find_target(pods, [listed("a", GPU_CORE), listed("b")], cards, GPU_CORE, 50)


def test_a_card_of_another_machine_is_not_given(cards: list[Device]) -> None:
    with pytest.raises(AdmissionError, match="gpu 7 is not on this node"):
        find_target([pod("a", {GPU: 1}, {7: 100})], [listed("a")], cards, GPU, 1)


def test_an_init_container_gets_the_pods_devices(cards: list[Device]) -> None:
    """kubelet does not list ordinary init containers: the pod that has not started yet is meant, then its container."""
    init = [{"name": "first", "resources": {"limits": {GPU: "1"}}}]
    one = pod("a", {GPU: 1}, {1: 100}, initContainers=init)
    target = find_target([one], [listed("a")], cards, GPU, 1)
    assert (target.container.name, target.grant("gpu").env["NVIDIA_VISIBLE_DEVICES"]) == ("first", "1")
    with pytest.raises(NoPromise):
        find_target([one], [listed("a", GPU)], cards, GPU, 1)


def test_device_nodes_that_are_there_are_passed_on(tmp_path: Path) -> None:
    """/dev/null stands for a card's node; the other one does not exist on this host."""
    answer = response_of(ContainerGrant({"A": "1"}, ("/dev/null", "/dev/nvidia-none")))
    assert [(spec.container_path, spec.host_path) for spec in answer.devices] == [("/dev/null", "/dev/null")]
    simulated = response_of(ContainerGrant(nodes=("/dev/nvidia0",)), tmp_path, simulated=True)
    assert simulated.mounts == (PluginMount("/dev/nvidia0", str(tmp_path / "dev/nvidia0")),)
    assert (tmp_path / "dev/nvidia0").is_file()
