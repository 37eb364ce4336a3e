"""Which domain a gang gets, and which nodes there, by rules besides the number of free places.

Nodes have A10 cards, and a member asks for one card, so room is a number of cards.
"""

from collections import Counter

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang, pod, reservation
from seatrial.scheduler.api.networktopology import NODE_LAYER, TOPOLOGY_SELECTOR
from seatrial.suites.topology.topologies import (
    BLOCK,
    MUST,
    PREFER,
    SOLVER,
    SPINE,
    blocks,
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


@pytest.mark.feature("TOPO-2.must-gather")
@pytest.mark.case("TO-040", severity="critical")
@pytest.mark.long(seconds=4)
def test_a_gang_that_must_be_on_one_node_waits_for_it(trial: Trial, expect: Expect) -> None:
    """Both nodes of the block have two cards. A gang of three that must gather on a node waits for one with three."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1"), placed_in("b1-1", "s1", "b1"))
    in_tree(trial, 2)
    trial.apply(gang("train", 3).gather(NODE_LAYER, MUST))
    trial.submit(*workers("train", 3))
    expect.stable(seconds=12)
    assert not where(trial, "train")

    trial.delete(*names("train", 3))
    trial.add(placed_in("b1-2", "s1", "b1", cards=3))
    in_tree(trial, 3)
    trial.submit(*workers("train", 3))

    expect.bound(*names("train", 3))
    assert set(where(trial, "train").values()) == {"b1-2"}


@pytest.mark.feature("TOPO-2.best-domain")
@pytest.mark.case("TO-041", severity="normal")
@pytest.mark.parametrize("order", [("b1-0", "b1-1", "b1-2"), ("b1-2", "b1-1", "b1-0")], ids=["up", "down"])
def test_of_equal_nodes_of_a_domain_the_name_decides(trial: Trial, expect: Expect, order: tuple[str, ...]) -> None:
    """Three nodes of a block have one card each, made in both orders: a gang of two takes the first two by name."""
    trial.apply(network())
    for name in order:
        trial.add(placed_in(name, "s1", "b1", cards=1))
    in_tree(trial, 3)
    trial.apply(gang("train", 2).gather("BlockLayer", MUST))

    trial.submit(*workers("train", 2))

    expect.bound(*names("train", 2))
    assert sorted(where(trial, "train").values()) == ["b1-0", "b1-1"]


@pytest.mark.feature("TOPO-2.selector")
@pytest.mark.case("TO-042", severity="normal", source="ours")
def test_inside_of_a_domain_the_node_of_a_peer_is_first(trial: Trial, expect: Expect) -> None:
    """Three nodes of a block have two, one and two free cards; a peer of the gang is on the second one. A gang of three
    takes the card beside the peer, and both cards of one other node."""
    trial.apply(network())
    trial.add(*(placed_in(f"b1-{number}", "s1", "b1") for number in range(3)))
    in_tree(trial, 3)
    trial.submit(on("peer", "b1-1", 1).annotation(TOPOLOGY_SELECTOR, "ring"))
    expect.bound("peer")
    trial.apply(gang("train", 3).gather("BlockLayer", MUST))

    trial.submit(*(built.annotation(TOPOLOGY_SELECTOR, "ring") for built in workers("train", 3)))

    expect.bound(*names("train", 3))
    assert Counter(where(trial, "train").values()) == {"b1-1": 1, "b1-0": 2}


@pytest.mark.feature("TOPO-1.follows", "TOPO-1.status")
@pytest.mark.case("TO-043", severity="critical")
def test_a_node_that_is_gone_leaves_its_domains(trial: Trial) -> None:
    """One of two nodes of block b1 is deleted, then the other one: the status counts one, and then has no b1."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1"), placed_in("b1-1", "s1", "b1"), placed_in("b2-0", "s1", "b2"))
    in_tree(trial, 3)

    assert trial.call("DELETE", "/api/v1/nodes/b1-1").ok

    in_tree(trial, 2)
    assert domains(trial).get("BlockLayer/b1") == 1
    assert trial.call("DELETE", "/api/v1/nodes/b1-0").ok
    in_tree(trial, 1)
    assert "BlockLayer/b1" not in domains(trial)


