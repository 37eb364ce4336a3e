"""Policies that choose the node of a pod in a replay: the six policies of the FGD paper, and one of ours.

A policy scores every shape on a node; the node with the highest score gets the pod, the first of equals. The
published policies follow the scores of the authors' simulator (github.com/hkust-adsl/kubernetes-scheduler-simulator,
`pkg/simulator/plugin`) with the settings of its experiments. There a score is a whole number from 0 to 100, so ties are
frequent and part of the result. Where it stretches scores to that range afterwards, order and ties stay the same, so
it is left out here. CPU is measured against 128 cores and GPU against 8 cards, the largest node, whatever the node.
"""

import random
from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np

from seatrial.harness.errors import UsageError
from seatrial.harness.replay.cluster import Cluster, Floats, Ints
from seatrial.harness.replay.fragmentation import Fragments
from seatrial.harness.replay.openb import CARD

MAX_CPU, MAX_GPU = 128_000, 8 * CARD
INFEASIBLE = -np.inf


class Policy(ABC):
    """Scores for one replay on one cluster."""

    name: ClassVar[str]

    def __init__(self, cluster: Cluster, fragments: Fragments, rng: random.Random) -> None:
        self.cluster, self.fragments, self.rng = cluster, fragments, rng

    @abstractmethod
    def scores(self, nodes: Ints) -> Floats:
        """Scores [node, shape], higher is better. Values for shapes that do not fit are ignored."""

    def choose(self, row: Floats) -> int | None:
        """The node with the highest score in `row` [node]; None if the pod fits nowhere."""
        best = int(row.argmax())
        return None if row[best] == INFEASIBLE else best

    def card(self, node: int, shape: int) -> int:
        """The card of a chosen node that a part of a card is taken from."""
        return self.cluster.tightest(node, int(self.cluster.shapes.part[shape]))


class Random(Policy):
    """Any node on which the pod fits, and any card on which it fits."""

    name = "random"

    def scores(self, nodes: Ints) -> Floats:
        return np.zeros((len(nodes), len(self.cluster.shapes)))

    def choose(self, row: Floats) -> int | None:
        fits = np.flatnonzero(row != INFEASIBLE)
        return int(fits[self.rng.randrange(len(fits))]) if len(fits) else None

    def card(self, node: int, shape: int) -> int:
        fits = np.flatnonzero(self.cluster.cards[node] >= self.cluster.shapes.part[shape])
        return int(fits[self.rng.randrange(len(fits))])


class DotProd(Policy):
    """The node with the smallest dot product of free CPU and GPU with the pod's request."""

    name = "dotprod"

    def scores(self, nodes: Ints) -> Floats:
        cluster, shapes = self.cluster, self.cluster.shapes
        cpu = (cluster.cpu[nodes] / MAX_CPU)[:, None] * (shapes.cpu / MAX_CPU)
        gpu = (cluster.cards[nodes].sum(axis=1) / MAX_GPU)[:, None] * (shapes.request / MAX_GPU)
        return np.trunc(100 * (1 - (cpu + gpu) / 2))


class GpuClustering(Policy):
    """Nodes that run pods of the same kind first, then empty ones, then others; the fullest first in each class."""

    name = "gpuclustering"

    def scores(self, nodes: Ints) -> Floats:
        cluster, shapes = self.cluster, self.cluster.shapes
        kind = np.where(shapes.part > 0, 1, np.left_shift(1, shapes.whole))
        runs = cluster.kinds[nodes][:, None]
        level = np.where(runs == kind, 75, np.where(runs & kind, 50, np.where(runs == 0, 25, 0)))
        full = 25 * (MAX_GPU - cluster.cards[nodes].sum(axis=1)) // MAX_GPU
        return np.where(shapes.gpus > 0, level + full[:, None], 0).astype(np.float64)


