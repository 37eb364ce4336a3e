"""The compiled kernel gives the numbers of the Python functions, and is built only where it can be."""

import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.framework.kernel_parts import PartKind
from seatrial.scheduler.packing import kernel, strategies
from seatrial.scheduler.packing.kernel import KernelError
from seatrial.scheduler.packing.opportunity import Market
from seatrial.scheduler.packing.shapes import CARD, NodeStates, Shape, Shapes, ordered
from seatrial.scheduler.packing.strategies import (
    STRATEGIES,
    Outlook,
    Requests,
    StrategyName,
    graded,
    scores,
    scores_of_one,
)

MODELS = ["A10", "P100", "T4"]
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kernel.build(tmp_path_factory.mktemp("kernel") / "kernel.abi3.so")


@pytest.fixture
def compiled(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = kernel.load(library)
    monkeypatch.setattr(strategies, "kernel", lambda: module)


def shape(rng: random.Random, width: int) -> Shape:
    models = tuple(sorted(rng.sample(MODELS, rng.choice([0, 0, 1, 2]))))
    cpu, memory = rng.choice([1000, 4000, rng.randrange(96_000)]), rng.randrange(500)
    match rng.randrange(3):
        case 0:
            return Shape(cpu, memory, 0, 0)
        case 1:
            return Shape(cpu, memory, 1, rng.randint(1, CARD), models)
    return Shape(cpu, memory, rng.randint(1, width), CARD, models)


def case(seed: int) -> tuple[Outlook, NodeStates, Shapes]:
    """Some demand, some nodes with the prices that they make, and shapes of which some were not expected."""
    rng = random.Random(seed)  # noqa: S311 test data
    models, width, nodes = MODELS[: rng.randint(1, 3)], rng.choice([1, 2, 4, 8, 9, 16]), rng.randint(1, 20)
    demand = Counter({shape(rng, width): rng.randint(1, 50) for _ in range(rng.randint(1, 60))})
    outlook = Outlook.of(demand, models, width)
    states = NodeStates(
        np.array([rng.randrange(len(models)) for _ in range(nodes)]),
        np.array([rng.choice([8000, rng.randint(-2000, 96_000)]) for _ in range(nodes)]),
        np.array([rng.randint(-10, 2000) for _ in range(nodes)]),
        np.array([[rng.choice([0, CARD, rng.randint(0, CARD)]) for _ in range(width)] for _ in range(nodes)]),
    )
    outlook = replace(outlook, prices=Market(outlook.demand, states).prices)
    return outlook, states, Shapes(ordered([*demand, *(shape(rng, width) for _ in range(20))]), models)


@needs_compiler
@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_all_scores_are_those_of_the_python_functions(strategy: StrategyName) -> None:
    """Without prices, with those of the nodes, and with those of fuller nodes, which the same scorer then has."""
    charged = 0
    for seed in range(60):
        outlook, states, shapes = case(seed)
        requests = Requests(shapes, outlook)
        scorer = requests.compiled(strategy, outlook)
        assert scorer is not None
        fuller = Market(outlook.demand, replace(states, cpu=states.cpu // 2, cards=states.cards // 2)).prices
        for prices in (outlook.demand.free, fuller, outlook.prices):
            outlook = replace(outlook, prices=prices)
            strategy_scores = scores(strategy, outlook, states, requests)
            assert strategy_scores.tolist() == STRATEGIES[strategy](outlook, states, requests).T.tolist(), seed
        assert requests.compiled(strategy, outlook) is scorer
        charged += outlook.prices.any
        columns = (states.model, states.cpu, states.memory, states.cards)
        nodes = zip(*(column.tolist() for column in columns), strict=True)
        for number, (model, cpu, memory, cards) in enumerate(nodes):
            alone = scores_of_one(strategy, outlook, (model, cpu, memory, tuple(cards)), requests)
            assert alone.tolist() == strategy_scores[:, number].tolist()
    assert 0 < charged < 60  # with prices and without


@needs_compiler
@pytest.mark.usefixtures("compiled")
def test_new_prices_are_seen() -> None:
    """One place for eight cards is left, and many pods with eight are expected: a single card costs it."""
    one, eight = Shape(1000, 1, 1, CARD), Shape(8000, 1, 8, CARD)
    outlook = Outlook.of({one: 1, eight: 9}, MODELS, 8)
    states = NodeStates(np.array([0]), np.array([96_000]), np.array([9]), np.full((1, 8), CARD))
    requests = Requests(Shapes([one, eight], MODELS), outlook)
    (without,), (large,) = scores("OpportunityCost", outlook, states, requests).tolist()
    outlook = replace(outlook, prices=Market(outlook.demand, states).prices)
    (charged,), (own,) = scores("OpportunityCost", outlook, states, requests).tolist()
    assert charged < without
    assert own == large  # it does not pay for its own place


@needs_compiler
@pytest.mark.usefixtures("compiled")
def test_prices_of_another_length_are_refused() -> None:
    outlook = Outlook.of({Shape(1000, 1, 8, CARD): 1}, MODELS, 8)
    scorer = Requests(Shapes([Shape(1000, 1, 1, CARD)], MODELS), outlook).compiled("FGD", outlook)
    assert scorer is not None
    for prices in ((np.zeros(2), np.zeros(0)), (np.zeros(1), np.zeros(1))):
        with pytest.raises(ValueError, match="a price for each large shape"):
            scorer.price(*prices)


@needs_compiler
@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        pytest.param({"model": np.array([3])}, IndexError, id="unknown-model"),
        pytest.param({"cards": np.full((1, 8), CARD + 1)}, IndexError, id="more-than-a-card"),
        pytest.param({"cards": np.full((1, 9), CARD)}, ValueError, id="more-cards-than-the-tables-have"),
        pytest.param({"cpu": np.array([1, 2])}, ValueError, id="other-length"),
        pytest.param({"cpu": np.array([1.0])}, TypeError, id="floats"),
    ],
)
def test_states_that_the_tables_lack_are_refused(changes: dict[str, Any], error: type[Exception]) -> None:
    outlook = Outlook.of({Shape(1000, 1, 8, CARD): 1}, MODELS, 8)
    states = NodeStates(np.array([0]), np.array([8000]), np.array([9]), np.full((1, 8), CARD))
    requests = Requests(Shapes([Shape(1000, 1, 1, CARD)], MODELS), outlook)
    assert scores("FGD", outlook, states, requests).shape == (1, 1)
    with pytest.raises(error):
        scores("FGD", outlook, replace(states, **changes), requests)


@needs_compiler
@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    ("node", "error"),
    [
        pytest.param((3, 8000, 9, (CARD,)), IndexError, id="unknown-model"),
        pytest.param((0, 8000, 9, (CARD + 1,)), IndexError, id="more-than-a-card"),
        pytest.param((0, 8000, 9, (CARD,) * 9), IndexError, id="more-cards-than-the-tables-have"),
        pytest.param((0, 8000, 9, [CARD]), TypeError, id="a-list"),
        pytest.param((0, 1 << 63, 9, (CARD,)), OverflowError, id="more-than-64-bits"),
    ],
)
def test_a_node_that_the_tables_lack_is_refused(node: tuple[Any, ...], error: type[Exception]) -> None:
    outlook = Outlook.of({Shape(1000, 1, 8, CARD): 1}, MODELS, 8)
    requests = Requests(Shapes([Shape(1000, 1, 1, CARD)], MODELS), outlook)
    with pytest.raises(error):
        scores_of_one("FGD", outlook, node, requests)


