"""Fragments, by the definition and by tables."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.scheduler.packing.fragments import Fragments
from seatrial.scheduler.packing.shapes import NodeStates, Shape, Typical, typical_pods
from seatrial.scheduler.packing.tests.definition import node_fragments

HALF = Shape(4000, 0, 1, 500)
WHOLE = Shape(8000, 0, 1, 1000)
PAIR = Shape(16000, 0, 2, 1000)
NO_GPU = Shape(2000, 0, 0, 0)


def state(model: int, cpu: int, cards: list[int]) -> NodeStates:
    return NodeStates(np.array([model]), np.array([cpu]), np.array([0]), np.array([cards]))


@pytest.mark.parametrize(
    ("cpu", "cards", "pods", "fragments"),
    [
        pytest.param(8000, [1000, 300], [Typical(HALF, 1.0)], 300, id="only-the-card-too-small"),
        pytest.param(3999, [1000, 300], [Typical(HALF, 1.0)], 1300, id="all-of-it-without-cpu"),
        pytest.param(9000, [900, 300], [Typical(WHOLE, 1.0)], 1200, id="all-of-it-where-no-card-suffices"),
        pytest.param(9000, [900, 300], [Typical(WHOLE, 0.25), Typical(HALF, 0.75)], 525, id="weighted"),
        pytest.param(16000, [1000, 1000, 400], [Typical(PAIR, 1.0)], 400, id="two-cards-for-a-pair"),
        pytest.param(16000, [1000, 999, 400], [Typical(PAIR, 1.0)], 2399, id="one-card-is-no-pair"),
        pytest.param(16000, [1000, 500], [Typical(NO_GPU, 0.5), Typical(HALF, 0.5)], 750, id="useless-without-gpu"),
        pytest.param(0, [0, 0], [Typical(HALF, 1.0)], 0, id="nothing-idle"),
        pytest.param(8000, [700], [Typical(Shape(1, 0, 1, 500, ("T4",)), 1.0)], 0, id="the-model-it-wants"),
        pytest.param(8000, [700], [Typical(Shape(1, 0, 1, 500, ("P100",)), 1.0)], 700, id="another-model"),
    ],
)
def test_fragments_of_a_node(cpu: int, cards: list[int], pods: list[Typical], fragments: float) -> None:
    table = Fragments(pods, ["T4"], 4)
    assert node_fragments(cpu, cards, "T4", pods) == pytest.approx(fragments)
    assert table.of(state(0, cpu, cards))[0] == pytest.approx(fragments)


def shapes() -> st.SearchStrategy[Shape]:
    part = st.builds(lambda cpu, milli, models: Shape(cpu, 0, 1, milli, models), CPU, st.integers(1, 1000), MODELS)
    several = st.builds(lambda cpu, gpus, models: Shape(cpu, 0, gpus, 1000, models), CPU, st.integers(2, 4), MODELS)
    return part | several | st.builds(lambda cpu: Shape(cpu, 0, 0, 0), CPU)


CPU = st.sampled_from([0, 1000, 2000, 3152])
MODELS = st.sampled_from([(), ("P100",), ("P100", "T4")])


@given(
    pods=st.lists(shapes(), min_size=1, max_size=12),
    cards=st.lists(st.just(1000) | st.integers(0, 1000), min_size=4, max_size=4),
    cpu=st.integers(0, 4000),
    model=st.integers(0, 1),
)
def test_the_tables_say_what_the_definition_says(pods: list[Shape], cards: list[int], cpu: int, model: int) -> None:
    typical = typical_pods(Counter(pods))
    table = Fragments(typical, ["P100", "T4"], 4)
    fast = table.of(state(model, cpu, cards))[0]
    assert fast == pytest.approx(node_fragments(cpu, cards, ["P100", "T4"][model], typical), abs=1e-6)


def test_typical_pods_cover_what_is_wanted_and_weigh_one_together() -> None:
    pods = [HALF] * 50 + [WHOLE] * 30 + [NO_GPU] * 15 + [PAIR] * 5
    typical = typical_pods(Counter(pods))
    assert [(each.shape, round(each.weight, 4)) for each in typical] == [
        (HALF, 0.5263),
        (WHOLE, 0.3158),
        (NO_GPU, 0.1579),
    ]


def test_typical_pods_leave_memory_aside_and_prefer_the_larger_of_equals() -> None:
    pods = [Shape(1000, 1, 1, 500), Shape(1000, 2, 1, 500), Shape(2000, 1, 1, 500), Shape(2000, 1, 1, 500)]
    typical = typical_pods(Counter(pods), covered=0.5)
    assert typical == [Typical(Shape(2000, 0, 1, 500), 1.0)]
