"""Results are taken over from a file, and the table shows them."""

import asyncio
from pathlib import Path

import pytest

from seatrial.harness.errors import UsageError
from seatrial.harness.mutation.campaign import Outcome, Progress, catch_rate, run_campaign
from seatrial.harness.mutation.catalogue import Edit, Mutant
from seatrial.harness.mutation.child import Result
from seatrial.harness.mutation.results_file import ResultsFile, remaining
from seatrial.harness.mutation.table import markdown


def mutant(name: str, by: str = "return 3", equivalent: str = "") -> Mutant:
    return Mutant(name, "fault", "fix", (Edit("a.py", "A.run", "return 2", by),), equivalent=equivalent, area="queue")


CAUGHT, AWAY, EQUAL = mutant("X-1"), mutant("X-2"), mutant("X-3", equivalent="the order is never seen")
OUTCOMES = [
    Outcome(CAUGHT, Result("X-1", caught=True, case="SC-1", verdict="failed", message="AUD-115 a | b", seconds=1.26)),
    Outcome(AWAY, Result("X-2", tests=7)),
    Outcome(EQUAL, Result("X-3")),
]


@pytest.fixture
def file(tmp_path: Path) -> ResultsFile:
    made = ResultsFile(tmp_path / "mutants.jsonl")
    for outcome in OUTCOMES:
        made.add(outcome.mutant, outcome.result)
    return made


def test_equivalent_mutants_do_not_count() -> None:
    """Of three mutants one is caught, one gets away and one is equivalent: one of two."""
    assert catch_rate(OUTCOMES) == (1, 2)
    table = markdown(OUTCOMES)
    assert "1 of 2 mutants caught (50.0 %), 1 equivalent" in table
    assert "| queue | 1 | 2 | 1 |" in table
    assert "SC-1, AUD-115 | 1.3 | failed: AUD-115 a \\| b |" in table
    assert "**not caught** |  | all 7 tests passed |" in table
    assert "the order is never seen" in table


def test_results_are_taken_over(file: ResultsFile, tmp_path: Path) -> None:
    """Only a mutant without a result runs; one whose edits changed runs again; `again` adds those that got away."""
    read = ResultsFile(tmp_path / "mutants.jsonl")
    new, changed = mutant("X-4"), mutant("X-1", by="return 4")
    assert remaining([CAUGHT, AWAY, new], read, again=False) == [new]
    assert remaining([changed, AWAY], read, again=False) == [changed]
    assert remaining([CAUGHT, AWAY], read, again=True) == [AWAY]
    assert remaining([CAUGHT], None, again=False) == [CAUGHT]
    file.add(AWAY, Result("X-2", caught=True))
    assert remaining([AWAY], ResultsFile(tmp_path / "mutants.jsonl"), again=True) == []


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text("{}\n")
    with pytest.raises(UsageError, match="line 1: expected a result of a mutant"):
        ResultsFile(other)
    with pytest.raises(UsageError, match="expected a file in an existing folder"):
        ResultsFile(tmp_path / "nowhere" / "x.jsonl")


def test_progress_tells_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one job and ten seconds each, two of three mutants are left after the first: twenty seconds."""
    seconds = 0.0

    async def takes_ten(one: Mutant, *_: object, **__: object) -> Result:
        nonlocal seconds
        seconds += 10.0
        await asyncio.sleep(0)
        return Result(one.id)

    monkeypatch.setattr("seatrial.harness.mutation.campaign._run_one", takes_ten)
    seen: list[Progress] = []
    asyncio.run(
        run_campaign([CAUGHT, AWAY, EQUAL], jobs=1, all_suites=False, progress=seen.append, now=lambda: seconds)
    )
    assert [(entry.done, entry.total, entry.seconds_left) for entry in seen] == [
        (1, 3, 20.0),
        (2, 3, 10.0),
        (3, 3, 0.0),
    ]
