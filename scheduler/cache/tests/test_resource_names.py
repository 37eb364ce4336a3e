"""Resource names that pods choose: no array over the nodes grows with them, and a node may offer one later."""

import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.cache.resources import UNOFFERED_COLUMN
from seatrial.scheduler.tests.rig import Rig


def asking(name: str, resource: str, amount: int = 1) -> PodBuilder:
    return pod(name).resources({resource: amount})


def test_names_of_pods_do_not_widen_the_arrays_of_nodes() -> None:
    """A hundred pods ask for a resource of their own each; every message names it."""
    rig = Rig()
    rig.node("n1")
    width = rig.core.cache.columns.width
    rig.submit(*(asking(f"p{number}", f"example.com/r{number}") for number in range(100)))
    rig.run()
    assert rig.core.cache.columns.width == width
    assert len(rig.core.cache.nodes["n1"].requested) <= width
    assert rig.message("p7").startswith("0/1 nodes are available: 1 Insufficient example.com/r7.")


def test_all_missing_names_of_one_pod_are_named() -> None:
    rig = Rig()
    rig.node("n1")
    rig.submit(pod("a").resources({f"example.com/r{number}": 1 for number in range(70)}))
    rig.run()
    assert all(f"Insufficient example.com/r{number}" in rig.message("a") for number in range(70))


def test_a_request_of_nothing_is_no_reason() -> None:
    rig = Rig()
    rig.node("n1")
    rig.running(asking("static", "example.com/other"), "n1")
    rig.submit(asking("a", "example.com/r", 0))
    rig.run()
    assert rig.where("a") == "n1"


@pytest.mark.parametrize("late", ["same-node", "other-node"])
def test_a_pod_is_placed_when_a_node_offers_its_resource_later(late: str) -> None:
    """One unit for two pods that wait, and for one that is on a node with a request of another such name."""
    rig = Rig()
    rig.node("n1")
    rig.running(asking("static", "example.com/other"), "n1")
    rig.submit(asking("a", "example.com/r"), asking("b", "example.com/r"))
    rig.run()
    assert not rig.where("a")
    where = "n1" if late == "same-node" else "n2"
    rig.node(where, more={"example.com/r": 1})
    rig.clock.advance(10)
    rig.run()
    assert [rig.where("a"), rig.where("b")] == [where, ""]
    rig.delete("a")
    rig.clock.advance(10)
    rig.run()
    assert rig.where("b") == where


def test_pods_on_nodes_count_when_their_resource_is_offered_later() -> None:
    rig = Rig()
    rig.node("n1")
    rig.running(asking("static", "example.com/r", 2), "n1")
    rig.node("n1", more={"example.com/r": 3})
    rig.submit(asking("a", "example.com/r", 2))
    rig.run()
    assert not rig.where("a")
    assert rig.core.cache.nodes["n1"].requested[UNOFFERED_COLUMN] == 0
    rig.delete("static")
    rig.clock.advance(10)
    rig.run()
    assert rig.where("a") == "n1"
