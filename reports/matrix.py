"""The table suite by backend of several runs: passed, failed and skipped cases, then failures and reasons of skips.

A column is a subject on a backend; a descheduler of another project is a subject of its own. Where several runs have
the same case in the same column, the run that began last counts, so that a case which was run again after a repair
replaces the older verdict. A case that was skipped replaces none: one run of a scheduler may have profiles that another
has not.

A page takes the table and the reasons between marks, `<!-- matrix: table -->` or `<!-- matrix: reasons -->` and
`<!-- end -->`; what stands there is replaced.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath

from seatrial.harness.errors import UsageError
from seatrial.harness.results import Case, Run, RunInfo
from seatrial.reports.reasons import sentence
from seatrial.reports.texts import name_of

Column = tuple[str, str]  # subject, backend

_BLOCK = re.compile(r"(<!-- matrix: (table|reasons) -->)\n.*?(<!-- end -->)", re.DOTALL)
_NAMESPACE = re.compile(r"\btrial-[a-z0-9-]+-[0-9a-f]{6}/")  # of a case: new in each run

_SHOWN = ("passed", "failed", "broken", "skipped")


def matrix(runs: Sequence[Run]) -> str:
    """Markdown, which ends in a newline: the table, then the reasons."""
    parts = _parts(runs)
    return "\n".join(part for part in parts.values() if part)


def filled_in(page: str, runs: Sequence[Run], *, name: str) -> str:
    """The page with the table and the reasons of these runs between its marks. `name` is used in the message.

    Raises:
        UsageError: the page has no mark.
    """
    parts = _parts(runs)
    filled, count = _BLOCK.subn(lambda item: f"{item[1]}\n\n{parts[item[2]]}\n{item[3]}", page)
    if not count:
        text = " or ".join(f"<!-- matrix: {part} -->" for part in parts)
        raise UsageError(f"{name}: expected {text}, followed by <!-- end -->; found neither")
    return filled


def _parts(runs: Sequence[Run]) -> dict[str, str]:
    """The table and the reasons, by the names that marks have; each ends in a newline unless it is empty."""
    ordered = sorted(runs, key=lambda run: run.info.started)
    cases: dict[Column, dict[str, Case]] = {}
    for run in ordered:
        known = cases.setdefault(column_of(run.info), {})
        for case in run.cases:
            test = case.nodeid.removeprefix("suites/")  # in runs of single files
            if case.verdict != "skipped" or test not in known:
                known[test] = case
    columns = sorted(cases)
    suites = sorted({case.suite for known in cases.values() for case in known.values()})
    table = [
        f"| suite | {' | '.join(f'{subject}, {backend}' for subject, backend in columns)} |",
        f"| --- |{' --- |' * len(columns)}",
    ]
    for suite in suites:
        cells = (_counts(case for case in cases[column].values() if case.suite == suite) for column in columns)
        table.append(f"| {suite} | {' | '.join(cells)} |")
    table += ["", *(_origin(column, [run for run in ordered if column_of(run.info) == column]) for column in columns)]
    reasons = [line for column in columns for line in _details(column, cases[column])]
    return {"table": _text(table), "reasons": _text(reasons)}


def column_of(info: RunInfo) -> Column:
    """The subject without the path and flags of a binary, and the backend."""
    subject = _program(info.subject.name)
    descheduler = info.provenance.get("descheduler", "")
    return (f"{_program(descheduler)} with {subject}" if descheduler else subject, info.backend)


def _program(command: str) -> str:
    words = command.split()
    return PurePath(words[0]).name if words else "none"


def _counts(cases: Iterable[Case]) -> str:
    results: Counter[str] = Counter(case.verdict for case in cases)
    return ", ".join(f"{results[verdict]} {verdict}" for verdict in _SHOWN if results[verdict]) or "not run"


def _origin(column: Column, runs: Sequence[Run]) -> str:
    """When the runs of a column were, and at which commits."""
    days = sorted({run.info.started.date().isoformat() for run in runs})
    commits = sorted({run.info.provenance.get("commit", "")[:8] for run in runs} - {""})
    ended = [run.info.finished - run.info.started for run in runs if run.info.finished is not None]
    seconds = sum(length.total_seconds() for length in ended)
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    source = f", commit {', '.join(commits)}" if commits else ""
    return f"- {column[0]}, {column[1]}: {count}, {' and '.join({days[0]: 0, days[-1]: 0})}, {seconds:.0f} s{source}"


def _details(column: Column, known: Mapping[str, Case]) -> Iterator[str]:
    """The failed and broken cases by ID, each with the reason of the first, and the reasons of skips with counts."""
    against: dict[tuple[str, str, str], list[Case]] = {}
    for case in known.values():
        if case.verdict in {"failed", "broken"}:
            against.setdefault((case.suite, (case.case or case.nodeid).partition("[")[0], case.verdict), []).append(
                case
            )
    skipped = Counter(_line(case.reason) or "no reason" for case in known.values() if case.verdict == "skipped")
    if not against and not skipped:
        return
    yield from (f"{column[0]}, {column[1]}:", "")
    for (suite, _, verdict), cases in sorted(against.items()):
        more = f" and {len(cases) - 1} more of this ID" if len(cases) > 1 else ""
        yield f"- {verdict}: {suite}/{name_of(cases[0])}{more}, {cases[0].title}: {_line(cases[0].reason)}"
    yield from (f"- {count} skipped: {reason}" for reason, count in skipped.most_common())
    yield ""


def _text(lines: Sequence[str]) -> str:
    text = "\n".join(lines).strip("\n")
    return f"{text}\n" if text else ""


def _line(text: str) -> str:
    """The first line, without the characters that begin HTML or end a table's cell, and without random suffixes."""
    first = sentence(_NAMESPACE.sub("", text))
    return first.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
