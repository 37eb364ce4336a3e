"""Results of a campaign as lines of JSON, written as they come, so that an interrupted campaign goes on where it ended.

A line has the digest of the mutant's edits: a mutant that was changed since is run again.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from seatrial.harness.errors import UsageError
from seatrial.harness.mutation.catalogue import Mutant
from seatrial.harness.mutation.child import Result


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    digest: str
    result: Result


def digest_of(mutant: Mutant) -> str:
    """Identifies the mutant's edits: a result counts until they change."""
    return hashlib.sha256(msgspec.json.encode(mutant.edits)).hexdigest()[:16]


class ResultsFile:
    """One file. The last line of a mutant counts."""

    def __init__(self, path: Path) -> None:
        """Read what is there.

        Raises:
            UsageError: the file is not one of a campaign, or its folder does not exist.
        """
        if not path.resolve().parent.is_dir():
            raise UsageError(f"--results {path}: expected a file in an existing folder")
        self._path = path
        self._lines: dict[str, _Line] = {}
        for number, text in enumerate(path.read_bytes().splitlines() if path.exists() else (), 1):
            try:
                line = msgspec.json.decode(text, type=_Line)
            except msgspec.DecodeError as error:
                raise UsageError(f"--results {path}, line {number}: expected a result of a mutant: {error}") from error
            self._lines[line.result.mutant] = line

    def result_of(self, mutant: Mutant) -> Result | None:
        """What was found for this mutant with these edits."""
        line = self._lines.get(mutant.id)
        return line.result if line is not None and line.digest == digest_of(mutant) else None

    def add(self, mutant: Mutant, result: Result) -> None:
        self._lines[mutant.id] = line = _Line(digest_of(mutant), result)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")


def remaining(mutants: Sequence[Mutant], file: ResultsFile | None, *, again: bool) -> list[Mutant]:
    """The mutants to run: those without a result. `again`: also those that no case caught."""
    if file is None:
        return list(mutants)
    results = {mutant.id: file.result_of(mutant) for mutant in mutants}
    return [mutant for mutant in mutants if (result := results[mutant.id]) is None or (again and not result.caught)]
