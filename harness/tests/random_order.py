"""The option `--random-order=SEED`: own tests run in another order, to find tests that depend on what ran before.

Files are shuffled, and tests within each file. Tests of a file stay together: fixtures of a module are made once.
Each worker of pytest-xdist gets the seed from the command line and finds the same order. `0` means the usual order.
"""

import random
from itertools import groupby

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--random-order", type=int, default=0, metavar="SEED", help="shuffle files and the tests in them")


def pytest_report_header(config: pytest.Config) -> str:
    seed = config.getoption("--random-order")
    return f"random order: --random-order={seed}" if seed else ""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--random-order")
    if seed:
        items[:] = shuffled(items, seed)


def shuffled(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """The items in an order that only the seed and their names determine."""
    draw = random.Random(seed)  # noqa: S311 no secret
    files = [list(members) for _, members in groupby(sorted(items, key=_place), key=lambda item: item.path)]
    draw.shuffle(files)
    for members in files:
        draw.shuffle(members)
    return [item for members in files for item in members]


def _place(item: pytest.Item) -> tuple[str, str]:
    return str(item.path), item.nodeid
