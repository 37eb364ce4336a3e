"""Own tests can be run in another order."""

import itertools
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
MODULE = "\n".join(f"def test_{name}(): ..." for name in "abcdefgh")


def order(pytester: pytest.Pytester, *options: str) -> list[str]:
    run = pytester.runpytest_inprocess(
        "-p", "seatrial.harness.tests.random_order", "-p", "no:cacheprovider", "--collect-only", "-q", *options
    )
    return [line for line in run.outlines if "::" in line]


def test_a_seed_is_an_order(pytester: pytest.Pytester) -> None:
    """Two files of eight tests: a seed shuffles files and tests, and gives the same order again."""
    pytester.makepyfile(test_one=MODULE, test_two=MODULE)
    usual = order(pytester)
    assert usual == sorted(usual)
    first, again, other = (order(pytester, f"--random-order={seed}") for seed in (1, 1, 2))
    assert first == again
    assert len({tuple(usual), tuple(first), tuple(other)}) == 3
    assert sorted(first) == usual
    places = [Path(name.partition("::")[0]).name for name in first]
    assert sum(before != after for before, after in itertools.pairwise(places)) == 1, "files stay together"
