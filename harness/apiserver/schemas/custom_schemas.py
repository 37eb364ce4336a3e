"""Structural schemas of custom resources: pruning, defaults and validation.

The schema of each CRD version is compiled once into a tree of nodes. The messages are those of kube-openapi's validator
(`spec.x in body must be of type integer: "string"`).
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, TypeVar

import orjson

from seatrial.harness.apiserver.attempts import Attempt
from seatrial.harness.apiserver.cel.expressions import value_count
from seatrial.harness.apiserver.field_errors import Cause, too_many
from seatrial.harness.apiserver.long_computations import LongComputations
from seatrial.harness.apiserver.schemas.custom_rules import has_rules, rule_causes, seen_by_rules
from seatrial.harness.apiserver.schemas.formats import conforms
from seatrial.scheduler.api.cel.patterns import compiled, match_cost

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED = "x-kubernetes-embedded-resource"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_INT64 = (-(2**63), 2**63 - 1)  # literals outside of this range are floats for Go
T = TypeVar("T")
_EXACT_FLOAT = 2.0**53  # floats up to here count as integers where they have no fraction


MAX_COST = 1_000_000  # steps of the defaults, and of the validation; 0.1 s at most; see `match_cost`
_CHECK_COST = 60  # steps that checking or adding one value takes
_COPIED = 64  # characters of a path that are copied in one step
_TOO_COSTLY = Cause(
    "",
    "FieldValueInvalid",
    "Invalid value: the object is too large for its schema: expected fewer values, fewer or shorter defaults, or"
    " shorter values where it has patterns",
)


class TooCostlyError(Exception):
    """The object is too large for its schema."""

    cause = _TOO_COSTLY


class _Findings(list[T]):
    """Causes, or the paths of pruned fields, and the steps that are left."""

    def __init__(self, left: list[int] | None = None) -> None:
        super().__init__()
        self.left = [MAX_COST] if left is None else left

    def spend(self, steps: int) -> None:
        """
        Raises:
            TooCostlyError: no steps are left.
        """
        self.left[0] -= steps
        if self.left[0] < 0:
            raise TooCostlyError


class _Causes(_Findings[Cause]):
    """Causes; a class of its own, as calling `_Found[Cause]` takes several microseconds."""


class _Node:
    """One node of the schema. `defaults` are the properties that have one, with the steps that adding it takes."""

    __slots__ = (
        "additional",
        "all_of",
        "any_of",
        "defaults",
        "items",
        "not_",
        "one_of",
        "preserve",
        "properties",
        "schema",
    )

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self.properties = {name: _Node(sub) for name, sub in (schema.get("properties") or {}).items()}
        self.defaults = [
            (name, sub, _CHECK_COST * value_count(sub.schema["default"]) + len(orjson.dumps(sub.schema["default"])))
            for name, sub in self.properties.items()
            if "default" in sub.schema
        ]
        additional = schema.get("additionalProperties")
        self.additional = _Node(additional) if isinstance(additional, Mapping) else None
        self.items = _Node(schema["items"]) if isinstance(schema.get("items"), Mapping) else None
        self.preserve = bool(schema.get(_PRESERVE)) or additional is True
        self.all_of, self.any_of, self.one_of = (
            [_Node(sub) for sub in schema.get(name) or ()] for name in ("allOf", "anyOf", "oneOf")
        )
        self.not_ = _Node(schema["not"]) if schema.get("not") else None


class CustomSchema:
    """The schema of one version of one custom kind. `version` is the entry in `spec.versions` of the CRD."""

    def __init__(self, version: Mapping[str, Any]) -> None:
        self._root = _Node((version.get("schema") or {}).get("openAPIV3Schema") or {_PRESERVE: True})
        self._rules = has_rules(self._root.schema)

    def complete(self, body: dict[str, Any]) -> list[str]:
        """Prune unknown fields and fill in defaults, in place. Returns the paths of the pruned fields.

        Raises:
            TooCostlyError: there are too many values for the schema's defaults, or fields with too long names.
        """
        pruned: _Findings[str] = _Findings()
        for name in list(body):
            if name in {"apiVersion", "kind", "metadata"}:
                continue
            node = self._root.properties.get(name)
            if node is None:
                if not self._root.preserve:
                    del body[name]
                    pruned.append(name)
                continue
            _prune(node, body[name], name, pruned)
        _default(self._root, body, pruned)
        return pruned

    def problems(
        self,
        body: Mapping[str, Any],
        old: Mapping[str, Any] | None = None,
        *,
        long: LongComputations | None = None,
        attempt: Attempt | None = None,
    ) -> list[Cause]:
        """The causes for which the object is invalid. CEL rules are evaluated only if the schema has no objection.

        Raises:
            Pending: the evaluation of rules continues in a thread.
        """
        causes = _Causes()
        required = self._root.schema.get("required") or ()
        causes += [Cause(name, "FieldValueRequired", "Required value") for name in required if name not in body]
        try:
            for name, node in self._root.properties.items():
                if name in body and name not in {"apiVersion", "kind", "metadata"}:
                    _check(node, body[name], name, causes)
        except TooCostlyError as error:
            return [error.cause]
        if self._rules and not causes:
            causes += self._rule_causes(body, old, long or LongComputations(), attempt)
        return causes

    def _rule_causes(
        self, body: Mapping[str, Any], old: Mapping[str, Any] | None, long: LongComputations, attempt: Attempt | None
    ) -> list[Cause]:
        def compute(*, on_loop: bool) -> list[Cause]:
            return rule_causes(self._root.schema, body, old, on_loop=on_loop)

        if attempt is None:  # no caller can wait
            return compute(on_loop=False)
        seen = [seen_by_rules(body), seen_by_rules(old) if old is not None else None]
        return long.result(b"rules %d " % id(self) + orjson.dumps(seen), compute, attempt)


MAX_SCHEMAS = 256
_schemas: dict[int, tuple[Mapping[str, Any], CustomSchema]] = {}  # by identity of the version, which is kept too


def custom_schema(version: Mapping[str, Any]) -> CustomSchema:
    """The schema of a version, built once: servers of one process share the versions of the shipped kinds."""
    schema = _schemas.get(id(version))
    if schema is None:
        if len(_schemas) >= MAX_SCHEMAS:
            _schemas.clear()
        schema = _schemas[id(version)] = version, CustomSchema(version)
    return schema[1]


def _prune(node: _Node, value: Any, path: str, pruned: _Findings[str]) -> None:
    pruned.spend(1 + len(path) // _COPIED)
    if isinstance(value, list):
        if node.items is not None:
            for number, item in enumerate(value):
                if type(item) is dict or type(item) is list:
                    _prune(node.items, item, f"{path}[{number}]", pruned)
        return
    if not isinstance(value, dict):
        return
    for name in list(value):
        known = node.properties.get(name)
        if known is not None:
            _prune(known, value[name], f"{path}.{name}", pruned)
        elif node.additional is not None:
            _prune(node.additional, value[name], f"{path}.{name}", pruned)
        elif not node.preserve and not (node.schema.get(_EMBEDDED) and name in {"apiVersion", "kind", "metadata"}):
            del value[name]
            pruned.append(f"{path}.{name}")


def _default(node: _Node, value: Any, left: _Findings[str]) -> None:
    """Fill in defaults, which are counted before they are copied.

    Null in place of a field that cannot be null is no field: Go encodes empty lists so.
    """
    if isinstance(value, dict):
        for name in [name for name, field in value.items() if field is None]:
            of = node.properties.get(name, node.additional)
            if of is not None and not of.schema.get("nullable"):
                del value[name]
        for name, sub, cost in node.defaults:
            if name not in value:
                left.spend(cost)
                value[name] = deepcopy(sub.schema["default"])
        for name, field in value.items():
            of = node.properties.get(name, node.additional)
            if of is not None:
                _default(of, field, left)
    elif isinstance(value, list) and node.items is not None:
        for item in value:
            if type(item) is dict or type(item) is list:
                _default(node.items, item, left)


def _check(node: _Node, value: Any, path: str, causes: _Causes) -> None:
    schema = node.schema
    causes.spend(_CHECK_COST + len(path) // _COPIED)
    if value is None and schema.get("nullable"):
        return
    if schema.get(_INT_OR_STRING):
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            causes.append(_wrong_type(path, value, "integer,string"))
            return
    elif "type" in schema:
        kind = schema["type"]
        right = isinstance(value, _TYPES.get(kind, (object,))) and (kind == "boolean" or not isinstance(value, bool))
        if kind == "integer" and right:
            right = _INT64[0] <= value <= _INT64[1]
        elif kind == "integer" and isinstance(value, float):
            right = value.is_integer() and abs(value) < _EXACT_FLOAT
        if not right:
            causes.append(_wrong_type(path, value, kind))
            return
    if "enum" in schema:
        causes.spend(len(schema["enum"]))
    if "enum" in schema and value not in schema["enum"]:
        causes.spend(_CHECK_COST * len(schema["enum"]))  # the message lists them
        supported = ", ".join(
            _shown(choice if isinstance(choice, str) else _shown(choice)) for choice in schema["enum"]
        )
        causes.append(
            Cause(path, "FieldValueNotSupported", f"Unsupported value: {_shown(value)}: supported values: {supported}")
        )
    if isinstance(value, str):
        _check_text(schema, value, path, causes)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        _check_number(schema, value, path, causes)
    elif isinstance(value, list):
        _check_list(node, value, path, causes)
    elif isinstance(value, dict):
        causes.spend(len(schema.get("required") or ()))
        for name in schema.get("required") or ():
            if name not in value:
                causes.spend(_CHECK_COST + len(path) // _COPIED)
                causes.append(Cause(f"{path}.{name}", "FieldValueRequired", "Required value"))
        _check_count(schema, len(value), path, causes)
        for name, field in value.items():
            sub = node.properties.get(name) or node.additional
            if sub is not None:
                _check(sub, field, f"{path}.{name}", causes)
    _check_combined(node, value, path, causes)


def _check_text(schema: Mapping[str, Any], value: str, path: str, causes: _Causes) -> None:
    if "pattern" in schema and not _matches(schema["pattern"], value, causes):
        causes.append(_invalid(path, value, f"{path} in body should match '{schema['pattern']}'"))
    if len(value) < schema.get("minLength", 0):
        causes.append(_invalid(path, value, f"{path} in body should be at least {schema['minLength']} chars long"))
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        causes.append(Cause(path, "FieldValueTooLong", f"Too long: may not be more than {schema['maxLength']} bytes"))
    if "format" in schema:
        causes.spend(len(value))
        if not conforms(schema["format"], value):
            shown = _shown(value)
            why = f"Invalid value: {shown}: {path} in body must be of type {schema['format']}: {shown}"
            causes.append(Cause(path, "FieldValueTypeInvalid", why))


def _matches(pattern: str, text: str, causes: _Causes) -> bool:
    try:
        causes.spend(match_cost(pattern, text))
        return compiled(pattern).search(text) is not None
    except ValueError:  # stored by an earlier version of this server
        return True


def _check_number(schema: Mapping[str, Any], value: float, path: str, causes: list[Cause]) -> None:
    """Check bounds. The format (`int32`) is not checked: kube-apiserver does not check it either."""
    if "minimum" in schema:
        least, without = schema["minimum"], schema.get("exclusiveMinimum")
        if value < least or (without and value == least):
            words = "greater than" if without else "greater than or equal to"
            causes.append(_invalid(path, value, f"{path} in body should be {words} {least}"))
    if "maximum" in schema:
        most, without = schema["maximum"], schema.get("exclusiveMaximum")
        if value > most or (without and value == most):
            words = "less than" if without else "less than or equal to"
            causes.append(_invalid(path, value, f"{path} in body should be {words} {most}"))
    factor = schema.get("multipleOf")
    if factor and not float(value / factor).is_integer():
        causes.append(_invalid(path, value, f"{path} in body should be a multiple of {factor}"))


def _check_count(schema: Mapping[str, Any], count: int, path: str, causes: list[Cause]) -> None:
    """Check the number of fields of an object."""
    if count < schema.get("minProperties", 0):
        least = schema["minProperties"]
        causes.append(_invalid(path, count, f"{path} in body should have at least {least} properties"))
    most = schema.get("maxProperties")
    if most is not None and count > most:
        causes.append(too_many(path, count, most))


def _check_list(node: _Node, value: list[Any], path: str, causes: _Causes) -> None:
    schema = node.schema
    if len(value) < schema.get("minItems", 0):
        causes.append(_invalid(path, len(value), f"{path} in body should have at least {schema['minItems']} items"))
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        causes.append(too_many(path, len(value), schema["maxItems"]))
    if node.items is not None:
        for number, item in enumerate(value):
            _check(node.items, item, f"{path}[{number}]", causes)
    kind = schema.get("x-kubernetes-list-type")
    if kind in {"set", "map"}:
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        seen: set[Any] = set()
        for number, item in enumerate(value):
            if type(item) is str or type(item) is int:
                if item in seen:
                    causes.append(Cause(f"{path}[{number}]", "FieldValueDuplicate", f"Duplicate value: {_shown(item)}"))
                seen.add(item)
                continue
            causes.spend(len(keys))
            row = {key: item.get(key) for key in keys} if kind == "map" and isinstance(item, dict) else item
            mark = orjson.dumps(row, option=orjson.OPT_SORT_KEYS)
            if mark in seen:
                causes.append(Cause(f"{path}[{number}]", "FieldValueDuplicate", f"Duplicate value: {mark.decode()}"))
            seen.add(mark)


def _check_combined(node: _Node, value: Any, path: str, causes: _Causes) -> None:
    """Check allOf, anyOf, oneOf and not. In structural schemas these contain only checks of values."""
    for sub in node.all_of:
        _check(sub, value, path, causes)

    def holds(sub: _Node) -> bool:
        result = _Causes(causes.left)
        _check(sub, value, path, result)
        return not result

    if node.any_of and not node.schema.get(_INT_OR_STRING) and not any(holds(sub) for sub in node.any_of):
        causes.append(_invalid(path, value, f"{path} in body must validate at least one schema (anyOf)"))
    if node.one_of and sum(holds(sub) for sub in node.one_of) != 1:
        causes.append(_invalid(path, value, f"{path} in body must validate one and only one schema (oneOf)"))
    if node.not_ is not None and holds(node.not_):
        causes.append(_invalid(path, value, f"{path} in body must not validate the schema (not)"))


def _wrong_type(path: str, value: Any, kind: str) -> Cause:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
    name = "null" if value is None else names.get(type(value), "object")
    if name == "integer" and not _INT64[0] <= value <= _INT64[1]:
        name = "number"
    return Cause(
        path, "FieldValueTypeInvalid", f'Invalid value: "{name}": {path} in body must be of type {kind}: "{name}"'
    )


def _invalid(path: str, value: Any, why: str) -> Cause:
    return Cause(path, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {why}")


def _shown(value: Any) -> str:
    return orjson.dumps(value).decode()
