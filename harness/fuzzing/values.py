"""Strategies for values: JSON, and documents in which parts are replaced."""

import copy
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

ODD_TEXTS = (
    "",
    "/",
    "a",
    "..",
    "a/b",
    "-",
    "*",
    "0",
    "-1",
    "1e1000000",
    "100m",
    "1Ki",
    "\x00",
    "é",
    "\U0001f600",
    "2026-01-01T00:00:00Z",
    "$(A)",
    "9" * 400,
    "default",
    "kube-system",
    "Always",
    "a=b,c!=d",
    "null",
    "true",
    "1e1000",
    "\u00b2",
    "9" * 5000,
    "9" * 5000 + "%",
    "0-99999999999",
    "* * * * *",
    "*/0 * * * *",
    "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
    "9999-99-99T99:99:99Z",
    "f:data",
)
ODD_NUMBERS = (0, -1, 1, 2**31, 2**62, 2**63 - 1, -(2**63), 1.5, -0.0, 1e300, 65536, 2_000_000_000)

texts = st.one_of(st.sampled_from(ODD_TEXTS), st.text(max_size=8))
scalars = st.one_of(st.none(), st.booleans(), st.sampled_from(ODD_NUMBERS), st.integers(-5, 300), texts)
json_values = st.recursive(
    scalars,
    lambda below: st.one_of(st.lists(below, max_size=4), st.dictionaries(texts, below, max_size=4)),
    max_leaves=12,
)


def paths_of(value: Any, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all parts of a document, its root first."""
    paths = [at]
    if isinstance(value, dict):
        for name, below in value.items():
            paths += paths_of(below, (*at, name))
    elif isinstance(value, list):
        for number, below in enumerate(value):
            paths += paths_of(below, (*at, number))
    return paths


def replaced(document: Any, path: tuple[str | int, ...], value: Any, how: str) -> Any:
    """A copy of the document in which the part at `path` is replaced, removed, or gets a further field or item."""
    if not path:
        return value if how == "replace" else document
    deepcopy = copy.deepcopy(document)
    above = deepcopy
    for step in path[:-1]:
        above = above[step]
    if how == "remove":
        del above[path[-1]]
    elif how == "add":
        part = above[path[-1]]
        if isinstance(part, dict):
            part[str(value)[:20]] = value
        elif isinstance(part, list):
            part.extend([value, *part[:2]])
        else:
            above[path[-1]] = [part, value]
    else:
        above[path[-1]] = value
    return deepcopy


@st.composite
def mutated(draw: st.DrawFn, documents: Sequence[Any]) -> Any:
    """One of the documents with up to four changes."""
    document = copy.deepcopy(draw(st.sampled_from(list(documents))))
    for _ in range(draw(st.integers(0, 4))):
        paths = paths_of(document)
        path = paths[draw(st.integers(0, len(paths) - 1))]
        how = draw(st.sampled_from(["replace", "remove", "add"]))
        document = replaced(document, path, draw(json_values), how)
    return document
