"""All nodes as columns for `scheduler.packing`, kept while nodes and their pods change."""

from collections.abc import Sequence

import numpy as np

from seatrial.scheduler.api.device import GPU_MODEL_LABEL
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.cache.resources import CPU_COLUMN, MEMORY_COLUMN
from seatrial.scheduler.packing.shapes import Flags, Ints, NodeStates
from seatrial.scheduler.plugins.deviceshare.cache import DeviceCache
from seatrial.scheduler.plugins.fragmentation.requests import card_memory_of, idle_cards

Left = tuple[int, int, int, tuple[int, ...]]  # model, CPU, memory and cards that a node has left


class Fleet:
    """Nodes with GPUs by row of `NodeColumns`. A node without GPUs has cards with nothing left."""

    def __init__(self, cache: Cache, devices: DeviceCache) -> None:
        self._cache, self._devices = cache, devices
        self._position = 0
        self.models: list[str] = []
        self.width = 1  # cards of the widest node
        self.card_memory = 0  # bytes, of a card of the first node with GPUs
        self.is_outdated = False  # a node has more cards, or another model, than the last survey found
        self._numbers: dict[str, int] = {}  # position in `models`
        self._states = _nothing(0, 1)
        self._has = np.zeros(0, np.bool_)  # rows with GPUs
        self._unseen: set[int] = set()  # rows that changed since `unseen`
        self._renumbered = True  # models or the width are others than those of `_states`

    def survey(self) -> bool:
        """Read models and widths of all nodes. Returns whether there are new ones since the last survey."""
        self.is_outdated = False
        models, width, memory = set(self.models), self.width, self.card_memory
        for name, node in self._cache.nodes.items():
            devices = self._devices.find(name)
            if devices is not None and devices.listed and node.node is not None:
                models.add(model_of(node))
                width = max(width, len(devices.state.slots("gpu")))
                memory = memory or card_memory_of(devices.state)
        changed = len(models) != len(self.models) or width != self.width or memory != self.card_memory
        self.models, self.width, self.card_memory = sorted(models), width, memory
        self._numbers = {model: number for number, model in enumerate(self.models)}
        self._renumbered |= changed
        return changed

    @property
    def nodes(self) -> int:
        """The number of rows."""
        return len(self._has)

    def every(self) -> NodeStates:
        """The states of all nodes; do not keep them. All count as seen."""
        if self._renumbered:
            return self.restart()
        self.catch_up()
        self._unseen.clear()
        return self._states

    def restart(self) -> NodeStates:
        """Read all nodes anew. Returns their states; do not keep them."""
        self._renumbered = False
        columns = self._cache.columns
        self._position = columns.changes
        self._states = _nothing(columns.count, self.width)
        self._has = np.zeros(columns.count, np.bool_)
        self._read(range(columns.count))
        self._unseen.clear()
        return self._states

    def catch_up(self) -> None:
        """Read the nodes that changed since the last call."""
        columns = self._cache.columns
        if columns.changes == self._position:
            return
        rows = columns.changed_since(self._position)
        if rows is None or columns.count != len(self._has):
            before = self._unseen
            self.restart()
            self._unseen = before
            self._unseen.update(range(columns.count))
            return
        self._position = columns.changes
        self._read(rows)
        self._unseen.update(rows)

    def unseen(self) -> tuple[Ints, NodeStates]:
        """The rows that changed since the last call, `every` or `restart`, ascending, and their states."""
        self.catch_up()
        where = np.array(sorted(self._unseen), np.int64)
        self._unseen.clear()
        return where, self._pick(where)

    def some(self, rows: Ints) -> tuple[Flags, NodeStates]:
        """Which of some rows have GPUs, and the states of those."""
        self.catch_up()
        has = self._has[rows]
        return has, self._pick(rows[has])

    def _pick(self, rows: Ints) -> NodeStates:
        states = self._states
        return NodeStates(states.model[rows], states.cpu[rows], states.memory[rows], states.cards[rows])

    def _read(self, rows: Sequence[int]) -> None:
        names, nodes, states = self._cache.columns.names, self._cache.nodes, self._states
        results = [None if (node := nodes.get(names[row])) is None else self.one(node) for row in rows]
        if results:
            where, nothing = np.array(rows), (0, 0, 0, (0,) * self.width)
            self._has[where] = [left is not None for left in results]
            # One assignment for each column: single ones cost as much for each node.
            states.model[where], states.cpu[where], states.memory[where], states.cards[where] = zip(
                *(left or nothing for left in results), strict=True
            )

    def one(self, node: NodeInfo) -> Left | None:
        """Model, CPU, memory and cards that a node has left; None if it has no GPUs or is not in the last survey."""
        if node.node is None:
            return None
        devices = self._devices.find(node.name)
        if devices is None or not devices.listed:
            return None
        cards = devices.state.idle
        if cards is None:
            cards = devices.state.idle = idle_cards(devices.state)
        model, missing = self._numbers.get(model_of(node)), self.width - len(cards)
        if missing < 0 or model is None:
            self.is_outdated = True  # as where a Device object comes after its node
            return None
        cpu, memory = free_of(node)
        return model, cpu, memory, cards + (0,) * missing if missing else cards


def model_of(node: NodeInfo) -> str:
    """The GPU model of a node by its label; "" without one."""
    return node.known.metadata.labels.get(GPU_MODEL_LABEL, "")


def free_of(node: NodeInfo) -> tuple[int, int]:
    """CPU (milli) and memory (bytes) that requests leave, negative on an overcommitted node."""
    allocatable, requested = node.allocatable, node.requested
    return (allocatable[CPU_COLUMN] - requested[CPU_COLUMN], allocatable[MEMORY_COLUMN] - requested[MEMORY_COLUMN])


def _nothing(nodes: int, width: int) -> NodeStates:
    zeros = np.zeros(nodes, np.int64)
    return NodeStates(zeros, zeros.copy(), zeros.copy(), np.zeros((nodes, width), np.int64))
