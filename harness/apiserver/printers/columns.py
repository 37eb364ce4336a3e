"""Column and Printer types, and formatting functions shared by the printers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from seatrial.harness.apiserver.printers.durations import age

Object = Mapping[str, Any]
Cells = list[Any]

NONE = "<none>"
UNSET = "<unset>"


class Column(NamedTuple):
    """One column. Priority 0 is always shown, priority 1 only with `-o wide`."""

    name: str
    description: str
    type: str = "string"
    priority: int = 0
    format: str = ""

    def definition(self) -> dict[str, Any]:
        """The wire form, a TableColumnDefinition."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


class Printer(NamedTuple):
    """The columns of one kind, and a function from (object, now in seconds since 1970) to its cells."""

    columns: tuple[Column, ...]
    cells: Callable[[Object, float], Cells]
    conditions: Callable[[Object], list[dict[str, str]] | None] | None = None


def text(name: str, description: str) -> Column:
    """A column of strings."""
    return Column(name, description)


def number(name: str, description: str) -> Column:
    """A column of integers."""
    return Column(name, description, "integer")


def flag(name: str, description: str) -> Column:
    """A column of booleans."""
    return Column(name, description, "boolean")


def wide(name: str, description: str) -> Column:
    """A column of strings that only `-o wide` shows."""
    return Column(name, description, priority=1)


NAME = Column("Name", "The object's name, unique for its kind within its namespace.", format="name")
AGE = text("Age", "The time since the object was created.")
CONTAINERS = wide("Containers", "The names of the template's containers.")
IMAGES = wide("Images", "The images of the template's containers.")
SELECTOR = wide("Selector", "The labels that select the object's pods.")


def name_of(obj: Object) -> str:
    """The object's name."""
    return obj["metadata"].get("name", "")


def age_of(obj: Object, now: float) -> str:
    """The time since the object was created."""
    return age(obj["metadata"].get("creationTimestamp"), now)


def part(obj: Object, *path: str) -> Any:
    """The mapping at `path`; an empty one if any step is missing or null."""
    here: Any = obj
    for step in path:
        here = here.get(step) or {}
    return here


def condition(obj: Object, kind: str) -> Object | None:
    """The status condition of type `kind`."""
    for entry in part(obj, "status").get("conditions") or ():
        if entry.get("type") == kind:
            return entry
    return None


def containers_and_images(template: Object) -> tuple[str, str]:
    """The names and the images of a pod template's containers."""
    containers = part(template, "spec").get("containers") or ()
    return ",".join(c.get("name", "") for c in containers), ",".join(c.get("image", "") for c in containers)


def truncated_list(words: Sequence[str], limit: int, *, empty: str, separator: str = ",") -> str:
    """The first `limit` of `words`, followed by the number of those left out; `empty` if there are none."""
    if not words:
        return empty
    shown = separator.join(words[:limit])
    return f"{shown} + {len(words) - limit} more..." if len(words) > limit else shown


def labels(pairs: Mapping[str, str] | None) -> str:
    """Labels as `a=b,c=d`, sorted by key."""
    return ",".join(f"{key}={value}" for key, value in sorted((pairs or {}).items())) or NONE


def selector_text(selector: Object | None) -> str | None:
    """A LabelSelector as one line, sorted by key; "" if it is absent or selects everything, None if it is invalid."""
    if not selector:
        return ""
    terms = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        term = _expression(expression.get("key", ""), expression.get("operator", ""), expression.get("values") or ())
        if term is None:
            return None
        terms.append((expression.get("key", ""), term))
    return ",".join(term for _, term in sorted(terms, key=lambda pair: pair[0]))


def _expression(key: str, operator: str, values: Iterable[str]) -> str | None:
    among = ",".join(sorted(values))
    if operator in {"In", "NotIn"}:
        return f"{key} {operator.lower()} ({among})" if among else None
    if among:
        return None
    return {"Exists": key, "DoesNotExist": f"!{key}"}.get(operator)


def selector(value: Object | None) -> str:
    """A LabelSelector as a cell: "<none>" if it is empty, "<error>" if it is invalid."""
    line = selector_text(value)
    return "<error>" if line is None else line or NONE
