import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seatrial.harness.errors import UsageError
from seatrial.harness.replay.cluster import Cluster
from seatrial.harness.replay.openb import Node
from seatrial.harness.replay.policies import POLICIES, Fgd, policy_named
from seatrial.harness.replay.replay import Run
from seatrial.scheduler.packing.fragments import INFEASIBLE
from seatrial.scheduler.packing.shapes import Ints, Shape, typical_pods
from seatrial.scheduler.packing.strategies import Outlook
from seatrial.scheduler.packing.tests.definition import node_fragments

HALF, WHOLE, PAIR = Shape(4000, 1, 1, 500), Shape(8000, 1, 1, 1000), Shape(16000, 1, 2, 1000)
NO_GPU, SMALL = Shape(2000, 1, 0, 0), Shape(1000, 1, 1, 200)
EVERY = [HALF, WHOLE, PAIR, NO_GPU, SMALL]


def run_of(policy: str, nodes: Sequence[Node], shapes: Sequence[Shape] = EVERY) -> Run:
    cluster = Cluster(nodes, shapes)
    outlook = Outlook.of(Counter(shapes), cluster.models, cluster.cards.shape[1])
    return Run(cluster, policy_named(policy)(cluster, outlook, random.Random(7)))  # noqa: S311 a test's draw


def node(cards: int, *, cpu: int = 96_000, name: str = "n", model: str = "T4") -> Node:
    return Node(name, cpu, 1000, cards, model)


def occupy(run: Run, number: int, cards: list[int], kinds: int) -> Ints:
    run.cluster.cards[number, : len(cards)] = cards
    run.cluster.kinds[number] = kinds
    return np.array([number])


@pytest.mark.parametrize(
    ("policy", "cards", "kinds", "shape", "score"),
    [
        # DotProd is 100 * (1 - (96/128 * 4/128 + 3/8 * 0.5/8) / 2) = 97.66
        pytest.param("dotprod", [1000, 1000, 1000], 0, HALF, 97, id="dotprod-small-product"),
        # 100 * (1 - (96/128 * 16/128 + 3/8 * 2/8) / 2) = 90.63
        pytest.param("dotprod", [1000, 1000, 1000], 0, PAIR, 90, id="dotprod-large-product"),
        # BestFit is 100 * (1 - (92/128 + 2.5/8) / 2) = 48.44
        pytest.param("bestfit", [1000, 1000, 1000], 0, HALF, 48, id="bestfit-empty"),
        # 100 * (1 - (92/128 + 0/8) / 2) = 64.06
        pytest.param("bestfit", [500, 0, 0], 0, HALF, 64, id="bestfit-full"),
        # GpuClustering: the class, and floor of 25 * (8 - idle) / 8
        pytest.param("gpuclustering", [1000, 1000, 1000], 0, HALF, 25 + 15, id="clustering-empty-node"),
        pytest.param("gpuclustering", [500, 1000, 1000], 0b1, HALF, 75 + 17, id="clustering-same-kind-alone"),
        pytest.param("gpuclustering", [500, 0, 1000], 0b11, HALF, 50 + 20, id="clustering-same-kind-among-others"),
        pytest.param("gpuclustering", [0, 1000, 1000], 0b10, HALF, 18, id="clustering-other-kind"),
        pytest.param("gpuclustering", [0, 0, 1000], 0b100, WHOLE, 21, id="clustering-pairs-are-another-kind"),
        pytest.param("gpuclustering", [0, 0, 1000], 0b100, NO_GPU, 0, id="clustering-without-gpu"),
        pytest.param("gpupacking", [1000, 1000, 1000], 0, HALF, 33 - 3, id="packing-empty-node"),
        pytest.param("gpupacking", [700, 500, 1000], 0b1, HALF, 100 - 5, id="packing-the-fullest-card-in-use"),
        pytest.param("gpupacking", [499, 400, 1000], 0b1, HALF, 50 - 1, id="packing-a-free-card-of-a-node-in-use"),
        pytest.param("gpupacking", [500, 1000, 1000], 0b1, PAIR, 50 - 2, id="packing-two-free-cards"),
        pytest.param("gpupacking", [500, 1000, 1000], 0b1, NO_GPU, 0, id="packing-without-gpu"),
    ],
)
def test_scores_by_hand(policy: str, cards: list[int], kinds: int, shape: Shape, score: int) -> None:
    run = run_of(policy, [node(3)])
    here = occupy(run, 0, cards, kinds)
    assert run.scored(here)[0, run.cluster.number[shape]] == score


def test_fgd_scores_what_the_definition_of_fragments_gives() -> None:
    run = run_of("fgd", [node(3)])
    here = occupy(run, 0, [1000, 700, 300], 1)
    typical = typical_pods(Counter(EVERY))

    before = node_fragments(96_000, [1000, 700, 300], "T4", typical)
    options = [
        node_fragments(92_000, cards, "T4", typical) for cards in ([500, 700, 300], [1000, 200, 300])
    ]  # the third card is too small
    best = int(100 / (1 + np.exp(-(before - min(options)) / 1000)))

    shape = run.cluster.number[HALF]
    assert run.scored(here)[0, shape] == best
    assert run.policy.card(0, shape) == 1  # the card in use: 200 left still serve a small pod


