"""Scores of placements, 0 to 100, by strategy: FGD, balanced, and by opportunity cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from seatrial.scheduler.packing.fragments import Fragments
from seatrial.scheduler.packing.opportunity import Demand, Payers, Prices
from seatrial.scheduler.packing.shapes import CARD, Floats, NodeStates, Shape, Shapes, typical_pods

StrategyName = Literal["FGD", "Balanced", "OpportunityCost"]

LARGEST_CPU, LARGEST_GPU = 128_000, 8 * CARD  # a node against which what is left is measured
BEST_FIT = 100
"""The value of filling a node, in thousandths of a GPU; 10 gives the same results, 300 loses 0.15 points."""
WORST = -1e6  # thousandths of a GPU: below anything that a placement can cost


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known of the pods to come: typical pods and their fragments, and the demand for scarce places.

    `prices` are those of scarce places now. `OpportunityCost` alone reads demand and prices.
    """

    fragments: Fragments
    demand: Demand
    prices: Prices

    @staticmethod
    def of(demand: Mapping[Shape, int], models: Sequence[str], width: int) -> "Outlook":
        """The outlook with this number of pods of each shape; nothing has a price yet.

        `models`: all GPU models of the nodes; `width`: the number of cards of the widest node.
        """
        scarce = Demand(demand, models)
        nothing = Prices(np.zeros(len(scarce.large)), np.zeros(len(scarce.sets)))
        return Outlook(Fragments(typical_pods(demand), models, width), scarce, nothing)


class Requests:
    """Some shapes of pods, prepared for one outlook."""

    def __init__(self, shapes: Shapes, outlook: Outlook) -> None:
        self.shapes = shapes
        self.payers: Payers = outlook.demand.payers(shapes)


Strategy = Callable[[Outlook, NodeStates, Requests], Floats]


def fgd(outlook: Outlook, states: NodeStates, requests: Requests) -> Floats:
    """Fragmentation gradient descent: the decrease of fragments, graded."""
    return graded(outlook.fragments.gains(states, requests.shapes))


def balanced_gains(outlook: Outlook, states: NodeStates, requests: Requests) -> Floats:
    """The decrease of fragments and of stranded GPU, with a small weight for filling a node; thousandths of a GPU.

    FGD accounts for a lack of CPU only once a typical pod no longer fits. Here GPU counts as stranded as soon as the
    CPU left is less than the typical pods request with that much GPU.
    """
    fragments, shapes = outlook.fragments, requests.shapes
    cpu_left = states.cpu[:, None] - shapes.cpu
    gpu_left = states.cards.sum(axis=1)[:, None] - shapes.request
    fit = BEST_FIT * (cpu_left / LARGEST_CPU + gpu_left / LARGEST_GPU)
    gains: Floats = fragments.gains(states, shapes) - fragments.stranded(states, shapes) - fit
    return gains


def balanced(outlook: Outlook, states: NodeStates, requests: Requests) -> Floats:
    """FGD that also balances CPU and GPU of a node. It uses up the nodes that large pods need."""
    return spread_out(balanced_gains(outlook, states, requests))


def opportunity_cost(outlook: Outlook, states: NodeStates, requests: Requests) -> Floats:
    """`balanced`, less what the placement costs pods that only few nodes can run."""
    gains = balanced_gains(outlook, states, requests)
    if outlook.prices.any:
        gains -= outlook.demand.cost(states, requests.payers, outlook.prices)
    return spread_out(gains)


STRATEGIES: dict[StrategyName, Strategy] = {
    "FGD": fgd,
    "Balanced": balanced,
    "OpportunityCost": opportunity_cost,
}


def graded(gains: Floats) -> Floats:
    """Gains in thousandths of a GPU as whole numbers from 0 to 100, as FGD's authors do: 50 for no change."""
    return np.floor(100 / (1 + np.exp(np.maximum(gains, WORST / 10) / -CARD)))


def spread_out(gains: Floats) -> Floats:
    """Gains in thousandths of a GPU as whole numbers from 0 to 100: 50 for no change.

    It is finer than `graded` near 0 and still distinguishes costs of eight cards and more.
    """
    cards = np.maximum(gains, WORST) / CARD
    return np.floor(50 * (1 + cards / (1 + np.abs(cards))))
