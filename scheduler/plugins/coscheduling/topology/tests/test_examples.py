"""The worked examples of the specification about network topology: E23 to E27 and E29 to E35."""

import numpy as np
import pytest

from seatrial.scheduler.api.builders import gang
from seatrial.scheduler.cache.columns import Ints
from seatrial.scheduler.plugins.coscheduling.tests.gangs import member
from seatrial.scheduler.plugins.coscheduling.topology.planner import Offers, Planner
from seatrial.scheduler.plugins.coscheduling.topology.tests.fleets import (
    BLOCK,
    CLUSTER_T,
    TopologyRig,
    gathered,
    topology,
)


def submit(rig: TopologyRig, count: int, cpu: int, *rules: tuple[str, str]) -> None:
    rig.group(gathered(gang("job", count), *rules))
    rig.submit(*(member(f"pod-{number}", "job", cpu=cpu) for number in range(1, count + 1)))


@pytest.fixture
def rig() -> TopologyRig:
    rig = TopologyRig()
    rig.fleet(CLUSTER_T)
    return rig


def test_e23_the_first_of_two_spines_by_name(rig: TopologyRig) -> None:
    submit(rig, 4, 16, ("SpineLayer", "PreferGather"))
    assert rig.decide_all() == {"pod-1": "node-1", "pod-2": "node-8", "pod-3": "node-2", "pod-4": "node-7"}


def test_e24_must_gather_in_a_block(rig: TopologyRig) -> None:
    submit(rig, 2, 16, ("BlockLayer", "MustGather"), ("SpineLayer", "MustGather"))
    assert rig.decide_all() == {"pod-1": "node-1", "pod-2": "node-8"}


def test_e25_the_deepest_fitting_level_is_the_node(rig: TopologyRig) -> None:
    submit(rig, 2, 8, ("SpineLayer", "PreferGather"))
    assert rig.decide_all() == {"pod-1": "node-1", "pod-2": "node-1"}


def test_e26_the_words_of_a_failed_plan(rig: TopologyRig) -> None:
    for name, node in (("a", "node-1"), ("b", "node-4")):
        rig.running(member(name, "", cpu=16), node)
    submit(rig, 4, 16, ("SpineLayer", "MustGather"))
    assert rig.decide_all() == {}
    expected = (
        "no candidate topology nodes can accommodate job, desiredOfferSlot: 4,"
        " topology topologyNode SpineLayer/s1: 3;topology topologyNode SpineLayer/s2: 3,"
        " 0/8 nodes are available: 8 Insufficient cpu."
    )
    assert rig.last_message("pod-4").startswith(expected)
    assert expected in rig.last_message("pod-1")
    assert rig.held("pod-1").endswith(
        "best domain SpineLayer/s1 has room for 3 of 4 members; the first without a place is default/pod-4"
    )


def test_e35_the_status(rig: TopologyRig) -> None:
    detail = rig.tree.detail()
    assert [entry["nodeNum"] for entry in detail] == [8, 4, 2, 2, 4, 2, 2]
    assert detail[0] == {
        "topologyInfo": {"topologyLayer": "ClusterTopologyLayer", "topologyName": ""},
        "childTopologyLayer": "SpineLayer",
        "childTopologyNames": ["s1", "s2"],
        "nodeNum": 8,
    }
    assert detail[2] == {
        "topologyInfo": {"topologyLayer": "BlockLayer", "topologyName": "b1"},
        "parentTopologyInfo": {"topologyLayer": "SpineLayer", "topologyName": "s1"},
        "childTopologyLayer": "NodeTopologyLayer",
        "nodeNum": 2,
    }


