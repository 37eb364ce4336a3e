"""What plugins see of nodes without pods that one pod ignores (Koordinator's reservation transformers).

`seatrial.scheduler.engine.restoring` makes the copies of these nodes.
"""

from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.framework.state import CycleState, StateKey


class Restored:
    """Node copies without ignored pods, and the state for plugins that run on them."""

    __slots__ = ("nodes", "state")

    def __init__(self, state: CycleState, nodes: dict[str, NodeInfo]) -> None:
        self.state = state
        self.nodes = nodes


RESTORED: StateKey[Restored] = StateKey("framework/restored")


def as_seen(state: CycleState, node: NodeInfo) -> tuple[CycleState, NodeInfo]:
    """The node and state for plugins in this cycle: the copy without ignored pods if there is one."""
    restored = state.get(RESTORED)
    if restored is None:
        return state, node
    seen = restored.nodes.get(node.name)
    return (state, node) if seen is None else (restored.state, seen)
