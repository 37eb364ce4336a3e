"""Checks the schemas of a CustomResourceDefinition: structural, without references, with patterns that compile.

Follows `apiextensions-apiserver/pkg/apis/apiextensions/validation` and its messages.
"""

from collections.abc import Mapping
from typing import Any

from seatrial.harness.apiserver.field_errors import Cause, Causes, forbidden, invalid, required, unsupported
from seatrial.scheduler.api.cel.patterns import compiled

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_PRESERVE, _INT_OR_STRING = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"
_LIST_TYPE, _LIST_TYPES = "x-kubernetes-list-type", ("atomic", "set", "map")
_MAP_TYPE, _MAP_TYPES = "x-kubernetes-map-type", ("atomic", "granular")
_MAP_KEYS = "x-kubernetes-list-map-keys"
_UNSUPPORTED = ("definitions", "dependencies", "id", "patternProperties", "$ref")
_APPROVED = "api-approved.kubernetes.io"
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}
_JSON_TYPES = {list: "array", bool: "boolean", int: "integer", float: "number", dict: "object", str: "string"}
Schema = Mapping[str, Any]


def check_schemas(spec: Schema) -> Causes:
    """The causes for which the schemas of a CRD's versions are refused. `spec` is the spec of the CRD."""
    versions = [version for version in spec.get("versions") or () if isinstance(version, Mapping)]
    schemas = [(version.get("schema") or {}).get("openAPIV3Schema") for version in versions]
    places = [f"spec.versions[{number}].schema.openAPIV3Schema" for number in range(len(schemas))]
    if schemas and all(schema == schemas[0] for schema in schemas):  # upstream reports a shared schema once
        schemas, places = schemas[:1], ["spec.validation.openAPIV3Schema"]
    causes: Causes = []
    for schema, place in zip(schemas, places, strict=True):
        if not isinstance(schema, Mapping):
            continue  # reported as missing
        if not schema.get("type"):
            causes.append(required(f"{place}.type", "must not be empty at the root"))
        elif schema.get("type") != "object":
            kind = schema.get("type") or ""
            causes.append(invalid(f"{place}.type", kind, "must be object at the root"))
        _check(schema, place, causes, root=True)
    return causes


def _check(schema: Schema, place: str, causes: Causes, *, root: bool = False) -> None:
    kind = schema.get("type")
    for name in _UNSUPPORTED:
        if schema.get(name):
            causes.append(forbidden(f"{place}.{name}", f"{name} is not supported"))
    if schema.get("$ref"):
        return
    if kind and kind not in _TYPES:
        causes.append(unsupported(f"{place}.type", kind, _TYPES))
    elif not kind and not root and not schema.get(_PRESERVE) and not schema.get(_INT_OR_STRING):
        where = "array items" if place.endswith(".items") else "object fields"
        causes.append(required(f"{place}.type", f"must not be empty for specified {where}"))
    if schema.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        causes.append(forbidden(f"{place}.uniqueItems", why))
    if schema.get("properties") and isinstance(schema.get("additionalProperties"), Mapping):
        why = "additionalProperties and properties are mutual exclusive"
        causes.append(forbidden(f"{place}.additionalProperties", why))
    items = schema.get("items")
    if isinstance(items, list) and items:
        causes.append(forbidden(f"{place}.items", "items must be a schema object and not an array"))
    elif kind == "array" and not isinstance(items, Mapping):
        causes.append(required(f"{place}.items", "must be specified"))
    _check_lists_and_maps(schema, place, causes)
    _check_junctors(schema, place, causes)
    _check_default(schema, place, causes)
    _check_patterns(schema, place, causes)
    for name, sub in (schema.get("properties") or {}).items():
        if isinstance(sub, Mapping):
            _check(sub, f"{place}.properties[{name}]", causes)
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), Mapping):
            _check(schema[name], f"{place}.{name}", causes)


def _check_lists_and_maps(schema: Schema, place: str, causes: Causes) -> None:
    """Check how lists and maps are merged: `x-kubernetes-list-type` and the like."""
    for name, target, types in ((_MAP_TYPE, "object", _MAP_TYPES), (_LIST_TYPE, "array", _LIST_TYPES)):
        if schema.get(name) is None:
            continue
        kind, why = schema.get("type"), f"must be {target} if {name} is specified"
        if kind != target:
            causes.append(invalid(f"{place}.type", kind, why) if kind else required(f"{place}.type", why))
        if schema[name] not in types:
            causes.append(unsupported(f"{place}.{name}", schema[name], types))
    list_type, keys, items = schema.get(_LIST_TYPE), schema.get(_MAP_KEYS) or [], schema.get("items")
    if keys and list_type != "map":
        why = f"must be map if {_MAP_KEYS} is non-empty"
        field = f"{place}.{_LIST_TYPE}"
        causes.append(invalid(field, list_type, why) if list_type is not None else required(field, why))
    if list_type == "map":
        _check_map_keys(keys, items, place, causes)
    if list_type not in {"set", "map"} or not isinstance(items, Mapping):
        return
    if list_type == "set" and schema.get("type") == "array":
        name, default = {"array": (_LIST_TYPE, "atomic"), "object": (_MAP_TYPE, None)}.get(
            str(items.get("type")), ("", "")
        )
        if name and items.get(name, default) != "atomic":
            why = f"must be atomic as item of a list with {_LIST_TYPE}=set"
            causes.append(invalid(f"{place}.items.{name}", items.get(_LIST_TYPE), why))
    if items.get("nullable"):
        causes.append(forbidden(f"{place}.items.nullable", f"cannot be nullable when {_LIST_TYPE} is {list_type}"))
    needed = set(items.get("required") or ())
    for key in keys if list_type == "map" else ():
        of_key, own = (items.get("properties") or {}).get(key), f"{place}.items.properties[{key}]"
        if not isinstance(of_key, Mapping):
            continue
        why = f"this property is in {_MAP_KEYS}, so it "
        if key not in needed and of_key.get("default") is None:
            causes.append(required(f"{own}.default", f"{why}must have a default or be a required property"))
        if of_key.get("nullable"):
            causes.append(forbidden(f"{own}.nullable", f"{why}cannot be nullable"))


