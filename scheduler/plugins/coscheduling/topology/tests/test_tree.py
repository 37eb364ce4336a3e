"""The tree of domains: from objects and labels, kept up to date, and what is wrong with its object."""

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from seatrial.scheduler.api.networktopology import ClusterNetworkTopology, TopologyLayer
from seatrial.scheduler.plugins.coscheduling.topology.layers import LayersError, chain
from seatrial.scheduler.plugins.coscheduling.topology.tests.fleets import BLOCK, LAYERS, SPINE, TopologyRig, topology
from seatrial.scheduler.serving.routes import RequestContext


def layer(name: str, parent: str = "", key: str = "key") -> TopologyLayer:
    return TopologyLayer(name, parent, (key,) if key else ())


def test_the_order_of_entries_does_not_matter() -> None:
    layers = chain([layer("NodeTopologyLayer", "B"), layer("A"), layer("B", "A")])
    assert [one.name for one in layers] == ["A", "B"]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        pytest.param([layer("A")], 'topology layer "NodeTopologyLayer" not found in spec', id="no-nodes"),
        pytest.param([layer("NodeTopologyLayer", "B")], 'topology layer "B" not found in spec', id="unknown-parent"),
        pytest.param(
            [layer("NodeTopologyLayer", "B"), layer("B", "A"), layer("A", "B")], "expected no cycle", id="cycle"
        ),
        pytest.param([layer("NodeTopologyLayer", "A"), layer("A"), layer("B")], "in one chain", id="two-roots"),
        pytest.param([layer("NodeTopologyLayer"), layer("A"), layer("A")], "expected one entry", id="twice"),
        pytest.param([layer("NodeTopologyLayer", "A"), layer("A", key="")], "expected a node label", id="no-label"),
        pytest.param([layer("NodeTopologyLayer"), layer("")], "expected a name other than", id="no-name"),
        pytest.param([], "not found in spec", id="empty"),
    ],
)
def test_layers_that_are_no_chain(entries: list[TopologyLayer], message: str) -> None:
    with pytest.raises(LayersError, match=message):
        chain(entries)


def test_an_object_that_cannot_be_used_leaves_the_tree() -> None:
    rig = TopologyRig()
    rig.fleet({"s1": {"b1": ("n1",)}})
    rig.tree.set_object(topology([("A", "", "a")]))
    assert "not found in spec" in rig.tree.problem
    assert rig.tree.path_of("n1") == ("s1", "b1")
    assert any("ClusterNetworkTopology default" in words for words in rig.complaints())


def test_only_the_default_object_is_read() -> None:
    rig = TopologyRig()
    rig.tree.set_object(topology(name="other"))
    assert not rig.tree.ready
    rig.tree.set_object(topology(name="other"))
    (complaint,) = rig.complaints()
    assert "expected the name 'default', found 'other'" in complaint
    assert rig.tree.absence == "no cluster network topology: expected one named 'default', found 'other'"
    rig.tree.remove_object(topology(name="other"))
    assert rig.tree.absence == "no cluster network topology"


def test_a_removed_object_removes_the_tree() -> None:
    rig = TopologyRig()
    rig.fleet({"s1": {"b1": ("n1",)}})
    rig.tree.remove_object(topology())
    assert (rig.tree.ready, rig.tree.problem, rig.tree.detail()) == (False, "no cluster network topology", [])


def test_a_missing_label() -> None:
    """Directly above the nodes it makes a domain of its own (GANG-R49); elsewhere the node is left out."""
    rig = TopologyRig()
    rig.tree.set_object(topology())
    rig.node("no-block", labels={SPINE: "s1"})
    rig.node("no-spine", labels={BLOCK: "b1"})
    rig.node("empty", labels={SPINE: "", BLOCK: "b1"})
    assert rig.tree.path_of("no-block") == ("s1", "no-block")
    assert rig.tree.missing == {"no-spine": "SpineLayer", "empty": "SpineLayer"}


