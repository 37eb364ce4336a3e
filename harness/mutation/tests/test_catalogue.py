"""The catalogue of mutants matches today's source, and what does not match is refused in words."""

import pytest

from seatrial.harness.errors import UsageError
from seatrial.harness.mutation.campaign import SUITES, files_of
from seatrial.harness.mutation.catalogue import Edit, Mutant, MutantError, check, load, mutated, select

SOURCE = """class A:
    def run(self, one):
        if one:
            return 1
        return 2

    def walk(self):
        return 2
"""

MUTANTS = load()


def mutant(replace: str, by: str, within: str = "A.run") -> Mutant:
    return Mutant("X-1", "fault", "fix", (Edit("a.py", within, replace, by),))


def test_the_catalogue_is_large_and_covers_all_areas() -> None:
    assert len(MUTANTS) >= 100
    assert {"queue", "cache", "binding", "configuration", "speed"} <= {mutant.area for mutant in MUTANTS}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.id)
def test_a_mutant_matches_the_source(mutant: Mutant) -> None:
    """Each edit is found exactly once, changes the file, and leaves it valid Python; its suites exist."""
    check(mutant)
    assert mutant.fix
    assert all(path.is_file() for group in files_of(mutant, all_suites=False) for path in group)


def test_an_edit_stays_in_its_function() -> None:
    changed = mutated(mutant("return 2", "return 3"), "a.py", SOURCE)
    assert changed == SOURCE.replace("return 2", "return 3", 1)


def test_several_lines_keep_their_indentation() -> None:
    changed = mutated(mutant("if one:\n    return 1", "if not one:\n    return 1"), "a.py", SOURCE)
    assert "        if not one:\n            return 1\n" in changed


@pytest.mark.parametrize(
    ("replace", "by", "within", "says"),
    [
        pytest.param("return 9", "pass", "A.run", "exactly once, found it 0 times", id="not-there"),
        pytest.param("return", "pass", "A.run", "found it 2 times", id="twice"),
        pytest.param("return 2", "pass", "A.jump", "has no A.jump", id="no-such-function"),
        pytest.param("return 2", "return (", "A.run", "no Python", id="no-python"),
    ],
)
def test_what_does_not_match_is_refused(replace: str, by: str, within: str, says: str) -> None:
    with pytest.raises(MutantError, match=says):
        mutated(mutant(replace, by, within), "a.py", SOURCE)


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
