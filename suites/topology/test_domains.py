"""Which domain a node belongs to, and members that come later."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang, node
from seatrial.suites.topology.test_topology import (
    BLOCK,
    MUST,
    SPINE,
    domains,
    in_tree,
    names,
    network,
    on,
    placed_in,
    where,
    workers,
)

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


@pytest.mark.feature("TOPO-1.layers")
@pytest.mark.case("TO-031", severity="normal")
def test_the_first_label_that_a_node_has_names_its_domain(cluster: Trial, expect: Expect) -> None:
    """A layer has two labels. Of a block's two nodes each has another one: a gang of four gathers on both."""
    topology = network()
    topology["spec"]["networkTopologySpec"][1]["labelKey"] = [BLOCK, "example.com/block"]
    cluster.apply(topology)
    cluster.add(
        placed_in("b1-0", "s1", "b1"),
        node("b1-1").gpus("a10", 2).label(SPINE, "s1").label("example.com/block", "b1"),
    )
    in_tree(cluster, 2)
    cluster.apply(gang("train", 4).gather("BlockLayer", MUST))

    cluster.submit(*workers("train", 4))

    expect.bound(*names("train", 4))


@pytest.mark.feature("TOPO-1.left-out")
@pytest.mark.case("TO-032", severity="normal")
def test_a_node_without_a_block_is_a_block_of_its_own(cluster: Trial, expect: Expect) -> None:
    """The only node with room for the gang has a spine and no block: the gang gathers there, and the status has it."""
    cluster.apply(network())
    cluster.add(placed_in("b1-0", "s1", "b1"), node("odd-0").gpus("a10", 4).label(SPINE, "s1"))
    in_tree(cluster, 2)
    cluster.apply(gang("train", 4).gather("BlockLayer", MUST))

    cluster.submit(*workers("train", 4))

    expect.bound(*names("train", 4))
    assert set(where(cluster, "train").values()) == {"odd-0"}
    assert domains(cluster)["BlockLayer/odd-0"] == 1


@pytest.mark.feature("TOPO-1.layers")
@pytest.mark.case("TO-033", severity="critical")
def test_blocks_of_one_name_below_two_spines_are_two_blocks(cluster: Trial, expect: Expect) -> None:
    """Both spines have a block `b`, with two cards each. A gang of four that must gather in a block waits, until one
    of the blocks has four cards."""
    cluster.apply(network())
    cluster.add(placed_in("left-0", "s1", "b"), placed_in("right-0", "s2", "b"))
    in_tree(cluster, 2)
    cluster.apply(gang("train", 4).gather("BlockLayer", MUST))
    cluster.submit(*workers("train", 4))
    expect.stable(seconds=12)
    assert not where(cluster, "train")

    cluster.add(placed_in("right-1", "s2", "b"))

    expect.bound(*names("train", 4), within=40)
    assert set(where(cluster, "train").values()) == {"right-0", "right-1"}


@pytest.mark.feature("TOPO-2.must-gather")
@pytest.mark.case("TO-034", severity="normal")
def test_a_member_that_comes_later_is_placed_alone(cluster: Trial, expect: Expect) -> None:
    """A gang of two fills block b1. A third member finds room in b2 only, and is bound there."""
    cluster.apply(network())
    cluster.add(placed_in("b1-0", "s1", "b1"), placed_in("b2-0", "s1", "b2"))
    in_tree(cluster, 2)
    cluster.submit(on("filler", "b2-0", 1))
    expect.bound("filler")
    cluster.apply(gang("train", 2).gather("BlockLayer", MUST))
    cluster.submit(*workers("train", 2))
    expect.bound(*names("train", 2))
    assert set(where(cluster, "train").values()) == {"b1-0"}

    cluster.submit(*workers("train", 1, first=2))

    expect.bound("train-2")
    assert where(cluster, "train")["train-2"] == "b2-0"
