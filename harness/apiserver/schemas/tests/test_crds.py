"""The shipped CRDs: valid structural schemas that accept upstream's examples and our own objects."""

import copy
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate
import pytest
import yaml

from seatrial.harness.nodes.fleet import node_manifest
from seatrial.harness.nodes.node_agents import NodeAgents
from seatrial.harness.nodes.runtimes.simulated import SimulatedRuntime
from seatrial.harness.nodes.tests.little_api import LittleApi
from seatrial.scheduler.api.builders import NodeBuilder, node
from seatrial.scheduler.api.clock import SimClock

Object = dict[str, Any]

CRDS = Path(__file__).resolve().parents[1] / "crds"
MANIFESTS = Path(__file__).resolve().parents[4] / "suites" / "manifests"
FILES = sorted(CRDS.glob("*.yaml"))

JUNCTORS = ("allOf", "anyOf", "oneOf", "not")
FORBIDDEN = frozenset(
    {
        "$ref",
        "definitions",
        "dependencies",
        "deprecated",
        "discriminator",
        "id",
        "patternProperties",
        "readOnly",
        "writeOnly",
        "xml",
    }
)
INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]


@cache
def loaded() -> Mapping[str, Object]:
    """All definitions by the name of their file."""
    return {path.name: yaml.safe_load(path.read_text()) for path in FILES}


def schemas(crd: Object) -> Iterator[Object]:
    for version in crd["spec"]["versions"]:
        yield version["schema"]["openAPIV3Schema"]


def violations(schema: Object, path: str = "") -> list[str]:
    """Where a schema is not structural, by the rules of apiextensions.k8s.io/v1."""
    messages = [f"{path}: {word} is forbidden" for word in FORBIDDEN & schema.keys()]
    untyped = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if "type" not in schema and not untyped:
        messages.append(f"{path}: no type")
    if schema.get("x-kubernetes-int-or-string"):
        if "type" in schema or schema.get("anyOf") != INT_OR_STRING:
            messages.append(f"{path}: int-or-string wants no type, and anyOf integer, string")
    elif any(word in schema for word in JUNCTORS):
        messages.append(f"{path}: junctors are only for int-or-string here")
    if schema.get("uniqueItems"):
        messages.append(f"{path}: uniqueItems is forbidden")
    if "properties" in schema and "additionalProperties" in schema:
        messages.append(f"{path}: properties and additionalProperties exclude each other")
    if schema.get("type") == "array" and "items" not in schema:
        messages.append(f"{path}: an array without items")
    properties: Object = schema.get("properties", {})
    messages += [
        f"{path}: requires {name}, which it lacks" for name in schema.get("required", ()) if name not in properties
    ]
    if "default" in schema and not jsonschema.Draft7Validator(translated(schema)).is_valid(schema["default"]):
        messages.append(f"{path}: the default does not pass")
    for name, below in properties.items():
        messages += violations(below, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if word in schema:
            below = schema[word]
            messages += (
                violations(below, f"{path}.{word}") if isinstance(below, dict) else [f"{path}: {word} is no schema"]
            )
    return messages


def translated(schema: Object) -> Object:
    """The schema as JSON schema, with fields that the server would prune refused."""
    out = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes-") and key != "nullable"}
    if "properties" in schema:
        out["properties"] = {name: translated(below) for name, below in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            out["additionalProperties"] = False
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            out[word] = translated(schema[word])
    if schema.get("nullable"):
        out["type"] = [schema["type"], "null"]
    return out


@cache
def validators() -> Mapping[tuple[str, str], jsonschema.Draft7Validator]:
    """A validator for each (apiVersion, kind) of the definitions."""
    return {
        (f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]): jsonschema.Draft7Validator(
            translated(version["schema"]["openAPIV3Schema"])
        )
        for crd in loaded().values()
        for version in crd["spec"]["versions"]
    }


def refusals(body: Object) -> list[str]:
    validator = validators()[body["apiVersion"], body["kind"]]
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(body)]


