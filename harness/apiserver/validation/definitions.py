"""Validation of CustomResourceDefinitions; follows `apiextensions-apiserver/pkg/apis/apiextensions/validation`."""

from functools import lru_cache
from typing import Any

import orjson

from seatrial.harness.apiserver.field_errors import (
    Cause,
    Causes,
    duplicate,
    forbidden,
    immutable,
    invalid,
    required,
    too_many,
    unsupported,
)
from seatrial.harness.apiserver.names import Object, dns_1035, subdomain
from seatrial.harness.apiserver.schemas.rule_checks import check_rules
from seatrial.harness.apiserver.schemas.structural import check_approval, check_schemas
from seatrial.harness.apiserver.validation.policy import one_of
from seatrial.harness.apiserver.validation.urls import check_https_url

_SCOPES = ("Cluster", "Namespaced")
_SCALE_PATHS = {
    "specReplicasPath": (".spec",),
    "statusReplicasPath": (".status",),
    "labelSelectorPath": (".spec", ".status"),
}
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MAX_SELECTABLE = 8


def check_custom_resource(obj: Object, old: Object | None, causes: Causes) -> None:
    """Check names, scope and versions of a CRD; schemas are checked when they are compiled."""
    spec = obj.get("spec") or {}
    names, group = spec.get("names") or {}, spec.get("group") or ""
    name = (obj.get("metadata") or {}).get("name") or ""
    if name != f"{names.get('plural') or ''}.{group}":
        causes.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    if not group:
        causes.append(required("spec.group"))
    elif problems := subdomain(group):
        causes.extend(invalid("spec.group", group, problem) for problem in problems)
    elif "." not in group:
        causes.append(invalid("spec.group", group, "should be a domain with at least one dot"))
    scope = spec.get("scope")
    if scope not in _SCOPES:
        causes.append(unsupported("spec.scope", scope, _SCOPES) if scope else required("spec.scope"))
    for field in ("plural", "singular", "kind", "listKind"):
        value = names.get(field)
        if not value:
            causes.append(required(f"spec.names.{field}"))
        else:
            problems = dns_1035(value.lower())
            causes.extend(invalid(f"spec.names.{field}", value, problem) for problem in problems)
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        causes.append(invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same"))
    versions = spec.get("versions") or []
    seen: set[str] = set()
    for index, version in enumerate(versions):
        called = version.get("name") or ""
        causes.extend(invalid(f"spec.versions[{index}].name", called, problem) for problem in dns_1035(called))
        if called in seen:
            problem = "must contain unique version names"
            causes.append(invalid("spec.versions", [entry.get("name") for entry in versions], problem))
        seen.add(called)
        _check_version(version, causes)
        if (version.get("schema") or {}).get("openAPIV3Schema") is None:
            problem = "schemas are required"
            causes.append(required(f"spec.versions[{index}].schema.openAPIV3Schema", problem))
    if not versions:
        problem = "must have at least one stored version"
        causes.append(invalid("status.storedVersions", [], problem))
    if spec.get("preserveUnknownFields"):
        problem = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        )
        causes.append(invalid("spec.preserveUnknownFields", True, problem))
    if sum(1 for version in versions if version.get("storage")) != 1:
        listed = [version.get("name") for version in versions]
        problem = "must have exactly one version marked as storage version"
        causes.append(invalid("spec.versions", listed, problem))
    if old is None or versions != (old.get("spec") or {}).get("versions"):
        causes.extend(_schema_causes(orjson.dumps(versions)))
    if old is None:
        check_approval(group, obj.get("metadata") or {}, causes)
    _check_conversion(spec.get("conversion") or {}, causes)
    if old is not None:
        before = old.get("spec") or {}
        causes.extend(immutable("spec.group", group, before.get("group")))
        established = any(
            condition.get("type") == "Established" and condition.get("status") == "True"
            for condition in (old.get("status") or {}).get("conditions") or ()
        )
        if established:
            causes.extend(immutable("spec.scope", scope, before.get("scope")))
            for field in ("kind", "plural"):
                was = (before.get("names") or {}).get(field)
                causes.extend(immutable(f"spec.names.{field}", names.get(field), was))


