"""Spines and blocks, gangs on them, and where members are.

Koordinator tries a gang that waits again within five minutes, whatever happens meanwhile. Only cases of TOPO-2.waking
judge when; in the others the members go before there is room, and come again afterwards.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import orjson

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.scheduler.api.builders import NodeBuilder, PodBuilder, network_topology, node, pod
from seatrial.scheduler.api.networktopology import TOPOLOGIES_PATH

_CORE = "koordinator: pkg/scheduler/plugins/coscheduling/core"
SOLVER = f"{_CORE}/network_topology_solver.go@v1.8.0"  # podCountMultiple, peers, and domains above are not in 1.7
SELECTOR = f"{_CORE}/network_topology_workflow.go@v1.8.0"
PROPOSAL = "koordinator: docs/proposals/scheduling/20250611-networktopology-aware-scheduling.md@v1.7.0"
INDEX = f"{PROPOSAL}; apis/extension/coscheduling.go@v1.7.0"

SPINE, BLOCK = "network.topology.nvidia.com/spine", "network.topology.nvidia.com/block"


MUST, PREFER = "MustGather", "PreferGather"


PATH = f"{TOPOLOGIES_PATH}/default"


def network() -> dict[str, Any]:
    return network_topology(("SpineLayer", SPINE), ("BlockLayer", BLOCK))


def placed_in(name: str, spine: str, block: str, *, cards: int = 2) -> NodeBuilder:
    """A node in the network."""
    return node(name).gpus("a10", cards).label(SPINE, spine).label(BLOCK, block)


def workers(group: str, count: int, *, first: int = 0) -> list[PodBuilder]:
    """Members of a PodGroup with one card each."""
    return [pod(f"{group}-{number}").gpus(1).in_gang(group) for number in range(first, first + count)]


def names(group: str, count: int) -> list[str]:
    return [f"{group}-{number}" for number in range(count)]


def on(name: str, node_name: str, cards: int) -> PodBuilder:
    """A pod without a gang that takes cards of one node."""
    return pod(name).gpus(cards).select({"kubernetes.io/hostname": node_name})


def where(trial: Trial, group: str) -> Mapping[str, str]:
    """The node of each bound pod of a gang."""
    return {
        pod.metadata.name: pod.spec.node_name
        for pod in trial.pods()
        if pod.spec.node_name and pod.metadata.name.startswith(f"{group}-")
    }


def blocks(trial: Trial, group: str) -> Counter[str]:
    """The number of members in each block; nodes are named BLOCK-NUMBER."""
    return Counter(name.rpartition("-")[0] for name in where(trial, group).values())


def domains(trial: Trial) -> dict[str, int]:
    """`Layer/name` of each domain in the status, with its number of nodes."""
    rows = orjson.loads(trial.call("GET", PATH).body).get("status", {}).get("detailStatus", [])
    return {
        f"{row['topologyInfo']['topologyLayer']}/{row['topologyInfo']['topologyName']}": row["nodeNum"] for row in rows
    }


def in_tree(trial: Trial, nodes: int) -> None:
    """Wait until the status counts this many nodes: Koordinator reads nodes every ten seconds."""
    assert trial.reaches(lambda: domains(trial).get("ClusterTopologyLayer/") == nodes, within=30)


def crowded(trial: Trial, expect: Expect) -> None:
    """Three blocks of two nodes with two cards, of which b1 and b3 have a used card: room for 3, 4 and 3."""
    trial.apply(network())
    trial.add(
        placed_in("b1-0", "s1", "b1"),
        placed_in("b1-1", "s1", "b1"),
        placed_in("b2-0", "s1", "b2"),
        placed_in("b2-1", "s1", "b2"),
        placed_in("b3-0", "s2", "b3"),
        placed_in("b3-1", "s2", "b3"),
    )
    in_tree(trial, 6)
    trial.submit(on("x", "b1-0", 1), on("y", "b3-0", 1))
    expect.bound("x", "y")
