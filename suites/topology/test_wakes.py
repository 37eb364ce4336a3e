"""Gangs that wait for a domain of the network are tried again when a topology, nodes, room or other rules come."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import gang
from seatrial.suites.topology.topologies import (
    MUST,
    blocks,
    crowded,
    in_tree,
    names,
    network,
    on,
    placed_in,
    where,
    workers,
)

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


def gathers_in(trial: Trial, group: str, layer: str) -> None:
    """Write to a PodGroup that it must gather in a domain of this layer."""
    annotations = gang(group, 1).gather(layer, MUST).manifest["metadata"]["annotations"]
    answer = trial.call("PATCH", trial.path("PodGroup", group), {"metadata": {"annotations": annotations}})
    assert answer.ok, answer


@pytest.mark.feature("TOPO-2.waking")
@pytest.mark.case("TO-020", severity="critical", source="ours: within 40 s, not five minutes")
def test_a_topology_that_comes_later_wakes_the_gang(trial: Trial, expect: Expect) -> None:
    """Without a ClusterNetworkTopology the gang waits; it is bound in one block when there is one. No other case has
    nodes of these names, so Koordinator, which keeps the tree of a topology that is gone, knows none of them."""
    trial.add(placed_in("c1-0", "s1", "c1"), placed_in("c2-0", "s1", "c2"), placed_in("c2-1", "s1", "c2"))
    trial.apply(gang("train", 4).gather("BlockLayer", MUST))
    trial.submit(*workers("train", 4))
    expect.pending(*names("train", 4))
    expect.stable(seconds=15)  # the backoff after the failure ends

    trial.apply(network())

    expect.bound(*names("train", 4), within=40)
    assert blocks(trial, "train") == {"c2": 4}


@pytest.mark.feature("TOPO-2.must-gather")
@pytest.mark.case("TO-162", severity="normal", source="spec GANG-R5, GANG-R55")
def test_the_rules_that_a_pod_group_has_now_count(trial: Trial, expect: Expect) -> None:
    """The PodGroup of a gang of five says that it gathers in a block, and then in a spine: no block has room, and its
    members are bound in s1."""
    crowded(trial, expect)
    trial.apply(gang("train", 5).gather("BlockLayer", MUST))
    trial.pass_time(2)
    gathers_in(trial, "train", "SpineLayer")
    trial.pass_time(2)

    trial.submit(*workers("train", 5))

    expect.bound(*names("train", 5))
    assert set(blocks(trial, "train")) == {"b1", "b2"}


@pytest.mark.feature("TOPO-2.waking")
@pytest.mark.case("TO-163", severity="normal", source="ours: within 40 s, not five minutes")
@pytest.mark.long(seconds=12)
def test_rules_that_change_wake_the_gang(trial: Trial, expect: Expect) -> None:
    """A gang of five waits for a block. Its PodGroup then says that it gathers in a spine: it is bound in s1."""
    crowded(trial, expect)
    trial.apply(gang("train", 5).gather("BlockLayer", MUST))
    trial.submit(*workers("train", 5))
    expect.pending(*names("train", 5))

    gathers_in(trial, "train", "SpineLayer")

    expect.bound(*names("train", 5), within=40)
    assert set(blocks(trial, "train")) == {"b1", "b2"}


@pytest.mark.feature("TOPO-2.must-gather", "GANG-2.nonstrict")
@pytest.mark.case("TO-164", severity="normal", source="ours")
def test_members_that_hold_places_follow_rules_that_come_later(trial: Trial, expect: Expect) -> None:
    """Two of three members of a NonStrict gang hold the card of a block each. Its PodGroup then says that it gathers in
    a block: with a third block that has three cards, all members are there."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1", cards=1), placed_in("b2-0", "s1", "b2", cards=1))
    in_tree(trial, 2)
    trial.apply(gang("train", 3).mode("NonStrict").waiting_time(600))
    trial.submit(*workers("train", 3))
    expect.stable(seconds=5)
    gathers_in(trial, "train", "BlockLayer")
    trial.pass_time(2)

    trial.add(placed_in("b3-0", "s1", "b3", cards=3))

    expect.bound(*names("train", 3), within=40)
    assert blocks(trial, "train") == {"b3": 3}


@pytest.mark.feature("TOPO-2.waking")
@pytest.mark.case("TO-021", severity="critical", source="ours: within 40 s, not five minutes")
@pytest.mark.long(seconds=11)
def test_a_node_that_comes_later_wakes_the_gang(trial: Trial, expect: Expect) -> None:
    """A gang of six waits. Three nodes come, each in another block; only the last one completes a block of six."""
    crowded(trial, expect)
    trial.apply(gang("train", 6).gather("BlockLayer", MUST))
    trial.submit(*workers("train", 6))
    expect.stable(seconds=3)
    for block, spine in (("b1", "s1"), ("b3", "s2")):
        trial.add(placed_in(f"{block}-2", spine, block))
        expect.stable(seconds=12)
        assert not where(trial, "train")

    trial.add(placed_in("b2-2", "s1", "b2"))

    expect.bound(*names("train", 6), within=40)
    assert blocks(trial, "train") == {"b2": 6}


@pytest.mark.feature("TOPO-2.restart")
@pytest.mark.case("TO-022", severity="critical")
@pytest.mark.long(seconds=8)
def test_restarted_while_a_gang_waits(trial: Trial, expect: Expect, subject: Subject | None) -> None:
    """The scheduler is killed while a gang of four waits for a block. A pod leaves: the successor gathers it there."""
    if subject is None:
        pytest.skip("needs a scheduler that the harness started, found one that was deployed")
    crowded(trial, expect)
    trial.submit(on("z", "b2-0", 1))
    expect.bound("z")
    trial.apply(gang("train", 4).gather("BlockLayer", MUST))
    trial.submit(*workers("train", 4))
    expect.stable(seconds=3)

    subject.kill()
    assert not where(trial, "train")
    trial.delete("y")
    subject.start_again()

    expect.bound(*names("train", 4), within=40)
    assert blocks(trial, "train") == {"b3": 4}
