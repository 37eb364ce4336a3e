"""The JSONPath of CRD printer columns: field names, indices, wildcards and one kind of filter.

Supported are `.a.b`, `['a']`, `.a\\.b/c` (an escaped dot), `[0]`, `[-1]`, `[*]` and `[?(@.type=="Ready")]`
(the six comparisons with a quoted string, a number, true or false on the right; without one: the field exists).
The syntax is that of Kubernetes' documentation of `kubectl -o jsonpath`.
"""

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

Step = Callable[[Any], Iterable[Any]]

_TOKEN = re.compile(
    r"""
    \.(?P<field>(?:\\.|[^.\[\]\\])+)
    | \[\s*(?P<index>-?\d{1,9})\s*\]
    | \[\s*(?P<all>\*)\s*\]
    | \[\s*'(?P<single>(?:\\.|[^'\\])*)'\s*\]
    | \[\s*"(?P<double>(?:\\.|[^"\\])*)"\s*\]
    | \[\?\(\s*@(?P<left>(?:\.(?:\\.|[^.\[\]\\=!<>\s)])+)*)\s*
      (?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<right>'[^']*'|"[^"]*"|[^)\s]+)\s*)?\)\]
    """,
    re.VERBOSE,
)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ESCAPED = re.compile(r"\\(.)")


class PathError(ValueError):
    """A printer column's JSONPath is invalid or not supported."""

    def __init__(self, path: str, at: int) -> None:
        self.path, self.at = path, at
        super().__init__(
            f"JSONPath {path!r} cannot be understood from character {at + 1} on: expected .field, ['field'], [0], [*] "
            f'or [?(@.field=="text")], found {path[at : at + 20]!r}'
        )


@lru_cache(maxsize=1024)
def compiled(path: str) -> Callable[[Any], list[Any]]:
    """A function that returns all values at `path` in an object, in order; missing fields yield nothing.

    Raises:
        PathError: the path is not in the subset above.
    """
    inner = path.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1].strip()
    steps = tuple(_steps(inner.removeprefix("$"), path))

    def find(document: Any) -> list[Any]:
        documents = [document]
        for step in steps:
            documents = [deeper for here in documents for deeper in step(here)]
        return documents

    return find


def _steps(inner: str, path: str) -> Iterator[Step]:
    at = 0
    while at < len(inner):
        token = _TOKEN.match(inner, at)
        if token is None:
            raise PathError(path, at)
        at = token.end()
        groups = token.groupdict()
        name = next((groups[group] for group in ("field", "single", "double") if groups[group] is not None), None)
        if groups["field"] == "*" or groups["all"]:
            yield _everything
        elif name is not None:
            yield _field(_ESCAPED.sub(r"\1", name))
        elif groups["index"] is not None:
            yield _item(int(groups["index"]))
        else:
            yield _where(groups["left"], groups["operator"], groups["right"])


def _field(name: str) -> Step:
    return lambda here: (here[name],) if isinstance(here, dict) and name in here else ()


def _item(index: int) -> Step:
    def step(here: Any) -> Iterable[Any]:
        return (here[index],) if isinstance(here, list) and -len(here) <= index < len(here) else ()

    return step


def _everything(here: Any) -> Iterable[Any]:
    if isinstance(here, dict):
        return list(here.values())
    return here if isinstance(here, list) else ()


def _where(left: str, sign: str | None, written: str | None) -> Step:
    find = compiled(left)
    compare = _COMPARE[sign] if sign is not None else None
    right = _literal(written) if written is not None else None

    def holds(item: Any) -> bool:
        result = find(item)
        if not result or compare is None:
            return bool(result)
        try:
            return bool(compare(result[0], right))
        except TypeError:  # a string and a number cannot be compared
            return False

    return lambda here: [element for element in here if holds(element)] if isinstance(here, list) else ()


def _literal(written: str) -> Any:
    if written[0] in "'\"":
        return written[1:-1]
    if written in {"true", "false"}:
        return written == "true"
    try:
        return float(written)
    except ValueError:
        return written