def test_the_first_label_with_a_value_counts() -> None:
    rig = TopologyRig()
    spec = {
        "networkTopologySpec": [
            {"topologyLayer": "A", "labelKey": ["x", "y"]},
            {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "A"},
        ]
    }
    rig.tree.set_object(msgspec.convert({"metadata": {"name": "default"}, "spec": spec}, ClusterNetworkTopology))
    rig.node("n1", labels={"x": "", "y": "second"})
    rig.node("n2", labels={"x": "first", "y": "second"})
    assert (rig.tree.path_of("n1"), rig.tree.path_of("n2")) == (("second",), ("first",))


def test_blocks_of_one_name_below_two_spines_are_two_blocks() -> None:
    """GANG-D7."""
    rig = TopologyRig()
    rig.fleet({"s1": {"b1": ("n1",)}, "s2": {"b1": ("n2",)}})
    counts = [(entry["topologyInfo"]["topologyName"], entry["nodeNum"]) for entry in rig.tree.detail()]
    assert counts == [("", 2), ("s1", 1), ("b1", 1), ("s2", 1), ("b1", 1)]


class TreeMachine(RuleBasedStateMachine):
    """Nodes and the object come, change and go; the tree equals one that is made anew."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = TopologyRig()
        self.labels: dict[str, dict[str, str]] = {}
        self.layers = [*LAYERS]
        self.there = False

    @rule(number=st.integers(0, 5), spine=st.sampled_from(["", "s1", "s2"]), block=st.sampled_from(["", "b1", "b2"]))
    def set_node(self, number: int, spine: str, block: str) -> None:
        self.labels[f"n{number}"] = {SPINE: spine, BLOCK: block}
        self.rig.node(f"n{number}", labels=self.labels[f"n{number}"])

    @rule(number=st.integers(0, 5))
    def remove_node(self, number: int) -> None:
        self.labels.pop(f"n{number}", None)
        self.rig.core.intake.remove_node(f"n{number}")

    @rule(upside_down=st.booleans())
    def set_object(self, *, upside_down: bool) -> None:
        self.layers = [*LAYERS]
        if upside_down:
            self.layers = [
                ("BlockLayer", "", BLOCK),
                ("SpineLayer", "BlockLayer", SPINE),
                ("NodeTopologyLayer", "SpineLayer", ""),
            ]
        self.there = True
        self.rig.tree.set_object(topology(self.layers))

    @rule()
    def remove_object(self) -> None:
        self.there = False
        self.rig.tree.remove_object(topology())

    @invariant()
    def equals_a_new_tree(self) -> None:
        tree = self.rig.tree
        assert tree.ready is self.there
        if not self.there:
            return
        fresh = TopologyRig()
        for name, labels in self.labels.items():
            fresh.node(name, labels=labels)
        fresh.tree.set_object(topology(self.layers))
        assert (tree.detail(), tree.missing) == (fresh.tree.detail(), fresh.tree.missing)
        view, rows = tree.view(), self.rig.core.cache.columns.rows
        for name in self.labels:
            path, row = fresh.tree.path_of(name), rows[name]
            for level in range(view.bottom):
                domain = int(view.domains[level][row])
                assert (view.paths[level][domain] if domain >= 0 else None) == (None if path is None else path[:level])
        listed = {name for name in self.labels if fresh.tree.path_of(name) is not None}
        assert {view.paths[-1][row][0] for row in view.domains[-1] if row >= 0} == listed


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=80, stateful_step_count=25, deadline=None, derandomize=True)


def test_the_services_route_tells_the_tree() -> None:
    """Layers, domains, what is wrong with the object, and the nodes that are left out."""
    rig = TopologyRig()
    rig.fleet({"s1": {"b1": ("n1",)}})
    rig.node("odd", labels={BLOCK: "b1"})
    rig.tree.set_object(topology([("A", "", "a")]))
    handler = dict(rig.core.handle.routes)["plugins/Coscheduling/networktopology"]
    body = msgspec.json.decode(handler(RequestContext("GET", "", {}, {})).body)
    assert body["layers"] == ["SpineLayer", "BlockLayer"]
    assert [entry["nodeNum"] for entry in body["detailStatus"]] == [1, 1, 1]
    assert body["nodesWithoutLayer"] == {"odd": "SpineLayer"}
    assert body["problem"] == 'topology layer "NodeTopologyLayer" not found in spec'
