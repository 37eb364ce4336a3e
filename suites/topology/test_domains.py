"""Which domain a node belongs to, and members that come later."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import Link, writes
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang, network_topology, node
from seatrial.scheduler.api.podgroup import NETWORK_TOPOLOGY_INDEX
from seatrial.suites.faults.schedulers import link, running
from seatrial.suites.topology.topologies import (
    BLOCK,
    INDEX,
    MUST,
    PATH,
    PREFER,
    SOLVER,
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

__all__ = ["link", "running"]

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


@pytest.mark.feature("TOPO-1.layers")
@pytest.mark.case("TO-031", severity="normal")
def test_the_first_label_that_a_node_has_names_its_domain(trial: Trial, expect: Expect) -> None:
    """A layer has two labels. Of a block's two nodes one has both, and the other one has the first one empty: a gang of
    four gathers on both."""
    topology = network()
    topology["spec"]["networkTopologySpec"][1]["labelKey"] = [BLOCK, "example.com/block"]
    trial.apply(topology)
    trial.add(
        placed_in("b1-0", "s1", "b1").label("example.com/block", "b9"),
        placed_in("b1-1", "s1", "").label("example.com/block", "b1"),
    )
    in_tree(trial, 2)
    trial.apply(gang("train", 4).gather("BlockLayer", MUST))

    trial.submit(*workers("train", 4))

    expect.bound(*names("train", 4))


@pytest.mark.feature("TOPO-1.not-read")
@pytest.mark.case("TO-053", severity="normal", source="ours")
def test_a_topology_of_another_name_is_told_of(trial: Trial, expect: Expect) -> None:
    """The only ClusterNetworkTopology is named rack: an event says that it is not read, and a gang with rules waits and
    names it. When the same layers are in one named default, the gang is bound. Another one is told of as well."""
    topology = network()
    topology["metadata"]["name"] = "rack"
    trial.apply(topology)
    trial.add(placed_in("b1-0", "s1", "b1"), placed_in("b1-1", "s1", "b1"))

    def has_event(name: str = "rack") -> bool:
        return any(
            f"expected the name 'default', found '{name}'" in event.message
            for event in trial.events(name, namespace="default")
        )

    assert trial.reaches(has_event, within=30), trial.events("rack", namespace="default")
    trial.apply(gang("train", 4).gather("BlockLayer", MUST))
    trial.submit(*workers("train", 4))
    expect.pending(*names("train", 4), saying="no cluster network topology: expected one named 'default', found 'rack'")

    trial.apply(network())

    expect.bound(*names("train", 4), within=40)
    topology["metadata"]["name"] = "row"
    trial.apply(topology)
    assert trial.reaches(lambda: has_event("row"), within=30), trial.events("row", namespace="default")


@pytest.mark.feature("TOPO-2.prefer-gather")
@pytest.mark.case("TO-055", severity="critical", source="ours")
@pytest.mark.parametrize("broken", [False, True], ids=["none", "no-chain"])
def test_prefer_gather_does_not_wait_for_a_topology(trial: Trial, expect: Expect, *, broken: bool) -> None:
    """There is no ClusterNetworkTopology, or none that can be used: a gang with PreferGather starts, one with
    MustGather, too, waits. Koordinator lets both wait, or gathers by the last tree that could be used."""
    if broken:
        topology = network()
        topology["spec"]["networkTopologySpec"].pop()
        trial.apply(topology)
    trial.add(placed_in("b1-0", "s1", "b1"), placed_in("b2-0", "s1", "b2"))
    trial.apply(
        gang("train", 2).gather("BlockLayer", PREFER),
        gang("must", 2).gather("SpineLayer", PREFER).gather("BlockLayer", MUST),
    )

    trial.submit(*workers("train", 2), *workers("must", 2))

    expect.bound(*names("train", 2))
    expect.pending(*names("must", 2), saying="no cluster network topology")


@pytest.mark.feature("TOPO-1.left-out")
@pytest.mark.case("TO-032", severity="normal")
def test_a_node_without_a_block_is_a_block_of_its_own(trial: Trial, expect: Expect) -> None:
    """The only node with room for the gang has a spine and no block: the gang gathers there, and the status has it."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1"), node("odd-0").gpus("a10", 4).label(SPINE, "s1"))
    in_tree(trial, 2)
    trial.apply(gang("train", 4).gather("BlockLayer", MUST))

    trial.submit(*workers("train", 4))

    expect.bound(*names("train", 4))
    assert set(where(trial, "train").values()) == {"odd-0"}
    assert domains(trial)["BlockLayer/odd-0"] == 1


@pytest.mark.feature("TOPO-1.layers")
@pytest.mark.case("TO-033", severity="critical", source="ours")
@pytest.mark.long(seconds=4)
def test_blocks_of_one_name_below_two_spines_are_two_blocks(trial: Trial, expect: Expect) -> None:
    """Both spines have a block `b`, with two cards each. A gang of four that must gather in a block waits, until one
    of the blocks has four cards."""
    trial.apply(network())
    trial.add(placed_in("left-0", "s1", "b"), placed_in("right-0", "s2", "b"))
    in_tree(trial, 2)
    trial.apply(gang("train", 4).gather("BlockLayer", MUST))
    trial.submit(*workers("train", 4))
    expect.stable(seconds=12)
    assert not where(trial, "train")

    trial.add(placed_in("right-1", "s2", "b"))

    expect.bound(*names("train", 4), within=40)
    assert set(where(trial, "train").values()) == {"right-0", "right-1"}