@given(
    cards=st.lists(st.just(1000) | st.integers(0, 1000), min_size=4, max_size=4),
    cpu=st.integers(16_000, 40_000),
    pods=st.lists(st.sampled_from(EVERY), min_size=1, max_size=20),
)
def test_fgd_gains_are_what_the_definition_gives_for_every_shape(cards: list[int], cpu: int, pods: list[Shape]) -> None:
    run = run_of("fgd", [node(4, cpu=cpu)], pods)
    here = occupy(run, 0, cards, 0)
    typical = typical_pods(Counter(pods))
    assert isinstance(run.policy, Fgd)
    gains = run.policy.outlook.fragments.gains(run.cluster.states(here), run.cluster.shapes)[0]
    fits = run.cluster.feasible(here)[0]
    before = node_fragments(cpu, cards, "T4", typical)
    for shape, number in run.cluster.number.items():
        if fits[number]:
            after = min(node_fragments(cpu - shape.cpu_milli, left, "T4", typical) for left in outcomes(cards, shape))
            assert gains[number] == pytest.approx(before - after, abs=1e-6)


def outcomes(cards: list[int], shape: Shape) -> list[list[int]]:
    """What may be left on the cards once the shape is there."""
    if shape.shares:
        fitting = [number for number, left in enumerate(cards) if left >= shape.gpu_milli]
        return [[left - shape.gpu_milli * (each == number) for each, left in enumerate(cards)] for number in fitting]
    taken = [number for number, left in enumerate(cards) if left == 1000][: shape.gpus]
    return [[0 if number in taken else left for number, left in enumerate(cards)]]


def test_balanced_sends_a_pod_without_gpu_to_the_node_with_cpu_to_spare() -> None:
    nodes = [node(8, cpu=64_000, name="tight"), node(2, cpu=64_000, name="ample")]
    run = run_of("balanced", nodes, [NO_GPU, WHOLE])
    assert run.arrive(run.cluster.number[NO_GPU])
    assert [where for where, _, _ in run.log] == [1]


def test_random_uses_every_node_and_card_that_fits() -> None:
    run = run_of("random", [node(2, name="a"), node(2, name="b"), node(1, name="c", cpu=1)], [SMALL])
    places = set()
    for _ in range(20):
        before = run.cluster.cards.copy()
        assert run.arrive(0)
        places |= {(int(row), int(card)) for row, card in np.argwhere(run.cluster.cards != before)}
    assert places == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert not run.arrive(0)  # 20 of 200 fill four cards


def test_a_card_is_shared_tightly_and_whole_cards_are_taken_from_the_first() -> None:
    cluster = Cluster([node(4)], EVERY)
    cluster.cards[0] = [1000, 600, 500, 1000]
    assert cluster.tightest(0, 500) == 2
    cluster.place(0, cluster.number[HALF], 2)
    cluster.place(0, cluster.number[PAIR], 0)
    assert cluster.cards[0].tolist() == [0, 600, 0, 0]
    assert (cluster.cpu[0], cluster.memory[0], cluster.kinds[0]) == (76_000, 998, 0b101)


@pytest.mark.parametrize(
    ("shape", "fits"),
    [
        pytest.param(Shape(4000, 10, 1, 600), True, id="just-fits"),
        pytest.param(Shape(4001, 10, 1, 600), False, id="cpu"),
        pytest.param(Shape(4000, 11, 1, 600), False, id="memory"),
        pytest.param(Shape(4000, 10, 1, 601), False, id="part-of-a-card"),
        pytest.param(Shape(4000, 10, 1, 1000), False, id="no-card-free"),
        pytest.param(Shape(4000, 10, 1, 600, ("P100",)), False, id="model"),
        pytest.param(Shape(4000, 10, 1, 600, ("P100", "T4")), True, id="one-of-two-models"),
        pytest.param(Shape(4000, 10, 0, 0), True, id="without-gpu"),
    ],
)
def test_what_fits(shape: Shape, fits: bool) -> None:
    cluster = Cluster([Node("n", 4000, 10, 2, "T4"), Node("o", 0, 0, 1, "P100")], [shape])
    cluster.cards[0] = [600, 500]
    assert cluster.feasible(np.array([0])).tolist() == [[fits]]


NODES = st.lists(
    st.builds(
        Node,
        st.just("n"),
        st.sampled_from([8_000, 96_000]),
        st.sampled_from([4, 1000]),
        st.integers(1, 8),
        st.sampled_from(["P100", "T4"]),
    ),
    min_size=1,
    max_size=5,
)
SHAPES = st.lists(
    st.builds(Shape, st.sampled_from([0, 1000, 3152]), st.integers(0, 2), st.just(1), st.integers(1, 1000))
    | st.builds(Shape, st.sampled_from([1000, 4000]), st.just(0), st.integers(2, 4), st.just(1000))
    | st.builds(Shape, st.sampled_from([500, 4000]), st.just(1), st.just(0), st.just(0))
    | st.just(Shape(1000, 1, 1, 300, ("T4",))),
    min_size=1,
    max_size=40,
)


@pytest.mark.parametrize("policy", POLICIES)
@given(nodes=NODES, order=SHAPES)
@example(
    # The second placement is so bad on every card that its grade is 0: the card that is too small must not be taken.
    nodes=[Node("n", 8000, 4, 6, "P100")],
    order=[Shape(3152, 0, 1, 500), Shape(3152, 0, 1, 501)],
)
def test_scores_kept_up_to_date_are_those_of_a_full_recomputation(
    policy: str, nodes: list[Node], order: list[Shape]
) -> None:
    run = run_of(policy, nodes, order)
    everywhere = np.arange(len(nodes))
    for shape in order:
        number = run.cluster.number[shape]
        fitted = run.scores[number].max() > INFEASIBLE
        assert run.arrive(number) == fitted
        np.testing.assert_array_equal(run.scores, run.scored(everywhere).T)
    cluster = run.cluster
    for column in (cluster.cpu, cluster.memory, cluster.cards):
        assert column.min() >= 0  # nothing was given out twice
    assert (cluster.cards.sum(axis=1) <= cluster.gpus * 1000).all()


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(UsageError, match="no policy 'best'; known: random, dotprod"):
        policy_named("best")
