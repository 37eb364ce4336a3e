"""One page about several schedulers: suites and promises by scheduler, failures with evidence, figures side by side.

A column is a scheduler; of its runs the newest that did not skip a case counts. A case that fails for
every scheduler of another project is suspect: the expectation may be wrong, so it is shown apart, with its source.
Suites that speak one project's words are not asked of the others, whose cells are empty.
"""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from seatrial.harness.errors import ResultsError
from seatrial.harness.results import Case, Run
from seatrial.harness.subject.protocol import is_foreign
from seatrial.reports.collect import Feature
from seatrial.reports.evidence import EvidenceBudget, ShownEvidence, show_evidence
from seatrial.reports.known import Known, known_of, read_known
from seatrial.reports.reasons import sentence
from seatrial.reports.run_figures import series_of, short
from seatrial.reports.sections import repeat_command
from seatrial.reports.signoff import environment
from seatrial.reports.texts import moment_text, name_of, phrase

OURS: Final = "seatrial"  # begins the names of our scheduler's columns

Verdict = Literal["passed", "failed", "broken", "cannot say", "not run", "not asked"]
VERDICTS: Final[tuple[Verdict, ...]] = ("passed", "failed", "broken", "cannot say", "not run")  # of cases
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
    """A promise of the requirement `group`, with the cell of each scheduler in the order of the columns."""

    id: str
    title: str
    group: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """A suite, with the number of its cases by verdict for each scheduler; an empty one was not asked."""

    name: str
    cells: tuple[Mapping[Verdict, int], ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that failed or broke for a scheduler, what its expectation is judged by, and what is known of why."""

    subject: str
    case: str
    title: str
    description: str
    verdict: str
    reason: str
    source: str
    nodeid: str
    command: str
    known: Known | None
    evidence: tuple[ShownEvidence, ...]


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
    period: str
    suites: tuple[SuiteRow, ...]
    rows: tuple[Row, ...]
    failures: tuple[Failure, ...]
    suspect: tuple[Failure, ...]
    figures: tuple[Figure, ...]
    absent: tuple[str, ...] = ()  # schedulers whose programs were missing
    unfinished: tuple[str, ...] = ()  # runs that did not come to their end, as `Acme 1.2.0, gang`

    @property
    def notes(self) -> list[str]:
        """Why promises were not judged, each reason once."""
        return list(dict.fromkeys(cell.why for row in self.rows for cell in row.cells if cell.why))

    def plain(self) -> dict[str, Any]:
        """As JSON; evidence by the names of its files."""
        document = asdict(self)
        for failure in (*document["failures"], *document["suspect"]):
            failure["known"] = failure["known"] and msgspec.to_builtins(failure["known"])
            failure["evidence"] = [piece["file"] for piece in failure["evidence"]]
        return document


def board_of(runs: Sequence[Run], features: Sequence[Feature], absent: Sequence[str] = ()) -> Board:
    """
    Raises:
        ResultsError: there is no run.
    """
    if not runs:
        raise ResultsError("scoreboard: expected folders of runs, found none")
    ordered = sorted(runs, key=lambda run: run.info.started)
    newest: dict[str, dict[str, tuple[Case, Run]]] = {}
    for run in ordered:
        cases = newest.setdefault(_name(run), {})
        for case in run.cases:
            if case.verdict != "skipped" or case.nodeid not in cases:
                cases[case.nodeid] = case, run
    subjects = sorted(newest, key=lambda name: (not name.startswith(OURS), name))
    columns = [[case for case, _ in newest[name].values()] for name in subjects]
    suspect = _suspect(
        {name: column for name, column in zip(subjects, columns, strict=True) if _is_foreign(name, ordered)}
    )
    budget, rows = EvidenceBudget(), read_known()
    failures = [
        _failure(name, case, run, rows, budget)
        for name in subjects
        for case, run in sorted(newest[name].values(), key=lambda entry: name_of(entry[0]))
        if case.verdict in {"failed", "broken"}
    ]
    return Board(
        tuple(subjects),
        _period(ordered),
        tuple(_suites(columns)),
        tuple(_rows(features, columns)),
        tuple(each for each in failures if each.nodeid not in suspect),
        tuple(each for each in failures if each.nodeid in suspect),
        tuple(_figures(ordered, subjects)),
        tuple(absent),
        tuple(f"{_name(run)}, {' '.join(run.info.suites)}" for run in ordered if _is_cut(run)),
    )


def write_scoreboard(board: Board, file: Path) -> Path:
    """
    Raises:
        ResultsError: the file cannot be written.
    """
    page = environment().get_template("scoreboard.html").render(board=board)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"scoreboard {file}: cannot be written: {error.strerror}") from error
    return file


def _name(run: Run) -> str:
    subject = run.info.subject
    return f"{subject.name} {subject.version}".strip()


def _is_foreign(name: str, runs: Sequence[Run]) -> bool:
    return not name.startswith(OURS) and any(_name(run) == name and is_foreign(run.info.subject.name) for run in runs)


def _is_cut(run: Run) -> bool:
    return run.info.interrupted or run.info.finished is None


def _period(runs: Sequence[Run]) -> str:
    """On which clusters and when the runs were made."""
    backends = ", ".join(dict.fromkeys(run.info.backend for run in runs))
    ends = [run.info.finished for run in runs if run.info.finished]
    return f"{backends}; {moment_text(runs[0].info.started)} to {moment_text(max(ends, default=None))}"


def _failure(subject: str, case: Case, run: Run, rows: Sequence[Known], budget: EvidenceBudget) -> Failure:
    words = (case.title, case.description, case.verdict, sentence(case.reason), case.source, case.nodeid)
    evidence = tuple(show_evidence(run.folder, piece, budget) for piece in case.evidence)
    known = known_of(rows, run.info.subject, case.case)
    return Failure(subject, name_of(case), *words, shlex.join(repeat_command(run.info, case)), known, evidence)


def _suspect(foreign: Mapping[str, Sequence[Case]]) -> set[str]:
    """The cases that fail for each of the foreign schedulers that they judged, which are at least two."""
    judged: dict[str, list[bool]] = {}
    for cases in foreign.values():
        for case in cases:
            if case.verdict != "skipped":
                judged.setdefault(case.nodeid, []).append(case.verdict == "failed")
    return {nodeid for nodeid, failed in judged.items() if len(failed) > 1 and all(failed)}


def _suites(columns: Sequence[Sequence[Case]]) -> list[SuiteRow]:
    names = dict.fromkeys(case.suite for column in columns for case in column)
    return [SuiteRow(name, tuple(_counts(column, name) for column in columns)) for name in names]


def _counts(cases: Sequence[Case], suite: str) -> dict[Verdict, int]:
    counts = Counter(_verdict(case) for case in cases if case.suite == suite)
    return {verdict: counts[verdict] for verdict in VERDICTS if counts[verdict]}


def _rows(features: Sequence[Feature], columns: Sequence[Sequence[Case]]) -> list[Row]:
    """The promises that a case of a run names."""
    rows = []
    for feature in features:
        named = {f"{feature.id}.{slug}": promise.text for slug, promise in feature.promises.items()}
        for promise, text in (named or {feature.id: feature.title}).items():
            cells = tuple(_cell([case for case in column if promise in case.features]) for column in columns)
            if any(cell.verdict not in {"not run", "not asked"} for cell in cells):
                rows.append(Row(promise, text, f"{feature.id} {feature.title}", cells))
    return rows


def _verdict(case: Case) -> Verdict:
    if case.verdict == "skipped":
        return "cannot say" if _NO_WORDS in case.reason else "not run"
    return case.verdict


def _cell(cases: Sequence[Case]) -> Cell:
    counts = Counter(map(_verdict, cases))
    worst: tuple[Verdict, ...] = ("failed", "broken", *VERDICTS)
    verdict: Verdict = next((each for each in worst if counts[each]), "not asked")
    why = next((case.reason for case in cases if _verdict(case) == verdict), "")
    ran = counts["passed"] + counts["failed"] + counts["broken"]
    if ran:
        return Cell(verdict, counts["passed"], ran)
    return Cell(verdict, why=why.partition(_NO_WORDS)[2].partition(": ")[2] if verdict == "cannot say" else why)


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