@pytest.mark.feature("TOPO-2.multiples")
@pytest.mark.case("TO-044", severity="normal", source=SOLVER)
def test_members_in_a_block_are_a_multiple(trial: Trial, expect: Expect) -> None:
    """Two blocks of one spine have three cards each. Members in a block have to be a multiple of two: of four members
    two are in each block, not three and one."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1", cards=3), placed_in("b2-0", "s1", "b2", cards=3))
    in_tree(trial, 2)
    trial.apply(gang("train", 4).gather("SpineLayer", MUST).gather("BlockLayer", PREFER, multiple=2))

    trial.submit(*workers("train", 4))

    expect.bound(*names("train", 4))
    assert blocks(trial, "train") == {"b1": 2, "b2": 2}


@pytest.mark.feature("TOPO-2.best-domain")
@pytest.mark.case("TO-045", severity="normal", source="ours")
@pytest.mark.parametrize(("busy", "idle"), [("b1", "b2"), ("b2", "b1")], ids=["b1-busy", "b2-busy"])
def test_of_equal_domains_the_one_with_the_better_nodes_is_taken(
    trial: Trial, expect: Expect, busy: str, idle: str
) -> None:
    """Both blocks have two nodes with one free card each. The nodes of one block have most of their CPUs in use: a gang
    of two takes the other block."""
    trial.apply(network())
    trial.add(*(placed_in(f"{block}-{number}", "s1", block, cards=1) for block in ("b1", "b2") for number in (0, 1)))
    in_tree(trial, 4)
    trial.submit(
        *(
            pod(f"load-{number}").request(cpu=6).select({"kubernetes.io/hostname": f"{busy}-{number}"})
            for number in (0, 1)
        )
    )
    expect.bound("load-0", "load-1")
    trial.apply(gang("train", 2).gather("BlockLayer", MUST))

    trial.submit(*workers("train", 2))

    expect.bound(*names("train", 2))
    assert blocks(trial, "train") == {idle: 2}


@pytest.mark.feature("TOPO-2.devices")
@pytest.mark.case("TO-046", severity="critical")
def test_the_room_of_the_gangs_reservation_counts_in_its_domain(trial: Trial, expect: Expect) -> None:
    """Block b1 has one free card. Both cards of the node of b2 are reserved for the gang of two: it gathers in b2."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1", cards=1), placed_in("b2-0", "s1", "b2"))
    in_tree(trial, 2)
    trial.reserve(reservation("held").like(on("x", "b2-0", 2)).for_labels(app="owner").many())
    expect.available("held")
    trial.apply(gang("train", 2).gather("BlockLayer", MUST))

    trial.submit(*(built.label("app", "owner") for built in workers("train", 2)))

    expect.bound(*names("train", 2))
    assert blocks(trial, "train") == {"b2": 2}


@pytest.mark.feature("TOPO-2.groups")
@pytest.mark.case("TO-047", severity="normal", source="ours")
@pytest.mark.long(seconds=4)
@pytest.mark.parametrize("ruled", ["a", "b"])
def test_one_gang_of_a_group_may_have_the_rules(trial: Trial, expect: Expect, ruled: str) -> None:
    """Two gangs of a group, of which one has the rule, on two blocks with three cards each: all four members wait for
    one block, and take a third one that has four."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1", cards=3), placed_in("b2-0", "s1", "b2", cards=3))
    in_tree(trial, 2)
    both = [f"{trial.name}/a", f"{trial.name}/b"]
    for name in ("a", "b"):
        built = gang(name, 2).together_with(*both)
        trial.apply(built.gather("BlockLayer", MUST) if name == ruled else built)
    trial.submit(*workers("a", 2), *workers("b", 2))
    expect.stable(seconds=12)
    assert not where(trial, "a")
    assert not where(trial, "b")

    trial.add(placed_in("b3-0", "s1", "b3", cards=4))

    expect.bound(*names("a", 2), *names("b", 2), within=40)
    assert blocks(trial, "a") + blocks(trial, "b") == {"b3": 4}


@pytest.mark.feature("TOPO-1.follows", "TOPO-2.must-gather")
@pytest.mark.case("TO-049", severity="critical", source="spec GANG-R48, GANG-R49")
@pytest.mark.long(seconds=4)
@pytest.mark.parametrize(
    "labels",
    [{SPINE: None}, {BLOCK: None}, {BLOCK: "b2"}, {SPINE: "s2", BLOCK: "b2"}],
    ids=["no-spine", "no-block", "block", "spine"],
)
def test_a_node_with_other_labels_leaves_its_block(trial: Trial, expect: Expect, labels: dict[str, str | None]) -> None:
    """Both nodes of a block have two cards. One gets other labels: a gang of four that must gather in a block waits.
    The node has its labels again: other members of the gang start."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1"), placed_in("b1-1", "s1", "b1"))
    in_tree(trial, 2)
    path = "/api/v1/nodes/b1-1"
    assert trial.call("PATCH", path, {"metadata": {"labels": labels}}).ok
    assert trial.reaches(lambda: domains(trial).get("BlockLayer/b1") == 1, within=30), domains(trial)
    trial.apply(gang("train", 4).gather("BlockLayer", MUST))
    trial.submit(*workers("train", 4))
    expect.stable(seconds=12)
    assert not where(trial, "train")

    trial.delete(*names("train", 4))
    assert trial.call("PATCH", path, {"metadata": {"labels": {SPINE: "s1", BLOCK: "b1"}}}).ok
    assert trial.reaches(lambda: domains(trial).get("BlockLayer/b1") == 2, within=30), domains(trial)
    trial.submit(*workers("train", 4))

    expect.bound(*names("train", 4))


