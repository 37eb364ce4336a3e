"""Pods that name their node, and clusters without any."""

import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.tests.rig import Rig


def pinned(name: str, *nodes: str, gpus: int = 0) -> PodBuilder:
    """A pod as a DaemonSet makes it."""
    one = pod(name).request(cpu=1)
    if gpus:
        one.gpus(gpus)
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(nodes)}]}
    one.manifest["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    }
    return one


def test_the_pods_of_a_daemon_set_are_one_class() -> None:
    rig = Rig()
    for number in range(50):
        rig.node(f"n{number}")
    rig.submit(*(pinned(f"p{number}", f"n{number}") for number in range(50)))
    rig.run()
    assert [rig.where(f"p{number}") for number in range(50)] == [f"n{number}" for number in range(50)]
    assert len(rig.core.cache.classes) == 1


def test_who_names_several_gets_the_best_of_them() -> None:
    rig = Rig()
    for name in ("a", "b", "c"):
        rig.node(name)
    rig.running(pod("heavy").request(cpu=32), "b")
    rig.submit(pinned("p", "b", "c"))
    rig.run()
    assert rig.where("p") == "c"


@pytest.mark.parametrize(
    ("names", "says"),
    [
        pytest.param(("full",), "1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity].", id="full"),
        pytest.param(("gone",), "3 node(s) didn't satisfy plugin(s) [NodeAffinity].", id="a-node-that-is-not-there"),
    ],
)
def test_the_message_tells_nodes_not_named_apart(names: tuple[str, ...], says: str) -> None:
    rig = Rig()
    rig.node("full", cpu="100m")
    rig.node("x")
    rig.node("y")
    rig.submit(pinned("p", *names))
    rig.run()
    assert rig.message("p").startswith(f"0/3 nodes are available: {says}")


def test_waiting_pods_of_one_class_wait_each_for_its_own_node() -> None:
    rig = Rig()
    for name in ("a", "b"):
        rig.node(name, cpu="1")
        rig.running(pod(f"on-{name}").request(cpu=1), name)
    rig.submit(pinned("pa", "a"), pinned("pb", "b"), pod("free").request(cpu=1))
    rig.run()
    assert [rig.where(name) for name in ("pa", "pb", "free")] == ["", "", ""]
    rig.delete("on-b")
    rig.clock.advance(15)
    rig.run()
    places = {rig.where("pb"), rig.where("free")}
    assert rig.where("pa") == ""
    assert places == {"", "b"}
    rig.delete("on-a")
    rig.clock.advance(15)
    rig.run()
    assert rig.where("pa") == "a" or rig.where("free") == "a"


def test_a_pinned_pod_preempts_on_its_own_node_alone() -> None:
    rig = Rig()
    for name in ("a", "b"):
        rig.node(name, cpu="1")
        rig.running(pod(f"on-{name}").request(cpu=1).priority(1), name)
    rig.submit(pinned("p", "b").priority(10))
    rig.run()
    assert rig.victims() == ["on-b"]


@pytest.mark.parametrize(
    "builder",
    [
        pytest.param(pod("p").gpus(1), id="whole-card"),
        pytest.param(pod("p").gpu_share(50), id="shared-card"),
        pytest.param(pod("p").request(cpu=1), id="no-card"),
        pytest.param(pinned("p", "n", gpus=1), id="pinned"),
    ],
)
def test_pods_that_come_before_any_node_wait_for_one(builder: PodBuilder) -> None:
    rig = Rig()
    rig.submit(builder)
    rig.run()
    assert rig.message("p") == "no nodes available to schedule pods"
    rig.node("n", gpus=1)
    rig.clock.advance(15)
    rig.run()
    assert rig.where("p") == "n"
