"""GPU fragmentation: the idle GPU of a cluster that typical pods cannot use.

Definition of "Beware of Fragmentation" (USENIX ATC '23, section 3), as its authors' simulator computes it: for one
typical pod, all that is idle on a node is a fragment if the pod cannot run there, and else what is idle on cards too
small for it. A typical pod without GPU can use no idle GPU, so all of it is a fragment to that pod. A node's figure is
the mean over the typical pods, weighted by how often they come; a cluster's is the sum over its nodes. Unit:
thousandths of a GPU.

Memory plays no part. Because only one card can be shared, the figure is a sum over cards and one term for pods with
several cards; both come from tables by model, CPU left and what is left on the card, so one node costs a few look-ups.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from seatrial.harness.replay.cluster import Cluster, Floats, Ints
from seatrial.harness.replay.openb import CARD, Shape

COVERED = 0.95
"""The most frequent shapes that make up this share of all pods are the typical ones."""


@dataclass(frozen=True, slots=True)
class Typical:
    """A typical shape and its share of all typical pods. Its memory is 0, because memory does not count."""

    shape: Shape
    weight: float


def typical_pods(shapes: Iterable[Shape], covered: float = COVERED) -> list[Typical]:
    """The most frequent shapes, pods without GPU included, until they make up `covered` of all; weights sum to 1.

    Of equally frequent shapes the larger comes first: CPU, then the part of a card, then the number of cards.
    """
    counts = Counter(Shape(each.cpu_milli, 0, each.gpus, each.gpu_milli, each.models) for each in shapes)
    ranked = sorted(
        counts.items(),
        key=lambda item: (item[1], item[0].cpu_milli, item[0].gpu_milli, item[0].gpus, item[0].models),
        reverse=True,
    )
    wanted = covered * counts.total()
    chosen: list[tuple[Shape, int]] = []
    seen = 0
    for shape, count in ranked:
        if seen >= wanted:
            break
        chosen.append((shape, count))
        seen += count
    return [Typical(shape, count / seen) for shape, count in chosen]


class Fragments:
    """The figures of many nodes at once.

    The worth of a node to the typical pods is its idle GPU less its fragments. `by_card[row, left]` is the worth of
    one card with `left` idle to pods with one card, `by_free[row, free]` that of `free` whole cards to pods with
    several. A row stands for a model and a range of CPU left in which the same typical pods have CPU enough.
    """

    def __init__(self, pods: Sequence[Typical], models: Sequence[str], width: int) -> None:
        self._steps: Ints = np.unique(np.array([pod.shape.cpu_milli for pod in pods], dtype=np.int64))
        rows = len(self._steps) + 1
        self._rows = rows
        self.by_card: Floats = np.zeros((len(models) * rows, CARD + 1))
        self.by_free: Floats = np.zeros((len(models) * rows, width + 1))
        left, free = np.arange(CARD + 1), np.arange(width + 1)
        for number, model in enumerate(models):
            for pod in pods:
                shape = pod.shape
                if not shape.gpus or not shape.runs_on(model):
                    continue
                first = number * rows + int(np.searchsorted(self._steps, shape.cpu_milli, side="right"))
                enough = slice(first, (number + 1) * rows)
                if shape.gpus == 1:
                    self.by_card[enough] += pod.weight * np.where(left >= shape.gpu_milli, left, 0)
                else:
                    self.by_free[enough] += pod.weight * np.where(free >= shape.gpus, free * CARD, 0)
        cpu = sum(pod.weight * pod.shape.cpu_milli for pod in pods)
        gpu = sum(pod.weight * pod.shape.gpu_request for pod in pods)
        self.gpu_per_cpu = gpu / cpu if cpu else float(CARD)
        """Thousandths of a GPU that the typical pods ask for with a thousandth of a core, pods without GPU included."""
        self._flat = self.by_card.reshape(-1)
        self.several = bool(self.by_free.any())
        """Some typical pod asks for several cards; if not, `by_free` is nothing but zeros."""

    def row(self, model: Ints, cpu: Ints) -> Ints:
        """The row of the tables for each model and free CPU (below 0 counts as 0)."""
        rows: Ints = model * self._rows + self._steps.searchsorted(cpu, side="right")
        return rows

    def worth(self, model: Ints, cpu: Ints, cards: Ints) -> Floats:
        """Idle GPU less fragments, of each node; `cards` is [node, card]."""
        row = self.row(model, cpu)
        worth: Floats = self.cards(row, cards).sum(axis=1)
        if self.several:
            worth += self.by_free[row, (cards == CARD).sum(axis=1)]
        return worth

    def cards(self, row: Ints, left: Ints) -> Floats:
        """The worth of each card to pods with one card, [..., card]; `left` has one axis more than `row`."""
        return self._flat.take(row[..., None] * (CARD + 1) + left)

    def of(self, model: Ints, cpu: Ints, cards: Ints) -> Floats:
        """Fragments of each node, in thousandths of a GPU."""
        fragments: Floats = cards.sum(axis=1) - self.worth(model, cpu, cards)
        return fragments

    def cluster(self, cluster: Cluster) -> float:
        """Fragments of all nodes, in thousandths of a GPU."""
        return float(self.of(cluster.model, cluster.cpu, cluster.cards).sum())
