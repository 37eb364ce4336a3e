"""The order of nodes for pods with a selector: those near pods with the same value come first."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.networktopology import TOPOLOGY_SELECTOR
from seatrial.suites.topology.topologies import SELECTOR, in_tree, network, on, placed_in

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


@pytest.mark.feature("TOPO-2.selector")
@pytest.mark.case("TO-110", severity="normal", source=SELECTOR)
@pytest.mark.parametrize(
    ("better", "worse", "others", "peers"),
    [
        pytest.param("s1/b1", "s1/b1", {}, {"better": 1}, id="peer-on-the-node"),
        pytest.param("s1/b1", "s1/b1", {}, {"better": 2, "worse": 1}, id="more-peers-on-the-node"),
        pytest.param("s1/b1", "s1/b2", {"full": "s1/b1"}, {"full": 2}, id="peers-in-the-block"),
        pytest.param("s1/b1", "s2/b2", {"full": "s1/b3"}, {"full": 2}, id="peers-in-the-spine"),
        pytest.param(
            "s1/b1", "s2/b2", {"full": "s1/b1", "too": "s2/b2"}, {"full": 2, "too": 1}, id="more-peers-in-the-block"
        ),
        pytest.param(
            "s1/b1", "s2/b2", {"full": "s1/b1", "too": "s2/b3"}, {"full": 2, "too": 2}, id="block-before-spine"
        ),
        pytest.param("s1/b1", "s1/b2", {"third": "s1/b2"}, {}, id="fewer-nodes-in-the-block"),
        pytest.param("s1/b1", "s2/b2", {"third": "s2/b3"}, {}, id="fewer-nodes-in-the-spine"),
        pytest.param("s1/b1", "", {}, {}, id="in-the-network"),
    ],
)
@pytest.mark.parametrize("names", [("n1", "n2"), ("n2", "n1")], ids=["first", "last"])
def test_which_node_a_selector_prefers(  # noqa: PLR0917
    trial: Trial,
    expect: Expect,
    better: str,
    worse: str,
    others: dict[str, str],
    peers: dict[str, int],
    names: tuple[str, str],
) -> None:
    """Peers of a pod are on nodes of three cards each: it goes to the node with more of them on itself, or else in its
    block, or else in its spine; or else to the one whose block and spine have fewer nodes with room."""
    trial.apply(network())
    name_of = dict(zip(("better", "worse"), names, strict=True))
    places = {"better": better, "worse": worse, **others}
    for key, place in places.items():
        spine, _, block = place.partition("/")
        name = name_of.setdefault(key, f"n3-{key}")
        trial.add(placed_in(name, spine, block, cards=3) if place else node(name).gpus("a10", 3))
    in_tree(trial, sum(map(bool, places.values())))
    for key, count in peers.items():
        for number in range(count):
            trial.submit(on(f"{key}-{number}", name_of[key], 1).annotation(TOPOLOGY_SELECTOR, "ring"))
            expect.bound(f"{key}-{number}")
        if key in others:
            trial.submit(on(f"rest-{key}", name_of[key], 3 - count))
            expect.bound(f"rest-{key}")

    trial.submit(pod("next").gpus(1).annotation(TOPOLOGY_SELECTOR, "ring"))

    assert expect.bound("next").spec.node_name == name_of["better"]
