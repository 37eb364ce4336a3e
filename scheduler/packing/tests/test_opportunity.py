"""Prices of scarce places: worked examples, and the sums that are kept while nodes change."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.scheduler.packing.opportunity import Demand, Market
from seatrial.scheduler.packing.shapes import CARD, Floats, NodeStates, Shape, Shapes, ordered

ONE = Shape(8_000, 1, 1, CARD)
HALF = Shape(4_000, 1, 1, CARD // 2)
EIGHT = Shape(64_000, 1, 8, CARD)
HUGE = Shape(120_000, 8, 8, CARD)  # fits only on the largest nodes
PLAIN = Shape(2_000, 1, 0, 0)


def states(*nodes: tuple[int, int, list[int]], memory: int = 100, models: tuple[int, ...] = ()) -> NodeStates:
    """Nodes of (CPU, wholly free cards, other cards); all models are 0 unless given."""
    width = 8
    cards = [([CARD] * free + rest + [0] * width)[:width] for _, free, rest in nodes]
    return NodeStates(
        np.array(models or [0] * len(nodes)),
        np.array([cpu for cpu, _, _ in nodes]),
        np.full(len(nodes), memory),
        np.array(cards),
    )


def costs(demand: Counter[Shape], nodes: NodeStates, *shapes: Shape, models: tuple[str, ...] = ("T4",)) -> Floats:
    """[shape, node]: what each shape costs others on each node, at the prices of these nodes."""
    scarce = Demand(demand, models)
    every = ordered(shapes)
    cost = scarce.cost(nodes, scarce.payers(Shapes(every, models)), Market(scarce, nodes).prices)
    return np.array([cost[:, every.index(shape)] for shape in shapes])


def test_a_place_costs_the_gpu_of_the_large_pod_while_there_are_too_few_places() -> None:
    # 16 cards are idle; one pod of eight cards for each two of one card: 16 x 1/10 = 1.6 are expected, and
    # 1.6 + 2 √1.6 = 4.1 are provided for. Two places are left, so each costs its full price of eight cards.
    demand = Counter({ONE: 2, EIGHT: 1})
    nodes = states((96_000, 8, []), (96_000, 8, []), (96_000, 0, []))
    assert costs(demand, nodes, ONE, PLAIN).tolist() == [[8000, 8000, 0], [0, 0, 0]]


def test_a_pod_without_gpu_pays_where_it_takes_the_cpu_of_a_large_pod() -> None:
    demand = Counter({PLAIN: 1, EIGHT: 1})
    nodes = states((65_000, 8, []), (96_000, 8, []))
    assert costs(demand, nodes, PLAIN).tolist() == [[8000, 0]]


def test_a_part_of_a_card_in_use_takes_no_place() -> None:
    demand = Counter({HALF: 1, Shape(1_000, 1, 4, CARD): 1})
    nodes = states((96_000, 4, [500]), (96_000, 4, [400]))
    assert costs(demand, nodes, HALF).tolist() == [[0, 4000]]


def test_a_large_pod_does_not_pay_for_its_own_place_but_for_that_of_a_larger_one() -> None:
    demand = Counter({EIGHT: 3, HUGE: 1})
    nodes = states((128_000, 8, []), (96_000, 8, []), memory=10)
    assert costs(demand, nodes, EIGHT, HUGE).tolist() == [[8000, 0], [0, 0]]


def test_places_in_plenty_cost_nothing() -> None:
    demand = Counter({ONE: 1000, EIGHT: 1})  # 400 cards idle: 0.4 + 1.3 pods expected, 50 places
    assert not costs(demand, states(*[(96_000, 8, [])] * 50), ONE, HALF).any()


def test_prices_rise_in_quarters() -> None:
    demand = Demand(Counter({ONE: 92, EIGHT: 1}), ["T4"])  # one pod of eight cards for each 100 cards requested
    at = [demand.prices(100 * CARD, np.array([places]), np.zeros(0, np.int64)).places[0] for places in (6, 5, 4, 3, 2)]
    # 1 + 2 √1 = 3 pods for 6, 5, 4, 3 and 2 places: ratios 0.5, 0.6, 0.75, 1 and 1.5
    assert at == [0, 2000, 4000, 8000, 8000]


def test_a_model_that_some_pods_require_costs_those_that_could_run_elsewhere() -> None:
    p100 = Shape(1_000, 1, 1, CARD, ("P100",))
    demand = Counter({ONE: 1, p100: 1})
    nodes = states((96_000, 2, []), (96_000, 6, []), models=(0, 1))
    # Half of the eight idle cards will be wanted as P100, and two are left.
    demand_costs = costs(demand, nodes, ONE, HALF, p100, models=("P100", "T4"))
    assert demand_costs.tolist() == [[1000, 0], [500, 0], [0, 0]]


def test_without_demand_nothing_has_a_price() -> None:
    demand = Demand(Counter(), ["T4"])
    assert not demand
    market = Market(demand, states((96_000, 8, [])))
    assert not market.prices.any


@given(
    shapes=st.lists(st.sampled_from([ONE, HALF, EIGHT, HUGE, PLAIN, Shape(1, 1, 2, CARD, ("P100",))]), min_size=1),
    moves=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 128_000), st.integers(0, 8)), max_size=60),
)
def test_prices_kept_while_nodes_change_are_those_of_the_nodes_as_they_are(
    shapes: list[Shape], moves: list[tuple[int, int, int]]
) -> None:
    demand = Demand(Counter(shapes), ["P100", "T4"])
    now = [(96_000, 8, list[int]())] * 3
    models = (0, 1, 1)
    market = Market(demand, states(*now, models=models))
    for number, (node, cpu, free) in enumerate(moves, start=1):
        now[node] = (cpu, free, [])
        changed = states(now[node], models=(models[node],))
        before = market.prices
        differ = market.change(np.array([node]), changed)
        assert differ == (market.prices.key != before.key)
        if number % Market.REFRESH_CHANGES == 0:
            assert market.prices.key == Market(demand, states(*now, models=models)).prices.key


@pytest.mark.parametrize(
    ("first", "other", "needs"),
    [
        pytest.param(EIGHT, ONE, True, id="more-cards"),
        pytest.param(ONE, EIGHT, False, id="fewer-cards"),
        pytest.param(EIGHT, HUGE, False, id="less-cpu"),
        pytest.param(Shape(1, 0, 2, CARD, ("T4",)), Shape(1, 0, 2, CARD), True, id="one-model-of-any"),
        pytest.param(Shape(1, 0, 2, CARD), Shape(1, 0, 2, CARD, ("T4",)), False, id="any-of-one-model"),
    ],
)
def test_needs_as_much_as(first: Shape, other: Shape, needs: bool) -> None:
    assert first.needs_as_much_as(other) is needs
