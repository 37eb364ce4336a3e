"""Gangs gather in the domains of a network of spines and blocks.

Nodes have A10 cards, and a member asks for one card unless the case says otherwise, so room is a number of cards. The
scheduler's own order of nodes would spread the members.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from seatrial.fixtures.cluster import Ask
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang, network_topology, node, pod, priority_class
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.networktopology import GATHER_SPEC, TOPOLOGY_SELECTOR
from seatrial.scheduler.api.podgroup import NETWORK_TOPOLOGY_INDEX
from seatrial.suites.topology.topologies import (
    BLOCK,
    INDEX,
    MUST,
    PATH,
    PREFER,
    PROPOSAL,
    SELECTOR,
    SOLVER,
    SPINE,
    blocks,
    crowded,
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

RELEASED = Path(__file__).parents[1] / "manifests/v1.7/config/network-topology.config.yaml"


# -- the tree ---------------------------------------------------------------------------------------------------------


@pytest.mark.feature("TOPO-1.layers", "TOPO-1.status")
@pytest.mark.case("TO-001", severity="critical")
def test_the_status_lists_the_domains(trial: Trial) -> None:
    """Four nodes in three blocks of two spines: the status has the tree with the number of nodes of each domain."""
    trial.apply(network())
    trial.add(
        placed_in("b3-0", "s2", "b3"),
        placed_in("b2-0", "s1", "b2"),
        placed_in("b1-1", "s1", "b1"),
        placed_in("b1-0", "s1", "b1"),
    )
    expected = {
        "ClusterTopologyLayer/": 4,
        "SpineLayer/s1": 3,
        "BlockLayer/b1": 2,
        "BlockLayer/b2": 1,
        "SpineLayer/s2": 1,
        "BlockLayer/b3": 1,
    }
    assert trial.reaches(lambda: domains(trial) == expected, within=30), domains(trial)
    assert list(domains(trial)) == list(expected), "expected the domains depth first, children by name"
    rows = orjson.loads(trial.call("GET", PATH).body)["status"]["detailStatus"]
    spines = [row for row in rows if row["topologyInfo"]["topologyLayer"] == "SpineLayer"]
    parents = [row.get("parentTopologyInfo", {}).get("topologyLayer") for row in spines]
    assert parents == ["ClusterTopologyLayer"] * 2
    assert [row["childTopologyNames"] for row in spines] == [["b1", "b2"], ["b3"]]


@pytest.mark.feature("TOPO-2.waking")
@pytest.mark.case("TO-002", severity="critical", source="ours: within 40 s, not five minutes")
@pytest.mark.long(seconds=4)
def test_the_tree_follows_the_labels(trial: Trial, expect: Expect) -> None:
    """Neither block has room for a gang of four. A node of the other block is labelled anew, which completes b1; its
    gang is bound there, and the status shows the move."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1"), placed_in("b2-0", "s1", "b2"))
    trial.apply(gang("train", 4).gather("BlockLayer", MUST))
    trial.submit(*workers("train", 4))
    expect.stable(seconds=5)
    assert not where(trial, "train")

    assert trial.call("PATCH", "/api/v1/nodes/b2-0", {"metadata": {"labels": {BLOCK: "b1"}}}).ok

    expect.bound(*names("train", 4), within=40)
    assert trial.reaches(lambda: domains(trial).get("BlockLayer/b1") == 2, within=30), domains(trial)
    assert "BlockLayer/b2" not in domains(trial)


