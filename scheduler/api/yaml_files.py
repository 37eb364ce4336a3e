"""Reads YAML files of users within limits of size, depth, aliases and digits.

PyYAML recurses for each level, in C until the stack overflows; merge keys (`<<`) and aliases let a small file describe
gigabytes. The C parser, where PyYAML has it, is about ten times as fast. Errors are `yaml.YAMLError`, which callers
turn into their own.
"""

from typing import Any, Final

import yaml

MAX_BYTES: Final = 64 * 1024 * 1024
MAX_DEPTH: Final = 100  # levels of objects and lists
MAX_EXPANSION: Final = 1_000_000  # values that aliases and merge keys may add
MAX_DIGITS: Final = 1000  # characters of a number: conversion takes time with the square of its length
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(data: bytes) -> Any:
    """The content of a YAML file as plain data.

    Raises:
        yaml.YAMLError: it is not YAML, or exceeds a limit, which the message names.
    """
    if len(data) > MAX_BYTES:
        raise yaml.YAMLError(f"expected at most {MAX_BYTES} bytes, found {len(data)}")
    try:
        _check(data)
        return yaml.load(data, Loader=_LOADER)  # noqa: S506 a safe loader, in C where there is one
    except (ValueError, RecursionError, OverflowError, TypeError) as error:  # as for the date 2026-99-99
        raise yaml.YAMLError(f"a value cannot be read: {error}") from error


def _check(data: bytes) -> None:
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
            if len(event.value) > MAX_DIGITS and event.implicit[0] and event.value.lstrip("+-")[:1].isdigit():
                raise yaml.YAMLError(
                    f"line {_line(event)}: expected a number of at most {MAX_DIGITS} characters,"
                    f" found {len(event.value)}"
                )
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, expanded))
        if len(opened) > MAX_DEPTH:
            raise yaml.YAMLError(f"line {_line(event)}: expected at most {MAX_DEPTH} levels, found more")
        if expanded > values + MAX_EXPANSION:
            raise yaml.YAMLError(
                f"line {_line(event)}: expected aliases and merge keys that add at most {MAX_EXPANSION} values,"
                " found more"
            )


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 0
