"""Estimated costs of expressions are upstream's, because they decide which definitions are accepted."""

from pathlib import Path

import pytest
import yaml

from seatrial.harness.apiserver.cel.cost import estimated_cost
from seatrial.harness.apiserver.cel.declarations import declared
from seatrial.harness.apiserver.cel.function_costs import UNLIMITED

DATA = yaml.safe_load(Path(__file__).with_name("costs.yaml").read_text())
ROOT = declared(DATA["schema"])


@pytest.mark.parametrize(("cost", "expression"), DATA["costs"])
def test_costs_are_those_of_upstream(cost: int, expression: str) -> None:
    assert ROOT is not None
    assert estimated_cost(expression, ROOT) == cost


def test_a_product_that_exceeds_64_bits_is_the_greatest_cost() -> None:
    root = declared({"type": "array", "items": {"type": "string"}})
    assert root is not None
    loops = "self.all(a, self.all(b, self.all(c, self.all(d, a + b == c + d))))"
    assert estimated_cost(loops, root) == UNLIMITED
