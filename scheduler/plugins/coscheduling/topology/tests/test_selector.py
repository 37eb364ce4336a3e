"""The score of `network-topology-selector`: example E28, and pods that do without it."""

from collections.abc import Mapping, Sequence
from random import Random

import numpy as np

from seatrial.scheduler.api.builders import PodBuilder, gang, pod
from seatrial.scheduler.api.networktopology import TOPOLOGY_SELECTOR
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.plugins.coscheduling.plugin import Coscheduling
from seatrial.scheduler.plugins.coscheduling.tests.gangs import member
from seatrial.scheduler.plugins.coscheduling.topology.selector import SelectorPeers, positions
from seatrial.scheduler.plugins.coscheduling.topology.tests.fleets import CLUSTER_T, TopologyRig, gathered
from seatrial.scheduler.tests.oracle import judge

# Cluster T with node-9 in b1.
CLUSTER: Mapping[str, Mapping[str, Sequence[str]]] = {
    **CLUSTER_T,
    "s1": {"b1": ("node-8", "node-1", "node-9"), "b2": ("node-7", "node-2")},
}


def selected(name: str, value: str = "ring", *, cpu: int = 16) -> PodBuilder:
    return pod(name).request(cpu=cpu).annotation(TOPOLOGY_SELECTOR, value)


def fleet() -> TopologyRig:
    """Pods of the selector on node-8, node-7 and node-6, which are full."""
    rig = TopologyRig()
    rig.fleet(CLUSTER)
    for number in (8, 7, 6):
        rig.running(selected(f"peer-{number}"), f"node-{number}")
    return rig


def order(rig: TopologyRig, *nodes: str) -> dict[str, int]:
    rows = np.array([rig.core.cache.columns.rows[name] for name in nodes], np.intp)
    result = positions(rig.tree.view(), rows, SelectorPeers.of(rig.core.handle).rows("ring"))
    return dict(zip(nodes, result.tolist(), strict=True))


def test_e28_raw_scores() -> None:
    expected = {"node-2": 0, "node-1": 1, "node-9": 2, "node-3": 3, "node-4": 4, "node-5": 5}
    assert order(fleet(), "node-1", "node-9", "node-2", "node-3", "node-4", "node-5") == expected


def test_e28_normalised() -> None:
    plugin = next(one for one in fleet().core.runners["default-scheduler"].profile.all if one.name == "Coscheduling")
    assert isinstance(plugin, Coscheduling)
    assert plugin.normalize(CycleState(), np.arange(6)).tolist() == [100, 80, 60, 40, 20, 0]


def test_pods_follow_their_peers() -> None:
    """Other scores are equal on free nodes: the pod goes where its peers are near, another value goes elsewhere."""
    rig = fleet()
    rig.submit(selected("next"))
    assert rig.decide_all() == {"next": "node-2"}
    rig.submit(selected("after"))
    assert rig.decide_all() == {"after": "node-1"}, "block b1 has a peer, b2 has no candidates left"


def test_a_peer_that_leaves_no_longer_attracts() -> None:
    rig = fleet()
    for name in ("peer-8", "peer-7"):
        rig.delete(name)
    assert order(rig, "node-2", "node-3", "node-1") == {"node-3": 0, "node-1": 1, "node-2": 2}
    rig.delete("peer-6")
    assert not SelectorPeers.of(rig.core.handle).rows("ring").any()


def test_nodes_outside_of_the_tree_come_last() -> None:
    rig = fleet()
    rig.node("apart", cpu="32")
    rig.running(selected("stray"), "apart")
    assert order(rig, "apart", "node-5", "node-2")["apart"] == 2


def test_without_a_topology_the_score_is_left_out() -> None:
    """Upstream reads a nil tree (GANG-D8)."""
    rig = TopologyRig()
    rig.node("n1")
    rig.submit(selected("one", cpu=1))
    assert rig.decide_all() == {"one": "n1"}


def test_members_that_gather_are_planned_and_late_ones_are_scored() -> None:
    rig = fleet()
    rig.group(gathered(gang("job", 1), ("BlockLayer", "MustGather")))
    rig.submit(member("pod-1", "job", cpu=16).annotation(TOPOLOGY_SELECTOR, "ring"))
    assert rig.decide_all() == {"pod-1": "node-2"}
    rig.submit(member("late", "job", cpu=16).annotation(TOPOLOGY_SELECTOR, "ring"))
    assert rig.decide_all() == {"late": "node-1"}


def test_kept_scores_agree_with_the_oracle() -> None:
    """Random pods with two selector values; each decision is compared with all plugins on all nodes."""
    random = Random(7)  # noqa: S311
    rig = TopologyRig()
    rig.fleet(CLUSTER)
    for number in range(40):
        name = f"p{number}"
        rig.submit(selected(name, random.choice(["ring", "tree"]), cpu=random.choice([1, 2, 4])))
        entry = rig.core.queue.find(f"uid-{name}")
        assert entry is not None
        expected = judge(rig.core, rig.core.runners.of(entry.info), entry.info)
        assert rig.decide_all().get(name, "") == expected.node
        if random.random() < 0.3:
            rig.delete(f"p{random.randrange(number + 1)}")