def _check_version(version: Object, causes: Causes) -> None:
    """Check subresources, columns and selectable fields. Upstream reports the paths of the former one-version form."""
    scale = (version.get("subresources") or {}).get("scale")
    if scale is not None:
        for field, below in _SCALE_PATHS.items():
            path, record = f"spec.subresources.scale.{field}", scale.get(field)
            if record:
                _check_simple_path(record, below, path, causes)
            elif field != "labelSelectorPath":
                causes.append(required(path))
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        _check_column(column, f"spec.additionalPrinterColumns[{index}]", causes)
    schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
    seen: set[str] = set()
    for index, entry in enumerate(version.get("selectableFields") or ()):
        _check_selectable(entry.get("jsonPath") or "", schema, f"spec.selectableFields[{index}].jsonPath", seen, causes)
    if len(seen) > _MAX_SELECTABLE:
        causes.append(too_many("spec.selectableFields", len(seen), _MAX_SELECTABLE))


def _check_simple_path(text: str, below: tuple[str, ...], path: str, causes: Causes) -> None:
    """Check that a JSON path begins with a dot, and with one of `below`, if there are any."""
    if not text.startswith("."):
        causes.append(invalid(path, text, "must be a simple json path starting with ."))
    elif below and not text.startswith(tuple(f"{prefix}." for prefix in below)):
        which = f"either {' or '.join(below)}" if len(below) > 1 else below[0]
        causes.append(invalid(path, text, f"should be a json path under {which}"))


def _check_column(column: Object, path: str, causes: Causes) -> None:
    if not column.get("name"):
        causes.append(required(f"{path}.name"))
    kind, form, json_path = column.get("type"), column.get("format"), column.get("jsonPath")
    problem = f"must be one of {','.join(_COLUMN_TYPES)}"
    if not kind:
        causes.append(required(f"{path}.type", problem))
    elif kind not in _COLUMN_TYPES:
        causes.append(invalid(f"{path}.type", kind, problem))
    if form and form not in _COLUMN_FORMATS:
        causes.append(invalid(f"{path}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}"))
    if not json_path:
        causes.append(required(f"{path}.JSONPath"))
    else:
        _check_simple_path(json_path, (), f"{path}.JSONPath", causes)


def _check_selectable(text: str, schema: Object, path: str, seen: set[str], causes: Causes) -> None:
    """Check that a path of field names leads to a text, number or boolean of the schema."""
    if not text:
        causes.append(required(path))
        return
    names = text.split(".")
    problem = f"expected [ or . but got: {names[0]}" if names[0] else ""
    of_field: Any = schema
    for name in () if problem else names[1:]:
        fields = of_field.get("properties")
        of_field = fields.get(name) if fields else of_field.get("additionalProperties")
        if "[" in name or not name or not isinstance(of_field, dict):
            problem = "array notation is not allowed" if "[" in name else "does not refer to a valid field"
            problem = problem if name else "unexpected end of JSON path"
            break
    if problem:
        causes.append(invalid(path, text, f"is an invalid path: {problem}"))
        return
    if names[1] == "metadata":
        causes.append(invalid(path, text, "must not point to fields in metadata"))
    if of_field.get("type") not in {"string", "boolean", "integer"}:
        types = "must point to a field of type string, boolean or integer."
        causes.append(invalid(path, text, f"{types} Enum string fields and strings with formats are allowed."))
    if text in seen:
        causes.append(duplicate(path, text))
    seen.add(text)


@lru_cache(maxsize=64)
def _schema_causes(versions: bytes) -> tuple[Cause, ...]:
    """The causes for which the schemas of these versions (JSON) are refused.

    Kept, because every server of a process checks the definitions that ship with the program: 30 ms.
    """
    spec = {"versions": orjson.loads(versions)}
    return tuple(check_schemas(spec) or check_rules(spec))


def _check_conversion(conversion: Object, causes: Causes) -> None:
    path, webhook = "spec.conversion", conversion.get("webhook")
    one_of(conversion.get("strategy"), ("None", "Webhook"), f"{path}.strategy", causes)
    if conversion.get("strategy") != "Webhook":
        if webhook is not None:
            causes.append(forbidden(f"{path}.webhook", "should not be set when strategy is not set to Webhook"))
        return
    if webhook is None:
        causes.append(required(f"{path}.webhook", "required when strategy is set to Webhook"))
        return
    client = webhook.get("clientConfig") or {}
    if bool(client.get("url")) == bool(client.get("service")):
        problem = "exactly one of url or service is required"
        causes.append(required(f"{path}.webhook.clientConfig", problem))
    elif client.get("url"):
        check_https_url(str(client["url"]), f"{path}.webhook.clientConfig.url", causes)
    versions = webhook.get("conversionReviewVersions") or []
    if not versions:
        causes.append(required(f"{path}.webhook.conversionReviewVersions"))
    elif not {"v1", "v1beta1"} & set(versions):
        problem = "must include at least one of v1, v1beta1"
        causes.append(invalid(f"{path}.webhook.conversionReviewVersions", versions, problem))