class GpuPacking(Policy):
    """Cards in use first, then free cards of nodes in use, then empty nodes, of which small ones first."""

    name = "gpupacking"

    def scores(self, nodes: Ints) -> Floats:
        cluster, shapes = self.cluster, self.cluster.shapes
        cards = cluster.cards[nodes]
        free = (cards == CARD).sum(axis=1)
        scores = np.maximum(50 - np.broadcast_to(shapes.whole, (len(nodes), len(shapes))), 33)
        used = np.where(cards < CARD, cards, 0)[:, None, :]
        left = np.where(used >= shapes.part[: shapes.shared, None], used, CARD).min(axis=2, initial=CARD)
        scores[:, : shapes.shared] = np.where(left < CARD, np.maximum(100 - left // 10 // 10, 50), 49)
        empty = free == cluster.gpus[nodes]
        scores[empty] = np.maximum(33 - free, free)[empty, None]
        return np.where(shapes.gpus > 0, scores, 0).astype(np.float64)


class BestFit(Policy):
    """Best fit: the node with the least CPU and GPU left after the placement."""

    name = "bestfit"

    def scores(self, nodes: Ints) -> Floats:
        cluster, shapes = self.cluster, self.cluster.shapes
        cpu = (cluster.cpu[nodes, None] - shapes.cpu) / MAX_CPU
        gpu = (cluster.cards[nodes].sum(axis=1)[:, None] - shapes.request) / MAX_GPU
        return np.trunc(100 * (1 - (cpu + gpu) / 2))


class Fgd(Policy):
    """Fragmentation gradient descent: the node and card where fragmentation increases least."""

    name = "fgd"

    def scores(self, nodes: Ints) -> Floats:
        return graded(self.gains(nodes))

    def card(self, node: int, shape: int) -> int:
        gains = self.card_gains(node, shape)
        # The grade of a large loss is 0 as well: a card that is too small must come after it.
        return int(np.where(gains == INFEASIBLE, -1, graded(gains)).argmax())

    def card_gains(self, node: int, shape: int) -> Floats:
        """The decrease of fragments [card] if the shape's part is taken from it; -inf if the card is too small."""
        fragments, shapes = self.fragments, self.cluster.shapes
        model, cpu, cards = self._state(np.array([node]))
        row = fragments.row(model, cpu - shapes.cpu[shape])
        before = fragments.cards(row, cards)
        change = self._shares(row, cards, shapes.part[shape], before) + before.sum()
        gained: Floats = change - fragments.worth(model, cpu, cards) + shapes.part[shape]
        return gained[0]

    def gains(self, nodes: Ints) -> Floats:
        """The decrease of fragments [node, shape] by a placement, on the best card of the node."""
        shapes, fragments = self.cluster.shapes, self.fragments
        model, cpu, cards = self._state(nodes)
        row = fragments.row(model[:, None], cpu[:, None] - shapes.cpu)
        each = fragments.cards(row, cards[:, None, :])
        after: Floats = each.sum(axis=2)
        after -= shapes.whole * fragments.by_card[row, CARD]
        if fragments.several:
            free = (cards == CARD).sum(axis=1)[:, None] - shapes.whole
            after += np.where(shapes.part > 0, 0, fragments.by_free[row, np.maximum(free, 0)])
        shared = shapes.shared
        if shared:
            options = self._shares(row[:, :shared], cards[:, None, :], shapes.part[:shared, None], each[:, :shared])
            after[:, :shared] += options.max(axis=2)
        after += shapes.request
        after -= fragments.worth(model, cpu, cards)[:, None]
        return after

    def _state(self, nodes: Ints) -> tuple[Ints, Ints, Ints]:
        return self.cluster.model[nodes], self.cluster.cpu[nodes], self.cluster.cards[nodes]

    def _shares(self, row: Ints, cards: Ints, part: Ints | np.int64, before: Floats) -> Floats:
        """The change of a node's worth [..., card] if a part is taken from it; -inf if the card is too small."""
        fragments = self.fragments
        left = cards - part
        change = fragments.cards(row, np.maximum(left, 0)) - before
        if fragments.several:
            free = cards == CARD
            change += fragments.by_free[row[..., None], np.maximum(free.sum(axis=-1, keepdims=True) - free, 0)]
        return np.where(left >= 0, change, INFEASIBLE)


class Balanced(Fgd):
    """FGD that also balances CPU and GPU of a node; our own policy.

    FGD accounts for a lack of CPU only once a typical pod no longer fits. Here GPU counts as stranded as soon as the
    CPU left is less than the typical pods request with that much GPU. A pod is placed where fragments and stranded GPU
    together increase least, so pods without GPU are placed on nodes with spare CPU. The gain is not rounded; a small
    weight of BestFit keeps large nodes free for pods with several cards.
    """

    name = "balanced"
    BEST_FIT: ClassVar = 100
    """The value of filling a node, in thousandths of a GPU; 10 gives the same result, 300 loses 0.15 points."""

    def scores(self, nodes: Ints) -> Floats:
        shapes, rate = self.cluster.shapes, self.fragments.gpu_per_cpu
        _, cpu, cards = self._state(nodes)
        idle = cards.sum(axis=1)
        cpu_left, gpu_left = cpu[:, None] - shapes.cpu, idle[:, None] - shapes.request
        stranded = np.maximum(gpu_left - cpu_left * rate, 0) - np.maximum(idle - cpu * rate, 0)[:, None]
        return self.gains(nodes) - stranded - self.BEST_FIT * (cpu_left / MAX_CPU + gpu_left / MAX_GPU)

    def card(self, node: int, shape: int) -> int:
        return int(self.card_gains(node, shape).argmax())


def graded(gained: Floats) -> Floats:
    """A gain in thousandths of a GPU as a whole number from 0 to 100."""
    return np.floor(100 / (1 + np.exp(gained / -CARD)))


POLICIES: dict[str, type[Policy]] = {
    each.name: each for each in (Random, DotProd, GpuClustering, GpuPacking, BestFit, Fgd, Balanced)
}


def policy_named(name: str) -> type[Policy]:
    """A policy by name.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in POLICIES:
        raise UsageError(f"no policy {name!r}; known: {', '.join(POLICIES)}")
    return POLICIES[name]
