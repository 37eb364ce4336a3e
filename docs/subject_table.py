"""The table of docs/subjects.md, from docs/subjects.json: `python docs/subject_table.py [--write] [RUN…]`.

Without arguments it checks that the page has this table and that the suites have its cases; `--write` puts it into the
page. With folders of runs of one subject it lists what the table does not say: cases that failed and are in no row, and
cases of its rows that passed.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from seatrial.harness.results import Run, read_run

Rows = list[dict[str, str]]
DOCS = Path(__file__).parent
PAGE, ROWS = DOCS / "subjects.md", DOCS / "subjects.json"
TABLE = re.compile(r"(?<=<!-- subjects -->\n\n).*?(?=\n\n<!-- end -->)", re.DOTALL)
_ID = re.compile(r"([A-Z]+)-(\d+)(?: to (?:[A-Z]+-)?(\d+))?")


def cases_of(text: str) -> list[str]:
    """The IDs in a list of cases and ranges, as in `TO-002, TO-020 to TO-022`."""
    return [
        f"{area}-{number:0{len(first)}}"
        for area, first, last in _ID.findall(text)
        for number in range(int(first), int(last or first) + 1)
    ]


def cases_of_suites() -> set[str]:
    """The IDs that suites name."""
    return {
        case
        for file in (DOCS.parent / "suites").rglob("*.py")
        for case in re.findall(r'"([A-Z]+-[0-9]+)"', file.read_text())
    }


def table(rows: Rows) -> str:
    """The table in Markdown."""
    head = ("| subject | cases | what it does |", "| --- | --- | --- |")
    return "\n".join((*head, *(f"| {row['subject']} | {row['cases']} | {row['why']} |" for row in rows)))


def differences(runs: Sequence[Run], rows: Rows) -> Iterator[str]:
    """What runs of one program show and the rows do not say."""
    program = Path(runs[0].info.subject.name.split()[0]).name
    named = {case for row in rows if program in row["subject"] for case in cases_of(row["cases"])}
    verdicts: dict[str, set[str]] = {}
    for run in runs:
        for case in run.cases:
            verdicts.setdefault(case.case, set()).add(case.verdict)
    for case, each in sorted(verdicts.items()):
        if each & {"failed", "broken"} and case not in named:
            yield f"{case}: failed, and is in no row of {program}"
        elif case in named and each == {"passed"}:
            yield f"{case}: passed, and is in a row of {program}"


def mistakes(page: str, rows: Rows) -> Iterator[str]:
    """Cases that no suite has, and a page without the table."""
    known = cases_of_suites()
    for row in rows:
        for case in cases_of(row["cases"]):
            if case not in known:
                yield f"{ROWS.name}: {case} of {row['subject']}: no suite has this case"
    if TABLE.findall(page) != [table(rows)]:
        yield f"{PAGE.name}: the table is not that of {ROWS.name}; run `python docs/subject_table.py --write`"


def main(words: list[str]) -> str | None:
    """What is wrong, for the program's end; None if nothing is."""
    rows = json.loads(ROWS.read_text())
    if words == ["--write"]:
        PAGE.write_text(TABLE.sub(lambda _: table(rows), PAGE.read_text()))
    elif words:
        return "\n".join(differences([read_run(Path(folder)) for folder in words], rows)) or None
    return "\n".join(mistakes(PAGE.read_text(), rows)) or None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