def instances() -> Iterator[tuple[str, Object]]:
    """Every custom object of the release posts' manifests."""
    for path in sorted(MANIFESTS.glob("v*/*.yaml")):
        for body in yaml.safe_load_all(path.read_text()):
            if (body["apiVersion"], body["kind"]) in validators():
                yield f"{path.parent.name}-{path.stem}-{body['kind']}-{body['metadata']['name']}", body


def leaf(schema: Object, json_path: str) -> Object | None:
    """The schema at a simple path such as .status.phase, or None; metadata is the server's own."""
    for name in json_path.strip(".").split("."):
        if name == "metadata":
            return {"type": "object"}
        if name not in schema.get("properties", {}):
            return None
        schema = schema["properties"][name]
    return schema


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in FILES])
def test_a_file_is_one_definition_that_kubernetes_knows(path: Path) -> None:
    crd = loaded()[path.name]
    kubernetes_validate.validate(crd, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in FILES])
def test_names_agree(path: Path) -> None:
    crd = loaded()[path.name]
    spec, names = crd["spec"], crd["spec"]["names"]
    assert crd["metadata"]["name"] == path.stem == f"{names['plural']}.{spec['group']}"
    assert names["singular"] == names["kind"].lower()
    assert names["listKind"] == f"{names['kind']}List"
    assert names["plural"] == names["plural"].lower()
    assert sum(version["storage"] for version in spec["versions"]) == 1
    if spec["group"].endswith(("k8s.io", "kubernetes.io")):  # protected: a real API server asks for the approval
        assert re.match(r"https://", crd["metadata"]["annotations"]["api-approved.kubernetes.io"])


