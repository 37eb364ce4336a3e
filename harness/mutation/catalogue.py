"""The catalogue of mutants: seeded faults of the scheduler as data, in `suites/mutants/*.yaml`.

A mutant replaces a piece of source inside a function that is named by its qualified name. The piece must occur there
exactly once, so that a mutant whose source has changed is reported and never silently does nothing.
"""

import ast
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

import seatrial
from seatrial.harness.errors import UsageError

PACKAGE = Path(seatrial.__path__[0])  # the folder with scheduler/, suites/ and so on
FOLDER = PACKAGE / "suites" / "mutants"
INPROCESS = "inprocess"  # the subject in virtual time


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Replace `replace` by `by` in the function or class `within`, as in `Core.decide`; "": in the whole file."""

    file: str  # below the package, as in scheduler/core/cycle.py
    within: str
    replace: str
    by: str

    @property
    def module(self) -> str:
        """The module that the file is imported as."""
        return ".".join(["seatrial", *Path(self.file).with_suffix("").parts])


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One seeded fault. `fix` names the upstream change that repaired such a fault."""

    id: str
    fault: str
    fix: str
    edits: tuple[Edit, ...]
    equivalent: str = ""  # why no observer can distinguish it from the original; "": one can
    area: str = ""  # set by `load`
    suites: tuple[str, ...] = ()  # set by `load`
    subject: str = INPROCESS  # set by `load`

    @property
    def modules(self) -> frozenset[str]:
        return frozenset(edit.module for edit in self.edits)


class _Area(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of the catalogue. `suites` run first, with this subject; all others after them, in virtual time."""

    area: str
    suites: tuple[str, ...]
    mutants: tuple[Mutant, ...]
    subject: str = INPROCESS


class MutantError(UsageError):
    """A mutant does not match the source any more."""


def load(folder: Path = FOLDER) -> list[Mutant]:
    """All mutants, by file name and in the order of each file.

    Raises:
        UsageError: a file is not a catalogue, or an ID occurs twice.
    """
    found: list[Mutant] = []
    for file in sorted(folder.glob("*.yaml")):
        try:
            area = msgspec.yaml.decode(file.read_bytes(), type=_Area)
        except (msgspec.DecodeError, ValueError) as error:
            raise UsageError(f"{file.name}: expected an area of the catalogue of mutants: {error}") from error
        own = {"area": area.area, "suites": area.suites, "subject": area.subject}
        found += [msgspec.structs.replace(mutant, **own) for mutant in area.mutants]
    seen: set[str] = set()
    for mutant in found:
        if mutant.id in seen:
            raise UsageError(f"mutant {mutant.id}: the ID occurs twice in {folder.name}/")
        seen.add(mutant.id)
    return found


def select(mutants: Sequence[Mutant], areas: Iterable[str] = (), ids: Iterable[str] = ()) -> list[Mutant]:
    """The mutants of these areas and with these IDs; all without any.

    Raises:
        UsageError: no mutant has such an area or ID.
    """
    areas, ids = tuple(areas), tuple(ids)
    known = {mutant.area for mutant in mutants}
    for area in areas:
        if area not in known:
            raise UsageError(f"--area {area}: expected one of {', '.join(sorted(known))}")
    by_id = {mutant.id for mutant in mutants}
    for identifier in ids:
        if identifier not in by_id:
            raise UsageError(f"--id {identifier}: no mutant of the catalogue has this ID; --list shows all")
    if not areas and not ids:
        return list(mutants)
    return [mutant for mutant in mutants if mutant.area in areas or mutant.id in ids]


def mutated(mutant: Mutant, file: str, source: str) -> str:
    """`source`, the content of `file`, with the mutant's edits of that file.

    Raises:
        MutantError: a function or a piece of source is not there, or not exactly once.
    """
    for edit in mutant.edits:
        if edit.file == file:
            source = _apply(mutant.id, edit, source)
    try:
        ast.parse(source)
    except SyntaxError as error:
        raise MutantError(f"mutant {mutant.id}: {file} is no Python after its edit: {error}") from error
    return source


def check(mutant: Mutant, root: Path = PACKAGE) -> None:
    """Check that every edit matches today's source.

    Raises:
        MutantError: one does not.
    """
    for file in dict.fromkeys(edit.file for edit in mutant.edits):
        path = root / file
        if not path.is_file():
            raise MutantError(f"mutant {mutant.id}: {file} is not there; where did the code move?")
        source = path.read_text()
        if mutated(mutant, file, source) == source:
            raise MutantError(f"mutant {mutant.id}: its edits of {file} change nothing")


def _apply(name: str, edit: Edit, source: str) -> str:
    lines = source.splitlines(keepends=True)
    first, last = _span(name, edit, source)
    part = "".join(lines[first:last])
    pattern = _pattern(edit.replace)
    hits = list(pattern.finditer(part))
    if len(hits) != 1:
        where = f"{edit.file}, {edit.within or 'the file'}"
        raise MutantError(f"mutant {name}: {where}: expected {edit.replace!r} exactly once, found it {len(hits)} times")
    (hit,) = hits
    indent = hit.groupdict().get("indent") or ""
    by = "\n".join(indent + line if line else line for line in edit.by.rstrip("\n").split("\n"))
    return "".join([*lines[:first], part[: hit.start()], by, part[hit.end() :], *lines[last:]])


def _pattern(snippet: str) -> re.Pattern[str]:
    """One line matches inside of a line; several match whole lines at any indentation."""
    lines = snippet.rstrip("\n").split("\n")
    if len(lines) == 1:
        return re.compile(re.escape(lines[0]))
    rest = "".join(rf"\n(?P=indent){re.escape(line)}" if line else r"\n" for line in lines[1:])
    return re.compile(rf"^(?P<indent> *){re.escape(lines[0])}{rest}$", re.MULTILINE)


def _span(name: str, edit: Edit, source: str) -> tuple[int, int]:
    """The lines of the function or class, as a range."""
    if not edit.within:
        return 0, len(source.splitlines())
    body: Sequence[ast.stmt] = ast.parse(source).body
    node: ast.stmt | None = None
    for part in edit.within.split("."):
        scopes = (
            statement
            for statement in body
            if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
        )
        node = next((scope for scope in scopes if scope.name == part), None)
        if node is None:
            raise MutantError(f"mutant {name}: {edit.file} has no {edit.within}; where did the code move?")
        body = node.body
    assert node is not None  # noqa: S101 a qualified name has a part
    assert node.end_lineno is not None  # noqa: S101 it was parsed from source
    return node.lineno - 1, node.end_lineno
