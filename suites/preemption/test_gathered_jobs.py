"""Job-level preemption for gangs that gather in a network of spines and blocks.

A member asks for one card of an A10 node. The pods in the way are full pods of lower priority.
"""

from collections.abc import Mapping

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import disruption_budget, gang, network_topology, pod, reservation
from seatrial.scheduler.api.builders import node as node_builder
from seatrial.suites.preemption.jobs import PREEMPTING, filler, left, names, nominated, workers
from seatrial.suites.preemption.nominations import freeze
from seatrial.suites.preemption.priorities import classes
from seatrial.suites.topology.topologies import in_tree

__all__ = ["classes"]

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.profile(PREEMPTING)]

SPINE, BLOCK = "network.topology.nvidia.com/spine", "network.topology.nvidia.com/block"


def blocks(trial: Trial, nodes: Mapping[str, tuple[str, ...]], cards: int = 1) -> None:
    """Blocks with their nodes of `cards` cards, all below one spine and counted in the topology's status."""
    trial.apply(network_topology(("SpineLayer", SPINE), ("BlockLayer", BLOCK)))
    trial.add(
        *(
            node_builder(name).gpus("a10", cards).label("host", name).label(SPINE, "s1").label(BLOCK, block)
            for block, listed in nodes.items()
            for name in listed
        )
    )
    in_tree(trial, sum(map(len, nodes.values())))


@pytest.mark.feature("PRE-2.gather")
@pytest.mark.case("JP-040", severity="blocker")
def test_the_victims_are_in_the_domain_that_the_gang_fits_in(classes: Trial, expect: Expect) -> None:
    """Two blocks of two nodes. In each a pod is in the way; that of b1 is cheaper, but an important pod is beside it:
    a gang of two fits in b2 alone. The pod of b2 is evicted, and the gang runs there."""
    blocks(classes, {"b1": ("n1", "n2"), "b2": ("n3", "n4")})
    classes.submit(
        filler("low", "n1"), filler("boss", "n2", priority="trial-top"), filler("middle", "n3", priority="trial-middle")
    )
    expect.running("low", "boss", "middle")
    classes.apply(gang("train", 2).gather("BlockLayer", "MustGather"))

    classes.submit(*workers("train", 2))

    expect.running(*names("train", 2))
    assert sorted(classes.pod(name).spec.node_name.rpartition("-")[2][-2:] for name in names("train", 2)) == [
        "n3",
        "n4",
    ]
    assert left(classes) == ["boss", "low"]


@pytest.mark.feature("PRE-2.gather")
@pytest.mark.case("JP-041", severity="blocker")
def test_no_pod_is_evicted_where_no_domain_would_have_room(classes: Trial, expect: Expect) -> None:
    """Each block has a node with an important pod: without the two low pods there would be room for two members, but
    in two blocks. No pod is evicted, and the members' condition has the number that would fit."""
    blocks(classes, {"b1": ("n1", "n2"), "b2": ("n3", "n4")})
    classes.submit(
        filler("low-1", "n1"),
        filler("boss-2", "n2", priority="trial-top"),
        filler("low-3", "n3"),
        filler("boss-4", "n4", priority="trial-top"),
    )
    expect.running("low-1", "boss-2", "low-3", "boss-4")
    classes.apply(gang("train", 2).gather("BlockLayer", "MustGather"))

    classes.submit(*workers("train", 2))

    expect.pending(*names("train", 2))
    expect.stable(seconds=12)
    assert left(classes) == ["boss-2", "boss-4", "low-1", "low-3"]
    assert nominated(classes, *names("train", 2)) == ["", ""]
    messages = [c.message for name in names("train", 2) for c in classes.pod(name).status.conditions if c.message]
    assert any("BlockLayer/b1: 1" in text.partition("preemption: ")[2] for text in messages), messages


@pytest.mark.feature("PRE-2.gather-cost")
@pytest.mark.case("JP-042", severity="critical")
def test_of_equal_domains_the_cheapest_victims_go(classes: Trial, expect: Expect) -> None:
    """Both blocks are full. The pods of b2 have the lower priority: they go, although b1 is first by name."""
    blocks(classes, {"b1": ("n1", "n2"), "b2": ("n3", "n4")})
    classes.submit(
        filler("middle-1", "n1", priority="trial-middle"),
        filler("middle-2", "n2", priority="trial-middle"),
        filler("low-3", "n3"),
        filler("low-4", "n4"),
    )
    expect.running("middle-1", "middle-2", "low-3", "low-4")
    classes.apply(gang("train", 2).gather("BlockLayer", "MustGather"))

    classes.submit(*workers("train", 2))

    expect.running(*names("train", 2))
    assert left(classes) == ["middle-1", "middle-2"]


