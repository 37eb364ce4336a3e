"""Pruning of custom resources."""

from typing import Any

import pytest

from seatrial.harness.apiserver.schemas.custom_schemas import CustomSchema

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
