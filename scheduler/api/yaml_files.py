"""Files and texts in YAML, read within limits.

A file is a user's, and YAML can make a small one large: aliases of aliases, nesting that overflows the stack of the C
parser and ends the process, whole numbers whose conversion takes time with the square of their length. The limits are
checked on the parser's events, before any object is built. The C parser is used where PyYAML has it: it is about ten
times as fast.
"""

from pathlib import Path
from typing import Any

import yaml

MAX_SIZE = 16 << 20  # bytes
MAX_DEPTH = 100  # collections within collections
MAX_VALUES = 200_000
MAX_EXPANDED = 1_000_000  # values with each alias counted as what it stands for
MAX_DIGITS = 1000  # characters of an unquoted number

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YamlError(yaml.YAMLError):
    """No YAML, or beyond a limit. The message says which, with the line."""


def read_yaml(path: Path) -> Any:
    """The one document of a file.

    Raises:
        OSError: it cannot be read.
        YamlError: it is not YAML, or beyond a limit.
    """
    with path.open("rb") as source:
        text = source.read(MAX_SIZE + 1)  # a device or a pipe has no end
    return parse_yaml(text)


def parse_yaml(text: bytes | str) -> Any:
    """The one document of a text; None if it is empty.

    Raises:
        YamlError: it is not YAML, or beyond a limit.
    """
    if len(text) > MAX_SIZE:
        raise YamlError(f"expected at most {MAX_SIZE >> 20} MiB, found more")
    try:
        _check(text)
        return yaml.load(text, Loader=_Loader)  # noqa: S506 a safe loader, in C where there is one
    except YamlError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date with a 13th month, no UTF-8
        raise YamlError(str(error)) from error


def _check(text: bytes | str) -> None:
    opened: list[tuple[str | None, int]] = []  # anchor, expanded values before it
    sizes: dict[str, int] = {}  # anchor → expanded values below it
    values = expanded = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor is not None:
                sizes[anchor] = expanded - before
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        values += 1
        expanded += 1
        if isinstance(event, yaml.ScalarEvent):
            if len(event.value) > MAX_DIGITS and event.implicit[0] and event.value.lstrip("+-")[:1].isdigit():
                raise _beyond(event, f"a number of at most {MAX_DIGITS} characters", f"{len(event.value)}")
        elif isinstance(event, yaml.AliasEvent):
            expanded += sizes.get(event.anchor or "", 0)
        else:
            opened.append((event.anchor, expanded))
        if len(opened) > MAX_DEPTH:
            raise _beyond(event, f"at most {MAX_DEPTH} levels", "more")
        if values > MAX_VALUES:
            raise _beyond(event, f"at most {MAX_VALUES:,} values", "more")
        if expanded > MAX_EXPANDED:
            raise _beyond(event, f"aliases that stand for at most {MAX_EXPANDED:,} values", "more")


def _beyond(event: yaml.NodeEvent, expected: str, found: str) -> YamlError:
    mark = event.start_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    return YamlError(f"{where}expected {expected}, found {found}")