@pytest.mark.feature("PRE-2.gather-cost")
@pytest.mark.case("PR-267", severity="normal", source="spec GANG-D5, GANG-R78")
@pytest.mark.parametrize(("guarded", "other"), [("b1", "b2"), ("b2", "b1")])
def test_a_budget_protects_the_pods_of_a_domain(classes: Trial, expect: Expect, guarded: str, other: str) -> None:
    """Both blocks are full. The pods of one have the lower priority and a budget that allows no disruption: those of
    the other one go."""
    nodes = {"b1": ("n1", "n2"), "b2": ("n3", "n4")}
    blocks(classes, nodes)
    classes.apply(disruption_budget("keep", {"app": "guarded"}, min_available=2))
    low = [filler(f"low-{name}", name).label("app", "guarded") for name in nodes[guarded]]
    middle = [filler(f"middle-{name}", name, priority="trial-middle") for name in nodes[other]]
    classes.submit(*low, *middle)
    expect.running(*(built.name for built in (*low, *middle)))
    classes.settle(2)  # the budget's status counts them
    classes.apply(gang("train", 2).gather("BlockLayer", "MustGather"))

    classes.submit(*workers("train", 2))

    expect.running(*names("train", 2))
    assert left(classes) == [built.name for built in low]


@pytest.mark.feature("PRE-2.gather")
@pytest.mark.case("JP-073", severity="critical")
def test_reserved_room_of_a_gathered_gang_counts(classes: Trial, expect: Expect) -> None:
    """One of two cards of the only node is reserved for the gang, the other one is used by a pod of low priority. A
    member that asks for both fits when that pod goes."""
    blocks(classes, {"b1": ("n1",)}, cards=2)
    reserved = pod("x").gpus(1).scheduler(PREEMPTING).on(host="n1")
    classes.reserve(reservation("held").like(reserved).for_labels(app="owner").many())
    expect.available("held")
    classes.submit(filler("low", "n1"))
    expect.running("low")
    classes.apply(gang("train", 1).gather("BlockLayer", "MustGather"))

    classes.submit(*(built.label("app", "owner") for built in workers("train", 1, cards=2)))

    expect.running("train-0")
    assert left(classes) == []


@pytest.mark.feature("PRE-2.gather")
@pytest.mark.case("PR-114", severity="normal", source="spec GANG-R78")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # pods that take their time to end
@pytest.mark.parametrize(("ending", "other"), [("b1", "b2"), ("b2", "b1")])
def test_pods_that_end_make_room_for_a_gathered_gang(classes: Trial, expect: Expect, ending: str, other: str) -> None:
    """Two blocks of two nodes are full. The pods of one are being deleted and end slowly: the gang waits for them, and
    no other pod goes."""
    nodes = {"b1": ("n1", "n2"), "b2": ("n3", "n4")}
    blocks(classes, nodes)
    classes.submit(*(filler(f"low-{name}", name, grace=60) for listed in nodes.values() for name in listed))
    expect.running(*(f"low-{name}" for listed in nodes.values() for name in listed))
    for name in nodes[ending]:
        classes.inject({"node": name, "verb": "frozen"})
        assert classes.call("DELETE", classes.path("Pod", f"low-{name}")).ok
    classes.settle(2)
    classes.apply(gang("train", 2).gather("BlockLayer", "MustGather"))

    classes.submit(*workers("train", 2))

    assert classes.reaches(lambda: sorted(nominated(classes, *names("train", 2))) == sorted(nodes[ending]), within=20)
    expect.stable(seconds=5)
    assert left(classes) == [f"low-{name}" for name in nodes[other]]


@pytest.mark.feature("PRE-2.gather", "PRE-3.holds-capacity")
@pytest.mark.case("PR-295", severity="critical", source="spec GANG-R87, GANG-R88")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # simulated containers end soon, whatever their grace period is
def test_the_room_of_a_gang_is_held_when_it_is_tried_again(classes: Trial, expect: Expect) -> None:
    """One of two victims has ended, the other one ends slowly. A pod leaves n3, where two cards have 60 % left: by sums
    there is room for a member, so that the gang is tried again. The free card is not given to another pod."""
    blocks(classes, {"b1": ("n1", "n2")})
    classes.add(node_builder("n3").gpus("a10", 2).label("host", "n3").label(SPINE, "s1").label(BLOCK, "b1"))
    shares = [pod(f"share-{number}").gpu_share(40).priority_class("trial-top").on(host="n3") for number in range(2)]
    leaves = pod("leaves").request(cpu=1).priority_class("trial-top").on(host="n3")
    classes.submit(filler("quick", "n1"), filler("slow", "n2", grace=600), *shares, leaves)
    expect.running("quick", "slow", "share-0", "share-1", "leaves")
    freeze(classes, "n2")
    classes.apply(gang("train", 2).gather("BlockLayer", "MustGather"))
    classes.submit(*workers("train", 2, priority="trial-high"))
    expect.gone("quick", "slow")
    assert classes.reaches(lambda: sorted(nominated(classes, *names("train", 2))) == ["n1", "n2"], within=10)
    expect.stable(seconds=12)

    classes.delete("leaves")
    expect.stable(seconds=5)

    classes.submit(filler("next", "n1"))
    expect.pending("next")
