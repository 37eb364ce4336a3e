"""Nodes without pods that one pod ignores (Koordinator's reservation transformers).

For a pod that may use reservations, the nodes with these reservations are copied, the reserve pods are removed from the
copies, and the plugins run on the copies without kept results. All other nodes use the kept results.
"""

from collections.abc import Iterable

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.engine.plugin_runner import PluginRunner
from seatrial.scheduler.framework.extension_points import Transformer
from seatrial.scheduler.framework.restored import RESTORED, Restored
from seatrial.scheduler.framework.state import CycleState


def restore(runner: PluginRunner, state: CycleState, info: PodInfo) -> None:
    """Run the transformers of the profile and store the node copies in `state`. Call after PreFilter."""
    overlooked: dict[str, list[PodInfo]] = {}
    for plugin in runner.transformers:
        for name, holders in plugin.overlooked(state, info.pod).items():
            overlooked.setdefault(name, []).extend(holders)
    if not overlooked:
        return
    inner, nodes = state.fork(), dict[str, NodeInfo]()
    for name, holders in overlooked.items():
        node = runner.handle.cache.find(name)
        if node is None:
            continue
        seen = nodes[name] = node.copy()
        for holder in holders:
            seen.remove(holder)
            runner.removed(inner, holder, seen)
    state[RESTORED] = Restored(inner, nodes)


def share(state: CycleState) -> None:
    """Copy entries that plugins added to `state`, as in PreScore, to the state of the node copies."""
    restored = state.get(RESTORED)
    if restored is not None:
        for key, value in state.items():
            if key is not RESTORED:
                restored.state.setdefault(key, value)


def enter(plugins: Iterable[object], state: CycleState, pod: Pod, name: str) -> CycleState:
    """The state for Reserve on the selected node."""
    restored = state.get(RESTORED)
    if restored is None or name not in restored.nodes:
        return state
    for plugin in plugins:
        if isinstance(plugin, Transformer):
            plugin.chosen(restored.state, pod, restored.nodes[name])
    return restored.state
