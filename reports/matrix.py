"""The table suite by backend of several runs: passed, failed and skipped cases, then failures and reasons of skips.

A column is a subject on a backend. Where several runs have the same case in the same column, the run that began last
counts, so that a case which was run again after a repair replaces the older verdict.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from seatrial.harness.results import Case, Run, RunInfo
from seatrial.reports.texts import name_of

Column = tuple[str, str]  # subject, backend

_SHOWN = ("passed", "failed", "broken", "skipped")


def matrix(runs: Sequence[Run]) -> str:
    """Markdown, which ends in a newline."""
    cases: dict[Column, dict[str, Case]] = {}
    for run in sorted(runs, key=lambda run: run.info.started):
        cases.setdefault(column_of(run.info), {}).update({case.nodeid: case for case in run.cases})
    columns = sorted(cases)
    suites = sorted({case.suite for known in cases.values() for case in known.values()})
    lines = [
        f"| suite | {' | '.join(f'{subject}, {backend}' for subject, backend in columns)} |",
        f"| --- |{' --- |' * len(columns)}",
    ]
    for suite in suites:
        cells = (_counts(case for case in cases[column].values() if case.suite == suite) for column in columns)
        lines.append(f"| {suite} | {' | '.join(cells)} |")
    for column in columns:
        lines += _details(column, list(cases[column].values()))
    return "\n".join(lines) + "\n"


def column_of(info: RunInfo) -> Column:
    """The subject without the path and flags of a binary, and the backend."""
    words = info.subject.name.split()
    return (PurePath(words[0]).name if words else "none", info.backend)


def _counts(cases: Iterable[Case]) -> str:
    found: Counter[str] = Counter(case.verdict for case in cases)
    return ", ".join(f"{found[verdict]} {verdict}" for verdict in _SHOWN if found[verdict]) or "not run"


def _details(column: Column, cases: Sequence[Case]) -> list[str]:
    against = [case for case in cases if case.verdict in {"failed", "broken"}]
    skipped = Counter(_line(case.reason) or "no reason" for case in cases if case.verdict == "skipped")
    if not against and not skipped:
        return []
    lines = ["", f"{column[0]}, {column[1]}:", ""]
    lines += [f"- {case.verdict}: {case.suite}/{name_of(case)}, {case.title}: {_line(case.reason)}" for case in against]
    return [*lines, *(f"- {count} skipped: {reason}" for reason, count in skipped.most_common())]


def _line(text: str) -> str:
    """The first line, without the characters that begin HTML or end a table's cell."""
    return text.partition("\n")[0].replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")[:300]
