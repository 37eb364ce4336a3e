"""`"%s is %d".format([…])` in CEL, as in `cel-go/ext/formatting.go`."""

import re
from datetime import datetime, timedelta
from typing import Any, Final

from celpy import celtypes

from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.wrong_values import shown

_CLAUSE: Final = re.compile(r"%(?:(%)|(?:\.(\d+))?([sdfexXob]))|%", re.ASCII)
_DIGITS: Final = 6  # default number of decimal places
_MAX_DIGITS: Final = 1000  # a text of any length would be made in one step


def formatted(pattern: str, values: list[Any]) -> str:
    """The pattern with its clauses replaced by the values in `values`.

    Raises:
        ValueError: a clause is invalid, lacks a value, or does not fit its value.
    """
    rows = iter(values)
    count = 0

    def clause(match: re.Match[str]) -> str:
        nonlocal count
        if match[1]:
            return "%"
        if not match[3]:
            raise ValueError(f'could not parse formatting clause: unrecognized formatting clause "{match[0]}"')
        try:
            value = next(rows)
        except StopIteration:
            raise ValueError(f"index {count} out of range") from None
        count += 1
        digits = integer(match[2], 0, _MAX_DIGITS) if match[2] else _DIGITS
        if digits is None:
            raise ValueError(f"precision {shown(match[2])} is above {_MAX_DIGITS}")
        return _formatted(match[3], value, digits)

    return _CLAUSE.sub(clause, pattern)


def _formatted(kind: str, value: Any, digits: int) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, celtypes.BoolType)
    match kind:
        case "s":
            return text_of(value)
        case "d" if number:
            return str(int(value))
        case "f" if number:
            return f"{float(value):.{digits}f}"
        case "e" if number:
            return f"{float(value):.{digits}e}"
        case "b" if isinstance(value, int):
            return f"{int(value):b}"
        case "o" if isinstance(value, int) and number:
            return f"{int(value):o}"
        case "x" | "X" if isinstance(value, int) and number:
            return f"{int(value):{kind}}"
        case "x" | "X" if isinstance(value, (str, bytes)):
            data = (value.encode() if isinstance(value, str) else bytes(value)).hex()
            return data.upper() if kind == "X" else data
    raise ValueError(f"error during formatting: %{kind} cannot show {text_of(value)}")


def text_of(value: Any) -> str:
    """A value as `%s` formats it."""
    match value:
        case None:
            return "null"
        case celtypes.BoolType() | bool():
            return "true" if value else "false"
        case float():
            return str(int(value)) if float(value).is_integer() else repr(float(value))
        case bytes():
            return bytes(value).decode(errors="replace")
        case list():
            return "[" + ", ".join(text_of(element) for element in value) + "]"
        case dict():
            return (
                "{" + ", ".join(f"{text_of(name)}: {text_of(element)}" for name, element in sorted(value.items())) + "}"
            )
        case datetime():
            return value.strftime("%Y-%m-%dT%H:%M:%SZ")
        case timedelta():
            return f"{value.total_seconds():g}s"
        case int():
            return str(int(value))
        case _:
            return str(value)