@pytest.mark.feature("TOPO-2.must-gather")
@pytest.mark.case("TO-034", severity="normal")
def test_a_member_that_comes_later_is_placed_alone(trial: Trial, expect: Expect) -> None:
    """A gang of two fills block b1. A third member finds room in b2 only, and is bound there."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1"), placed_in("b2-0", "s1", "b2"))
    in_tree(trial, 2)
    trial.submit(on("filler", "b2-0", 1))
    expect.bound("filler")
    trial.apply(gang("train", 2).gather("BlockLayer", MUST))
    trial.submit(*workers("train", 2))
    expect.bound(*names("train", 2))
    assert set(where(trial, "train").values()) == {"b1-0"}

    trial.submit(*workers("train", 1, first=2))

    expect.bound("train-2")
    assert where(trial, "train")["train-2"] == "b2-0"


@pytest.mark.feature("TOPO-2.best-domain")
@pytest.mark.case("TO-035", severity="normal")
def test_of_equal_domains_the_name_decides(trial: Trial, expect: Expect) -> None:
    """Three blocks with room for two, made in the order b2, b3, b1: three gangs of two take b1, b2 and b3."""
    trial.apply(network())
    trial.add(*(placed_in(f"{block}-0", "s1", block) for block in ("b2", "b3", "b1")))
    in_tree(trial, 3)

    for number in (1, 2, 3):
        trial.apply(gang(f"train{number}", 2).gather("BlockLayer", MUST))
        trial.submit(*workers(f"train{number}", 2))

        expect.bound(*names(f"train{number}", 2))
        assert set(where(trial, f"train{number}").values()) == {f"b{number}-0"}


@pytest.mark.feature("TOPO-2.best-domain")
@pytest.mark.case("TO-036", severity="critical", source=SOLVER)
def test_of_equal_blocks_the_one_in_the_tightest_spine_is_best(trial: Trial, expect: Expect) -> None:
    """Blocks b1, b2 and b3 have room for two each. Spine s1 has b1 and b2, spine s2 has b3 alone: a gang of two takes
    b3, and leaves s1 to a gang of four."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1"), placed_in("b2-0", "s1", "b2"), placed_in("b3-0", "s2", "b3"))
    in_tree(trial, 3)
    trial.apply(gang("small", 2).gather("BlockLayer", MUST), gang("large", 4).gather("SpineLayer", MUST))
    trial.submit(*workers("small", 2))
    expect.bound(*names("small", 2))
    assert set(where(trial, "small").values()) == {"b3-0"}

    trial.submit(*workers("large", 4))

    expect.bound(*names("large", 4))
    assert set(where(trial, "large").values()) == {"b1-0", "b2-0"}


@pytest.mark.feature("TOPO-2.must-gather", "GANG-1.all-or-nothing")
@pytest.mark.case("TO-048", severity="critical", source="ours")
@pytest.mark.long(seconds=5)
def test_the_members_that_a_gang_needs_gather_without_the_others(trial: Trial, expect: Expect) -> None:
    """A gang of three needs two of them, and all three wait. A block with two cards comes: the first two start
    there, and do not wait for the third, which no block has a card for beside them."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1", cards=1))
    in_tree(trial, 1)
    trial.apply(gang("train", 2).gather("BlockLayer", MUST))
    trial.submit(*workers("train", 3))
    expect.stable(seconds=12)
    assert not where(trial, "train")

    trial.add(placed_in("b2-0", "s1", "b2"))
    in_tree(trial, 2)

    expect.bound("train-0", "train-1", within=40)
    values = where(trial, "train")
    assert (values["train-0"], values["train-1"]) == ("b2-0", "b2-0")


@pytest.mark.feature("TOPO-1.left-out")
@pytest.mark.case("TO-050", severity="normal", source="ours")
def test_an_event_names_the_nodes_that_are_left_out(trial: Trial) -> None:
    """One of two nodes has a block and no spine: an event of the topology names it and not the other one. Then comes a
    second such node: an event names that one too."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1"), node("odd-0").gpus("a10", 4).label(BLOCK, "odd"))

    def event_messages(name: str) -> list[str]:
        events = trial.events("default", namespace="default")
        return [event.message for event in events if event.reason == "NodesLeftOut" and name in event.message]

    assert trial.wait(lambda: bool(event_messages("odd-0")), within=30), trial.events("default", namespace="default")
    assert "b1-0" not in event_messages("odd-0")[0]
    trial.add(node("odd-1").gpus("a10", 4).label(BLOCK, "odd"))
    assert trial.wait(lambda: bool(event_messages("odd-1")), within=30), trial.events("default", namespace="default")


