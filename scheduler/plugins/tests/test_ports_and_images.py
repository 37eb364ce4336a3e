"""NodePorts and ImageLocality: which ports conflict, what an image is worth."""

from typing import Any

import pytest

from seatrial.scheduler.api.core import Container, ContainerImage, ContainerPort, Node, NodeStatus, Pod, PodSpec
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.plugins.imagelocality import ImageLocality
from seatrial.scheduler.pods.host_ports import EVERY_ADDRESS, HostPort, host_ports
from seatrial.scheduler.tests.rig import Rig

MIB = 1 << 20
NO_PORTS = "didn't have free ports for the requested pod ports"


def port(number: int, address: str = "", protocol: str = "TCP") -> ContainerPort:
    return ContainerPort(8080, number, address, protocol)


@pytest.mark.parametrize(
    ("first", "second", "conflict"),
    [
        pytest.param(port(80), port(80), True, id="same"),
        pytest.param(port(80), port(81), False, id="other-number"),
        pytest.param(port(80), port(80, protocol="UDP"), False, id="other-protocol"),
        pytest.param(port(80, "10.0.0.1"), port(80, "10.0.0.2"), False, id="other-address"),
        pytest.param(port(80, "10.0.0.1"), port(80, "10.0.0.1"), True, id="same-address"),
        pytest.param(port(80, "10.0.0.1"), port(80), True, id="every-address-is-taken-by-one"),
        pytest.param(port(80, EVERY_ADDRESS), port(80, "10.0.0.1"), True, id="one-is-taken-by-every-address"),
        pytest.param(port(80, protocol=""), port(80), True, id="no-protocol-is-tcp"),
    ],
)
def test_host_ports_conflict(first: ContainerPort, second: ContainerPort, conflict: bool) -> None:
    (held,), (target,) = (host_ports(PodSpec(containers=(Container(ports=(port,)),))) for port in (first, second))
    assert held.conflicts(target) is target.conflicts(held) is conflict


def test_only_containers_that_stay_hold_ports() -> None:
    spec = PodSpec(
        containers=(Container(ports=(port(80), ContainerPort(9090))),),
        init_containers=(Container(ports=(port(81),)), Container(ports=(port(82),), restart_policy="Always")),
    )
    assert host_ports(spec) == (HostPort(EVERY_ADDRESS, "TCP", 80), HostPort(EVERY_ADDRESS, "TCP", 82))


class Ports(Rig):
    def ask(self, name: str, *ports: ContainerPort) -> str:
        """Submit a pod with these ports; where it goes, or the message."""
        spec = PodSpec(containers=(Container(ports=ports),))
        pod = Pod(ObjectMeta(name=name, namespace="default", uid=f"uid-{name}"), spec)
        self.pods[name] = pod
        self.core.intake.set_pod(pod)
        self.run()
        return self.where(name) or self.message(name)


def test_a_port_is_given_once_on_each_node() -> None:
    rig = Ports()
    for name in ("a", "b"):
        rig.node(name)
    assert {rig.ask("p1", port(80)), rig.ask("p2", port(80))} == {"a", "b"}
    assert rig.ask("p3", port(80)).startswith(f"0/2 nodes are available: 2 node(s) {NO_PORTS}.")
    assert rig.ask("p4", port(81)) in {"a", "b"}


def test_a_port_comes_free_with_its_pod() -> None:
    rig = Ports()
    rig.node("a")
    rig.ask("p1", port(80, "10.0.0.1"))
    assert NO_PORTS in rig.ask("p2", port(80))
    rig.delete("p1")
    rig.clock.advance(30)
    rig.run()
    assert rig.where("p2") == "a"


def located(rig: Rig, node: str, images: tuple[str, ...]) -> int:
    """What ImageLocality gives a pod of one container for each image on a node, the plain way."""
    plugin, state = ImageLocality(rig.core.handle), CycleState()
    pod = Pod(spec=PodSpec(containers=tuple(Container(image=image) for image in images)))
    info: NodeInfo | None = rig.core.cache.find(node)
    assert info is not None
    return plugin.score(state, pod, info) if plugin.pre_score(state, pod) else -1


@pytest.mark.parametrize(
    ("sizes", "images", "score"),
    [
        pytest.param({"i:1": 250}, ("i:1",), 10, id="half-the-nodes-have-it"),
        pytest.param({"i:latest": 250}, ("i",), 10, id="no-tag-is-latest"),
        pytest.param({"reg:5000/i:latest": 250}, ("reg:5000/i",), 10, id="a-registrys-port-is-no-tag"),
        pytest.param({"i:1": 250}, ("i:2",), 0, id="another-tag"),
        pytest.param({"i:1": 40}, ("i:1",), 0, id="too-small-to-count"),
        pytest.param({"i:1": 9000}, ("i:1",), 100, id="too-large-to-count-more"),
        pytest.param({"i:1": 1000, "j:1": 1000}, ("i:1", "j:1"), 49, id="two-containers-of-two-images"),
        pytest.param({"i:1": 2000}, ("i:1", "none:1"), 49, id="a-container-without-halves-it"),
        pytest.param({}, ("",), -1, id="no-image-no-opinion"),
    ],
)
def test_what_an_image_is_worth(sizes: dict[str, int], images: tuple[str, ...], score: int) -> None:
    rig = Rig()
    container_images: Any = tuple(ContainerImage((name,), size * MIB) for name, size in sizes.items())
    rig.core.intake.set_node(Node(ObjectMeta(name="with"), status=NodeStatus({}, {"pods": 9}, images=container_images)))
    rig.core.intake.set_node(Node(ObjectMeta(name="without"), status=NodeStatus({}, {"pods": 9})))
    assert located(rig, "with", images) == score
    assert located(rig, "without", images) == min(0, score)


def test_images_are_counted_once_for_all_nodes_and_again_when_one_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A score that counts holders anew for each node takes minutes on a large cluster."""

    def holding(name: str, *images: str) -> Node:
        container_images: Any = tuple(ContainerImage((image,), 250 * MIB) for image in images)
        return Node(ObjectMeta(name=name), status=NodeStatus({}, {"pods": 9}, images=container_images))

    rig = Rig()
    for number in range(20):
        rig.core.intake.set_node(holding(f"n{number}", "i:1"))
    looked: list[str] = []

    def counting(node: NodeInfo) -> dict[str, int]:
        looked.append(node.name)
        return {name: image.size_bytes for image in node.known.status.images for name in image.names}

    monkeypatch.setattr("seatrial.scheduler.plugins.imagelocality._images", counting)
    plugin, state = ImageLocality(rig.core.handle), CycleState()
    assert plugin.pre_score(state, Pod(spec=PodSpec(containers=(Container(image="i:1"),))))

    def scores() -> set[int]:
        return {plugin.score(state, Pod(), node) for node in rig.core.cache}

    assert scores() == {23}
    assert len(looked) == 20 + 20, "each node for its own score, and each once for the count"
    for number in range(10):
        rig.core.intake.set_node(holding(f"n{number}"))
    assert scores() == {0, 10}
