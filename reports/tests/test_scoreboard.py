"""The scoreboard from the files of runs."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from markupsafe import escape
from msgspec import structs

from seatrial.harness.errors import ResultsError
from seatrial.harness.results import Case, Evidence, Measurement, Run, RunInfo, Subject
from seatrial.reports.browser import Browser
from seatrial.reports.collect import Feature, Promise
from seatrial.reports.known import cases_of, known_of, read_known
from seatrial.reports.scoreboard import Cell, board_of, write_scoreboard
from seatrial.reports.tests.test_browser import OUTSIDE, UNREADABLE

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
UNSAID = "dialect acme has no words for shares: Acme has gangs alone"
PROMISES = {"gangs": Promise("Gangs"), "shares": Promise("Shares")}
FEATURES = [Feature("INT-1", "What one asks", (), "Kubernetes", promises=PROMISES)]
# Cells whose text is wider than they are.
OVERFULL = """
[...document.querySelectorAll(".board td, .board th")].filter(cell => cell.scrollWidth > cell.clientWidth + 1)
  .map(cell => cell.innerText)
"""


def case(number: int, verdict: str, promise: str = "gangs", reason: str = "", suite: str = "intents") -> Case:
    return Case(
        f"{suite}/test_x.py::test_{number}",
        verdict,  # type: ignore[arg-type]
        title=f"Case {number}",
        case=f"IN-{number}",
        features=(f"INT-1.{promise}",),
        suite=suite,
        reason=reason,
        source="the documentation of all",
    )


@pytest.fixture
def run() -> Callable[..., Run]:
    def made(
        name: str, *cases: Case, hour: int = 0, measurements: tuple[Measurement, ...] = (), version: str = "1.0"
    ) -> Run:
        info = RunInfo("r", BEGAN + timedelta(hours=hour), ("seatrial",), "embedded", Subject(name, version))
        return Run(Path(name), info, cases, measurements, (), ())

    return made


def test_cells(run: Callable[..., Run]) -> None:
    acme = run("Acme", case(1, "passed"), case(2, "failed"), case(3, "skipped", "shares", UNSAID))
    ours = run("seatrial", case(1, "passed"), case(2, "passed"), case(3, "broken", "shares"))

    board = board_of([acme, ours], FEATURES, ["KAI"])

    assert board.subjects == ("seatrial 1.0", "Acme 1.0")
    assert {row.id: row.cells for row in board.rows} == {
        "INT-1.gangs": (Cell("passed", 2, 2), Cell("failed", 1, 2)),
        "INT-1.shares": (Cell("broken", 0, 1), Cell("cannot say", why="Acme has gangs alone")),
    }
    assert [(each.subject, each.case, each.source) for each in board.failures] == [
        ("seatrial 1.0", "IN-3", "the documentation of all"),
        ("Acme 1.0", "IN-2", "the documentation of all"),
    ]
    assert board.absent == ("KAI",)
    assert [(suite.name, suite.cells) for suite in board.suites] == [
        ("intents", ({"passed": 2, "broken": 1}, {"passed": 1, "failed": 1, "cannot say": 1}))
    ]


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


def test_a_run_that_was_cut_short_is_named(run: Callable[..., Run]) -> None:
    whole, cut = run("KAI", case(1, "passed")), run("Acme", case(1, "passed"))
    whole = structs.replace(whole, info=structs.replace(whole.info, finished=BEGAN))
    cut = structs.replace(cut, info=structs.replace(cut.info, suites=("gang",)))

    assert board_of([whole, cut], FEATURES).unfinished == ("Acme 1.0, gang",)


def test_one_other_scheduler_makes_no_case_suspect(run: Callable[..., Run]) -> None:
    board = board_of([run("Acme", case(1, "failed")), run("seatrial", case(1, "passed"))], FEATURES)

    assert board.suspect == ()
    assert len(board.failures) == 1


def test_the_newest_verdict_of_a_scheduler_counts(run: Callable[..., Run]) -> None:
    """A run with a configuration for other cases skips this one, and takes nothing back."""
    runs = [
        run("Acme", case(1, verdict), hour=hour) for hour, verdict in ((2, "passed"), (1, "failed"), (3, "skipped"))
    ]

    assert board_of(runs, FEATURES).rows[0].cells == (Cell("passed", 1, 1),)


def test_what_a_scheduler_was_not_asked_is_no_verdict(run: Callable[..., Run], tmp_path: Path) -> None:
    board = board_of(
        [
            run("Acme", case(1, "passed")),
            run(
                "seatrial", case(1, "passed"), case(3, "passed", "shares", suite="quota"), case(4, "skipped", "shares")
            ),
        ],
        FEATURES,
    )

    assert [row.cells[1].verdict for row in board.rows] == ["passed", "not asked"]
    assert [(suite.name, suite.cells[1]) for suite in board.suites] == [("intents", {"passed": 1}), ("quota", {})]
    assert "1 of 1" in write_scoreboard(board, tmp_path / "board.html").read_text()


def test_a_failure_has_its_evidence_its_cause_and_its_command(run: Callable[..., Run], tmp_path: Path) -> None:
    known = next(row for row in read_known() if row.shown_by)
    name, _, version = known.subject.rpartition(" ")
    (tmp_path / "log.txt").write_text("what the scheduler <wrote>")
    failed = structs.replace(
        case(1, "failed"), case=cases_of(known.cases)[0], evidence=(Evidence("scheduler log", "log.txt"),)
    )
    board = board_of([structs.replace(run(name, failed, version=version), folder=tmp_path)], FEATURES)

    text = write_scoreboard(board, tmp_path / "board.html").read_text()

    for part in ("what the scheduler &lt;wrote&gt;", escape(known.what), escape(known.source), escape(known.shown_by)):
        assert part in text
    assert f"Run it again: <code>seatrial run intents -k test_1 --backend embedded --subject {name}</code>" in text
    assert board.plain()["failures"][0]["evidence"] == ["log.txt"]
    assert known_of((known,), Subject(name, "0.1"), cases_of(known.cases)[0]) is None


@pytest.mark.parametrize("width", [390, 1000, 1200, 1920])
def test_every_verdict_is_readable(browser: Browser, run: Callable[..., Run], tmp_path: Path, width: int) -> None:
    names = [
        "seatrial",
        "seatrial, Kubernetes' words,",
        "HAMi, kube-scheduler,",
        "KAI",
        "Volcano",
        "koord-scheduler",
        "A",
        "B",
    ]
    figure = Measurement(
        "burst_create_to_bound", "ms", BEGAN, values=tuple(range(1000, 3000)), labels={"load": "preemption"}
    )
    known = structs.replace(case(0, "failed", reason="x" * 300), case="IN-008", evidence=(Evidence("log", "none.txt"),))
    cases = [known, case(1, "failed"), case(9, "skipped", "shares", UNSAID)]
    runs = [run(name, *cases, measurements=(figure,), version="1.7.0") for name in names]
    page = write_scoreboard(board_of(runs, FEATURES), tmp_path / "board.html")

    browser.open(page, width=width)
    browser.ask("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert browser.ask("document.documentElement.scrollWidth") <= width
    assert browser.ask(OUTSIDE) == []
    assert browser.ask(OVERFULL) == []
    browser.open(page, width=width, media="print")
    assert browser.ask(UNREADABLE) == []


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