@pytest.mark.feature("TOPO-1.invalid")
@pytest.mark.case("TO-003", severity="normal", source="ours")
@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([("NodeTopologyLayer", "RackLayer")], '"RackLayer" not found in spec'),
        ([("A", "B"), ("B", "A"), ("NodeTopologyLayer", "A")], "cycle"),
        ([("A", ""), ("B", ""), ("NodeTopologyLayer", "A")], "one chain"),
        ([("A", "")], '"NodeTopologyLayer" not found in spec'),
        ([("A", ""), ("A", ""), ("NodeTopologyLayer", "A")], "expected one entry, found several"),
        ([("Keyless", ""), ("NodeTopologyLayer", "Keyless")], "expected a node label in labelKey"),
    ],
    ids=["unknown-parent", "cycle", "two-roots", "no-nodes", "twice", "no-label"],
)
def test_layers_that_are_no_chain(trial: Trial, expect: Expect, layers: list[tuple[str, str]], message: str) -> None:
    """The topology is changed to layers that are no chain: an event has the reason; the previous layers stay in use."""
    crowded(trial, expect)
    assert trial.reaches(lambda: bool(domains(trial)), within=30)
    entries = [
        {"topologyLayer": name, "parentTopologyLayer": parent, "labelKey": [] if name == "Keyless" else [SPINE]}
        for name, parent in layers
    ]
    assert trial.call("PATCH", PATH, {"spec": {"networkTopologySpec": entries}}).ok

    def has_event() -> bool:
        return any(
            message in event.message
            for event in trial.events("default", namespace="default")
            if event.reason == "InvalidTopology"
        )

    assert trial.reaches(has_event, within=30), trial.events("default", namespace="default")
    trial.apply(gang("train", 4).gather("BlockLayer", MUST))
    trial.submit(*workers("train", 4))
    expect.bound(*names("train", 4))
    assert blocks(trial, "train") == {"b2": 4}