def test_short_names_are_unique() -> None:
    names = [
        name
        for crd in loaded().values()
        for name in (crd["spec"]["names"]["plural"], *crd["spec"]["names"].get("shortNames", ()))
    ]
    assert len(names) == len(set(names))
    assert {"pg", "eq", "eqp", "pmj", "sched-exp"} <= set(names)


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in FILES])
def test_the_schema_is_structural(path: Path) -> None:
    for schema in schemas(loaded()[path.name]):
        assert violations(schema) == []
        assert schema["properties"]["metadata"] == {"type": "object"}  # anything more is refused at the root


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        pytest.param({"type": None}, ".spec: no type", id="type-left-out"),
        pytest.param({"uniqueItems": True}, ".spec: uniqueItems is forbidden", id="unique-items"),
        pytest.param({"$ref": "#/x"}, ".spec: $ref is forbidden", id="reference"),
        pytest.param({"oneOf": [{"type": "object"}]}, ".spec: junctors are only", id="junctor"),
        pytest.param({"default": 3}, ".spec: the default does not pass", id="default-of-another-type"),
        pytest.param({"required": ["x"]}, ".spec: requires x", id="required-but-not-there"),
        pytest.param({"additionalProperties": {"type": "string"}}, "exclude each other", id="both-kinds-of-properties"),
        pytest.param({"properties": {"a": {"type": "array"}}}, ".spec.a: an array without items", id="bare-array"),
    ],
)
def test_a_schema_that_is_not_structural_is_refused(change: Object, complaint: str) -> None:
    spec: Object = {"type": "object", "properties": {"a": {"type": "string"}}, **change}
    schema = {
        "type": "object",
        "properties": {"spec": {key: value for key, value in spec.items() if value is not None}},
    }
    assert any(complaint in violation for violation in violations(schema))


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in FILES])
def test_columns_and_status_point_at_fields_that_exist(path: Path) -> None:
    for version in loaded()[path.name]["spec"]["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        for column in version.get("additionalPrinterColumns", ()):
            assert leaf(schema, column["jsonPath"]) is not None, column["name"]
        if "status" in version.get("subresources", {}):
            assert leaf(schema, ".status") is not None


@pytest.mark.parametrize("body", [pytest.param(body, id=name) for name, body in instances()])
def test_objects_of_the_release_posts_pass(body: Object) -> None:
    assert refusals(body) == []


@pytest.mark.parametrize(
    "machine",
    [
        pytest.param(node("n1").server("dgx-h100"), id="nvidia-and-rdma"),
        pytest.param(node("n1").server("atlas-800t-a2"), id="ascend-with-partitions"),
        pytest.param(node("n1").server("mlu370-x8-8"), id="cambricon"),
    ],
)
def test_devices_written_by_node_agents_pass(machine: NodeBuilder) -> None:
    clock = SimClock()
    api = LittleApi(clock)
    agents = NodeAgents(api, clock, runtime=SimulatedRuntime(clock))
    agents.start()
    clock.settle()
    api.put("/api/v1/nodes", node_manifest(machine.manifest))
    clock.settle()
    device = api.get("/apis/scheduling.koordinator.sh/v1alpha1/devices/n1")
    assert device["spec"]["devices"]
    assert refusals({**device, "apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device"}) == []
    agents.stop()


def of(kind: str, group_version: str, **content: Any) -> Object:
    return {"apiVersion": group_version, "kind": kind, "metadata": {"name": "x"}, **content}


SKD = "scheduling.koordinator.sh/v1alpha1"
SIGS = "scheduling.sigs.k8s.io/v1alpha1"
SLO = "slo.koordinator.sh/v1alpha1"
RESERVATION = of("Reservation", SKD, spec={"template": {}, "owners": [{"object": {"name": "a"}}]})
CPU = {"name": "cpu", "capacity": "4", "allocatable": 4, "available": "4"}
ZONES = of("NodeResourceTopology", "topology.node.k8s.io/v1alpha1", topologyPolicies=["None"])


@pytest.mark.parametrize(
    ("body", "field", "value"),
    [
        pytest.param(RESERVATION, "owners", [], id="reservation-without-owners"),
        pytest.param(RESERVATION, "owners", [{}], id="reservation-for-an-owner-without-properties"),
        pytest.param(RESERVATION, "allocatePolicy", "Loose", id="unknown-allocate-policy"),
        pytest.param(RESERVATION, "taints", [{"key": "a", "effect": "Never"}], id="unknown-taint-effect"),
        pytest.param(of("PodMigrationJob", SKD, spec={"podRef": {}}), "mode", "Later", id="unknown-migration-mode"),
        pytest.param(of("PodGroup", SIGS, spec={}), "minMember", -1, id="gang-of-minus-one"),
        pytest.param(of("ElasticQuota", SIGS, spec={}), "max", {"cpu": "ten"}, id="quantity-in-words"),
        pytest.param(of("Device", SKD, spec={}), "devices", [{"health": True, "minor": -1}], id="minor-below-zero"),
        pytest.param(of("Device", SKD, spec={}), "cards", [], id="field-that-does-not-exist"),
        pytest.param(
            of("ClusterNetworkTopology", SKD, spec={}), "networkTopologySpec", [{}], id="layer-without-a-name"
        ),
        pytest.param(
            of("ClusterColocationProfile", "config.koordinator.sh/v1alpha1", spec={}),
            "qosClass",
            "BEST",
            id="no-such-qos",
        ),
        pytest.param(
            of("ElasticQuotaProfile", "quota.koordinator.sh/v1alpha1", spec={"nodeSelector": {}}),
            "quotaLabels",
            {},
            id="profile-without-its-quota",
        ),
        pytest.param(
            of("NodeMetric", SLO, spec={}),
            "metricCollectPolicy",
            {"nodeMemoryCollectPolicy": "all"},
            id="no-such-collection",
        ),
        pytest.param(
            of("NodeSLO", SLO, spec={}),
            "resourceUsedThresholdWithBE",
            {"memoryEvictThresholdPercent": 101},
            id="more-than-a-hundred-percent",
        ),
    ],
)
def test_a_wrong_field_is_refused(body: Object, field: str, value: Any) -> None:
    wrong = copy.deepcopy(body)
    wrong["spec"][field] = value
    assert refusals(wrong)


def test_zones_stand_at_the_top_of_a_node_resource_topology() -> None:
    zone = {"name": "node-0", "type": "Node", "resources": [CPU]}
    assert refusals({**ZONES, "zones": [zone]}) == []
    assert refusals({**ZONES, "zones": [{**zone, "resources": [{"name": "cpu"}]}]})
    assert refusals({**ZONES, "spec": {"zones": [zone]}})