@pytest.mark.feature("TOPO-2.unreadable")
@pytest.mark.case("TO-051", severity="normal")
def test_a_strategy_that_does_not_exist_demands_nothing(trial: Trial, expect: Expect) -> None:
    """Two spines have two free cards each. A gang of four whose rule for spines has the strategy `Must` is bound in
    both; with MustGather it would wait."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1"), placed_in("b2-0", "s2", "b2"))
    in_tree(trial, 2)
    trial.apply(gang("train", 4).gather("SpineLayer", "Must"))

    trial.submit(*workers("train", 4))

    expect.bound(*names("train", 4))


@pytest.mark.feature("TOPO-2.index")
@pytest.mark.case("TO-052", severity="normal", source=INDEX)
def test_members_without_an_index_come_last(trial: Trial, expect: Expect) -> None:
    """A spine of two blocks with two cards each. The last two members by name have the indices 0 and 1: they get the
    first block, and the members without an index the second one."""
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1"), placed_in("b2-0", "s1", "b2"))
    in_tree(trial, 2)
    trial.apply(gang("train", 4).gather("SpineLayer", MUST))
    members = workers("train", 4)
    for index, built in enumerate(members[2:]):
        built.annotation(NETWORK_TOPOLOGY_INDEX, str(index))

    trial.submit(*members)

    expect.bound(*names("train", 4))
    assert where(trial, "train") == {"train-0": "b2-0", "train-1": "b2-0", "train-2": "b1-0", "train-3": "b1-0"}


@pytest.mark.feature("TOPO-2.waking")
@pytest.mark.case("TO-060", severity="critical", source="ours: within 40 s, not five minutes")
def test_a_topology_that_changes_counts_as_it_is_then(trial: Trial, expect: Expect) -> None:
    """Blocks by one label hold two members each, by another four. A gang of four that must gather in a block waits, and
    starts when the object names the other label."""
    other = "network.topology.example.com/block"
    trial.apply(network())
    trial.add(*(placed_in(f"n{number}", "s1", f"b{number}", cards=1).label(other, "one") for number in (1, 2, 3, 4)))
    in_tree(trial, 4)
    trial.apply(gang("train", 4).gather("BlockLayer", MUST))
    trial.submit(*workers("train", 4))
    expect.pending(*names("train", 4))

    changed = network_topology(("SpineLayer", SPINE), ("BlockLayer", other))
    assert trial.call("PATCH", PATH, {"spec": changed["spec"]}).ok

    expect.bound(*names("train", 4), within=60)


@pytest.mark.feature("TOPO-2.must-gather")
@pytest.mark.case("TO-061", severity="normal", source="ours")
def test_a_topology_that_is_deleted_gathers_nobody(trial: Trial, expect: Expect) -> None:
    """The object is gone: a gang that must gather waits. Koordinator keeps the last tree until it is restarted."""
    trial.apply(network())
    trial.add(placed_in("n1", "s1", "b1"))
    in_tree(trial, 1)
    assert trial.call("DELETE", PATH).ok
    trial.pass_time(2)

    trial.apply(gang("train", 2).gather("BlockLayer", MUST))
    trial.submit(*workers("train", 2))

    expect.pending(*names("train", 2))


@pytest.mark.feature("TOPO-1.status")
@pytest.mark.case("TO-111", severity="normal", source="spec GANG-R52")
@pytest.mark.long(seconds=4)
@pytest.mark.parametrize("code", [500, 403])
def test_a_status_that_was_refused_is_written_again(trial: Trial, link: Link, code: int) -> None:
    """The API server refuses the first status: it is written when it accepts it again, though nothing changes."""
    link.refuse(code, writes)
    trial.apply(network())
    trial.add(placed_in("b1-0", "s1", "b1"))
    assert trial.reaches(lambda: link.refused >= 1, within=30), "expected the status to be tried"
    link.heal()
    in_tree(trial, 1)


@pytest.mark.feature("TOPO-2.must-gather")
@pytest.mark.case("TO-112", severity="normal", source="ours")
@pytest.mark.parametrize("short", ["cpu", "memory"])
def test_a_domain_has_room_for_members_of_each_kind(trial: Trial, expect: Expect, short: str) -> None:
    """Two of four members ask for much memory, two for many CPUs. Nine blocks have cards for all four and are short of
    one of these, the tenth has both: the gang gathers there."""
    trial.apply(network())
    for number in range(9):
        machine = placed_in(f"a{number}-0", "s1", f"a{number}", cards=4)
        trial.add(machine.cpu(4).memory("256Gi") if short == "cpu" else machine.cpu(64).memory("16Gi"))
    trial.add(placed_in("b-0", "s1", "b", cards=6).cpu(64).memory("512Gi"))
    in_tree(trial, 10)
    trial.apply(gang("train", 4).gather("BlockLayer", MUST))
    members = workers("train", 4)
    for number, built in enumerate(members):
        built.request(memory="64Gi") if number % 2 else built.request(cpu=8)

    trial.submit(*members)

    expect.bound(*names("train", 4))
    assert set(where(trial, "train").values()) == {"b-0"}
