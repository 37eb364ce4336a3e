"""A cluster as columns: free resources of each node, and requests of each pod shape.

Rows are nodes in the order in which they are preferred, so that of several equal nodes the first is taken.
The shapes are fixed when a replay starts: scores are kept per shape and node, and only a node that changed is scored
again.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from seatrial.harness.replay.openb import CARD, Node, Shape

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Shapes:
    """The requests of all distinct shapes: arrays of length S. Shapes that share a card come first."""

    def __init__(self, shapes: Iterable[Shape], models: Sequence[str]) -> None:
        every = sorted(set(shapes), key=lambda shape: (not shape.shares, shape))
        self.number: dict[Shape, int] = {shape: number for number, shape in enumerate(every)}
        self.shared = sum(shape.shares for shape in every)
        """How many shapes ask for a part of one card."""
        self.cpu = np.array([shape.cpu_milli for shape in every], dtype=np.int64)
        self.memory = np.array([shape.memory_mib for shape in every], dtype=np.int64)
        self.gpus = np.array([shape.gpus for shape in every], dtype=np.int64)
        self.request = np.array([shape.gpu_request for shape in every], dtype=np.int64)
        self.whole: Ints = np.where([shape.shares for shape in every], 0, self.gpus)
        """How many free cards a shape takes; 0 for one without GPU or with a part of one."""
        self.part: Ints = np.where([shape.shares for shape in every], self.request, 0)
        """Which part of one card a shape takes; 0 for one without GPU or with whole cards."""
        self.accepts = np.array([[shape.runs_on(model) for shape in every] for model in models], dtype=np.bool_)
        """[model, shape]: the shape may run on the model."""

    def __len__(self) -> int:
        return len(self.number)


class Cluster:
    """Free resources of all nodes. `cards` is [node, card]; a node with fewer cards than the widest is filled up with
    cards without free capacity, on which no pod fits and which do not count.
    """

    def __init__(self, nodes: Sequence[Node], shapes: Iterable[Shape]) -> None:
        self.models: list[str] = sorted({node.model for node in nodes})
        self.shapes = Shapes(shapes, self.models)
        self.model: Ints = np.array([self.models.index(node.model) for node in nodes], dtype=np.int64)
        self.gpus: Ints = np.array([node.gpus for node in nodes], dtype=np.int64)
        self.cpu: Ints = np.array([node.cpu_milli for node in nodes], dtype=np.int64)
        self.memory: Ints = np.array([node.memory_mib for node in nodes], dtype=np.int64)
        width = int(self.gpus.max())
        self.cards: Ints = np.where(np.arange(width) < self.gpus[:, None], CARD, 0)
        self.kinds: Ints = np.zeros(len(nodes), dtype=np.int64)
        """Which kinds of GPU pods a node runs: bit 0 parts of cards, bit k pods with k whole cards."""

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
