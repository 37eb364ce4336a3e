"""Mutants by rule: each place is found once, each applies to the source, and its ID makes it again."""

import ast
from pathlib import Path

import pytest

from seatrial.harness.errors import UsageError
from seatrial.harness.mutation.catalogue import drift, load, mutated
from seatrial.harness.mutation.generated import KINDS, find, generate

SOURCE = """class Waker:
    def ring(self, pods, limit):
        self.handle.request_wake()
        self.timer.cancel()
        self.handle.watch(self)
        self.rest.delete(path, uid=1, version=2)
        for pod in pods:
            if pod.cpu < limit:
                return min(pod.cpu + 1, limit)
        return 0
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "scheduler/tests").mkdir(parents=True)
    (tmp_path / "scheduler/a.py").write_text(SOURCE)
    (tmp_path / "scheduler/tests/b.py").write_text(SOURCE)
    return tmp_path


def codes(root: Path, kind: str) -> list[str]:
    codes = []
    for mutant in generate([], kinds=[kind], root=root):
        (tree,) = mutated(mutant, root).values()
        codes.append(ast.unparse(tree))
    return codes


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("wakes", ["        pass\n        self.timer"]),
        ("undoes", ["request_wake()\n        pass"]),
        ("subscriptions", ["cancel()\n        pass"]),
        ("preconditions", ["delete(path, version=2)", "delete(path, uid=1)"]),
        ("lists", ["for pod in list(pods)[:1]:", "for pod in list(pods)[:-1]:"]),
        ("boundaries", ["pod.cpu <= limit"]),
        ("numbers", ["max(pod.cpu + 1, limit)", "min(pod.cpu, limit)"]),
    ],
)
def test_each_kind_finds_its_places(root: Path, kind: str, shown: list[str]) -> None:
    root_codes = codes(root, kind)
    assert len(root_codes) == len(shown)
    assert all(any(text in code for code in root_codes) for text in shown)


def test_an_id_makes_its_mutant_again(root: Path) -> None:
    for mutant in generate([], root=root):
        again = find(mutant.id, root)
        assert again is not None
        assert again.edits == mutant.edits
    assert find("wakes:scheduler/gone.py:12345678", root) is None
    assert find("FIT-01", root) is None


def test_our_scheduler_has_thousands_and_a_sample_is_repeatable() -> None:
    """All of one folder apply; suites come from the catalogue."""
    catalogue = load()
    mutants = generate(catalogue, folders=["scheduler/quota"])
    assert len(mutants) > 100
    assert len({mutant.id for mutant in mutants}) == len(mutants)
    assert drift(mutants[:40]) == {}
    assert all("quota" in mutant.suites for mutant in mutants)
    assert {mutant.fix.removeprefix("generated: ") for mutant in generate(catalogue)} == set(KINDS)
    sample = generate(catalogue, folders=["scheduler/quota"], sample=5, seed=2)
    assert sample == generate(catalogue, folders=["scheduler/quota"], sample=5, seed=2)


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="--kind dreams: expected one of wakes"):
        generate([], kinds=["dreams"])
    with pytest.raises(UsageError, match="--in scheduler/nowhere: expected a file"):
        generate([], folders=["scheduler/nowhere"])
