"""The enumerations of built-in fields, as kube-apiserver's OpenAPI documents have them; `recording.py` records them."""

from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

RECORDED: Final = Path(__file__).with_name("recorded.json")
ENUM_TEXT: Final = "\n\nPossible enum values:\n"  # begins the part of a description that lists the values
Object = dict[str, Any]


@cache
def recorded() -> Object:
    """`enums`: definition → field → values and text. `parameters` by name; `actions`: names of their parameters."""
    document: Object = orjson.loads(RECORDED.read_bytes())
    return document


def with_enums(name: str, schema: Object) -> Object:
    """The definition `name` with the enumerations of its fields; the schema itself if it has none."""
    enums = recorded()["enums"].get(name)
    properties = schema.get("properties")
    if enums is None or not isinstance(properties, dict):
        return schema
    changed = {field: _with_enum(properties[field], result) for field, result in enums.items() if field in properties}
    return {**schema, "properties": {**properties, **changed}}


def _with_enum(field: Object, results: Object) -> Object:
    described = {**field, "description": field.get("description", "") + results["text"]}
    if isinstance(field.get("items"), dict):
        return {**described, "items": {**field["items"], "enum": results["values"]}}
    return {**described, "enum": results["values"]}