@pytest.mark.feature("TOPO-2.multiples", "TOPO-2.best-domain")
@pytest.mark.case("TO-054", severity="normal", source=SOLVER)
@pytest.mark.parametrize(("odd", "even"), [("s1", "s2"), ("s2", "s1")], ids=["first", "last"])
def test_room_above_is_the_sum_of_multiples(trial: Trial, expect: Expect, odd: str, even: str) -> None:
    """Members in a block are a multiple of two. One spine has blocks of three, three and one card, which is room for
    four; the other one three blocks of two. A gang of four takes the spine with less room, though it has more cards."""
    trial.apply(network())
    for spine, prefix, room in ((odd, "odd", (3, 3, 1)), (even, "even", (2, 2, 2))):
        trial.add(*(placed_in(f"{prefix}{n}-0", spine, f"{prefix}{n}", cards=cards) for n, cards in enumerate(room)))
    in_tree(trial, 6)
    trial.apply(gang("train", 4).gather("SpineLayer", MUST).gather("BlockLayer", PREFER, multiple=2))

    trial.submit(*workers("train", 4))

    expect.bound(*names("train", 4))
    assert blocks(trial, "train") == {"odd0": 2, "odd1": 2}


@pytest.mark.feature("TOPO-2.selector", "TOPO-2.best-domain")
@pytest.mark.case("TO-056", severity="normal", source=SOLVER)
@pytest.mark.parametrize(("here", "there"), [("s1", "s2"), ("s2", "s1")], ids=["first", "last"])
def test_a_peer_in_the_spine_attracts(trial: Trial, expect: Expect, here: str, there: str) -> None:
    """Two blocks have room for the gang. Beside one there is a block with a peer, so that its spine has more room: the
    gang goes to the block in the spine of its peer."""
    trial.apply(network())
    trial.add(placed_in("near-0", here, "near"), placed_in("peer-0", here, "peer"), placed_in("far-0", there, "far"))
    in_tree(trial, 3)
    trial.submit(on("peer", "peer-0", 1).annotation(TOPOLOGY_SELECTOR, "ring"))
    expect.bound("peer")
    trial.apply(gang("train", 2).gather("BlockLayer", MUST))

    trial.submit(*(built.annotation(TOPOLOGY_SELECTOR, "ring") for built in workers("train", 2)))

    expect.bound(*names("train", 2))
    assert blocks(trial, "train") == {"near": 2}


@pytest.mark.feature("TOPO-2.multiples")
@pytest.mark.case("TO-073", severity="normal", source=SOLVER)
@pytest.mark.parametrize("layers", [("BlockLayer", NODE_LAYER), (NODE_LAYER, "BlockLayer")], ids="-".join)
def test_members_are_a_multiple_in_two_layers(trial: Trial, expect: Expect, layers: tuple[str, str]) -> None:
    """Members in a block are a multiple of four and those on a node of two, in either order of the rules. Two
    blocks have a node of three cards and one of four: a gang of eight has four members in each."""
    multiples = {"BlockLayer": 4, NODE_LAYER: 2}
    trial.apply(network())
    cards = {"b1-0": 3, "b1-1": 4, "b2-0": 3, "b2-1": 4}
    trial.add(*(placed_in(name, "s1", name.partition("-")[0], cards=count) for name, count in cards.items()))
    in_tree(trial, len(cards))
    rules = gang("train", 8).gather("SpineLayer", MUST)
    for layer in layers:
        rules.gather(layer, PREFER, multiple=multiples[layer])
    trial.apply(rules)

    trial.submit(*workers("train", 8))

    expect.bound(*names("train", 8))
    assert blocks(trial, "train") == {"b1": 4, "b2": 4}
    assert not [node for node, count in Counter(where(trial, "train").values()).items() if count % 2]


