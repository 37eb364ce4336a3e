"""Messages about wrong values in a configuration or an object."""

import re
from typing import Any

import msgspec

_TYPES = {"bool": bool, "int": int, "float": float, "str": str, "array": list, "object": dict, "null": type(None)}
_STEP = re.compile(r"\.(?P<field>[^.\[]+)|\[(?P<number>\d+)\]|\[\.\.\.\]")


_SHOWN = 60  # characters of a value in a message


def shown(value: object) -> str:
    """A value that was found, in short: users read it in events and conditions."""
    if isinstance(value, str) and len(value) > _SHOWN:
        return f"{value[:_SHOWN]!r}… ({len(value)} characters)"
    text = repr(value)
    return text if len(text) <= 2 * _SHOWN else f"{text[: 2 * _SHOWN]}…"


def printable(text: str) -> str:
    """The text on one line of a log or a terminal: control characters are escaped."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def readable(error: msgspec.ValidationError, document: Any) -> str:
    """`Expected int, got str - at $.a.b` as `a.b: expected int, found 'x'`; other errors as they are.

    msgspec does not name keys of maps (`$.a[...]`): the first one whose value has the wrong type is named.
    """
    text, separator, path = str(error).rpartition(" - at `$")
    path = path.rstrip("`") if separator else ""
    text = text if separator else str(error)
    types = re.fullmatch(r"Expected `(.+)`, got `(\w+)`", text)
    kind = _TYPES.get(types[2]) if types is not None else None
    steps: list[str] = []
    value = document
    for step in _STEP.finditer(path):
        key: Any = step["field"] or (int(step["number"]) if step["number"] else None)
        if key is None and isinstance(value, dict) and kind is not None:
            key = next((name for name, item in value.items() if type(item) is kind), None)
        try:
            value = value[key]
        except (LookupError, TypeError):
            return f"{path.lstrip('.')}: {text}"
        steps.append(f"[{key}]" if isinstance(key, int) else f".{key}")
    where = "".join(steps).lstrip(".")
    if types is not None and kind is not None and type(value) is kind:
        text = f"expected {types[1].replace('`', '')}, found {shown(value)}"
    return f"{where}: {text}" if where else text
