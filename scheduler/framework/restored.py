"""Nodes as one pod sees them: what is held there for it counts as free (Koordinator's reservation transformers).

Everybody else's verdict on such a node stands as it is kept. For a pod that sees some nodes otherwise, those few are
judged the plain way, on copies from which the pods are taken that hold the place; all other nodes go by what is kept.
"""

from collections.abc import Iterable

from scheduler.api.core import Pod
from scheduler.cache.nodeinfo import NodeInfo, PodInfo
from scheduler.framework.extension_points import Transformer, VictimAware
from scheduler.framework.handle import Handle
from scheduler.framework.state import CycleState, StateKey


class Restored:
    """The nodes that a pod sees otherwise, and the state in which to ask plugins about them."""

    __slots__ = ("nodes", "state")

    def __init__(self, state: CycleState, nodes: dict[str, NodeInfo]) -> None:
        self.state = state
        self.nodes = nodes


RESTORED: StateKey[Restored] = StateKey("framework/restored")


def as_seen(state: CycleState, node: NodeInfo) -> tuple[CycleState, NodeInfo]:
    """The node as the pod of this cycle sees it, and the state to ask about it in; mostly both as they are."""
    restored = state.get(RESTORED)
    if restored is None:
        return state, node
    seen = restored.nodes.get(node.name)
    return (state, node) if seen is None else (restored.state, seen)


def restore(handle: Handle, state: CycleState, info: PodInfo, plugins: Iterable[object]) -> None:
    """Ask the transformers among `plugins` what `info` may overlook, and put it into `state`. After PreFilter."""
    overlooked: dict[str, list[PodInfo]] = {}
    listed = list(plugins)
    for plugin in listed:
        if isinstance(plugin, Transformer):
            for name, holders in plugin.overlooked(state, info.pod).items():
                overlooked.setdefault(name, []).extend(holders)
    if not overlooked:
        return
    aware = [plugin for plugin in listed if isinstance(plugin, VictimAware)]
    inner, nodes = state.fork(), dict[str, NodeInfo]()
    for name, holders in overlooked.items():
        node = handle.cache.find(name)
        if node is None:
            continue
        seen = nodes[name] = node.copy()
        for holder in holders:
            seen.remove(holder)
            for plugin in aware:
                plugin.victim_removed(inner, holder, seen)
    state[RESTORED] = Restored(inner, nodes)


def share(state: CycleState) -> None:
    """Let the other state know what plugins have put into `state` since, as they do before they score."""
    restored = state.get(RESTORED)
    if restored is not None:
        for key, value in state.items():
            if key is not RESTORED:
                restored.state.setdefault(key, value)


def enter(plugins: Iterable[object], state: CycleState, pod: Pod, name: str) -> CycleState:
    """The pod goes to that node: the state in which to reserve there."""
    restored = state.get(RESTORED)
    if restored is None or name not in restored.nodes:
        return state
    for plugin in plugins:
        if isinstance(plugin, Transformer):
            plugin.chosen(restored.state, pod, restored.nodes[name])
    return restored.state
