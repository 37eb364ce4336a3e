"""A rig with a network topology: spines, blocks and nodes, named by labels."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from seatrial.scheduler.api.builders import GangBuilder
from seatrial.scheduler.api.networktopology import GATHER_SPEC, ClusterNetworkTopology
from seatrial.scheduler.framework.decisions import Bind, Reject
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig
from seatrial.scheduler.plugins.coscheduling.topology.tree import NetworkTopology

SPINE, BLOCK = "network.topology.nvidia.com/spine", "network.topology.nvidia.com/block"
LAYERS = (("SpineLayer", "", SPINE), ("BlockLayer", "SpineLayer", BLOCK), ("NodeTopologyLayer", "BlockLayer", ""))
# The cluster of the specification's examples E23 to E28.
CLUSTER_T = {
    "s1": {"b1": ("node-8", "node-1"), "b2": ("node-7", "node-2")},
    "s2": {"b3": ("node-6", "node-3"), "b4": ("node-5", "node-4")},
}


def topology(layers: Sequence[tuple[str, str, str]] = LAYERS, name: str = "default") -> ClusterNetworkTopology:
    """The object; layers are name, parent, node label."""
    entries = [
        {"topologyLayer": layer, "parentTopologyLayer": parent, "labelKey": [key] if key else []}
        for layer, parent, key in layers
    ]
    topology: ClusterNetworkTopology = msgspec.convert(
        {"metadata": {"name": name, "uid": name}, "spec": {"networkTopologySpec": entries}}, ClusterNetworkTopology
    )
    return topology


def gathered(built: GangBuilder, *rules: tuple[str, str] | tuple[str, str, int]) -> GangBuilder:
    """The gang with rules: layer, strategy, podCountMultiple."""
    listed: list[dict[str, Any]] = [
        {"layer": rule[0], "strategy": rule[1], **({"podCountMultiple": rule[2]} if len(rule) > 2 else {})}
        for rule in rules
    ]
    return built.annotation(GATHER_SPEC, msgspec.json.encode({"gatherStrategy": listed}).decode())


class TopologyRig(GangRig):
    """A rig that knows its network."""

    @property
    def tree(self) -> NetworkTopology:
        topology = self.cache.topology
        assert topology is not None
        return topology

    def fleet(self, spines: Mapping[str, Mapping[str, Sequence[str]]], **resources: Any) -> None:
        """The topology and its nodes, each with 16 CPUs unless `resources` says otherwise."""
        self.tree.set_object(topology())
        for spine, blocks in spines.items():
            for block, nodes in blocks.items():
                for name in nodes:
                    self.member_node(name, spine, block, **resources)

    def member_node(self, name: str, spine: str, block: str, **resources: Any) -> None:
        self.node(name, labels={SPINE: spine, BLOCK: block}, **{"cpu": "16", **resources})

    def decide_all(self) -> dict[str, str]:
        """Decide until nothing is ready. Returns the nodes of the pods that were bound."""
        bound: dict[str, str] = {}
        for _ in range(500):
            if not self.core.busy:
                break
            for decision in self.core.decide():
                self.decisions.append(decision)
                if isinstance(decision, Bind):
                    bound[decision.info.pod.metadata.name] = decision.node
        return bound

    def last_message(self, name: str) -> str:
        """The last message about a pod."""
        messages = [
            one.message for one in self.decisions if isinstance(one, Reject) and one.info.pod.metadata.name == name
        ]
        assert messages, f"nothing was said about {name}"
        return messages[-1]
