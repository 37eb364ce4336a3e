"""Printers of custom resources, built from the printer columns of their definition."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson

from seatrial.harness.apiserver.printers.columns import AGE, NAME, Cells, Column, Object, Printer, name_of
from seatrial.harness.apiserver.printers.durations import age
from seatrial.harness.apiserver.printers.jsonpath import PathError, compiled

_ONLY_AGE: list[dict[str, Any]] = [
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": AGE.description}
]


def custom_printer(printer_columns: Sequence[dict[str, Any]] | None) -> Printer:
    """The printer for a CRD version's `additionalPrinterColumns`; without any, Name and Age.

    A column with an invalid jsonPath ends the list, as upstream, so that `kubectl get` still works.
    Validation of the CRD rejects such a path, by `jsonpath.compiled`.
    """
    columns = [NAME]
    finders = []
    for column in printer_columns or _ONLY_AGE:
        path, kind = column.get("jsonPath", ""), column.get("type", "string")
        try:
            finders.append((compiled(path), kind))
        except PathError:
            break
        shown = column.get("description") or f"Custom resource definition column (in JSONPath format): {path}"
        columns.append(Column(column["name"], shown, kind, column.get("priority", 0), column.get("format", "")))
    return Printer(tuple(columns), partial(_cells, tuple(finders)))


def _cells(finders: tuple[tuple[Any, str], ...], obj: Object, now: float) -> Cells:
    cells: Cells = [name_of(obj)]
    for find, kind in finders:
        result = find(obj)
        # A path may match several values; a cell shows the first, as upstream.
        cells.append(_cell(result[0], kind, now) if result else None)
    return cells


def _cell(value: Any, kind: str, now: float) -> Any:
    """A value converted to the column's type; None (an empty cell) if it is of another type."""
    if kind == "string":
        return _written(value)
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if kind == "date":
        return age(value, now) if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return {"integer": int, "number": float}.get(kind, lambda _: None)(value)


def _written(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
