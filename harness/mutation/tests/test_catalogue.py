"""The catalogue can be read, and an edit is applied by syntax: what does not match is refused in words.

Whether all mutants apply to today's source is not judged here: `seatrial mutate --drift` reports it.
"""

import ast
from pathlib import Path

import pytest

from seatrial.harness.errors import UsageError
from seatrial.harness.mutation.campaign import SUITES, files_of
from seatrial.harness.mutation.catalogue import DriftError, Edit, Mutant, drift, load, mutated, select
from seatrial.harness.mutation.patterns import Pattern, PatternError

SOURCE = """class A:
    def run(self, one):
        if one:  # a comment
            total = one + 1
            return total
        self.ended(
            "x", one,
        )
        return 2

    def walk(self):
        return 2
"""

MUTANTS = load()


def mutant(replace: str, by: str, within: str = "A.run", file: str = "scheduler/a.py", nth: int = 0) -> Mutant:
    return Mutant("X-1", "fault", "fix", (Edit(file, within, replace, by, nth),))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A package with one file; the root of each test is another, because the files of functions are remembered."""
    (tmp_path / "scheduler").mkdir()
    (tmp_path / "scheduler/a.py").write_text(SOURCE)
    return tmp_path


def changed(mutant: Mutant, root: Path) -> str:
    (tree,) = mutated(mutant, root).values()
    return ast.unparse(tree)


def test_the_catalogue_is_large_and_covers_all_areas() -> None:
    assert len(MUTANTS) >= 100
    assert {"queue", "cache", "binding", "configuration", "speed"} <= {mutant.area for mutant in MUTANTS}
    for one in MUTANTS:
        assert one.fix, one.id
        for edit in one.edits:
            Pattern(edit.replace, edit.by)
        assert all(path.is_file() for group in files_of(one, all_suites=False) for path in group), one.id


def test_an_edit_stays_in_its_function(root: Path) -> None:
    text = changed(mutant("return 2", "return 3"), root)
    assert text.count("return 3") == 1
    assert text.index("return 3") < text.index("def walk") < text.index("return 2")


@pytest.mark.parametrize(
    ("replace", "by", "shows"),
    [
        pytest.param("self.ended('x', one)", "pass", "        pass", id="layout-and-quotes"),
        pytest.param("one + 1", "one - 1", "total = one - 1", id="part-of-a-statement"),
        pytest.param("amount = one + 1\nreturn amount", "return amount", "return total", id="local-of-another-name"),
        pytest.param("first", "not first", "", id="a-name-alone-is-everywhere"),
    ],
)
def test_syntax_matches_not_text(root: Path, replace: str, by: str, shows: str) -> None:
    """A name that the function does not have stands for one of its own names, the same at each place."""
    if shows:
        assert shows in changed(mutant(replace, by), root)
    else:
        with pytest.raises(DriftError, match="exactly once"):
            changed(mutant(replace, by), root)


def test_one_of_several_equal_pieces_is_named_by_its_number(root: Path) -> None:
    with pytest.raises(DriftError, match="'return 2' exactly once, found it 2 times"):
        mutated(mutant("return 2", "return 3", "A"), root)
    text = changed(mutant("return 2", "return 3", "A", nth=2), root)
    assert text.index("return 2") < text.index("def walk") < text.index("return 3")


def test_a_function_that_moved_is_found(root: Path) -> None:
    """The file of the catalogue has it no more, and one other file has it."""
    moved = mutant("return 2", "return 3", file="scheduler/gone.py")
    assert "return 3" in changed(moved, root)


@pytest.mark.parametrize(
    ("replace", "within", "says"),
    [
        pytest.param("return 9", "A.run", "exactly once, found it 0 times", id="not-there"),
        pytest.param("return 2", "A.jump", "has no A.jump; expected one file, found no file", id="no-such-function"),
    ],
)
def test_what_does_not_match_has_drifted(root: Path, replace: str, within: str, says: str) -> None:
    one = mutant(replace, "pass", within)
    with pytest.raises(DriftError, match=says):
        mutated(one, root)
    assert list(drift([one, mutant("return 2", "return 3")], root)) == ["X-1"]


@pytest.mark.parametrize("code", ["return (", "a b"])
def test_an_edit_that_is_no_python_is_refused(code: str) -> None:
    with pytest.raises(PatternError, match="is no Python"):
        Pattern(code, "pass")
    with pytest.raises(PatternError, match="is no Python"):
        Pattern("pass", code)


def test_unknown_areas_and_ids_are_refused() -> None:
    with pytest.raises(UsageError, match="expected one of"):
        select(MUTANTS, areas=["nowhere"])
    with pytest.raises(UsageError, match="no mutant"):
        select(MUTANTS, ids=["NO-1"])
    assert [mutant.id for mutant in select(MUTANTS, ids=["FIT-01"])] == ["FIT-01"]


def test_files_of_the_area_come_first_then_the_quick_ones() -> None:
    one = next(mutant for mutant in MUTANTS if mutant.area == "speed")
    first, others = files_of(one, all_suites=True, seconds={"allocation/test_gpu.py": 9.0, "quota/test_quota.py": 8.0})
    assert first == [SUITES / "throughput/test_costs.py"]
    assert others[-2:] == [SUITES / "quota/test_quota.py", SUITES / "allocation/test_gpu.py"]
    assert not set(first) & set(others)
