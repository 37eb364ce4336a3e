"""A cluster as columns: free resources of each node, and requests of each pod shape.

Rows are nodes in the order in which they are preferred, so that of several equal nodes the first is taken.
The shapes are fixed when a replay starts: scores are kept per shape and node, and only a node that changed is scored
again.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from seatrial.harness.replay.openb import Node
from seatrial.scheduler.packing.shapes import CARD, Flags, Ints, NodeStates, Shape, Shapes, ordered


class Cluster:
    """Free resources of all nodes. `cards` is [node, card]; a node with fewer cards than the widest is filled up with
    cards without free capacity, on which no pod fits and which do not count.
    """

    def __init__(self, nodes: Sequence[Node], shapes: Iterable[Shape]) -> None:
        self.models: list[str] = sorted({node.model for node in nodes})
        self.shapes = Shapes(ordered(shapes), self.models)
        self.number: dict[Shape, int] = {shape: number for number, shape in enumerate(self.shapes.every)}
        """The index of each shape."""
        self.model: Ints = np.array([self.models.index(node.model) for node in nodes], dtype=np.int64)
        self.gpus: Ints = np.array([node.gpus for node in nodes], dtype=np.int64)
        self.cpu: Ints = np.array([node.cpu_milli for node in nodes], dtype=np.int64)
        self.memory: Ints = np.array([node.memory_mib for node in nodes], dtype=np.int64)
        width = int(self.gpus.max())
        self.cards: Ints = np.where(np.arange(width) < self.gpus[:, None], CARD, 0)
        self.kinds: Ints = np.zeros(len(nodes), dtype=np.int64)
        """Which kinds of GPU pods a node runs: bit 0 parts of cards, bit k pods with k whole cards."""

    def states(self, nodes: Ints | None = None) -> NodeStates:
        """What is left on some nodes, or (None) on all."""
        if nodes is None:
            return NodeStates(self.model, self.cpu, self.memory, self.cards)
        return NodeStates(self.model[nodes], self.cpu[nodes], self.memory[nodes], self.cards[nodes])

    def feasible(self, nodes: Ints) -> Flags:
        """Whether each shape fits on each node now, [node, shape]."""
        shapes, cards = self.shapes, self.cards[nodes]
        fits: Flags = self.cpu[nodes, None] >= shapes.cpu
        fits &= self.memory[nodes, None] >= shapes.memory
        fits &= (cards == CARD).sum(axis=1)[:, None] >= shapes.whole
        fits &= cards.max(axis=1)[:, None] >= shapes.part
        fits &= shapes.accepts[self.model[nodes]]
        return fits

    def tightest(self, node: int, milli: int) -> int:
        """The card with the least left that still holds `milli`, the first of equals."""
        cards = self.cards[node]
        return int(np.where(cards >= milli, cards, CARD + 1).argmin())

    def place(self, node: int, shape: int, card: int) -> None:
        """Subtract the request of the shape. Whole cards are the first free ones; `card` is for a part of a card."""
        shapes = self.shapes
        self.cpu[node] -= shapes.cpu[shape]
        self.memory[node] -= shapes.memory[shape]
        whole = int(shapes.whole[shape])
        if whole:
            self.cards[node, np.flatnonzero(self.cards[node] == CARD)[:whole]] = 0
            self.kinds[node] |= 1 << whole
        elif shapes.part[shape]:
            self.cards[node, card] -= shapes.part[shape]
            self.kinds[node] |= 1
