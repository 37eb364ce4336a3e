"""The catalogue of mutants: seeded faults of the scheduler as data, in `scheduler/mutants/*.yaml`.

A mutant replaces an expression or statements inside a function that is named by its qualified name. They are compared
as syntax (`patterns.py`), and a function that moved is found in its new module: most changes of the source leave a
mutant as it is. A mutant that does not apply any more has *drifted*: it is reported, and judges nothing.
"""

import ast
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import msgspec

import seatrial
from seatrial.harness.errors import UsageError
from seatrial.harness.mutation.patterns import Pattern, PatternError

PACKAGE = Path(seatrial.__path__[0])  # the folder with scheduler/, suites/ and so on
FOLDER = PACKAGE / "scheduler" / "mutants"
ROOTS = ("scheduler", "harness")  # where a function that moved is looked for
INPROCESS = "inprocess"  # the subject in virtual time


class Edit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Replace `replace` by `by` in the function or class `within`, as in `Core.decide`; "": in the whole file.

    `nth`: which of several equal pieces; 0: there is one.
    """

    file: str  # below the package, as in scheduler/core/cycle.py
    within: str
    replace: str
    by: str
    nth: int = 0


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


class _Area(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of the catalogue. `suites` run first, with this subject; all others after them, in virtual time."""

    area: str
    suites: tuple[str, ...]
    mutants: tuple[Mutant, ...]
    subject: str = INPROCESS


class DriftError(UsageError):
    """A mutant does not apply to today's source."""


def load(folder: Path = FOLDER) -> list[Mutant]:
    """All mutants, by file name and in the order of each file.

    Raises:
        UsageError: a file is not a catalogue, or an ID occurs twice.
    """
    mutants: list[Mutant] = []
    for file in sorted(folder.glob("*.yaml")):
        try:
            area = msgspec.yaml.decode(file.read_bytes(), type=_Area)
        except (msgspec.DecodeError, ValueError) as error:
            raise UsageError(f"{file.name}: expected an area of the catalogue of mutants: {error}") from error
        own = {"area": area.area, "suites": area.suites, "subject": area.subject}
        mutants += [msgspec.structs.replace(mutant, **own) for mutant in area.mutants]
    seen: set[str] = set()
    for mutant in mutants:
        if mutant.id in seen:
            raise UsageError(f"mutant {mutant.id}: the ID occurs twice in {folder.name}/")
        seen.add(mutant.id)
    return mutants


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


def mutated(mutant: Mutant, root: Path = PACKAGE) -> dict[Path, ast.Module]:
    """The syntax trees of the files that the mutant changes, with its edits.

    Raises:
        DriftError: a function or a piece of code is not there, or not as often as expected.
    """
    trees: dict[Path, ast.Module] = {}
    for edit in mutant.edits:
        path = _file_of(mutant.id, edit, root)
        tree = trees.setdefault(path, ast.parse(path.read_text()))
        try:
            Pattern(edit.replace, edit.by).replace_in(_scope(tree, edit.within) or tree, edit.nth)
        except PatternError as error:
            where = f"{path.relative_to(root)}, {edit.within or 'the file'}"
            raise DriftError(f"mutant {mutant.id}: {where}: {error}") from error
    return trees


def drift(mutants: Iterable[Mutant], root: Path = PACKAGE) -> dict[str, str]:
    """By ID of the mutants that do not apply to today's source: why."""
    reasons: dict[str, str] = {}
    for mutant in mutants:
        try:
            mutated(mutant, root)
        except DriftError as error:
            reasons[mutant.id] = str(error)
    return reasons


def _file_of(name: str, edit: Edit, root: Path) -> Path:
    """The file of the catalogue if it has the function, otherwise the only other file that has it."""
    path = root / edit.file
    if path.is_file() and (not edit.within or _scope(ast.parse(path.read_text()), edit.within) is not None):
        return path
    others = _files_with(root).get(edit.within, ()) if edit.within else ()
    if len(others) != 1:
        text = ", ".join(str(other.relative_to(root)) for other in others) or "no file"
        raise DriftError(
            f"mutant {name}: {edit.file} has no {edit.within or 'content'}; expected one file, found {text}"
        )
    return others[0]


@cache
def _files_with(root: Path) -> dict[str, list[Path]]:
    """The files that have each function or class, by qualified name."""
    files: dict[str, list[Path]] = {}
    for path in sorted(path for folder in ROOTS for path in (root / folder).rglob("*.py") if "tests" not in path.parts):
        for name in _qualified_names(ast.parse(path.read_text()), ""):
            files.setdefault(name, []).append(path)
    return files


def _definitions(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    for child in getattr(node, "body", ()):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child


def _qualified_names(node: ast.AST, prefix: str) -> Iterator[str]:
    for child in _definitions(node):
        yield prefix + child.name
        yield from _qualified_names(child, f"{prefix}{child.name}.")


def _scope(tree: ast.Module, within: str) -> ast.AST | None:
    """The function or class of this qualified name; the module itself for ""."""
    node: ast.AST | None = tree
    for part in within.split(".") if within else ():
        node = next((child for child in _definitions(node) if child.name == part), None) if node else None
    return node
