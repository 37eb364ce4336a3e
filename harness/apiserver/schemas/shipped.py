"""The CustomResourceDefinitions that ship with the program: Koordinator's kinds, and those it builds on."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import yaml

KOORDINATOR = "koordinator-system"  # the namespace in which Koordinator's components keep their objects
_FOLDER = Path(__file__).parent / "crds"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def shipped() -> Iterator[dict[str, Any]]:
    """The definitions that come with the program. Each caller gets objects of its own.

    Fields of the format `int32` have its bounds: API servers do not check the format, and a client in Go that finds a
    larger number sees no object of the kind at all.
    """
    return map(orjson.loads, _encoded())


@cache
def _encoded() -> tuple[bytes, ...]:
    """The definitions as JSON. A process may build many servers, and YAML takes 40 ms to parse."""
    return tuple(
        orjson.dumps(yaml.load(path.read_bytes(), Loader=_Loader))  # noqa: S506 a safe loader, in C where there is one
        for path in sorted(_FOLDER.glob("*.yaml"))
    )
