"""Evaluates the CEL rules in the schema of a custom resource (`x-kubernetes-validations`).

A rule that uses `oldSelf` is evaluated only if there is an old value: the same field, the same key of a map, the same
item of a list of type `map`. Follows `apiextensions-apiserver/pkg/apiserver/schema/cel`.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from seatrial.harness.apiserver.cel.checking import escaped
from seatrial.harness.apiserver.cel.expressions import (
    VALUES_A_STEP,
    Budget,
    ExpressionError,
    OptionalVariable,
    TooLongError,
    holds,
    too_long,
    value_count,
    value_of,
)
from seatrial.harness.apiserver.field_errors import Cause
from seatrial.scheduler.api.durations import go_duration

RULES: Final = "x-kubernetes-validations"
_OLD: Final = re.compile(r"\boldSelf\b")
_NAMED: Final = ("name", "generateName")  # fields of metadata that rules can read
Schema = Mapping[str, Any]


def has_rules(schema: Schema) -> bool:
    """Whether the schema contains a rule."""
    return RULES in schema or any(has_rules(sub) for sub in below(schema))


def below(schema: Schema) -> Iterator[Schema]:
    """The schemas directly below a schema: of properties, elements and values."""
    yield from (schema.get("properties") or {}).values()
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), Mapping):
            yield schema[name]


def rule_causes(
    schema: Schema, body: Mapping[str, Any], old: Mapping[str, Any] | None, *, on_loop: bool = False
) -> list[Cause]:
    """The causes for all rules that do not hold. `old` is None for a create.

    Raises:
        NeedsThread: `on_loop`, and the evaluation takes more steps than the event loop may take.
    """
    causes: list[Cause] = []
    before = seen_by_rules(old) if old is not None else None
    _visit(schema, seen_by_rules(body), before, "", _Run(Budget(on_loop=on_loop), causes))
    return causes


def seen_by_rules(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The object without the metadata that rules cannot read."""
    metadata = obj.get("metadata") or {}
    return {**obj, "metadata": {name: metadata[name] for name in _NAMED if name in metadata}}


class _Run(NamedTuple):
    """The evaluation of all rules for one object."""

    budget: Budget
    causes: list[Cause]


def _visit(schema: Schema, value: Any, old: Any, path: str, run: _Run) -> None:
    if value is None:
        return
    for rule in schema.get(RULES) or ():
        if run.budget.exhausted:
            return  # reported with the rule that exceeded the limit; upstream too evaluates no further rules
        _evaluate(schema, rule, value, old, path, run)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, field in value.items():
            sub = properties.get(name, additional)
            if isinstance(sub, Mapping):
                _visit(sub, field, before.get(name), f"{path}.{name}" if path else name, run)
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        rows = _rows(schema, old)
        for number, item in enumerate(value):
            _visit(schema["items"], item, rows.get(_mark(schema, item)), f"{path}[{number}]", run)


def _rows(schema: Schema, old: Any) -> dict[tuple[Any, ...] | None, Any]:
    """The items of an old list of type `map` by their keys; items of other lists have no old value."""
    if not isinstance(old, list) or schema.get("x-kubernetes-list-type") != "map":
        return {}
    return {_mark(schema, item): item for item in old}


def _mark(schema: Schema, row: Any) -> tuple[Any, ...] | None:
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    return tuple(row.get(key) for key in keys) if keys and isinstance(row, dict) else None


def _evaluate(  # noqa: PLR0917
    schema: Schema, rule: Mapping[str, Any], value: Any, old: Any, path: str, run: _Run
) -> None:
    causes = run.causes
    expression = str(rule.get("rule") or "true")
    try:
        run.budget.spend(value_count(value) // VALUES_A_STEP)
    except TooLongError:
        causes.append(_cause({}, str(schema.get("type") or "object"), path, too_long(expression)))
        return
    objects = {"self": _typed(schema, value)}
    if rule.get("optionalOldSelf"):
        objects["oldSelf"] = OptionalVariable(_typed(schema, old) if old is not None else None)
    elif _OLD.search(expression):
        if old is None:
            return
        objects["oldSelf"] = _typed(schema, old)
    kind = str(schema.get("type") or "object")
    try:
        if holds(expression, objects, run.budget):
            return
        causes.append(_cause(rule, kind, path, _message(rule, objects, run)))
    except ExpressionError as error:
        causes.append(_cause({}, kind, path, str(error)))


def _message(rule: Mapping[str, Any], objects: Mapping[str, Any], run: _Run) -> str:
    expression = rule.get("messageExpression")
    if expression:
        try:
            value = value_of(expression, objects, run.budget)
        except ExpressionError:
            value = ""
        if isinstance(value, str) and value.strip() and "\n" not in value:
            return value
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
    """The value as CEL sees it: typed by schema type and format, with field names escaped."""
    kind = schema.get("type")
    if kind == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind == "string" and isinstance(value, str):
        return _formatted(str(schema.get("format") or ""), value)
    if isinstance(value, dict):
        properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
        by_key = {}
        for name, field in value.items():
            sub = properties.get(name, additional)
            key = escaped(name) if name in properties else name
            by_key[key] = _typed(sub, field) if isinstance(sub, Mapping) else field
        return by_key
    if isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        return [_typed(schema["items"], item) for item in value]
    return value


def _formatted(form: str, text: str) -> Any:
    """Parses times and durations; returns malformed text as it is, since validation of the format reports it."""
    try:
        if form in {"date-time", "date"}:
            fromisoformat = datetime.fromisoformat(text)
            return fromisoformat if fromisoformat.tzinfo is not None else fromisoformat.replace(tzinfo=UTC)
        if form == "duration" and (seconds := go_duration(text)) is not None:
            return timedelta(seconds=seconds)
    except ValueError:
        pass
    return text