def _check_map_keys(keys: list[str], items: Any, place: str, causes: Causes) -> None:
    """Check the keys of a list whose items are told apart by them."""
    field = f"{place}.{_MAP_KEYS}"
    if not keys:
        causes.append(required(field, f"must not be empty if {_LIST_TYPE} is map"))
    if items is None:
        causes.append(required(f"{place}.items", f"must have a schema if {_LIST_TYPE} is map"))
    if not isinstance(items, Mapping):
        return
    if items.get("type") != "object":
        why = f"must be object if parent array's {_LIST_TYPE} is map"
        causes.append(invalid(f"{place}.items.type", items.get("type") or "", why))
        return
    properties = items.get("properties") or {}
    for key in dict.fromkeys(keys):
        of_key = properties.get(key)
        if isinstance(of_key, Mapping) and of_key.get("type") in {"array", "object"}:
            why = f"must be a scalar type if parent array's {_LIST_TYPE} is map"
            causes.append(invalid(f"{place}.items.properties[{key}].type", "object", why))
    if not all(key in properties for key in keys):
        causes.append(invalid(field, keys, "entries must all be names of item properties"))
    if len(set(keys)) < len(keys):
        causes.append(invalid(field, keys, "must not contain duplicate entries"))


def _check_junctors(schema: Schema, place: str, causes: Causes) -> None:
    """Check that schemas which constrain the same value leave its structure to the schema around them."""
    if schema.get(_INT_OR_STRING):
        return  # upstream allows types in the two schemas of such a value
    nested = [
        (f"{name}[{number}]", sub)
        for name in ("allOf", "anyOf", "oneOf")
        for number, sub in enumerate(schema.get(name) or ())
    ]
    for name, sub in (*nested, ("not", schema.get("not"))):
        if isinstance(sub, Mapping):
            for field in ("type", "additionalProperties", "default", "title", "description", "nullable"):
                if sub.get(field):
                    why = f"must be {'empty' if field == 'type' else 'undefined'} to be structural"
                    causes.append(forbidden(f"{place}.{name}.{field}", why))


def _check_default(schema: Schema, place: str, causes: Causes) -> None:
    """Check the type of a default; the defaults of nested fields are checked where they are."""
    value, kind = schema.get("default"), schema.get("type")
    expected = _PYTHON_TYPES.get(str(kind))
    if value is None or expected is None or schema.get(_INT_OR_STRING):
        return
    if not isinstance(value, expected) or (isinstance(value, bool) and kind != "boolean"):
        why = f'Invalid value: "{_JSON_TYPES.get(type(value), "object")}": must be of type {kind}'
        causes.append(Cause(f"{place}.default", "FieldValueTypeInvalid", why))


def _check_patterns(schema: Schema, place: str, causes: Causes) -> None:
    """Check `pattern` here and in schemas that constrain the same value."""
    pattern = schema.get("pattern")
    if pattern:
        try:
            compiled(str(pattern))
        except ValueError as error:
            why = f"must be a valid regular expression, but isn't: error parsing regexp: {error}"
            causes.append(invalid(f"{place}.pattern", str(pattern), why))
    for name in ("allOf", "anyOf", "oneOf"):
        for number, sub in enumerate(schema.get(name) or ()):
            if isinstance(sub, Mapping):
                _check_nested_patterns(sub, f"{place}.{name}[{number}]", causes)
    if isinstance(schema.get("not"), Mapping):
        _check_nested_patterns(schema["not"], f"{place}.not", causes)


def _check_nested_patterns(schema: Schema, place: str, causes: Causes) -> None:
    _check_patterns(schema, place, causes)
    for name, sub in (schema.get("properties") or {}).items():
        if isinstance(sub, Mapping):
            _check_nested_patterns(sub, f"{place}.properties[{name}]", causes)
    if isinstance(schema.get("items"), Mapping):
        _check_nested_patterns(schema["items"], f"{place}.items", causes)


def check_approval(group: str, metadata: Schema, causes: Causes) -> None:
    """Check that a definition in a group of the Kubernetes community carries its approval."""
    if group not in {"k8s.io", "kubernetes.io"} and not group.endswith((".k8s.io", ".kubernetes.io")):
        return
    approval = str((metadata.get("annotations") or {}).get(_APPROVED) or "")
    field = f"metadata.annotations[{_APPROVED}]"
    see = "see https://github.com/kubernetes/enhancements/pull/1111"
    if not approval:
        why = f'protected groups must have approval annotation "{_APPROVED}", {see}'
        causes.append(required(field, why))
    elif not approval.startswith(("unapproved", "http://", "https://")):
        why = (
            f'protected groups must have approval annotation "{_APPROVED}" with either a URL or a reason starting with'
            f' "unapproved", {see}'
        )
        causes.append(invalid(field, approval, why))
