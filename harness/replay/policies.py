"""How a replay chooses the node of a pod: the six policies of the FGD paper, and two of seatrial.

A policy scores every shape on a node; the node with the highest score gets the pod, the first of equals. The
published policies follow the scores of the authors' simulator (github.com/hkust-adsl/kubernetes-scheduler-simulator,
`pkg/simulator/plugin`) with the settings of its experiments. There a score is a whole number from 0 to 100, so ties are
frequent and part of the result. Where it stretches scores to that range afterwards, order and ties stay the same, so
it is left out here. CPU is measured against 128 cores and GPU against 8 cards, the largest node, whatever the node.
"""

import random
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar

import numpy as np

from seatrial.harness.errors import UsageError
from seatrial.harness.replay.cluster import Cluster
from seatrial.scheduler.packing.fragments import INFEASIBLE
from seatrial.scheduler.packing.opportunity import Market
from seatrial.scheduler.packing.shapes import CARD, Floats, Ints
from seatrial.scheduler.packing.strategies import Outlook, Requests, StrategyName, graded, scores

MAX_CPU, MAX_GPU = 128_000, 8 * CARD


class Policy(ABC):
    """Scores for one replay on one cluster."""

    name: ClassVar[str]

    def __init__(self, cluster: Cluster, outlook: Outlook, rng: random.Random) -> None:
        self.cluster, self.outlook, self.rng = cluster, outlook, rng

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

    def placed(self, node: int) -> bool:  # noqa: ARG002
        """A pod was placed on `node`. Returns whether the scores of all nodes have changed."""
        return False


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
    strategy: ClassVar[StrategyName] = "FGD"

    def __init__(self, cluster: Cluster, outlook: Outlook, rng: random.Random) -> None:
        super().__init__(cluster, outlook, rng)
        self._requests = Requests(cluster.shapes, outlook)

    def scores(self, nodes: Ints) -> Floats:
        return scores(self.strategy, self.outlook, self.cluster.states(nodes), self._requests).T.astype(np.float64)

    def card(self, node: int, shape: int) -> int:
        gains = self._card_gains(node, shape)
        # The grade of a large loss is 0 as well: a card that is too small must come after it.
        return int(np.where(gains == INFEASIBLE, -1, graded(gains)).argmax())

    def _card_gains(self, node: int, shape: int) -> Floats:
        shapes = self.cluster.shapes
        state = self.cluster.states(np.array([node]))
        return self.outlook.fragments.card_gains(state, int(shapes.cpu[shape]), int(shapes.part[shape]))


class Balanced(Fgd):
    """FGD that also balances CPU and GPU of a node; it uses up the nodes that large pods need."""

    name = "balanced"
    strategy: ClassVar[StrategyName] = "Balanced"

    def card(self, node: int, shape: int) -> int:
        return int(self._card_gains(node, shape).argmax())


class OpportunityCost(Balanced):
    """`balanced`, less what a placement costs pods that only few nodes can run; our own policy."""

    name = "opportunity"
    strategy: ClassVar[StrategyName] = "OpportunityCost"

    def __init__(self, cluster: Cluster, outlook: Outlook, rng: random.Random) -> None:
        self._market = Market(outlook.demand, cluster.states())
        super().__init__(cluster, replace(outlook, prices=self._market.prices), rng)

    def placed(self, node: int) -> bool:
        nodes = np.array([node])
        if not self._market.change(nodes, self.cluster.states(nodes)):
            return False
        self.outlook = replace(self.outlook, prices=self._market.prices)
        return True


POLICIES: dict[str, type[Policy]] = {
    each.name: each for each in (Random, DotProd, GpuClustering, GpuPacking, BestFit, Fgd, Balanced, OpportunityCost)
}


def policy_named(name: str) -> type[Policy]:
    """A policy by name.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in POLICIES:
        raise UsageError(f"no policy {name!r}; known: {', '.join(POLICIES)}, scheduler")
    return POLICIES[name]
