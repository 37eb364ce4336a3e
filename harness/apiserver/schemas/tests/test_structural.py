"""Schemas that kube-apiserver refuses; the messages were taken from version 1.34."""

from typing import Any

import pytest

from seatrial.harness.apiserver.tests.asking import Api

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FIELD = "spec.validation.openAPIV3Schema.properties[spec]"


def definition(field: dict[str, Any], *, group: str = "x.io", plural: str = "samples") -> dict[str, Any]:
    """A CRD whose objects have the field `spec` with this schema."""
    kind = plural.title()
    schema = {"type": "object", "properties": {"spec": field}}
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural, "kind": kind, "listKind": f"{kind}List"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@pytest.mark.parametrize(
    ("field", "cause"),
    [
        pytest.param(
            {"type": "array", "items": -1, "x-kubernetes-validations": [{"rule": "true"}]},
            f"{FIELD}.items: Required value: must be specified",
            id="items-that-are-no-schema",
        ),
        pytest.param(
            {"type": "array", "items": [{"type": "string"}]},
            f"{FIELD}.items: Forbidden: items must be a schema object and not an array",
            id="items-of-several-schemas",
        ),
        pytest.param(
            {"type": "string", "pattern": "["},
            f'{FIELD}.pattern: Invalid value: "[": must be a valid regular expression, but isn\'t: error parsing',
            id="malformed-pattern",
        ),
        pytest.param(
            {"type": "string", "pattern": "(?=a)"},
            f'{FIELD}.pattern: Invalid value: "(?=a)": must be a valid regular expression, but isn\'t: error parsing',
            id="pattern-with-lookahead",
        ),
        pytest.param(
            {"type": "strin"},
            f'{FIELD}.type: Unsupported value: "strin": supported values: "array", "boolean", "integer", "number",'
            ' "object", "string"',
            id="unknown-type",
        ),
        pytest.param({}, f"{FIELD}.type: Required value: must not be empty for specified object fields", id="no-type"),
        pytest.param({"$ref": "#/x"}, f"{FIELD}.$ref: Forbidden: $ref is not supported", id="reference"),
        pytest.param(
            {"type": "array", "uniqueItems": True, "items": {"type": "string"}},
            f"{FIELD}.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes",
            id="unique-items",
        ),
        pytest.param({"type": "array"}, f"{FIELD}.items: Required value: must be specified", id="no-items"),
        pytest.param(
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
            f"{FIELD}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
            id="properties-and-additional-properties",
        ),
    ],
)
def test_a_schema_that_is_not_structural_is_invalid(field: dict[str, Any], cause: str) -> None:
    code, status = Api(bare=True).ask("POST", DEFINITIONS, definition(field))
    assert (code, status["reason"]) == (422, "Invalid")
    assert cause in status["message"]


def test_a_definition_in_a_group_of_the_community_needs_approval() -> None:
    api = Api(bare=True)
    body = definition({"type": "string"}, group="x.k8s.io")
    code, status = api.ask("POST", DEFINITIONS, body)
    assert (code, status["details"]["causes"][0]["field"]) == (422, "metadata.annotations[api-approved.kubernetes.io]")
    body["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, a test"}
    assert api.ask("POST", DEFINITIONS, body)[0] == 201


@pytest.mark.parametrize("versions", [[], None], ids=["empty", "none"])
def test_a_definition_without_versions_is_invalid(versions: list[Any] | None) -> None:
    body = definition({"type": "string"})
    body["spec"]["versions"] = versions
    code, status = Api(bare=True).ask("POST", DEFINITIONS, body)
    assert (code, status["reason"]) == (422, "Invalid")
    assert "must have exactly one version marked as storage version" in status["message"]
