"""The planner against an independent one, on random trees."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seatrial.scheduler.api.networktopology import NODE_LAYER
from seatrial.scheduler.cache.columns import Ints
from seatrial.scheduler.plugins.coscheduling.topology.planner import Offers, Planner
from seatrial.scheduler.plugins.coscheduling.topology.tests import oracle
from seatrial.scheduler.plugins.coscheduling.topology.tests.fleets import TopologyRig, topology

Nodes = dict[tuple[str, ...], oracle.NodeOffer]
KEYS = ("spine", "block", "rack")
OFFER = st.builds(oracle.NodeOffer, st.integers(0, 5), st.integers(0, 2), st.integers(0, 1))


@st.composite
def fleets(draw: st.DrawFn) -> tuple[int, Nodes]:
    """The number of layers above the nodes, and nodes by path; names repeat below different parents."""
    layers = draw(st.integers(0, 3))
    nodes: Nodes = {}
    for number in range(draw(st.integers(1, 10))):
        path = tuple(draw(st.sampled_from("ab")) for _ in range(layers))
        nodes[*path, f"n{draw(st.integers(0, 99))}-{number}"] = draw(OFFER)
    return layers, nodes


def built(layers: int, nodes: Nodes) -> TopologyRig:
    rig = TopologyRig()
    names = ["spine", "block", "rack"][:layers]
    parents = ["", *names]
    rig.tree.set_object(
        topology(
            [
                *((name, parent, name) for name, parent in zip(names, parents, strict=False)),
                (NODE_LAYER, parents[-1], ""),
            ]
        )
    )
    for path in nodes:
        rig.node(path[-1], labels=dict(zip(names, path, strict=False)))
    return rig


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    fleets(), st.integers(1, 12), st.integers(0, 4), st.dictionaries(st.integers(1, 4), st.integers(0, 3), max_size=2)
)
@example((1, {("a", "n1"): oracle.NodeOffer(1), ("b", "n2"): oracle.NodeOffer(1)}), 2, 0, {})
def test_the_planner_equals_the_oracle(
    fleet: tuple[int, Nodes], size: int, gather: int, multiples: dict[int, int]
) -> None:
    """Candidates, their order and their shares, for any number of layers, gathering level and podCountMultiple."""
    layers, nodes = fleet
    bottom = layers + 1
    gather = min(gather, bottom)
    multiples = {level: k for level, k in multiples.items() if level <= bottom}
    rig = built(layers, nodes)
    columns = rig.core.cache.columns
    arrays: list[Ints] = [np.zeros(columns.count, np.int64) for _ in range(3)]
    for path, offer in nodes.items():
        for array, value in zip(arrays, (offer.slots, offer.score, offer.peers), strict=True):
            array[columns.rows[path[-1]]] = value
    view = rig.tree.view()
    planner = Planner(view, Offers([arrays[0]], [size], *arrays[1:]), gather=gather, multiples=multiples)
    levels = [
        (one.level, view.paths[one.level][one.domain], [(columns.names[row], count) for row, count in one.shares])
        for one in planner.candidates()
    ]
    expected = [
        (level, path[-1:] if level == bottom else path, shares)
        for level, path, shares in oracle.candidates(oracle.grow(nodes, multiples), bottom, size, gather, multiples)
    ]
    assert levels == expected


def test_two_classes_need_slots_for_each() -> None:
    """Two large and two small members: a block has slots for four small ones and one large one only."""
    rig = TopologyRig()
    rig.fleet({"s1": {"b1": ("n1", "n2"), "b2": ("n3", "n4")}})
    rows = rig.core.cache.columns.rows
    large, small, nothing = (np.zeros(4, np.int64) for _ in range(3))
    for name, one, other in (("n1", 1, 4), ("n2", 0, 1), ("n3", 1, 1), ("n4", 1, 1)):
        large[rows[name]], small[rows[name]] = one, other
    planner = Planner(rig.tree.view(), Offers([large, small], [2, 2], nothing, nothing), gather=2)
    assert [planner.view.name(one.level, one.domain) for one in planner.candidates()] == ["BlockLayer/b2"]
