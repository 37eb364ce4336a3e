"""The layers of a ClusterNetworkTopology as one chain, from the top to the nodes; or what is wrong with them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.scheduler.api.networktopology import CLUSTER_LAYER, NODE_LAYER, TopologyLayer


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer above the nodes."""

    name: str
    keys: tuple[str, ...]  # node labels


class LayersError(ValueError):
    """The layers are not one chain that ends at NodeTopologyLayer. The message names the mistake."""


def chain(entries: Sequence[TopologyLayer]) -> tuple[Layer, ...]:
    """The layers above the nodes, topmost first (GANG-R47).

    Raises:
        LayersError: the entries are not one chain.
    """
    by_name = {entry.topology_layer: entry for entry in entries}
    twice = sorted(name for name, count in Counter(entry.topology_layer for entry in entries).items() if count > 1)
    if twice:
        raise LayersError(f"topology layer {twice[0]!r}: expected one entry, found several")
    if NODE_LAYER not in by_name:
        raise LayersError(f'topology layer "{NODE_LAYER}" not found in spec')
    if CLUSTER_LAYER in by_name or "" in by_name:
        raise LayersError(
            f"topologyLayer: expected a name other than {CLUSTER_LAYER!r} and '', found {sorted(by_name)}"
        )
    layers: list[Layer] = []
    used = [NODE_LAYER]
    name = by_name[NODE_LAYER].parent_topology_layer
    while name and name != CLUSTER_LAYER:
        entry = by_name.get(name)
        if entry is None:
            raise LayersError(f'topology layer "{name}" not found in spec; it is the parent of "{used[-1]}"')
        if name in used:
            raise LayersError(f"topology layers {' → '.join([*used, name])}: expected no cycle of parents")
        used.append(name)
        keys = tuple(key for key in entry.label_key or () if key)
        if not keys:
            raise LayersError(f'topology layer "{name}": expected a node label in labelKey, found none')
        layers.append(Layer(name, keys))
        name = entry.parent_topology_layer
    left = sorted(set(by_name) - set(used))
    if left:
        raise LayersError(
            f"topology layers {', '.join(left)}: expected every layer above {NODE_LAYER} in one chain;"
            f" the chain is {' → '.join(used)}"
        )
    return tuple(reversed(layers))
