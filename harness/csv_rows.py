"""Rows of CSV files that a user names; a mistake is refused with file, line and column."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from seatrial.harness.errors import UsageError

MAX_ROWS = 10_000_000  # of a file; an endless one would fill the memory
MAX_LINE = 1_000_000  # characters; an endless line would fill the memory too
_DIGITS = 12  # sums over a file stay within 64 bits


@dataclass(frozen=True, slots=True)
class Row:
    """One row; cells are read by column name."""

    path: Path
    line: int
    cells: dict[str, str | None]

    def refusal(self, column: str, expected: str, name: str) -> UsageError:
        """The error that a cell is wrong."""
        return UsageError(f"{self.path}, line {self.line}, column {column}: expected {expected}, found {name!r}")

    def text(self, column: str, absent: str | None = None) -> str:
        """The cell without spaces around it; `absent` if the file has no such column."""
        value = self.cells.get(column, absent)
        if value is None:
            raise self.refusal(column, "a value", "the end of the line")
        return value.strip()

    def word(self, column: str) -> str:
        """A cell that must not be empty."""
        value = self.text(column)
        if not value:
            raise self.refusal(column, "a name", value)
        return value

    def number(self, column: str) -> int:
        """A whole number, 0 or more."""
        value = self.text(column)
        if not (value.isascii() and value.isdigit() and len(value) <= _DIGITS):  # int() would take "1_000" and "-1"
            raise self.refusal(column, f"a whole number, 0 or more, of at most {_DIGITS} digits", value)
        return int(value)


def rows(path: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    """The rows of a file with a header.

    Raises:
        UsageError: the file cannot be read, is too long, or lacks one of `columns`.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(_lines(path, file), strict=True)
            header = reader.fieldnames or []
            missing = [column for column in columns if column not in header]
            if missing:
                text = ", ".join(header) or "an empty file"
                raise UsageError(
                    f"{path}, line 1: expected columns {', '.join(columns)}; {missing[0]} is missing; found {text}"
                )
            for count, cells in enumerate(reader, 1):
                if count > MAX_ROWS:
                    raise UsageError(f"{path}: expected at most {MAX_ROWS} lines, found more")
                yield Row(path, reader.line_num, cells)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: expected a readable CSV file; {error}") from None


def _lines(path: Path, file: TextIO) -> Iterator[str]:
    """The lines of a file, read one at a time.

    Raises:
        UsageError: a line is too long; it has not been read to its end.
    """
    number = 0
    while line := file.readline(MAX_LINE + 1):
        number += 1
        if len(line) > MAX_LINE:
            raise UsageError(f"{path}, line {number}: expected at most {MAX_LINE} characters, found more")
        yield line
