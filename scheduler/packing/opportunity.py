"""What a placement takes away from pods that only few nodes can run.

Fragmentation weighs typical pods by their frequency, so rare large pods and rare models of GPU hardly count, and
pods that could run anywhere use up the nodes that those need. Here such capacity has a price, as seats of a fare class
have in revenue management ("bid price", Talluri and van Ryzin, The Theory and Practice of Revenue Management, 2004,
section 3.2): while more pods of a shape are expected than there are places left for it, a place costs the GPU that such
a pod would use. While there are places in plenty it costs nothing.

Expected until the cluster is full: λ = idle GPU x pods of the shape for each GPU requested. The demand that prices
cover is λ + 2 √λ, two standard deviations above the mean of a Poisson process, because single large pods matter. With
r = demand / places, the price is 0 up to r = 1/2 and the whole GPU request from r = 1 on, in quarters between: so it
changes seldom, and with it the scores of all nodes.

Two things have a price:
- places for pods with several cards, by shape. A pod that needs as much as the shape does not pay for its own place;
- GPU of models that some pods require: pods that accept other models pay for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seatrial.scheduler.packing.shapes import CARD, Flags, Floats, Ints, NodeStates, Shape, Shapes

FREE_UNTIL = 0.5  # demand for each place up to which a place costs nothing
FULL_FROM = 1.0  # and from which on it costs all of the GPU that the pod would use
STEPS = 4  # prices between: this many
DEVIATIONS = 2.0  # standard deviations of demand above its mean
MAX_SHAPES = 4096  # whose own places are kept; then all are dropped, and computed again
_ALL = slice(None)
_NOTHING: Floats = np.zeros(0)


class Demand:
    """The expected demand for places that are scarce. Columns [large] are over shapes with several cards."""

    def __init__(self, demand: Mapping[Shape, int], models: Sequence[str]) -> None:
        """`demand`: number of pods by shape; `models`: all GPU models of the nodes."""
        requested = max(sum(shape.gpu_request * count for shape, count in demand.items()), 1)
        self.models = models
        self.large = sorted(shape for shape in demand if shape.gpus > 1)
        # Floats, because dividing 64-bit integers takes five times as long; rounding down is exact below 2^53.
        self._gpus: Floats = np.array([shape.gpus for shape in self.large], np.float64)
        self._cpu: Floats = np.array([max(shape.cpu_milli, 1) for shape in self.large], np.float64)
        self._memory: Floats = np.array([max(shape.memory, 1) for shape in self.large], np.float64)
        accepts = _table([[shape.runs_on(model) for shape in self.large] for model in models], self.large)
        self._accepts: Floats = accepts.astype(np.float64)  # [model, large], 1 or 0
        self._accepts_all = bool(accepts.all())
        rates = [
            sum(count for shape, count in demand.items() if shape.needs_as_much_as(large)) / requested
            for large in self.large
        ]
        self._rates: Floats = np.array(rates)  # pods that need a place, for each thousandth of a GPU requested
        self.sets = sorted({shape.models for shape in demand if shape.models and shape.gpus})
        """Sets of models of which some pods require one."""
        self._in_set: Flags = _table([[model in each for each in self.sets] for model in models], self.sets)
        shares = [
            sum(shape.gpu_request * count for shape, count in demand.items() if _within(shape, each)) / requested
            for each in self.sets
        ]
        self._shares: Floats = np.array(shares)  # of all GPU requested

        self._paying: dict[Shape, tuple[list[int], list[bool]]] = {}
        self.free = Prices(np.zeros(len(self.large)), np.zeros(len(self.sets)))
        """The prices while nothing has one."""

    def __bool__(self) -> bool:
        return bool(self.large or self.sets)

    def places(self, states: NodeStates) -> Ints:
        """How many pods of each large shape fit on each node, [node, large]."""
        return self._fitting(states.free, states.cpu, states.memory, states.model).T.astype(np.int64)

    def idle(self, states: NodeStates) -> Ints:
        """Idle GPU of each node that pods of each set of models can use, [node, set]."""
        idle: Ints = np.where(self._in_set[states.model], states.cards.sum(axis=1)[:, None], 0)
        return idle

    def prices(self, gpu: int, places: Ints, idle: Ints) -> "Prices":
        """The prices while `gpu` is idle in all, with the sums over all nodes of `places` [large] and `idle` [set]."""
        mean = gpu * self._rates
        per_place = _price((mean + DEVIATIONS * np.sqrt(mean)) / np.maximum(places, 0.5)) * self._gpus * CARD
        return Prices(per_place, _price(gpu * self._shares / np.maximum(idle, 1)))

    def payers(self, shapes: Shapes) -> "Payers":
        """Inputs of `cost` for some shapes; independent of prices."""
        rows = [self._paying.get(shape) or self._row_of(shape) for shape in shapes.every]
        own = np.array([places for places, _ in rows], np.int64).reshape(len(shapes), len(self.large))
        return Payers(shapes, own, _table([members for _, members in rows], self.sets))

    def _row_of(self, shape: Shape) -> tuple[list[int], list[bool]]:
        """What `payers` knows of one shape: places that it needs itself, and the sets that its models are in."""
        if len(self._paying) >= MAX_SHAPES:
            self._paying.clear()
        places = [shape.gpus // large.gpus if shape.needs_as_much_as(large) else 0 for large in self.large]
        row = self._paying[shape] = places, [_within(shape, each) for each in self.sets]
        return row

    def cost(self, states: NodeStates, payers: "Payers", prices: "Prices") -> Floats:
        """What placements cost others, in thousandths of a GPU, [node, shape]."""
        shapes = payers.shapes
        bill = payers.bill(prices, self._in_set)
        cost: Floats = np.zeros((len(states.cpu), len(shapes)))
        if len(bill.priced):
            cards = states.cards
            free = states.free - payers.whole
            shared = shapes.shared
            if shared:
                used = np.where(cards < CARD, cards, 0).max(axis=1)
                free[:shared] -= used < payers.part  # no card in use has room for the part
            places = self._fitting(
                free, states.cpu - payers.cpu, states.memory - payers.memory, states.model, bill.priced
            )
            lost = places[:, -1:] - places[:, :-1]
            lost -= bill.own
            np.maximum(lost, 0, out=lost)
            lost *= bill.places
            cost = lost.max(axis=0).T
        if bill.for_sets is not None:
            cost = cost + bill.for_sets[states.model]
        return cost

    def tables(self, payers: "Payers") -> tuple[NDArray[Any], ...]:
        """What `cost` reads at any prices, for the compiled kernel.

        CPU, memory and cards of the large shapes, [large]; places that a shape needs itself, [large, shape]; the models
        that they accept, [model, large], 1 or 0.
        """
        return self._cpu, self._memory, self._gpus, np.ascontiguousarray(payers.own.T, np.float64), self._accepts

    def priced(self, payers: "Payers", prices: "Prices") -> tuple[Floats, Floats]:
        """What `cost` reads of these prices, for the compiled kernel: prices of places, [large], 0 for none.

        And what a shape pays on a model that others require, [model, shape], or nothing at all.
        """
        for_sets = payers.for_sets(prices, self._in_set)
        return prices.places, _NOTHING if for_sets is None else for_sets

    def _fitting(self, free: Ints, cpu: Ints, memory: Ints, model: Ints, which: "slice | Ints" = _ALL) -> Floats:
        """How many pods of some large shapes fit, [large, ..., node]; `model` [node], the others [..., node].

        Nodes are the last axis and large shapes the first: operations then run over long rows, for many nodes as well
        as for one node and many shapes.
        """
        own = (slice(None), *(None,) * free.ndim)
        fits: Floats = cpu / self._cpu[which][own]
        np.minimum(fits, memory / self._memory[which][own], out=fits)
        np.minimum(fits, free / self._gpus[which][own], out=fits)
        np.floor(fits, out=fits)
        np.maximum(fits, 0, out=fits)
        if not self._accepts_all:
            accepts = self._accepts[model].T[which]
            fits *= accepts.reshape(len(accepts), *(1,) * (free.ndim - 1), -1)
        return fits


class Payers:
    """Some shapes of pods, and what they take of a node: [shape, 1], with a last entry that takes nothing."""

    def __init__(self, shapes: Shapes, own: Ints, members: Flags) -> None:
        """`own` [shape, large]: places that the shape itself needs and does not pay for.

        `members` [shape, set]: the shape accepts only models of the set.
        """
        self.shapes, self.members = shapes, members
        taken = (np.append(each, 0)[:, None] for each in (shapes.cpu, shapes.memory, shapes.whole))
        self.cpu, self.memory, self.whole = taken
        self.part = shapes.part[: shapes.shared, None]
        self.own = own
        self._bill: tuple[Prices, _Bill] | None = None

    def bill(self, prices: "Prices", in_set: Flags) -> "_Bill":
        """Prices applied to these shapes. `in_set` [model, set]."""
        if self._bill is None or self._bill[0] is not prices:
            priced = np.flatnonzero(prices.places)
            own = self.own[:, priced].T[..., None].astype(np.float64)
            for_sets = self.for_sets(prices, in_set)
            self._bill = prices, _Bill(priced, prices.places[priced, None, None], own, for_sets)
        return self._bill[1]

    def for_sets(self, prices: "Prices", in_set: Flags) -> Floats | None:
        """What a shape pays on a model that others require, [model, shape]; None: nothing has such a price."""
        if not prices.sets.any():
            return None
        pays = in_set[:, None, :] & ~self.members
        owed: Floats = (pays * prices.sets).max(axis=2) * self.shapes.request
        return owed


@dataclass(frozen=True, slots=True)
class _Bill:
    """`priced`: the large shapes whose places have a price; `places` [priced, 1, 1]: it; `own` [priced, shape, 1].

    `for_sets` [model, shape]: what a shape pays on a model that others require; None: nothing has such a price.
    """

    priced: Ints
    places: Floats
    own: Floats
    for_sets: Floats | None


class Prices:
    """The price of a place for each large shape [large], and of GPU for each set of models, as a share of it [set]."""

    def __init__(self, places: Floats, sets: Floats) -> None:
        self.places, self.sets = places, sets
        self.key = (places.tobytes(), sets.tobytes())
        """Equal for equal prices."""

    def differing(self, before: "Prices") -> Ints | None:
        """The large shapes whose places have another price than before; None if GPU of a model has another."""
        return None if self.key[1] != before.key[1] else np.flatnonzero(self.places != before.places)

    @property
    def any(self) -> bool:
        """Whether anything has a price."""
        return bool(self.places.any() or self.sets.any())


def _price(ratio: Floats) -> Floats:
    """The price, from 0 to 1, at this demand for each place."""
    share = np.clip((ratio - FREE_UNTIL) / (FULL_FROM - FREE_UNTIL), 0, 1)
    price: Floats = np.ceil(share * STEPS) / STEPS
    return price


def _within(shape: Shape, models: tuple[str, ...]) -> bool:
    return bool(shape.models) and set(shape.models) <= set(models)


def _table(rows: list[list[bool]], columns: Sequence[object]) -> Flags:
    return np.array(rows, np.bool_).reshape(len(rows), len(columns))


class Market:
    """The prices of one cluster, kept while its nodes change.

    Sums are kept by node, so a change costs what the changed nodes cost. Prices are computed again after
    `REFRESH_CHANGES` changes of nodes; the result depends on the sequence of changes alone.
    """

    REFRESH_CHANGES = 20

    def __init__(self, demand: Demand, states: NodeStates) -> None:
        """`states`: of all nodes."""
        self._demand = demand
        self._places = demand.places(states)
        self._idle = demand.idle(states)
        self._gpu: Ints = states.cards.sum(axis=1)
        self._sums = self._places.sum(axis=0), self._idle.sum(axis=0)
        self._total = int(self._gpu.sum())
        self._changes = 0
        self.prices = demand.prices(self._total, *self._sums)

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self._gpu)

    def having(self, large: Ints) -> Flags:
        """Which nodes have a place for one of these large shapes, [node]."""
        has: Flags = self._places[:, large].sum(axis=1) > 0
        return has

    def change(self, nodes: Ints, states: NodeStates) -> bool:
        """Some nodes are in these states now. Returns whether prices changed."""
        places, idle, gpu = self._demand.places(states), self._demand.idle(states), states.cards.sum(axis=1)
        of_places, of_idle = self._sums
        of_places += places.sum(axis=0) - self._places[nodes].sum(axis=0)
        of_idle += idle.sum(axis=0) - self._idle[nodes].sum(axis=0)
        self._total += int(gpu.sum() - self._gpu[nodes].sum())
        self._places[nodes], self._idle[nodes], self._gpu[nodes] = places, idle, gpu
        self._changes += len(nodes)
        if self._changes < self.REFRESH_CHANGES:
            return False
        before = self.prices
        self.refresh()
        return self.prices.key != before.key

    def refresh(self) -> None:
        """Compute the prices now."""
        self._changes = 0
        self.prices = self._demand.prices(self._total, *self._sums)