def planned(slots: dict[str, int], amount: int, multiples: dict[int, int]) -> tuple[Planner, dict[str, int]]:
    """The plan of E29 to E33 on the nodes n1 and n2 in b1, n3 and n4 in b2, and the shares of the root."""
    rig = TopologyRig()
    rig.fleet({"s1": {"b1": ("n1", "n2"), "b2": ("n3", "n4")}})
    rows = rig.core.cache.columns.rows
    offered: Ints = np.zeros(4, np.int64)
    for name, count in slots.items():
        offered[rows[name]] = count
    nothing: Ints = np.zeros(4, np.int64)
    planner = Planner(rig.tree.view(), Offers([offered], [amount], nothing, nothing), gather=1, multiples=multiples)
    names = rig.core.cache.columns.names
    return planner, {names[row]: count for row, count in planner.shares(1, 0)}


FOUR = {"n1": 5, "n2": 7, "n3": 6, "n4": 4}
NODE, BLOCKS = 3, 2


@pytest.mark.parametrize(
    ("slots", "expected", "multiples", "nodes", "blocks", "spine", "shares"),
    [
        pytest.param(FOUR, 15, {}, [5, 7, 6, 4], [12, 10], 22, {"n2": 7, "n1": 5, "n3": 3}, id="E29"),
        pytest.param(FOUR, 20, {NODE: 4}, [4, 4, 4, 4], [8, 8], 16, {"n1": 4, "n2": 4, "n3": 4, "n4": 4}, id="E30"),
        pytest.param(FOUR, 20, {BLOCKS: 8}, [5, 7, 6, 4], [8, 8], 16, {"n2": 7, "n1": 1, "n3": 6, "n4": 2}, id="E31"),
        pytest.param(
            FOUR, 20, {NODE: 2, BLOCKS: 8}, [4, 6, 6, 4], [8, 8], 16, {"n2": 6, "n1": 2, "n3": 6, "n4": 2}, id="E32"
        ),
        pytest.param({"n1": 5, "n2": 5}, 10, {NODE: 4}, [4, 4, 0, 0], [8, 0], 8, {"n1": 4, "n2": 4}, id="E33"),
        pytest.param(
            FOUR,
            15,
            {NODE: 1, BLOCKS: 0},
            [5, 7, 6, 4],
            [12, 10],
            22,
            {"n2": 7, "n1": 5, "n3": 3},
            id="E34-one-and-zero-constrain-nothing",
        ),
    ],
)
def test_pod_count_multiples(  # noqa: PLR0917
    slots: dict[str, int],
    expected: int,
    multiples: dict[int, int],
    nodes: list[int],
    blocks: list[int],
    spine: int,
    shares: dict[str, int],
) -> None:
    planner, amounts = planned(slots, expected, multiples)
    assert [planner.slots[3].tolist(), planner.slots[2].tolist(), planner.slots[1].tolist()] == [nodes, blocks, [spine]]
    assert amounts == shares
    assert bool(list(planner.candidates())) is (sum(shares.values()) == expected)


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize(
    ("rules", "starts"),
    [
        ([("BlockLayer", "PreferGather")], True),
        ([("BlockLayer", "Odd")], True),
        ([("BlockLayer", "PreferGather"), ("SpineLayer", "MustGather")], False),
        ([("BlockLayer", "PreferGather", 2)], False),
    ],
)
def test_without_a_tree_only_rules_that_demand_something_have_a_gang_wait(
    rules: list[tuple[str, str]], *, starts: bool, broken: bool
) -> None:
    """There is no ClusterNetworkTopology, or one whose layers are no chain. When there is one, the gang starts."""
    rig = TopologyRig()
    if broken:
        rig.tree.set_object(topology([("BlockLayer", "Missing", BLOCK)]))
    rig.member_node("n", "s1", "b1", cpu="4")
    rig.group(gathered(gang("train", 2), *rules))
    rig.submit(member("a", "train"), member("b", "train"))
    rig.run()
    assert rig.placed() == (["a", "b"] if starts else [])
    if not starts:
        assert "no cluster network topology" in rig.message("a")
        rig.tree.set_object(topology())
        rig.clock.advance(11)
        rig.run()
        assert rig.placed() == ["a", "b"]
