"""Pruning of custom resources, and the checks of their values."""

from collections.abc import Iterator
from typing import Any

import pytest

from seatrial.harness.apiserver.schemas.custom_schemas import CustomSchema
from seatrial.harness.apiserver.schemas.shipped import shipped

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "cards": {"type": "array", "items": {"type": "object", "properties": {"slot": {"type": "integer"}}}},
                "port": {"x-kubernetes-int-or-string": True},
                "free": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}},
                },
                "closed": {"type": "object"},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "grid": {"type": "array", "items": {"type": "array", "items": {"type": "object"}}},
                "template": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}},
                },
            },
        }
    },
}


@pytest.mark.parametrize(
    ("spec", "want", "paths"),
    [
        pytest.param({"free": {"x": {"y": 1}}}, {"free": {"x": {"y": 1}}}, [], id="preserved"),
        pytest.param(
            {"free": {"known": {"a": "", "b": 1}}},
            {"free": {"known": {"a": ""}}},
            ["spec.free.known.b"],
            id="known-one-below",
        ),
        pytest.param({"closed": {"x": 1}}, {"closed": {}}, ["spec.closed.x"], id="an-object-without-fields-keeps-none"),
        pytest.param({"port": "http"}, {"port": "http"}, [], id="int-or-string"),
        pytest.param({"labels": {"a": "b"}}, {"labels": {"a": "b"}}, [], id="map"),
        pytest.param({"cards": [{"slot": 1, "x": 1}]}, {"cards": [{"slot": 1}]}, ["spec.cards[0].x"], id="list-item"),
        pytest.param({"grid": [[{"x": 1}]]}, {"grid": [[{}]]}, ["spec.grid[0][0].x"], id="list-of-lists"),
        pytest.param(
            {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"b": 1}, "y": 1}},
            {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}},
            ["spec.template.spec.b", "spec.template.y"],
            id="embedded-resource",
        ),
    ],
)
def test_unknown_fields_are_pruned(spec: dict[str, Any], want: dict[str, Any], paths: list[str]) -> None:
    body = {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a"}, "spec": spec}
    assert CustomSchema({"schema": {"openAPIV3Schema": SCHEMA}}).complete(body) == paths
    assert body == {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a"}, "spec": want}


@pytest.mark.parametrize(
    ("schema", "value", "why"),
    [
        pytest.param({"type": "integer", "format": "int32"}, 3_000_000_000, "", id="format-is-not-checked"),
        pytest.param(
            {"type": "integer", "maximum": 2147483647},
            3_000_000_000,
            "Invalid value: 3000000000: spec.x in body should be less than or equal to 2147483647",
            id="maximum",
        ),
        pytest.param({"type": "integer"}, 2**63 - 1, "", id="largest-integer"),
        pytest.param(
            {"type": "integer"},
            2**63,
            'Invalid value: "number": spec.x in body must be of type integer: "number"',
            id="above-the-largest-integer",
        ),
        pytest.param({"type": "integer"}, 1e10, "", id="float-without-fraction"),
        pytest.param(
            {"type": "integer"},
            1e18,
            'Invalid value: "number": spec.x in body must be of type integer: "number"',
            id="float-that-is-not-exact",
        ),
        pytest.param(
            {"type": "integer", "minimum": 3, "exclusiveMinimum": True},
            3,
            "Invalid value: 3: spec.x in body should be greater than 3",
            id="exclusive-minimum",
        ),
        pytest.param(
            {"type": "integer", "maximum": 3, "exclusiveMaximum": True},
            3,
            "Invalid value: 3: spec.x in body should be less than 3",
            id="exclusive-maximum",
        ),
        pytest.param(
            {"type": "integer", "multipleOf": 4},
            6,
            "Invalid value: 6: spec.x in body should be a multiple of 4",
            id="multiple",
        ),
        pytest.param({"type": "number", "multipleOf": 0.5}, 1.5, "", id="multiple-of-a-fraction"),
        pytest.param(
            {"type": "object", "minProperties": 2, "additionalProperties": {"type": "integer"}},
            {"a": 1},
            "Invalid value: 1: spec.x in body should have at least 2 properties",
            id="too-few-fields",
        ),
        pytest.param(
            {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "integer"}},
            {"a": 1, "b": 2},
            "Too many: 2: must have at most 1 item",
            id="too-many-fields",
        ),
        pytest.param(
            {"type": "integer", "enum": [1]}, 2, 'Unsupported value: 2: supported values: "1"', id="enum-of-numbers"
        ),
    ],
)
def test_values_are_checked_with_the_words_of_kube_apiserver(schema: dict[str, Any], value: object, why: str) -> None:
    """What kube-apiserver v1.34 answers to the same schema and value."""
    version = {
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": {"x": schema}}},
            }
        }
    }
    assert [cause.message for cause in CustomSchema(version).problems({"spec": {"x": value}})] == ([why] if why else [])


def test_the_shipped_definitions_refuse_numbers_that_go_clients_cannot_decode() -> None:
    """All fields of the format int32, as the largest and the least number and one beyond."""
    refused = 0
    for crd in shipped():
        for version in crd["spec"]["versions"]:
            for field in _int32_fields(version["schema"]["openAPIV3Schema"]):
                assert field["maximum"] <= 2**31 - 1
                assert field["minimum"] >= -(2**31)
                refused += 1
    assert refused > 15
    (groups,) = (crd for crd in shipped() if crd["metadata"]["name"].startswith("podgroups."))
    schema = CustomSchema(groups["spec"]["versions"][0])
    assert schema.problems({"spec": {"minMember": 2**31 - 1}}) == []
    (cause,) = schema.problems({"spec": {"minMember": 3_000_000_000}})
    assert (cause.field, cause.message) == (
        "spec.minMember",
        "Invalid value: 3000000000: spec.minMember in body should be less than or equal to 2147483647",
    )


def _int32_fields(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("format") == "int32":
            yield schema
        for below in schema.values():
            yield from _int32_fields(below)
    elif isinstance(schema, list):
        for below in schema:
            yield from _int32_fields(below)
