"""The CustomResourceDefinitions that ship with the program: Koordinator's kinds, and those it builds on."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import yaml

_FOLDER = Path(__file__).parent / "crds"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def shipped() -> Iterator[dict[str, Any]]:
    """The definitions that come with the program. Each caller gets objects of its own."""
    return map(orjson.loads, _encoded())


@cache
def _encoded() -> tuple[bytes, ...]:
    """The definitions as JSON. A process may build many servers, and YAML takes 40 ms to parse."""
    return tuple(
        orjson.dumps(_bounded(yaml.load(path.read_bytes(), Loader=_Loader)))  # noqa: S506 a safe loader, in C if it can
        for path in sorted(_FOLDER.glob("*.yaml"))
    )


def _bounded(schema: Any) -> Any:
    """Give fields of the format `int32` its bounds.

    API servers do not check the format. A client in Go that finds a larger number sees no object of the kind at all.
    """
    if isinstance(schema, dict):
        if schema.get("format") == "int32" and schema.get("type") == "integer":
            return {"minimum": -(2**31), "maximum": 2**31 - 1, **schema}
        return {name: _bounded(field) for name, field in schema.items()}
    if isinstance(schema, list):
        return [_bounded(item) for item in schema]
    return schema