@pytest.mark.feature("TOPO-1.left-out")
@pytest.mark.case("TO-004", severity="critical", source="ours")
@pytest.mark.parametrize("change", ["label", "layers"])
def test_a_node_without_a_spine_holds_no_gathered_gang(trial: Trial, expect: Expect, change: str) -> None:
    """A node of four cards has no spine label: the gang of four waits and names it, until the label is set, or spines
    are no layer any more. A gang that no block has room for does not name it then."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1"), node("odd-0").gpus("a10", 4).label(BLOCK, "odd"))
    trial.apply(gang("train", 4).gather("BlockLayer", MUST))
    trial.submit(*workers("train", 4))
    expect.pending(*names("train", 4), saying='node "odd-0" missing network topology layer "SpineLayer"')
    expect.stable(seconds=5)

    if change == "label":
        assert trial.call("PATCH", "/api/v1/nodes/odd-0", {"metadata": {"labels": {SPINE: "s2"}}}).ok
    else:
        assert trial.call("PATCH", PATH, {"spec": network_topology(("BlockLayer", BLOCK))["spec"]}).ok

    expect.bound(*names("train", 4), within=40)
    trial.apply(gang("large", 5).gather("BlockLayer", MUST))
    trial.submit(*workers("large", 5))
    expect.pending(*names("large", 5), saying="no candidate topology nodes")
    assert not [event for event in trial.events("large-0") if "missing" in event.message]


# -- gathering --------------------------------------------------------------------------------------------------------


@pytest.mark.feature("TOPO-2.must-gather")
@pytest.mark.case("TO-010", severity="blocker")
def test_must_gather_finds_the_only_block(trial: Trial, expect: Expect) -> None:
    """Ten cards are free in three blocks, four of them in b2: a gang of four that must gather in a block is there."""
    crowded(trial, expect)
    trial.apply(gang("train", 4).gather("BlockLayer", MUST))

    trial.submit(*workers("train", 4))

    expect.bound(*names("train", 4))
    assert blocks(trial, "train") == {"b2": 4}


@pytest.mark.feature("TOPO-2.must-gather", "GANG-5.annotations")
@pytest.mark.case("TO-165", severity="critical", source="spec GANG-R2, GANG-R55")
def test_annotated_pods_gather(trial: Trial, expect: Expect) -> None:
    """Four pods make a gang without a PodGroup, and say that it must gather in a block: all are in b2."""
    crowded(trial, expect)
    rules = gang("train", 4).gather("BlockLayer", MUST).manifest["metadata"]["annotations"][GATHER_SPEC]

    trial.submit(
        *(pod(name).gpus(1).in_light_gang("train", 4).annotation(GATHER_SPEC, rules) for name in names("train", 4))
    )

    expect.bound(*names("train", 4))
    assert blocks(trial, "train") == {"b2": 4}


@pytest.mark.feature("TOPO-2.must-gather", "TOPO-2.said")
@pytest.mark.case("TO-011", severity="blocker")
@pytest.mark.long(seconds=4)
def test_must_gather_waits_for_one_domain(trial: Trial, expect: Expect) -> None:
    """No block has five of the ten free cards: the gang of five waits, and its message has the number that fits
    in each block. When a pod leaves a block of four cards, that is still too few; a third node in b3 has room."""
    crowded(trial, expect)
    trial.apply(gang("train", 5).gather("BlockLayer", MUST))
    trial.submit(*workers("train", 5))
    expect.pending(
        *names("train", 5),
        saying="desiredOfferSlot: 5, topology topologyNode BlockLayer/b1: 3;topology topologyNode BlockLayer/b2: 4;"
        "topology topologyNode BlockLayer/b3: 3",
    )
    trial.delete("x")
    expect.stable(seconds=12)
    assert not where(trial, "train")

    trial.delete(*names("train", 5))
    trial.add(placed_in("b3-2", "s2", "b3"))
    in_tree(trial, 7)
    trial.submit(*workers("train", 5))

    expect.bound(*names("train", 5))
    assert blocks(trial, "train") == {"b3": 5}


@pytest.mark.feature("TOPO-2.said")
@pytest.mark.case("TO-160", severity="normal", source="spec GANG-R54, GANG-R62")
def test_the_room_for_members_of_two_sizes(trial: Trial, expect: Expect) -> None:
    """Two nodes of block b1 have one card each, that of b2 has two. A gang of a member with two cards and one with one
    card must gather in a block: it waits, and no block has room for both."""
    trial.apply(network())
    trial.add(*(placed_in(f"b1-{number}", "s1", "b1", cards=1) for number in range(2)), placed_in("b2-0", "s1", "b2"))
    in_tree(trial, 3)
    trial.apply(gang("train", 2).gather("BlockLayer", MUST))

    trial.submit(pod("train-0").gpus(2).in_gang("train"), *workers("train", 1, first=1))

    expect.pending(*names("train", 2), saying="desiredOfferSlot: 2, topology topologyNode BlockLayer/b1: 0;")
    assert not where(trial, "train")


@pytest.mark.feature("TOPO-2.said")
@pytest.mark.case("TO-161", severity="normal", source="ours")
def test_the_summary_of_a_gang_names_the_best_domain(trial: Trial, expect: Expect, services: Ask) -> None:
    """No block has five of the ten free cards: the summary of the gang of five names the block with four."""
    crowded(trial, expect)
    trial.apply(gang("train", 5).gather("BlockLayer", MUST))

    trial.submit(*workers("train", 5))

    expect.pending(*names("train", 5))
    summary = orjson.loads(services("GET", f"/apis/v1/plugins/Coscheduling/gang/{trial.name}/train").body)
    assert "best domain BlockLayer/b2 has room for 4 of 5 members" in summary["gathering"], summary["gathering"]


@pytest.mark.feature("TOPO-2.prefer-gather")
@pytest.mark.case("TO-012", severity="blocker")
@pytest.mark.parametrize(
    ("count", "expected"), [(4, {"b2": 4}), (6, {"b1": 2, "b2": 4})], ids=["one-block-has-room", "no-block-has-room"]
)
def test_prefer_gather_degrades(trial: Trial, expect: Expect, count: int, expected: dict[str, int]) -> None:
    """Four members that prefer a block are in b2, the only block with room for them. Six fit into no block: they are in
    the two blocks of spine s1, most of them in the larger one."""
    crowded(trial, expect)
    trial.apply(gang("train", count).gather("BlockLayer", PREFER))

    trial.submit(*workers("train", count))

    expect.bound(*names("train", count))
    assert blocks(trial, "train") == expected


@pytest.mark.feature("TOPO-2.prefer-gather")
@pytest.mark.case("TO-013", severity="critical")
def test_prefer_gather_spreads_over_spines(trial: Trial, expect: Expect) -> None:
    """Nine members fit into no spine: they are bound all the same, on all three blocks."""
    crowded(trial, expect)
    trial.apply(gang("train", 9).gather("SpineLayer", PREFER))

    trial.submit(*workers("train", 9))

    expect.bound(*names("train", 9))
    assert blocks(trial, "train") == {"b1": 3, "b2": 4, "b3": 2}


@pytest.mark.feature("TOPO-2.best-domain")
@pytest.mark.case("TO-014", severity="critical")
def test_the_tightest_domain_is_best(trial: Trial, expect: Expect) -> None:
    """Block b1 has room for six, b2 for four: a gang of four takes b2, and leaves b1 to a gang of six."""
    trial.apply(network())
    trial.add(*(placed_in(f"b1-{number}", "s1", "b1") for number in range(3)))
    trial.add(*(placed_in(f"b2-{number}", "s1", "b2") for number in range(2)))
    in_tree(trial, 5)
    trial.apply(gang("small", 4).gather("BlockLayer", MUST), gang("large", 6).gather("BlockLayer", MUST))
    trial.submit(*workers("small", 4))
    expect.bound(*names("small", 4))
    assert blocks(trial, "small") == {"b2": 4}

    trial.submit(*workers("large", 6))

    expect.bound(*names("large", 6))
    assert blocks(trial, "large") == {"b1": 6}


@pytest.mark.feature("TOPO-2.devices")
@pytest.mark.case("TO-015", severity="blocker", source=PROPOSAL)
def test_sums_of_shares_are_no_room(trial: Trial, expect: Expect) -> None:
    """Members ask for 80 % of a card. Each of the two nodes of b1 has 160 % free, but on two cards: 100 % and 60 %. By
    sums b1 has room for four members and b2 for three; on cards b1 has room for two, which makes it the tightest."""
    trial.apply(network())
    trial.add(*(placed_in(f"b1-{number}", "s1", "b1") for number in range(2)))
    trial.add(*(placed_in(f"b2-{number}", "s1", "b2", cards=1) for number in range(3)))
    in_tree(trial, 5)
    for number in range(2):
        trial.submit(pod(f"share-{number}").gpu_share(40).select({"kubernetes.io/hostname": f"b1-{number}"}))
    expect.bound("share-0", "share-1")
    trial.apply(gang("train", 2).gather("BlockLayer", MUST))

    trial.submit(*(pod(name).gpu_share(80).in_gang("train") for name in names("train", 2)))

    expect.bound(*names("train", 2))
    assert sorted(where(trial, "train").values()) == ["b1-0", "b1-1"]


@pytest.mark.feature("TOPO-2.multiples")
@pytest.mark.case("TO-016", severity="normal", source=SOLVER)
def test_members_on_a_node_are_a_multiple(trial: Trial, expect: Expect) -> None:
    """Four members on nodes of three cards with podCountMultiple 2: two on each of two nodes, not three and one."""
    trial.apply(network())
    trial.add(*(placed_in(f"b1-{number}", "s1", "b1", cards=3) for number in range(3)))
    in_tree(trial, 3)
    trial.apply(gang("train", 4).gather("BlockLayer", MUST).gather("NodeTopologyLayer", PREFER, multiple=2))

    trial.submit(*workers("train", 4))

    expect.bound(*names("train", 4))
    assert sorted(Counter(where(trial, "train").values()).values()) == [2, 2]


@pytest.mark.feature("TOPO-2.index")
@pytest.mark.case("TO-017", severity="normal", source=INDEX)
def test_neighbours_by_index_are_neighbours(trial: Trial, expect: Expect) -> None:
    """Six members whose index differs from the order of their names, on three nodes of two cards: members 0 and 1 share
    a node, 2 and 3, 4 and 5."""
    trial.apply(network())
    trial.add(*(placed_in(f"b1-{number}", "s1", "b1") for number in range(3)))
    in_tree(trial, 3)
    trial.apply(gang("train", 6).gather("BlockLayer", MUST))
    indices = (4, 1, 2, 0, 5, 3)  # by name

    trial.submit(
        *(
            built.annotation(NETWORK_TOPOLOGY_INDEX, str(index))
            for built, index in zip(workers("train", 6), indices, strict=True)
        )
    )

    expect.bound(*names("train", 6))
    node_of = {index: where(trial, "train")[f"train-{number}"] for number, index in enumerate(indices)}
    assert node_of[0] == node_of[1] != node_of[2] == node_of[3] != node_of[4] == node_of[5]


@pytest.mark.feature("TOPO-2.groups")
@pytest.mark.case("TO-018", severity="critical")
def test_a_gang_group_gathers_as_one(trial: Trial, expect: Expect) -> None:
    """Two gangs of one group, of two members each: b1 has room for three, b2 for four. All four are in b2."""
    crowded(trial, expect)
    ids = [f"{trial.name}/train", f"{trial.name}/serve"]
    trial.apply(
        gang("train", 2).together_with(*ids).gather("BlockLayer", MUST),
        gang("serve", 2).together_with(*ids).gather("BlockLayer", MUST),
    )

    trial.submit(*workers("train", 2), *workers("serve", 2))

    expect.bound(*names("train", 2), *names("serve", 2))
    assert blocks(trial, "train") + blocks(trial, "serve") == {"b2": 4}


@pytest.mark.feature("TOPO-2.unknown-layer")
@pytest.mark.case("TO-023", severity="normal")
def test_a_layer_that_does_not_exist(trial: Trial, expect: Expect) -> None:
    """A gang must gather in a layer that the topology lacks: it waits, and another pod is bound."""
    crowded(trial, expect)
    trial.apply(gang("train", 2).gather("RackLayer", MUST))
    trial.submit(*workers("train", 2))
    expect.pending(*names("train", 2))

    trial.submit(pod("other").gpus(1))

    expect.bound("other")
    assert not where(trial, "train")


@pytest.mark.feature("TOPO-2.unknown-layer")
@pytest.mark.case("TO-062", severity="normal", source="ours")
def test_a_layer_that_does_not_exist_is_named(trial: Trial, expect: Expect) -> None:
    """A gang must gather in a layer that the topology lacks: its pods name the layer."""
    crowded(trial, expect)
    trial.apply(gang("train", 2).gather("RackLayer", MUST))

    trial.submit(*workers("train", 2))

    expect.pending(*names("train", 2), saying="RackLayer")


@pytest.mark.feature("TOPO-2.selector")
@pytest.mark.case("TO-025", severity="normal", source=SELECTOR)
def test_pods_with_one_selector_come_close(trial: Trial, expect: Expect) -> None:
    """A pod with a selector fills a node of block b2. The next one has room on a free node of b1, and on a node of b2
    where a card of four is used: other scores prefer the free node, the selector prefers the block of its peer."""
    trial.apply(network())
    trial.add(
        placed_in("b1-0", "s1", "b1", cards=4),
        placed_in("b2-0", "s1", "b2", cards=4),
        placed_in("b2-1", "s1", "b2", cards=4),
    )
    in_tree(trial, 3)
    trial.submit(on("peer", "b2-0", 4).annotation(TOPOLOGY_SELECTOR, "ring"), on("other", "b2-1", 1))
    expect.bound("peer", "other")

    trial.submit(pod("next").gpus(1).annotation(TOPOLOGY_SELECTOR, "ring"))

    expect.bound("next")
    assert trial.pod("next").spec.node_name == "b2-1"


@pytest.mark.feature("TOPO-2.unreadable")
@pytest.mark.case("TO-024", severity="normal")
@pytest.mark.parametrize("text", ["BlockLayer", "[]", '{"gatherStrategy": [{"layer": 3}]}'])
def test_a_spec_that_cannot_be_read(trial: Trial, expect: Expect, text: str) -> None:
    """The annotation is not the JSON that is expected: the gang is bound as one without it, in two spines."""
    crowded(trial, expect)
    trial.apply(gang("train", 10).annotation(GATHER_SPEC, text))

    trial.submit(*workers("train", 10))

    expect.bound(*names("train", 10))


@pytest.mark.feature("TOPO-2.must-gather")
@pytest.mark.case("TO-026", severity="critical")
@pytest.mark.long(seconds=4)
@pytest.mark.parametrize("layers", [("SpineLayer", "BlockLayer"), ("BlockLayer", "SpineLayer")], ids="-".join)
def test_the_narrowest_of_two_layers_counts(trial: Trial, expect: Expect, layers: tuple[str, str]) -> None:
    """A gang of six must gather in a spine and in a block: s1 has room for seven, but no block for more than four."""
    crowded(trial, expect)
    trial.apply(gang("train", 6).gather(layers[0], MUST).gather(layers[1], MUST))
    trial.submit(*workers("train", 6))

    expect.pending(*names("train", 6))
    expect.stable(seconds=5)
    assert not where(trial, "train")


@pytest.mark.feature("TOPO-2.best-domain")
@pytest.mark.case("TO-027", severity="normal", source=SOLVER)
@pytest.mark.parametrize(("before", "after"), [("ring", "ring"), ("other", "ring"), ("ring", "other")])
def test_a_gang_goes_to_its_peers_while_they_are_there(trial: Trial, expect: Expect, before: str, after: str) -> None:
    """The block with a peer is taken although others are tighter; what the peer's annotation says now counts. When all
    peers are gone, a tighter one is taken."""
    crowded(trial, expect)
    peer = pod("peer").request(cpu=1).select({"kubernetes.io/hostname": "b2-0"})
    trial.submit(peer.annotation(TOPOLOGY_SELECTOR, before))
    expect.bound("peer")
    if before != after:
        patch = {"metadata": {"annotations": {TOPOLOGY_SELECTOR: after}}}
        assert trial.call("PATCH", trial.path("Pod", "peer"), patch).ok
        trial.settle()

    def ring(name: str) -> None:
        trial.apply(gang(name, 2).gather("BlockLayer", MUST))
        trial.submit(*(built.annotation(TOPOLOGY_SELECTOR, "ring") for built in workers(name, 2)))
        expect.bound(*names(name, 2))

    ring("train")
    assert ("b2" in blocks(trial, "train")) == (after == "ring")
    trial.delete("peer", *names("train", 2))
    ring("later")
    assert "b2" not in blocks(trial, "later")


@pytest.mark.feature("TOPO-2.configuration-network-topology")
@pytest.mark.case("TO-030", severity="critical")
def test_the_released_switches(trial: Trial, expect: Expect, seatrial_scheduler_config: Path | None) -> None:
    """With the switches of the released configuration a gang of four gathers in b2, the only block with room. Beside it
    there is room for six: a gang of ten with a higher priority takes the cards of the whole first gang."""
    released = coscheduling_args(RELEASED).items()
    if seatrial_scheduler_config is None or not released <= coscheduling_args(seatrial_scheduler_config).items():
        pytest.skip(f"needs a scheduler with the switches of {RELEASED.name}")
    crowded(trial, expect)
    trial.apply(gang("train", 4).gather("BlockLayer", MUST))
    trial.submit(*(built.scheduler(KOORD_SCHEDULER) for built in workers("train", 4)))
    expect.bound(*names("train", 4))
    assert blocks(trial, "train") == {"b2": 4}

    trial.apply(priority_class("trial-urgent", 9000), gang("urgent", 10))
    trial.submit(*(built.scheduler(KOORD_SCHEDULER).priority_class("trial-urgent") for built in workers("urgent", 10)))

    expect.bound(*names("urgent", 10), within=60)
    assert not where(trial, "train")


def coscheduling_args(configuration: Path) -> dict[str, Any]:
    """The arguments of Coscheduling of the profile koord-scheduler, or of the first profile."""
    profiles = yaml.safe_load(configuration.read_bytes())["profiles"]
    own = next((profile for profile in profiles if profile["schedulerName"] == KOORD_SCHEDULER), profiles[0])
    match: dict[str, Any] = next(
        (entry["args"] for entry in own.get("pluginConfig", ()) if entry["name"] == "Coscheduling"), {}
    )
    return match


@pytest.mark.feature("TOPO-2.best-domain")
@pytest.mark.case("TO-028", severity="critical")
def test_the_next_domain_when_the_best_one_does_not_take_all(trial: Trial, expect: Expect) -> None:
    """Two members must not share a node. Block b1 is the tightest by cards, but has one node; b2 has two. What was
    placed in b1 on the way is given back: a pod gets all cards there."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1"), placed_in("b2-0", "s1", "b2"), placed_in("b2-1", "s1", "b2"))
    in_tree(trial, 3)
    trial.apply(gang("train", 2).gather("BlockLayer", MUST))
    apart = {"labelSelector": {"matchLabels": {"app": "apart"}}, "topologyKey": "kubernetes.io/hostname"}
    members = [member.label("app", "apart") for member in workers("train", 2)]
    for member in members:
        member.manifest["spec"]["affinity"] = {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
        }

    trial.submit(*members)

    expect.bound(*names("train", 2))
    assert sorted(where(trial, "train").values()) == ["b2-0", "b2-1"]
    trial.submit(on("whole", "b1-0", 2))
    expect.bound("whole")
