"""What the packaged OpenAPI documents say, and what objects lose by them."""

import copy
from typing import Any

import pytest

from harness.apiserver.schemas import SchemaNode, builtin, prune, schema_for, schema_of_crd, unknown_fields

POD = ("", "v1", "Pod")
CRD = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "cards": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["slot", "bus"],
                    "items": {
                        "type": "object",
                        "properties": {"slot": {"type": "integer"}, "bus": {"type": "string", "default": "pci"}},
                    },
                },
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


def pod_field(*path: str) -> SchemaNode:
    node = builtin().field(POD, *path)
    assert node is not None
    return node


@pytest.mark.parametrize(
    ("path", "strategy", "merge_key", "list_type", "keys"),
    [
        pytest.param(("spec", "containers"), {"merge"}, "name", "map", ("name",), id="containers-by-name"),
        pytest.param(
            ("spec", "containers", "ports"),
            {"merge"},
            "containerPort",
            "map",
            ("containerPort", "protocol"),
            id="ports-merge-by-one-key-and-are-owned-by-two",
        ),
        pytest.param(("spec", "volumes"), {"merge", "retainKeys"}, "name", "map", ("name",), id="volumes-retain-keys"),
        pytest.param(("spec", "tolerations"), set(), "", "atomic", (), id="tolerations-are-atomic"),
        pytest.param(("status", "conditions"), {"merge"}, "type", "map", ("type",), id="conditions-by-type"),
        pytest.param(("metadata", "finalizers"), {"merge"}, "", "set", (), id="finalizers-are-a-set"),
        pytest.param(("status", "containerStatuses"), set(), "", "atomic", (), id="container-statuses-are-atomic"),
    ],
)
def test_how_a_pods_lists_merge(
    path: tuple[str, ...], strategy: set[str], merge_key: str, list_type: str, keys: tuple[str, ...]
) -> None:
    node = pod_field(*path)
    assert node.type == "array"
    assert node.patch_strategy == strategy
    assert (node.merge_key, node.list_type, node.list_map_keys) == (merge_key, list_type, keys)


def test_a_patch_strategy_beside_a_reference_is_seen() -> None:
    node = builtin().field(("apps", "v1", "Deployment"), "spec", "strategy")
    assert node is not None
    assert node.patch_strategy == {"retainKeys"}
    assert node.child("rollingUpdate") is not None


def test_a_missing_protocol_is_tcp() -> None:
    assert pod_field("spec", "containers", "ports").key_default("protocol") == "TCP"
    assert pod_field("spec", "containers", "ports").key_default("containerPort") is None


def test_maps() -> None:
    assert pod_field("spec", "nodeSelector").map_type == "atomic"
    assert pod_field("metadata", "labels").map_type == "granular"
    assert pod_field("spec", "nodeSelector", "anything").type == "string"
    assert pod_field("spec", "containers", "resources", "limits", "nvidia.com/gpu").int_or_string


@pytest.mark.parametrize(
    ("gvk", "known"),
    [
        pytest.param(POD, True, id="core"),
        pytest.param(("resource.k8s.io", "v1", "ResourceClaim"), True, id="group"),
        pytest.param(("apps", "v1beta1", "Deployment"), False, id="version-that-is-gone"),
        pytest.param(("example.com", "v1", "Board"), False, id="stranger"),
    ],
)
def test_kinds(gvk: tuple[str, str, str], known: bool) -> None:
    assert (schema_for(*gvk) is not None) is known


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"x": "y"}}, "spec": spec}


@pytest.mark.parametrize(
    ("obj", "paths"),
    [
        pytest.param(pod(containers=[{"name": "a", "image": "b"}]), [], id="nothing-unknown"),
        pytest.param(
            pod(containers=[{"name": "a", "foo": 1}, {"name": "b", "env": [{"name": "c", "bar": 2}]}], baz={"x": 1}),
            ["spec.containers[0].foo", "spec.containers[1].env[0].bar", "spec.baz"],
            id="fields-in-lists",
        ),
        pytest.param(pod(containers=[{"name": "a", "resources": {"limits": {"any/thing": 1}}}]), [], id="map-keys"),
        pytest.param(pod(containers=None), [], id="null"),
        pytest.param({**pod(), "extra": []}, ["extra"], id="at-the-top"),
    ],
)
def test_unknown_fields_of_a_pod(obj: dict[str, Any], paths: list[str]) -> None:
    before = copy.deepcopy(obj)
    schema = pod_field()
    assert unknown_fields(schema, obj) == paths
    pruned = prune(schema, obj)
    assert unknown_fields(schema, pruned) == []
    assert (pruned is obj) is (not paths)
    assert obj == before


def test_objects_inside_builtin_types_that_carry_anything_are_kept() -> None:
    revision = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "data": {"spec": {"any": [{"thing": 1}]}}}
    schema = schema_for("apps", "v1", "ControllerRevision")
    assert schema is not None
    assert prune(schema, revision) == revision
    crd = schema_for("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
    assert crd is not None
    body = {"spec": {"versions": [{"schema": {"openAPIV3Schema": {"properties": {"a": {"default": {"b": 1}}}}}}]}}
    assert unknown_fields(crd, body) == []


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"free": {"x": {"y": 1}}}, {"free": {"x": {"y": 1}}}, id="preserved"),
        pytest.param({"free": {"known": {"a": "", "b": 1}}}, {"free": {"known": {"a": ""}}}, id="known-one-below"),
        pytest.param({"closed": {"x": 1}}, {"closed": {}}, id="an-object-without-fields-keeps-none"),
        pytest.param({"port": "http"}, {"port": "http"}, id="int-or-string"),
        pytest.param({"labels": {"a": "b"}}, {"labels": {"a": "b"}}, id="map"),
        pytest.param({"cards": [{"slot": 1, "x": 1}]}, {"cards": [{"slot": 1}]}, id="list-item"),
        pytest.param({"grid": [[{"x": 1}]]}, {"grid": [[{}]]}, id="list-of-lists"),
        pytest.param(
            {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "x": 1}, "spec": {}, "y": 1}},
            {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}},
            id="embedded-resource",
        ),
    ],
)
def test_pruning_a_custom_resource(spec: dict[str, Any], want: dict[str, Any]) -> None:
    schema = schema_of_crd(CRD)
    obj = {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a", "nope": 1}, "spec": spec}
    assert prune(schema, obj) == {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a"}, "spec": want}


def test_a_crds_list_keys_and_their_defaults() -> None:
    spec = schema_of_crd(CRD).child("spec")
    cards = spec.child("cards") if spec is not None else None
    assert cards is not None
    assert cards.list_map_keys == ("slot", "bus")
    assert cards.key_default("bus") == "pci"
    assert cards.key_default("slot") is None
