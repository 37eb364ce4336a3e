"""Mutants that are made by rule from the source of our scheduler, instead of thought of.

Each kind is a class of faults that people write: a wake-up, an undo or a subscription that is missing, a write without
its precondition, a list of which only a part counts, a boundary or a number that is wrong. An ID names kind and file:
a process makes its mutant again from these.
"""

import ast
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from seatrial.harness.errors import UsageError
from seatrial.harness.mutation.catalogue import PACKAGE, Edit, Mutant

ROOT: Final = "scheduler"
LEFT_OUT: Final = ("tests", "mutants", "builders.py", "__main__.py")
WAKES: Final = frozenset(
    {
        "request_wake",
        "open_gate",
        "request_regate",
        "request_cycle",
        "set_alarm",
        "wake",
        "wake_class",
        "wake_classes",
        "retry_after_backoff",
        "work",
    }
)
UNDOES: Final = frozenset(
    {"unreserve", "forget", "release", "released", "give_back", "cancel", "discard", "withdraw", "drop", "remove"}
)
SUBSCRIBES: Final = frozenset({"watch", "listen", "on_node_changed", "on_pod_pending", "on_pod_left", "control"})
PRECONDITIONS: Final = frozenset({"uid", "version"})
_BOUNDARIES: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}

Fault = tuple[str, ast.AST, str]  # what is wrong, the node that is replaced, and by what


def _called(node: ast.AST) -> str:
    """The name of the method that a statement calls; "" if it does something else."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        return node.value.func.attr
    return ""


def _dropped(names: frozenset[str], what: str) -> Callable[[ast.AST], Iterator[Fault]]:
    def faults(node: ast.AST) -> Iterator[Fault]:
        if _called(node) in names:
            yield f"{what} is missing", node, "pass"

    return faults


def _without_precondition(node: ast.AST) -> Iterator[Fault]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        for keyword in node.keywords:
            if keyword.arg in PRECONDITIONS:
                rest = [each for each in node.keywords if each is not keyword]
                yield f"a write without its {keyword.arg}", node, ast.unparse(ast.Call(node.func, node.args, rest))


def _parts_of_lists(node: ast.AST) -> Iterator[Fault]:
    if isinstance(node, ast.For):
        iterable = ast.unparse(node.iter)
        yield "only the first counts", node.iter, f"list({iterable})[:1]"
        yield "the last one does not count", node.iter, f"list({iterable})[:-1]"


def _boundaries(node: ast.AST) -> Iterator[Fault]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _BOUNDARIES:
        other = ast.Compare(node.left, [_BOUNDARIES[type(node.ops[0])]()], node.comparators)
        yield "another comparison", node, ast.unparse(other)


def _numbers(node: ast.AST) -> Iterator[Fault]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.FloorDiv | ast.Mult):
        yield "an operand is lost", node, ast.unparse(node.left)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"min", "max"}:
        name = "max" if node.func.id == "min" else "min"
        other = ast.Call(ast.Name(name), node.args, node.keywords)
        yield f"{name} in place of {node.func.id}", node, ast.unparse(other)


KINDS: Final[dict[str, Callable[[ast.AST], Iterator[Fault]]]] = {
    "wakes": _dropped(WAKES, "a wake-up"),
    "undoes": _dropped(UNDOES, "an undo"),
    "subscriptions": _dropped(SUBSCRIBES, "a subscription"),
    "preconditions": _without_precondition,
    "lists": _parts_of_lists,
    "boundaries": _boundaries,
    "numbers": _numbers,
}


def generate(
    catalogue: Sequence[Mutant],
    *,
    kinds: Iterable[str] = (),
    folders: Iterable[str] = (),
    sample: int = 0,
    seed: int = 0,
    root: Path = PACKAGE,
) -> list[Mutant]:
    """The mutants of these kinds in these files or folders below the package; by default of all. `sample`: that many.

    The suites of a mutant's area are those of the catalogue's mutants of the same file, or of its folder.

    Raises:
        UsageError: there is no such kind, or no file there.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise UsageError(f"--kind {unknown[0]}: expected one of {', '.join(KINDS)}")
    files = [path for folder in (folders or (ROOT,)) for path in _files(root, folder)]
    mutants = [mutant for path in files for mutant in _of_file(path, root, tuple(kinds) or tuple(KINDS), catalogue)]
    if sample and sample < len(mutants):
        draw = random.Random(seed)  # noqa: S311 no secret
        mutants = draw.sample(mutants, sample)
    return mutants


def find(name: str, root: Path = PACKAGE) -> Mutant | None:
    """The generated mutant with this ID; None if the source has no such place any more."""
    kind, _, rest = name.partition(":")
    file = rest.rpartition(":")[0]
    if kind not in KINDS or not (root / file).is_file():
        return None
    return next((mutant for mutant in _of_file(root / file, root, (kind,), ()) if mutant.id == name), None)


def _files(root: Path, folder: str) -> list[Path]:
    place = root / folder
    places = [place] if place.is_file() else sorted(place.rglob("*.py"))
    files = [path for path in places if not set(path.relative_to(root).parts) & set(LEFT_OUT)]
    if not files:
        raise UsageError(
            f"--in {folder}: expected a file or folder of the scheduler, as in scheduler/quota, found none"
        )
    return files


def _of_file(path: Path, root: Path, kinds: Sequence[str], catalogue: Sequence[Mutant]) -> Iterator[Mutant]:
    file = path.relative_to(root).as_posix()
    like = _like(file, catalogue)
    for within, function in _functions(ast.parse(path.read_text()), ""):
        seen: Counter[str] = Counter()
        for node in ast.walk(function):
            if not isinstance(node, ast.expr | ast.stmt):
                continue
            for kind in kinds:
                for what, old, by in KINDS[kind](node):
                    replace = ast.unparse(old)
                    seen[f"{kind} {replace} {by}"] += 1
                    yield _mutant(kind, what, Edit(file, within, replace, by, seen[f"{kind} {replace} {by}"]), like)


def _mutant(kind: str, what: str, edit: Edit, like: Mutant | None) -> Mutant:
    digest = hashlib.sha256("\0".join(map(str, (edit.file, edit.within, edit.replace, edit.by, edit.nth))).encode())
    fault = f"{edit.file} {edit.within}: {what}: {' '.join(edit.replace.split())[:80]}"
    area = like.area if like is not None else kind
    return Mutant(
        f"{kind}:{edit.file}:{digest.hexdigest()[:8]}",
        fault,
        f"generated: {kind}",
        (edit,),
        area=area,
        suites=like.suites if like is not None else (),
        subject=like.subject if like is not None else "inprocess",
    )


def _like(file: str, catalogue: Sequence[Mutant]) -> Mutant | None:
    """A mutant of the catalogue whose suites come first: of the same file, or of the same folder."""
    folder = file.rpartition("/")[0]
    of_file = (mutant for mutant in catalogue if any(edit.file == file for edit in mutant.edits))
    of_folder = (mutant for mutant in catalogue if any(edit.file.rpartition("/")[0] == folder for edit in mutant.edits))
    return next(of_file, None) or next(of_folder, None)


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.AST]]:
    """Functions with their qualified names; functions inside of functions belong to these."""
    for child in getattr(node, "body", ()):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
