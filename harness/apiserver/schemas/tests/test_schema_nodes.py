"""Merge and ownership rules of lists and maps in the packaged OpenAPI documents."""

import pytest

from seatrial.harness.apiserver.schemas.schema_nodes import SchemaNode, builtin, schema_for, schema_of_crd

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
                }
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
        pytest.param(("example.com", "v1", "Plank"), False, id="stranger"),
    ],
)
def test_kinds(gvk: tuple[str, str, str], known: bool) -> None:
    assert (schema_for(*gvk) is not None) is known


def test_a_crds_list_keys_and_their_defaults() -> None:
    spec = schema_of_crd(CRD).child("spec")
    cards = spec.child("cards") if spec is not None else None
    assert cards is not None
    assert cards.list_map_keys == ("slot", "bus")
    assert cards.key_default("bus") == "pci"
    assert cards.key_default("slot") is None
