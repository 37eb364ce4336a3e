"""ClusterNetworkTopology objects, and the annotation of gangs with the domains in which their members gather.

Invalid annotations never reject a pod: readers return what can be used, and notes in words.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from seatrial.scheduler.api.wire import MAX_INT32, ObjectMeta, Wire

TOPOLOGIES_PATH = "/apis/scheduling.koordinator.sh/v1alpha1/clusternetworktopologies"
GATHER_SPEC = "gang.scheduling.koordinator.sh/network-topology-spec"
TOPOLOGY_SELECTOR = "scheduling.koordinator.sh/network-topology-selector"
DEFAULT_TOPOLOGY = "default"  # the only object that is read

CLUSTER_LAYER, NODE_LAYER = "ClusterTopologyLayer", "NodeTopologyLayer"
MUST_GATHER, PREFER_GATHER = "MustGather", "PreferGather"


class TopologyLayer(Wire, frozen=True):
    """One layer of the network. `label_key`: the first of these node labels that is set names the node's domain."""

    topology_layer: str = ""
    parent_topology_layer: str = ""
    label_key: tuple[str, ...] | None = ()


class TopologySpec(Wire, frozen=True):
    """The layers of a network topology, each with its parent layer."""

    network_topology_spec: tuple[TopologyLayer, ...] | None = ()


class ClusterNetworkTopology(Wire, frozen=True):
    """A ClusterNetworkTopology."""

    metadata: ObjectMeta = ObjectMeta()
    spec: TopologySpec = TopologySpec()
    status: dict[str, Any] = {}  # compared, and written as a whole


class GatherRule(Wire, frozen=True):
    """How the members of a gang gather in the domains of one layer."""

    layer: str = ""
    strategy: str = ""
    pod_count_multiple: int = 0  # members in a domain of the layer are a multiple of this; 0 and 1: any number


def demands(rule: GatherRule) -> bool:
    """Whether a group that cannot follow the rule has to wait."""
    return rule.strategy == MUST_GATHER or rule.pod_count_multiple > 1


class GatherSpec(Wire, frozen=True):
    """The annotation's content: one rule for each layer."""

    gather_strategy: tuple[GatherRule, ...] | None = ()


def gather_rules(annotations: Mapping[str, str]) -> tuple[tuple[GatherRule, ...] | None, tuple[str, ...]]:
    """The rules of the annotation, and what is wrong with it; None if there is none, or none that can be read."""
    text = annotations.get(GATHER_SPEC)
    if not text:
        return None, ()
    try:
        rules = msgspec.json.decode(text, type=GatherSpec).gather_strategy or ()
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        expected = '{"gatherStrategy": [{"layer": NAME, "strategy": MustGather or PreferGather}]}'
        return None, (f"annotation {GATHER_SPEC}: expected {expected}, found {text!r} ({error}); it is ignored",)
    notes = [
        f"annotation {GATHER_SPEC}: layer {rule.layer!r}: expected strategy MustGather or PreferGather, found"
        f" {rule.strategy!r}; the strategy is ignored"
        for rule in rules
        if rule.strategy not in {MUST_GATHER, PREFER_GATHER}
    ]
    wrong = [rule for rule in rules if not 0 <= rule.pod_count_multiple <= MAX_INT32]
    notes += [
        f"annotation {GATHER_SPEC}: layer {rule.layer!r}: expected podCountMultiple from 0 to {MAX_INT32}, found"
        f" {rule.pod_count_multiple}; it is ignored"
        for rule in wrong
    ]
    if wrong:
        rules = tuple(msgspec.structs.replace(rule, pod_count_multiple=0) if rule in wrong else rule for rule in rules)
    return rules, tuple(notes)
