"""The scoreboard from the files of runs."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from seatrial.harness.errors import ResultsError
from seatrial.harness.results import Case, Measurement, Run, RunInfo, Subject
from seatrial.reports.collect import Feature, Promise
from seatrial.reports.scoreboard import Cell, board_of, write_scoreboard

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
UNSAID = "dialect acme has no words for shares: Acme has gangs alone"
PROMISES = {"gangs": Promise("Gangs"), "shares": Promise("Shares")}
FEATURES = [Feature("INT-1", "What one asks", (), "Kubernetes", promises=PROMISES)]


def case(number: int, verdict: str, promise: str = "gangs", reason: str = "") -> Case:
    return Case(
        f"suites/intents/test_x.py::test_{number}",
        verdict,  # type: ignore[arg-type]
        title=f"Case {number}",
        case=f"IN-{number}",
        features=(f"INT-1.{promise}",),
        reason=reason,
        source="the documentation of all",
    )


@pytest.fixture
def run() -> Callable[..., Run]:
    def made(name: str, *cases: Case, hour: int = 0, measurements: tuple[Measurement, ...] = ()) -> Run:
        info = RunInfo("r", BEGAN + timedelta(hours=hour), ("seatrial",), "embedded", Subject(name, "1.0"))
        return Run(Path(name), info, cases, measurements, (), ())

    return made


def test_cells(run: Callable[..., Run]) -> None:
    acme = run("Acme", case(1, "passed"), case(2, "failed"), case(3, "skipped", "shares", UNSAID))
    ours = run("seatrial", case(1, "passed"), case(2, "passed"), case(3, "broken", "shares"))

    board = board_of([acme, ours], FEATURES, ["KAI"])

    assert board.subjects == ("seatrial 1.0", "Acme 1.0")
    assert {row.id: row.cells for row in board.rows} == {
        "INT-1.gangs": (Cell("passed", 2, 2), Cell("failed", 1, 2)),
        "INT-1.shares": (Cell("broken", 0, 1), Cell("not said", why="Acme has gangs alone")),
    }
    assert [(each.subject, each.case, each.source) for each in board.failures] == [
        ("seatrial 1.0", "IN-3", "the documentation of all"),
        ("Acme 1.0", "IN-2", "the documentation of all"),
    ]
    assert board.absent == ("KAI",)


def test_a_case_that_fails_for_every_other_scheduler_is_suspect(run: Callable[..., Run]) -> None:
    board = board_of(
        [
            run("Acme", case(1, "failed"), case(2, "failed")),
            run("Volcano", case(1, "failed"), case(2, "passed")),
            run("KAI", case(1, "skipped"), case(2, "passed")),
            run("seatrial", case(1, "passed"), case(2, "passed")),
        ],
        FEATURES,
    )

    assert [(each.subject, each.case) for each in board.suspect] == [("Acme 1.0", "IN-1"), ("Volcano 1.0", "IN-1")]
    assert [(each.subject, each.case) for each in board.failures] == [("Acme 1.0", "IN-2")]


def test_one_other_scheduler_makes_no_case_suspect(run: Callable[..., Run]) -> None:
    board = board_of([run("Acme", case(1, "failed")), run("seatrial", case(1, "passed"))], FEATURES)

    assert board.suspect == ()
    assert len(board.failures) == 1


def test_the_newest_verdict_of_a_scheduler_counts(run: Callable[..., Run]) -> None:
    board = board_of([run("Acme", case(1, "passed"), hour=2), run("Acme", case(1, "failed"), hour=1)], FEATURES)

    assert board.rows[0].cells == (Cell("passed", 1, 1),)


def test_figures_that_two_schedulers_have(run: Callable[..., Run]) -> None:
    def rate(*values: float, valid: bool = True) -> tuple[Measurement, ...]:
        return (Measurement("throughput", "pods/s", BEGAN, values=values, labels={"mix": "plain"}, valid=valid),)

    alone = Measurement("memory", "MiB", BEGAN, value=3.0)
    board = board_of(
        [
            run("Acme", case(1, "passed"), measurements=rate(10, 20, 30)),
            run("seatrial", case(1, "passed"), measurements=(*rate(100, valid=False), alone)),
        ],
        FEATURES,
    )

    assert [(each.name, each.values) for each in board.figures] == [
        ("Throughput, mix plain (pods/s)", ("100, not valid", "20 (10 to 30)"))
    ]


def test_the_page_escapes_what_others_wrote(run: Callable[..., Run], tmp_path: Path) -> None:
    board = board_of([run("<b>Acme</b>", case(1, "failed", reason="<script>"))], FEATURES, ["<i>"])

    text = write_scoreboard(board, tmp_path / "a" / "scoreboard.html").read_text()

    assert "&lt;b&gt;Acme&lt;/b&gt; 1.0" in text
    assert "<script>" not in text
    assert "Expected by: the documentation of all" in text


def test_no_run() -> None:
    with pytest.raises(ResultsError, match="expected folders of runs, found none"):
        board_of([], FEATURES)
