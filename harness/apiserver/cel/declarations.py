"""Declared types of the values that the schema of a custom resource describes, with their greatest sizes.

Follows `apiserver/pkg/cel/common/schemas.go`: a size without a limit in the schema is as large as a request can be.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from seatrial.harness.apiserver.cel.checking import escaped

MAX_REQUEST: Final = 3 * 1024 * 1024  # bytes of a request
_PAIR: Final = 6  # bytes of a key, quotes, colon and comma
_TIMES: Final = {"duration": ("duration", 3, 32), "date": ("timestamp", 12, 12), "date-time": ("timestamp", 21, 32)}
_SCALARS: Final = {"boolean": ("bool", 4), "number": ("double", 1), "integer": ("int", 1)}


@dataclass(frozen=True, slots=True)
class Declared:
    """A type: `kind` is CEL's name of it, `max_size` counts characters, items or entries, `min_bytes` is JSON's."""

    kind: str
    max_size: int = 0
    min_bytes: int = 2
    fields: Mapping[str, "Declared"] = field(default_factory=dict)
    key: "Declared | None" = None
    item: "Declared | None" = None  # of a list, or the values of a map
    other: "Declared | None" = None  # what a name that is not in `fields` selects, for its size alone


_STRING: Final = Declared("string", MAX_REQUEST - 2)
_METADATA: Final = Declared("object", fields={"name": _STRING, "generateName": _STRING})
_EMBEDDED: Final = {"apiVersion": _STRING, "kind": _STRING, "metadata": _METADATA}


def declared(schema: Mapping[str, Any], *, root: bool = False) -> Declared | None:
    """The type that a schema declares; None if expressions cannot see its values. `root`: it is a whole object."""
    if schema.get("x-kubernetes-int-or-string"):
        return Declared("dyn", _max_length(schema) if "maxLength" in schema else MAX_REQUEST - 2, 1)
    kind = "object" if root else schema.get("type")
    if kind in _SCALARS:
        name, size = _SCALARS[str(kind)]
        return Declared(name, 0, size)
    match kind:
        case "array":
            return _list(schema)
        case "object":
            return _map(schema) if isinstance(schema.get("additionalProperties"), Mapping) else _object(schema, root)
        case "string":
            return _string(schema)
        case _:
            return None


def _child(schema: Any) -> Declared | None:
    """The type of a part; None for what is no schema, which other checks refuse."""
    if not schema or not isinstance(schema, Mapping):
        return None
    return declared(schema, root=bool(schema.get("x-kubernetes-embedded-resource")))


def _list(schema: Mapping[str, Any]) -> Declared | None:
    item = _child(schema.get("items"))
    if item is None:
        return None
    limit = schema.get("maxItems")
    most = max(0, limit) if limit is not None else (MAX_REQUEST - 2) // (item.min_bytes + 1)
    return Declared("list", most, item=item)


def _map(schema: Mapping[str, Any]) -> Declared | None:
    value = _child(schema["additionalProperties"])
    if value is None:
        return None
    limit = schema.get("maxProperties")
    most = max(0, limit) if limit is not None else (MAX_REQUEST - 2) // (value.min_bytes + _PAIR)
    return Declared("map", most, key=Declared("string"), item=value)


def _object(schema: Mapping[str, Any], root: bool) -> Declared:
    required, size, fields = frozenset(schema.get("required") or ()), 2, {}
    for name, sub in (schema.get("properties") or {}).items():
        child = _child(sub)
        if child is None:
            continue
        fields[escaped(name)] = child
        if name in required and sub.get("default") is None:
            size += len(name) + child.min_bytes + 4
    return Declared("object", 0, size, {**fields, **_EMBEDDED} if root else fields)


def _string(schema: Mapping[str, Any]) -> Declared:
    form = schema.get("format")
    if form in _TIMES:
        kind, least, most = _TIMES[str(form)]
        return Declared(kind, most, least)
    if form == "byte":
        return Declared("bytes", max(0, schema["maxLength"]) if "maxLength" in schema else MAX_REQUEST - 2)
    if "maxLength" in schema:
        return Declared("string", _max_length(schema))
    if schema.get("enum"):
        return Declared("string", max((len(text) for text in schema["enum"] if isinstance(text, str)), default=0))
    return _STRING


def _max_length(schema: Mapping[str, Any]) -> int:
    """Bytes of the longest string: a character takes up to four."""
    return max(0, int(schema["maxLength"])) * 4