@pytest.mark.feature("TOPO-2.multiples")
@pytest.mark.case("TO-057", severity="normal", source=SOLVER)
@pytest.mark.long(seconds=4)
@pytest.mark.parametrize(("layer", "nodes"), [("BlockLayer", 1), ("BlockLayer", 2), (NODE_LAYER, 1)])
def test_a_gang_that_is_no_multiple_waits(trial: Trial, expect: Expect, layer: str, nodes: int) -> None:
    """Two blocks with nodes of two cards each. Members of a block, or of a node, are a multiple of two: a gang of four
    starts; a gang of three, for which there is room too, waits."""
    trial.apply(network())
    trial.add(*(placed_in(f"{block}-{number}", "s1", block) for block in ("b1", "b2") for number in range(nodes)))
    in_tree(trial, 2 * nodes)
    for name, count in (("odd", 3), ("even", 4)):
        trial.apply(gang(name, count).gather("SpineLayer", MUST).gather(layer, PREFER, multiple=2))
        trial.submit(*workers(name, count))
        expect.stable(seconds=5) if name == "odd" else expect.bound(*names(name, count))
        assert not where(trial, "odd")


@pytest.mark.feature("TOPO-2.said")
@pytest.mark.case("TO-170", severity="normal", source="spec GANG-M17, GANG-M18")
def test_a_gang_that_is_no_multiple_says_so(trial: Trial, expect: Expect) -> None:
    """A block has room for a gang of three, whose members are a multiple of two there: it offers two."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1", cards=4))
    in_tree(trial, 1)
    trial.apply(gang("odd", 3).gather("BlockLayer", MUST, multiple=2))
    trial.submit(*workers("odd", 3))
    expect.pending(*names("odd", 3), saying="desiredOfferSlot: 3, topology topologyNode BlockLayer/b1: 2")
    expect.pending("odd-0", saying="podCountMultiple constraints: BlockLayer=2")


@pytest.mark.feature("TOPO-2.best-domain")
@pytest.mark.case("TO-130", severity="critical", source="spec GANG-R57, GANG-R58")
@pytest.mark.parametrize("strategy", [MUST, PREFER])
def test_the_tightest_of_the_deepest_layer(trial: Trial, expect: Expect, strategy: str) -> None:
    """Blocks of a spine have room for four and three, and their nodes for two at most. A gang of three that gathers in
    a spine goes to the block of three, as no node can have it."""
    trial.apply(network())
    trial.add(*(placed_in(name, "s1", "b1") for name in ("b1-0", "b1-1")))
    trial.add(placed_in("b2-0", "s1", "b2"), placed_in("b2-1", "s1", "b2", cards=1))
    in_tree(trial, 4)
    trial.apply(gang("train", 3).gather("SpineLayer", strategy))

    trial.submit(*workers("train", 3))

    expect.bound(*names("train", 3))
    assert blocks(trial, "train") == {"b2": 3}


@pytest.mark.feature("TOPO-2.must-gather", "GANG-1.replaced")
@pytest.mark.case("TO-166", severity="normal", source="ours")
@pytest.mark.long(seconds=3)
@pytest.mark.parametrize("minimum", [1, 3])
def test_one_of_two_replacements_is_enough(trial: Trial, expect: Expect, minimum: int) -> None:
    """Three members, of which those that are bound count, fill the node of a block, and two more wait. One is deleted:
    one of the two is bound."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1", cards=3))
    in_tree(trial, 1)
    trial.apply(gang("train", minimum).match_policy("waiting-and-running").gather("BlockLayer", MUST))
    trial.submit(*workers("train", 3))
    expect.bound(*names("train", 3))
    trial.submit(*workers("train", 2, first=3))
    expect.pending("train-3", "train-4")

    trial.delete("train-0")

    assert trial.reaches(lambda: len(where(trial, "train")) == 3, within=40), where(trial, "train")
