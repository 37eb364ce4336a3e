"""`x-kubernetes-validations`: the rules in the schema of a custom resource, held against its objects.

A rule that speaks of `oldSelf` counts only where there is an old value: the same field, the same key of a map, the
same row of a list of type `map`. Follows `apiextensions-apiserver/pkg/apiserver/schema/cel`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from harness.apiserver.causes import Cause
from harness.apiserver.expressions import ExpressionError, foreign, holds, value_of

_RULES: Final = "x-kubernetes-validations"
_OLD: Final = re.compile(r"\boldSelf\b")
_NAMED: Final = ("name", "generateName")  # all that rules may see of metadata
Schema = Mapping[str, Any]


def has_rules(schema: Schema) -> bool:
    """Whether there is any rule in it."""
    return _RULES in schema or any(has_rules(sub) for sub in _below(schema))


def _below(schema: Schema) -> Iterator[Schema]:
    yield from (schema.get("properties") or {}).values()
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), Mapping):
            yield schema[name]


def broken_rules(schema: Schema, body: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[Cause]:
    """What the rules object to."""
    causes: list[Cause] = []
    _visit(schema, _seen(body), _seen(old) if old is not None else None, "", causes)
    return causes


def _seen(obj: Mapping[str, Any]) -> dict[str, Any]:
    metadata = obj.get("metadata") or {}
    return {**obj, "metadata": {name: metadata[name] for name in _NAMED if name in metadata}}


def _visit(schema: Schema, value: Any, old: Any, path: str, causes: list[Cause]) -> None:
    if value is None:
        return
    for rule in schema.get(_RULES) or ():
        _hold(schema, rule, value, old, path, causes)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, one in value.items():
            sub = properties.get(name, additional)
            if isinstance(sub, Mapping):
                _visit(sub, one, before.get(name), f"{path}.{name}" if path else name, causes)
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        rows = _rows(schema, old)
        for number, one in enumerate(value):
            _visit(schema["items"], one, rows.get(_mark(schema, one)), f"{path}[{number}]", causes)


def _rows(schema: Schema, old: Any) -> dict[tuple[Any, ...] | None, Any]:
    """The rows of an old list by their keys; of other lists, nothing is the same row as before."""
    if not isinstance(old, list) or schema.get("x-kubernetes-list-type") != "map":
        return {}
    return {_mark(schema, one): one for one in old}


def _mark(schema: Schema, row: Any) -> tuple[Any, ...] | None:
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    return tuple(row.get(key) for key in keys) if keys and isinstance(row, dict) else None


def _hold(  # noqa: PLR0917
    schema: Schema, rule: Mapping[str, Any], value: Any, old: Any, path: str, causes: list[Cause]
) -> None:
    expression = str(rule.get("rule") or "true")
    if foreign(expression):
        return
    objects = {"self": _typed(schema, value)}
    if _OLD.search(expression):
        if old is None:
            return
        objects["oldSelf"] = _typed(schema, old)
    kind = str(schema.get("type") or "object")
    try:
        if holds(expression, objects):
            return
        causes.append(_cause(rule, kind, path, _message(rule, objects)))
    except ExpressionError as error:
        causes.append(_cause({}, kind, path, str(error)))


def _message(rule: Mapping[str, Any], objects: Mapping[str, Any]) -> str:
    expression = rule.get("messageExpression")
    if expression and not foreign(expression):
        try:
            found = value_of(expression, objects)
        except ExpressionError:
            found = ""
        if isinstance(found, str) and found.strip() and "\n" not in found:
            return found
    return str(rule.get("message") or f"failed rule: {rule.get('rule')}")


def _cause(rule: Mapping[str, Any], kind: str, path: str, why: str) -> Cause:
    where = (path + str(rule.get("fieldPath") or "")).lstrip(".") or "<nil>"
    match rule.get("reason"):
        case "FieldValueForbidden":
            return Cause(where, "FieldValueForbidden", f"Forbidden: {why}")
        case "FieldValueRequired":
            return Cause(where, "FieldValueRequired", f"Required value: {why}")
        case "FieldValueDuplicate":
            return Cause(where, "FieldValueDuplicate", f'Duplicate value: "{kind}"')
        case _:
            return Cause(where, "FieldValueInvalid", f'Invalid value: "{kind}": {why}')


def _typed(schema: Schema, value: Any) -> Any:
    """With whole numbers as fractions where the schema says `number`: CEL does not compare the two kinds."""
    if schema.get("type") == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, dict):
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        found = {}
        for name, one in value.items():
            sub = properties.get(name, additional)
            found[name] = _typed(sub, one) if isinstance(sub, Mapping) else one
        return found
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [_typed(schema["items"], one) for one in value]
    return value
