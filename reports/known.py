"""What is known of other schedulers: why a case fails for one of them, as docs/subjects.md lists it."""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from seatrial.harness.results import Subject

SUBJECTS = Path(__file__).parent.parent / "suites" / "subjects.json"
_ID = re.compile(r"([A-Z]+)-(\d+)(?: to (?:[A-Z]+-)?(\d+))?")


class Known(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why cases fail for a subject: the code that explains it, and a command or manifest that shows it."""

    subject: str
    cases: str
    what: str = msgspec.field(name="what it does")
    source: str = msgspec.field(name="explained by", default="")
    shown_by: str = msgspec.field(name="shown by", default="")


def read_known(file: Path = SUBJECTS) -> tuple[Known, ...]:
    """The rows of all tables of the file."""
    tables = msgspec.json.decode(file.read_bytes(), type=dict[str, tuple[Known, ...]])
    return tuple(row for rows in tables.values() for row in rows)


def known_of(rows: Sequence[Known], subject: Subject, case: str) -> Known | None:
    """What is known of a case of this version of a subject. A row may be about two programs of one project."""
    return next(
        (
            row
            for row in rows
            if subject.version
            and row.subject.startswith(f"{subject.name} ")
            and row.subject.endswith(f" {subject.version}")
            and case in cases_of(row.cases)
        ),
        None,
    )


def cases_of(text: str) -> list[str]:
    """The IDs in a list of cases and ranges, as in `TO-002, TO-020 to TO-022`."""
    return [
        f"{area}-{number:0{len(first)}}"
        for area, first, last in _ID.findall(text)
        for number in range(int(first), int(last or first) + 1)
    ]
