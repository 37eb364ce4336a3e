"""Scores of placements, 0 to 100, by strategy: FGD, balanced, and by opportunity cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp
from typing import Any, Literal

import numpy as np

from seatrial.scheduler.packing.fragments import Fragments
from seatrial.scheduler.packing.kernel import kernel
from seatrial.scheduler.packing.opportunity import Demand, Payers, Prices
from seatrial.scheduler.packing.shapes import CARD, Floats, Ints, NodeStates, Shape, Shapes, typical_pods

StrategyName = Literal["FGD", "Balanced", "OpportunityCost"]

LARGEST_CPU, LARGEST_GPU = 128_000, 8 * CARD  # a node against which what is left is measured
BEST_FIT = 100
"""The value of filling a node, in thousandths of a GPU; 10 gives the same results, 300 loses 0.15 points."""
WORST = -1e6  # thousandths of a GPU: below anything that a placement can cost
MAX_WIDTH, MAX_PRICED = 129, 256  # cards of a node, counted from 0, and large shapes that the kernel can score


@dataclass(frozen=True, slots=True)
class Outlook:
    """Expectations about future pods: typical pods and their fragments, and the demand for scarce places.

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
        return Outlook(Fragments(typical_pods(demand), models, width), scarce, scarce.free)


class Requests:
    """Some shapes of pods, prepared for one outlook."""

    def __init__(self, shapes: Shapes, outlook: Outlook) -> None:
        self.shapes = shapes
        self.payers: Payers = outlook.demand.payers(shapes)
        self._compiled: tuple[StrategyName, Outlook, Any] | None = None

    def compiled(self, strategy: StrategyName, outlook: Outlook) -> Any | None:
        """The kernel's `Scorer` for these shapes; None where there is no kernel, or the tables are too large for it."""
        known = self._compiled
        if known is not None and known[0] == strategy:
            if known[1] is outlook:
                return known[2]
            if known[1].fragments is outlook.fragments:  # only prices changed
                if known[2] is not None and strategy == "OpportunityCost":
                    known[2].price(*outlook.demand.priced(self.payers, outlook.prices))
                self._compiled = strategy, outlook, known[2]
                return known[2]
        known = self._compiled = strategy, outlook, _scorer(strategy, outlook, self)
        return known[2]


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


STRATEGIES: dict[StrategyName, Strategy] = {"FGD": fgd, "Balanced": balanced, "OpportunityCost": opportunity_cost}


def scores(strategy: StrategyName, outlook: Outlook, states: NodeStates, requests: Requests) -> Ints:
    """Scores of all shapes on some nodes, [shape, node], by the compiled kernel where it has been built."""
    scorer = requests.compiled(strategy, outlook)
    if scorer is None:
        outcome: Ints = STRATEGIES[strategy](outlook, states, requests).T.astype(np.int64)
        return outcome
    result = np.empty((len(requests.shapes), len(states.cpu)), np.int64)
    scorer.score(states.model, states.cpu, states.memory, np.ascontiguousarray(states.cards), result)
    return result


def scores_of_one(
    strategy: StrategyName, outlook: Outlook, node: tuple[int, int, int, tuple[int, ...]], requests: Requests
) -> Ints:
    """`scores` of one node, [shape]; `node`: its model, and the CPU, the memory and the cards that it has left."""
    scorer = requests.compiled(strategy, outlook)
    if scorer is None:
        model, cpu, memory, cards = node
        states = NodeStates(np.array([model]), np.array([cpu]), np.array([memory]), np.array([cards]))
        return scores(strategy, outlook, states, requests)[:, 0]
    result = np.empty(len(requests.shapes), np.int64)
    scorer.score_one(*node, result)
    return result


def _scorer(strategy: StrategyName, outlook: Outlook, requests: Requests) -> Any | None:
    module = kernel()
    fragments, shapes = outlook.fragments, requests.shapes
    if module is None or fragments.width > MAX_WIDTH or len(outlook.demand.large) > MAX_PRICED:
        return None
    demand = outlook.demand
    prices = outlook.prices if strategy == "OpportunityCost" else demand.free
    scarce = (*demand.tables(requests.payers), *demand.priced(requests.payers, prices))
    tables = (fragments.by_card, fragments.by_free, fragments.steps)
    columns = (shapes.cpu, shapes.memory, shapes.whole, shapes.part, shapes.request)
    sizes = (
        list(STRATEGIES).index(strategy),
        fragments.several,
        len(fragments.steps) + 1,
        fragments.width,
        len(fragments.by_card) // (len(fragments.steps) + 1),
        shapes.shared,
    )
    return module.Scorer((*tables, *columns, grades(), *scarce), sizes, fragments.gpu_per_cpu)


def graded(gains: Floats) -> Floats:
    """Gains in thousandths of a GPU as whole numbers from 0 to 99, as FGD's authors do: 50 for no change.

    That is ⌊100 / (1 + e^(-gain / 1000))⌋. It is looked up, because NumPy's exponential differs between processors in
    the last bit.
    """
    return np.searchsorted(grades(), gains, side="right").astype(np.float64)


@cache
def grades() -> Floats:
    """The least gain of each grade from 1 to 99, found by bisection."""
    results = []
    for grade in range(1, 100):
        low, high = WORST / 10, -WORST / 10
        while low < (middle := (low + high) / 2) < high:
            if 100 / (1 + exp(middle / -CARD)) >= grade:
                high = middle
            else:
                low = middle
        results.append(high)
    return np.array(results)


def spread_out(gains: Floats) -> Floats:
    """Gains in thousandths of a GPU as whole numbers from 0 to 100: 50 for no change.

    It is finer than `graded` near 0 and still distinguishes costs of eight cards and more.
    """
    cards = np.maximum(gains, WORST) / CARD
    return np.floor(50 * (1 + cards / (1 + np.abs(cards))))
