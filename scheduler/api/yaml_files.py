"""Reads YAML files of users within limits of size, depth, aliases and digits.

PyYAML recurses for each level, in C until the stack overflows; merge keys (`<<`) and aliases let a small file describe
gigabytes. The C parser, where PyYAML has it, is about ten times as fast. Errors are `yaml.YAMLError`, which callers
turn into their own.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

import yaml

MAX_BYTES: Final = 64 * 1024 * 1024
MAX_DIGITS: Final = 1000
_OF_NUMBERS: Final = "0123456789_:.+-abcdefxABCDEFX"  # decimal, binary, hexadecimal, base 60
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Limit = Literal["depth", "values", "expansion", "digits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a document may have."""

    depth: int  # levels of objects and lists
    expansion: int  # values that aliases and merge keys may add
    values: int | None = None
    digits: int = MAX_DIGITS  # characters of a number: conversion takes time with the square of its length


FILES: Final = Limits(depth=100, expansion=1_000_000)


class LimitError(yaml.YAMLError):
    """A document exceeds a limit."""

    def __init__(self, limit: Limit, event: yaml.Event, message: str) -> None:
        line = f"line {event.start_mark.line + 1}: " if event.start_mark is not None else ""
        super().__init__(f"{line}expected {message}")
        self.limit = limit


def load_yaml(data: bytes) -> Any:
    """The content of a YAML file as plain data.

    Raises:
        yaml.YAMLError: it is not YAML, or exceeds a limit, which the message names.
    """
    if len(data) > MAX_BYTES:
        raise yaml.YAMLError(f"expected at most {MAX_BYTES} bytes, found {len(data)}")
    try:
        check_limits(data, FILES)
        return yaml.load(data, Loader=_LOADER)  # noqa: S506 a safe loader, in C where there is one
    except (ValueError, RecursionError, OverflowError, TypeError) as error:  # as for the date 2026-99-99
        raise yaml.YAMLError(f"a value cannot be read: {error}") from error


def check_limits(data: bytes, limits: Limits) -> None:
    """Check a document by the parser's events, before objects are built.

    Merge keys copy the merged values, so the size with all aliases expanded is an upper limit for them too.

    Raises:
        LimitError: it exceeds a limit.
        yaml.YAMLError: it is not YAML.
        UnicodeDecodeError: it is not text.
    """
    opened: list[tuple[str | None, int]] = []  # anchor, expanded values before it
    sizes: dict[str, int] = {}  # anchor → expanded values
    values = expanded = 0
    for event in yaml.parse(data, Loader=_LOADER):
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor is not None:
                sizes[anchor] = expanded - before
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        values += 1
        expanded += 1
        if isinstance(event, yaml.AliasEvent):
            expanded += sizes.get(event.anchor or "", 0)
        elif isinstance(event, yaml.ScalarEvent):
            value = len(event.value)
            if value > limits.digits and event.implicit[0] and not event.value.strip(_OF_NUMBERS):
                raise LimitError("digits", event, f"a number of at most {limits.digits} characters, found {value}")
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, expanded))
        if len(opened) > limits.depth:
            raise LimitError("depth", event, f"at most {limits.depth} levels, found more")
        if limits.values is not None and values > limits.values:
            raise LimitError("values", event, f"at most {limits.values} values, found more")
        if expanded > values + limits.expansion:
            raise LimitError(
                "expansion", event, f"aliases and merge keys that add at most {limits.expansion} values, found more"
            )
