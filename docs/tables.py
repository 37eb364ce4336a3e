"""Tables of results in the documentation: `python docs/tables.py [--write | --take ROW FILE | RUN…]`.

PAGE.json beside PAGE.md has the rows of each table that stands there between `<!-- table NAME -->` and `<!-- end -->`.
A row's keys are its columns. A row with `figures` is a benchmark's: its cells name fields of what `command` prints.

Without arguments it checks that the pages have these tables and that the suites have the cases of docs/subjects.json;
`--write` puts the tables into the pages; `--take` takes the figures of the row that begins with ROW from FILE, the
output of its command. With folders of runs of one subject it lists what docs/subjects.json does not say: cases that
failed and are in no row, and cases of its rows that passed.
"""

import json
import re
import string
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from seatrial.harness.results import Run, read_run
from seatrial.reports.known import cases_of

Rows = list[dict[str, Any]]
DOCS = Path(__file__).parent
SUBJECTS = DOCS / "subjects.json"
TABLE = re.compile(r"(?<=<!-- table )(.+?)( -->\n\n).*?(?=\n\n<!-- end -->)", re.DOTALL)
NO_COLUMNS = ("command", "figures")


def table(rows: Rows) -> str:
    """The table in Markdown. A cell that a row does not have is empty."""
    columns = [key for key in dict.fromkeys(key for row in rows for key in row) if key not in NO_COLUMNS]
    lines = [columns, ["---"] * len(columns)]
    for row in rows:
        cells = [row.get(column, "") for column in columns]
        lines.append([cell.format(**row["figures"]) for cell in cells] if "figures" in row else cells)
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |") for cells in lines)


def taken(row: dict[str, Any], output: dict[str, Any]) -> dict[str, Any]:
    """The row with the figures of this output.

    Raises:
        ValueError: the output is not valid, or lacks a field that the row names.
    """
    if not output.get("valid", True):
        raise ValueError(f"the figures are not valid: {output['invalid_because']}")
    names = {name for cell in row.values() if isinstance(cell, str) for _, name, *_ in string.Formatter().parse(cell)}
    fields = sorted({name.partition("[")[0] for name in names if name})
    if missing := [field for field in fields if field not in output]:
        raise ValueError(f"expected the fields {', '.join(fields)}, found no {', '.join(missing)}")
    return {**row, "figures": {field: output[field] for field in fields}}


def with_tables(page: str, tables: dict[str, Rows]) -> str:
    """The page with these tables in it."""
    return TABLE.sub(lambda match: f"{match[1]}{match[2]}{table(tables[match[1]])}", page)


def cases_of_suites() -> set[str]:
    """The IDs that suites name."""
    return {
        case
        for file in (DOCS.parent / "suites").rglob("*.py")
        for case in re.findall(r'"([A-Z]+-[0-9]+)"', file.read_text())
    }


def own_rules() -> set[str]:
    """The IDs of cases that judge by a rule of ours."""
    return {
        case
        for file in (DOCS.parent / "suites").rglob("*.py")
        for case in re.findall(r'mark\.case\(\s*"([A-Z]+-[0-9]+)"[^)]*source="ours[":]', file.read_text())
    }


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


def mistakes(file: Path, tables: dict[str, Rows]) -> Iterator[str]:
    """What is wrong with the tables of a file: cases that no suite has, and a page that has not all of them."""
    known = cases_of_suites() if file == SUBJECTS else set()
    for row in (row for rows in tables.values() for row in rows) if file == SUBJECTS else ():
        for case in cases_of(row["cases"]):
            if case not in known:
                yield f"{file.name}: {case} of {row['subject']}: no suite has this case"
    page = file.with_suffix(".md")
    text = page.read_text()
    if file == SUBJECTS:
        rules = text.partition("| rules of ours |")[2].partition("\n\n")[0]
        for case in sorted(own_rules() ^ set(cases_of(rules))):
            yield f"{page.name}: {case}: either its source is a rule of ours, or the table of these has it, not both"
    if sorted(match[1] for match in TABLE.finditer(text)) != sorted(tables) or with_tables(text, tables) != text:
        yield f"{page.name}: the tables are not those of {file.name}; run `python docs/tables.py --write`"


def take(rows: Sequence[dict[str, Any]], beginning: str, file: Path) -> None:
    """Take the figures of one of these rows from a command's output.

    Raises:
        ValueError: no row, or more than one, begins so; or the output is not that of the row's command, or not valid.
    """
    chosen = [row for row in rows if "figures" in row and str(next(iter(row.values()))).startswith(beginning)]
    if len(chosen) != 1:
        raise ValueError(f"expected the beginning of one row with figures, found {len(chosen)} for {beginning!r}")
    chosen[0].update(taken(chosen[0], json.loads(file.read_text())))


def main(words: list[str]) -> str | None:
    """What is wrong, for the program's end; None if nothing is."""
    files: dict[Path, dict[str, Rows]] = {file: json.loads(file.read_text()) for file in sorted(DOCS.glob("*.json"))}
    match words:
        case [] | ["--write"]:
            pass
        case ["--take", beginning, output]:
            all_rows = [row for tables in files.values() for rows in tables.values() for row in rows]
            try:
                take(all_rows, beginning, Path(output))
            except (OSError, ValueError) as error:
                return f"--take: {error}"
        case [first, *_] if first.startswith("--"):
            return __doc__
        case _:
            runs = [read_run(Path(folder)) for folder in words]
            return "\n".join(differences(runs, [row for rows in files[SUBJECTS].values() for row in rows])) or None
    for file, tables in files.items() if words else ():
        file.write_text(text(tables))
        page = file.with_suffix(".md")
        page.write_text(with_tables(page.read_text(), tables))
    return "\n".join(line for file, tables in files.items() for line in mistakes(file, tables)) or None


def text(tables: dict[str, Rows]) -> str:
    """The file of these tables, with a line for each row."""
    parts = (
        f"{json.dumps(name)}: [\n " + ",\n ".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]"
        for name, rows in tables.items()
    )
    return "{" + ",\n".join(parts) + "}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
