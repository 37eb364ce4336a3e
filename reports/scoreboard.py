"""One page about several schedulers: promises by scheduler, failures with their sources, the same figures side by side.

A column is a scheduler; of several runs of one scheduler the newest verdict of a case counts. A case that fails for
every scheduler of another project is suspect: the expectation may be wrong, so it is shown apart, with its source.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import jinja2

from seatrial.harness.errors import ResultsError
from seatrial.harness.results import Case, Run
from seatrial.harness.subject.protocol import is_foreign
from seatrial.reports.collect import Feature
from seatrial.reports.reasons import sentence
from seatrial.reports.run_figures import series_of, short
from seatrial.reports.texts import name_of, own_text, phrase

TEMPLATES: Final = Path(__file__).parent / "templates"
OURS: Final = "seatrial"  # begins the names of our scheduler's columns

Verdict = Literal["passed", "failed", "broken", "not said", "not run"]
_NO_WORDS: Final = "has no words for"  # in the reason of a skip: the dialect cannot say it


@dataclass(frozen=True, slots=True)
class Cell:
    """A promise of one scheduler: its verdict, and how many cases passed of those that ran."""

    verdict: Verdict
    passed: int = 0
    ran: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A promise, with the cell of each scheduler in the order of the columns."""

    id: str
    title: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that failed or broke for a scheduler, and what its expectation is judged by."""

    subject: str
    case: str
    title: str
    description: str
    verdict: str
    reason: str
    source: str
    nodeid: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A measurement of the same load, for each scheduler: the median, with the 99th percentile of times and the lowest
    and highest of other figures; "" where none is."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """What the page shows; `subjects` are the columns."""

    subjects: tuple[str, ...]
    rows: tuple[Row, ...]
    failures: tuple[Failure, ...]
    suspect: tuple[Failure, ...]
    figures: tuple[Figure, ...]
    absent: tuple[str, ...] = ()  # schedulers whose programs were missing

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def board_of(runs: Sequence[Run], features: Sequence[Feature], absent: Sequence[str] = ()) -> Board:
    """
    Raises:
        ResultsError: there is no run.
    """
    if not runs:
        raise ResultsError("scoreboard: expected folders of runs, found none")
    ordered = sorted(runs, key=lambda run: run.info.started)
    cases: dict[str, dict[str, Case]] = {}
    for run in ordered:
        cases.setdefault(_name(run), {}).update({case.nodeid: case for case in run.cases})
    subjects = sorted(cases, key=lambda name: (not name.startswith(OURS), name))
    failures = [_failure(name, case) for name in subjects for case in cases[name].values() if _against(case)]
    suspect = _suspect(cases, ordered)
    return Board(
        tuple(subjects),
        tuple(_rows(features, [cases[name] for name in subjects])),
        tuple(each for each in failures if each.nodeid not in suspect),
        tuple(each for each in failures if each.nodeid in suspect),
        tuple(_figures(ordered, subjects)),
        tuple(absent),
    )


def write_scoreboard(board: Board, file: Path) -> Path:
    """
    Raises:
        ResultsError: the file cannot be written.
    """
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    style = own_text(TEMPLATES / "colors.css", TEMPLATES / "signoff.css")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(made.get_template("scoreboard.html").render(board=board, style=style), encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"scoreboard {file}: cannot be written: {error.strerror}") from error
    return file


def _name(run: Run) -> str:
    subject = run.info.subject
    return f"{subject.name} {subject.version}".strip()


def _against(case: Case) -> bool:
    return case.verdict in {"failed", "broken"}


def _failure(subject: str, case: Case) -> Failure:
    words = (case.title, case.description, case.verdict, sentence(case.reason), case.source, case.nodeid)
    return Failure(subject, name_of(case), *words)


def _suspect(cases: Mapping[str, Mapping[str, Case]], runs: Sequence[Run]) -> set[str]:
    """The cases that fail for each of the foreign schedulers that they judged, which are at least two."""
    foreign = {_name(run) for run in runs if is_foreign(run.info.subject.name) and not _name(run).startswith(OURS)}
    judged: dict[str, list[bool]] = {}
    for name in foreign:
        for case in cases[name].values():
            if case.verdict != "skipped":
                judged.setdefault(case.nodeid, []).append(case.verdict == "failed")
    return {nodeid for nodeid, failed in judged.items() if len(failed) > 1 and all(failed)}


def _rows(features: Sequence[Feature], columns: Sequence[Mapping[str, Case]]) -> list[Row]:
    """The promises that a case of a run names."""
    rows = []
    for feature in features:
        named = {f"{feature.id}.{slug}": promise.text for slug, promise in feature.promises.items()}
        for promise, text in (named or {feature.id: feature.title}).items():
            cells = tuple(_cell([case for case in column.values() if promise in case.features]) for column in columns)
            if any(cell.verdict != "not run" for cell in cells):
                rows.append(Row(promise, text, cells))
    return rows


def _cell(cases: Sequence[Case]) -> Cell:
    ran = [case for case in cases if case.verdict != "skipped"]
    passed = sum(case.verdict == "passed" for case in ran)
    if not ran:
        unsaid = next((case.reason for case in cases if _NO_WORDS in case.reason), "")
        if unsaid:
            return Cell("not said", why=unsaid.partition(_NO_WORDS)[2].partition(": ")[2])
        return Cell("not run", why=next((case.reason for case in cases), ""))
    verdicts = {case.verdict for case in ran}
    verdict: Verdict = "failed" if "failed" in verdicts else "broken" if "broken" in verdicts else "passed"
    return Cell(verdict, passed, len(ran))


def _figures(runs: Sequence[Run], subjects: Sequence[str]) -> list[Figure]:
    """The measurements that at least two schedulers have."""
    values: dict[str, dict[str, str]] = {}
    for series in series_of(runs):
        named = f"{phrase(series.name)}{f', {series.what}' if series.what else ''} ({series.unit})"
        middle = short(series.at(50))
        if series.is_latency:
            text = f"{middle}, p99 {short(series.at(99))}"
        else:
            low, high = short(series.samples[0]), short(series.samples[-1])
            text = middle if low == high else f"{middle} ({low} to {high})"
        values.setdefault(named, {})[_name(runs[series.run])] = text if series.valid else f"{text}, not valid"
    return [
        Figure(name, tuple(of.get(subject, "") for subject in subjects)) for name, of in values.items() if len(of) > 1
    ]