@needs_compiler
@pytest.mark.parametrize(
    ("kind", "arrays", "nodes"),
    [
        pytest.param(PartKind.AMOUNTS, (np.array([1]), np.zeros((1, 3), np.int64)), 4, id="classes-that-the-keys-lack"),
        pytest.param(PartKind.AMOUNTS, (np.array([-1]), np.zeros((1, 2), np.int64)), 4, id="a-column-below-0"),
        pytest.param(PartKind.BALANCE, (np.zeros((2, 2), np.int64),), 4, id="an-array-is-missing"),
        pytest.param(PartKind.ARRAY, (np.zeros((2, 3), np.int64),), 4, id="fewer-nodes-than-the-keys"),
        pytest.param(7, (), 4, id="unknown-kind"),
        pytest.param(PartKind.ARRAY, (), 5, id="keys-of-other-sizes"),
    ],
)
def test_arrays_that_do_not_fit_together_are_refused(library: Path, kind: int, arrays: Any, nodes: int) -> None:
    module = kernel.load(library)

    def make() -> object:
        part = module.Part(int(kind), arrays, (), ())
        return module.Keys(np.zeros((nodes, 2), np.int64), np.zeros((2, 4), np.int64), (part,), (2, 4, 1, 2))

    with pytest.raises(ValueError, match=r"do not fit together|unknown kind|below 0"):
        make()


@needs_compiler
@pytest.mark.parametrize(
    ("row", "arguments", "error"),
    [
        pytest.param(4, [None], IndexError, id="row"),
        pytest.param(0, [], TypeError, id="no-argument"),
        pytest.param(0, [np.zeros(3, np.int64)], ValueError, id="length"),
        pytest.param(0, [np.zeros(2)], TypeError, id="floats"),
    ],
)
def test_arguments_that_the_keys_cannot_use_are_refused(
    library: Path, row: int, arguments: list[Any], error: type[Exception]
) -> None:
    module, key = kernel.load(library), np.zeros((2, 4), np.int64)
    keys = module.Keys(np.zeros((4, 2), np.int64), key, (module.Part(int(PartKind.ARRAY), (), (), ()),), (2, 4, 1, 2))
    node = NodeInfo("n", 0)
    with pytest.raises(error):
        keys.update(row, node, True, arguments)
    assert keys.update(1, node, True, [np.array([5, -6])]) == 0
    assert key.tolist() == [[0, 5, 0, 0], [0, -6, 0, 0]]


@pytest.mark.parametrize(("gain", "grade"), [(0.0, 50), (-1e9, 0), (1e9, 99), (1000.0, 73), (-1000.0, 26)])
def test_the_grade_of_a_gain(gain: float, grade: int) -> None:
    """100 / (1 + e^-1) is 73.1 and 100 / (1 + e) is 26.9."""
    assert graded(np.array([gain])).tolist() == [grade]


def test_without_a_compiler_it_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KernelError, match="no C compiler: expected cc, gcc or clang"):
        kernel.build(tmp_path / "kernel.so")


def test_a_file_that_is_no_library_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "kernel.so"
    path.write_text("not a library")
    with pytest.raises(KernelError, match=r"kernel\.so"):
        kernel.load(path)


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernel.SWITCH, kernel.OFF)
    assert kernel.kernel.__wrapped__() is None
    monkeypatch.setattr(kernel, "kernel", kernel.kernel.__wrapped__)
    assert kernel.described() == "Python (SEATRIAL_KERNEL=off)"
