"""Wrong types are refused with Go's messages at every place, and never reach later steps."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.schemas.schema_nodes import builtin
from seatrial.harness.apiserver.schemas.shapes import conform
from seatrial.harness.apiserver.tests.asking import PODS, Api, Object, pod
from seatrial.scheduler.api.transport import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH

FULL: Object = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "full",
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "finalizers": ["x.io/y"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u"}],
    },
    "spec": {
        "containers": [
            {
                "name": "m",
                "image": "i",
                "command": ["a"],
                "env": [{"name": "A", "value": "B"}],
                "ports": [{"containerPort": 80}],
                "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1", "nvidia.com/gpu": 1}},
                "livenessProbe": {"httpGet": {"port": "web", "path": "/"}},
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                "securityContext": {"capabilities": {"add": ["X"]}},
            }
        ],
        "initContainers": [{"name": "i", "image": "i"}],
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "nodeSelector": {"a": "b"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
                }
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "t", "labelSelector": {"matchLabels": {"a": "b"}}}
                ]
            },
        },
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "t", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        ],
        "schedulingGates": [{"name": "x.io/g"}],
        "overhead": {"cpu": "1m"},
        "terminationGracePeriodSeconds": 3,
    },
}
NODE: Object = {
    "metadata": {"name": "n", "labels": {"a": "b"}},
    "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "unschedulable": True},
    "status": {
        "capacity": {"cpu": "8"},
        "allocatable": {"cpu": "8"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "Hostname", "address": "n"}],
    },
}
CRD: Object = {
    "metadata": {"name": "things.x.io"},
    "spec": {
        "group": "x.io",
        "scope": "Namespaced",
        "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["size"],
                                "properties": {
                                    "size": {"type": "integer", "minimum": 1, "default": 2},
                                    "words": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}},
                                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                                    "port": {"x-kubernetes-int-or-string": True},
                                },
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
                },
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
            }
        ],
    },
}
THING: Object = {
    "apiVersion": "x.io/v1",
    "kind": "Thing",
    "metadata": {"name": "t"},
    "status": {"size": 1},
    "spec": {"size": 3, "words": ["a"], "free": {"x": [1]}, "port": 80},
}
BINDING: Object = {"metadata": {"name": "p", "annotations": {"a": "b"}}, "target": {"kind": "Node", "name": "n"}}
BUDGET: Object = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}
DEPLOYMENT: Object = {
    "metadata": {"name": "d"},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"a": "b"}},
        "strategy": {"rollingUpdate": {"maxSurge": "25%"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "m", "image": "i"}]}},
    },
}


def at(obj: Object, path: str, value: Any) -> Object:
    """A copy with one value replaced."""
    changed = copy.deepcopy(obj)
    place: Any = changed
    *way, last = path.split(".")
    for name in way:
        place = place[int(name)] if isinstance(place, list) else place[name]
    if isinstance(place, list):
        place[int(last)] = value
    else:
        place[last] = value
    return changed


def go(struct_field: str, text: str, go_type: str) -> str:
    return (
        'Pod in version "v1" cannot be handled as a Pod:'
        f" json: cannot unmarshal {text} into Go struct field {struct_field} of type {go_type}"
    )


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        pytest.param("spec.containers", "x", go("PodSpec.spec.containers", "string", "[]v1.Container"), id="no-list"),
        pytest.param("metadata", [], go("Pod.metadata", "array", "v1.ObjectMeta"), id="metadata-a-list"),
        pytest.param("spec", "x", go("Pod.spec", "string", "v1.PodSpec"), id="spec-a-string"),
        pytest.param("metadata.labels.a", 5, go("ObjectMeta.metadata.labels", "number", "string"), id="label-a-number"),
        pytest.param("metadata.labels", "x", go("ObjectMeta.metadata.labels", "string", "map[string]string"), id="t"),
        pytest.param(
            "spec.containers.0.ports.0.containerPort",
            "80",
            go("ContainerPort.spec.containers.ports.containerPort", "string", "int32"),
            id="port-a-string",
        ),
        pytest.param(
            "spec.terminationGracePeriodSeconds",
            1.5,
            go("PodSpec.spec.terminationGracePeriodSeconds", "number 1.5", "int64"),
            id="a-fraction-of-a-second",
        ),
        pytest.param(
            "spec.containers.0.ports.0.containerPort",
            2**31,
            go("ContainerPort.spec.containers.ports.containerPort", "number 2147483648", "int32"),
            id="too-large",
        ),
        pytest.param("spec.unknown", 1, "", id="an-unknown-field-is-no-error-yet"),
        pytest.param(
            "spec.overhead.cpu",
            True,
            'Pod in version "v1" cannot be handled as a Pod: quantities must match the regular expression'
            " '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            id="a-quantity-that-is-none",
        ),
    ],
)
def test_a_wrong_type_is_refused_with_the_message_of_go(path: str, value: object, message: str) -> None:
    if not message:
        conformed, unknown = conform("v1", "Pod", at(FULL, path, value))
        assert (conformed, unknown) == (FULL, [path])
        return
    with pytest.raises(ApiStatusError) as refused:
        conform("v1", "Pod", at(FULL, path, value))
    assert (refused.value.code, refused.value.message) == (400, message)


def test_a_conforming_object_is_returned_unchanged() -> None:
    assert conform("v1", "Pod", FULL)[0] is FULL


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        pytest.param({"spec": None}, {}, id="a-null-object-was-not-given"),
        pytest.param({"metadata": {"labels": {"a": None}}}, {"metadata": {"labels": {"a": ""}}}, id="a-null-in-a-map"),
        pytest.param({"spec": {"containers": [None]}}, {"spec": {"containers": [{}]}}, id="a-null-in-a-list"),
        pytest.param(
            {"metadata": {"creationTimestamp": None}}, {"metadata": {"creationTimestamp": None}}, id="a-time-not-set"
        ),
    ],
)
def test_null_means_unset(document: Object, expected: Object) -> None:
    assert conform("v1", "Pod", document)[0] == expected


TIME = "2026-02-30T00:00:00Z"


def in_times(definition: str, value: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """An object of this definition in which every time is `value`; empty if it has none."""
    values: dict[str, Any] = {}
    for name, field in (builtin().definitions[definition].get("properties") or {}).items():
        several = "items" in field
        below = (field["items"] if several else field).get("$ref", "").removeprefix("#/$defs/")
        if below.endswith((".meta.v1.Time", ".meta.v1.MicroTime")):
            values[name] = value
        elif below and below not in above and (inner := in_times(below, value, (*above, definition))):
            values[name] = [inner] if several else inner
    return values


TIMED = [
    (name, kind)
    for name, raw in builtin().definitions.items()
    for kind in raw.get("x-kubernetes-group-version-kind", ())
    if kind["kind"] not in {"DeleteOptions", "WatchEvent"} and in_times(name, TIME)
]


def test_no_kind_has_a_time_that_no_calendar_has() -> None:
    """Every field of a type for times, in every kind, is set to 30 February."""
    assert len(TIMED) > 100
    for name, kind in TIMED:
        with pytest.raises(ApiStatusError, match="parsing time"):
            conform(f"{kind['group']}/{kind['version']}".lstrip("/"), kind["kind"], in_times(name, TIME))


def test_a_time_is_stored_as_the_real_server_prints_it() -> None:
    stored, _ = conform("v1", "Node", {"metadata": {"creationTimestamp": "2026-01-01T1:00:00.5+01:00"}})
    assert stored == {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}


def places(obj: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything in an object."""
    paths = [path] if path else []
    if isinstance(obj, dict):
        for name, value in obj.items():
            paths += places(value, (*path, name))
    elif isinstance(obj, list):
        for number, value in enumerate(obj):
            paths += places(value, (*path, number))
    return paths


JSON_VALUES: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(["-1", "1Gi", "25%", "999%%", "2026-01-01T00:00:00Z", "In", "Exists"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4) | st.sampled_from(["name", "spec", "type", "key"]), inner, max_size=3)
    ),
    max_leaves=6,
)

TARGETS = [
    ("POST", PODS, FULL),
    ("POST", "/api/v1/nodes", NODE),
    ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD),
    ("POST", "/apis/x.io/v1/namespaces/default/things", THING),
    ("PUT", "/apis/x.io/v1/namespaces/default/things/there/status", {**THING, "metadata": {"name": "there"}}),
    ("PUT", "/apis/x.io/v1/namespaces/default/things/there/scale", {"spec": {"replicas": 2}}),
    ("POST", f"{PODS}/p/binding", BINDING),
    ("POST", "/api/v1/namespaces/default/bindings", BINDING),
    (
        "POST",
        f"{PODS}/p/eviction",
        {"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 1, "preconditions": {"uid": "x"}}},
    ),
    ("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 1, "propagationPolicy": "Orphan", "preconditions": {"uid": "x"}}),
    ("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", BUDGET),
    ("POST", "/apis/apps/v1/namespaces/default/deployments", DEPLOYMENT),
    (
        "PUT",
        f"{PODS}/p/status",
        {
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "m", "ready": True, "state": {"running": {}}, "restartCount": 0}],
            }
        },
    ),
    ("PUT", "/api/v1/nodes/there/status", {**NODE, "metadata": {"name": "there"}}),
    (
        "PUT",
        "/api/v1/namespaces/default/finalize",
        {"metadata": {"name": "default"}, "spec": {"finalizers": ["kubernetes"]}},
    ),
    (
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}},
    ),
]


def prepared() -> Api:
    api = Api()
    api.do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", CRD)
    api.do("POST", "/apis/x.io/v1/namespaces/default/things", at(THING, "metadata.name", "there"))
    api.do("POST", "/api/v1/nodes", at(NODE, "metadata.name", "there"))
    api.do("POST", PODS, pod("p"))
    return api


SHARED = prepared()
UNTOUCHED: list[Api] = []  # servers that are as `prepared` made them: one takes 60 ms to make
EXAMPLES = settings(max_examples=150)


def check(api: Api, code: int, answer: Any) -> None:
    """Every answer is an object or a Status; what is stored stays as it was stored, and can be shown."""
    assert code < 500, answer
    if code >= 400:
        assert answer["kind"] == "Status"
        assert answer["code"] == code
        assert answer["message"]


@EXAMPLES
@given(st.data())
def test_no_value_at_any_place_breaks_the_server(data: Any) -> None:
    method, path, body = data.draw(st.sampled_from(TARGETS))
    changed = copy.deepcopy(body)
    for _ in range(data.draw(st.integers(1, 2))):
        way = data.draw(st.sampled_from(places(changed)))
        place: Any = changed
        for step in way[:-1]:
            place = place[step]
        place[way[-1]] = data.draw(JSON_VALUES)
        if not places(changed):
            break
    dry = data.draw(st.booleans())
    api = UNTOUCHED.pop() if UNTOUCHED else prepared()
    version = api.version
    code, answer = api.ask(method, f"{path}?dryRun=All" if dry else path, changed)
    check(api, code, answer)
    assert api.version == version or not (dry or code >= 400), "a refused request or a dry run changed something"
    if code == 201 and method == "POST" and answer["kind"] in {"Pod", "Node", "Deployment", "PodDisruptionBudget"}:
        name = answer["metadata"].get("name")
        table = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        assert api.ask("GET", path, headers=table)[0] == 200
        api.ask("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})
    if api.version == version:
        UNTOUCHED.append(api)


PATCHED = [
    (f"{PODS}/p", "v1", "Pod"),
    ("/api/v1/nodes/there", "v1", "Node"),
    (f"{PODS}/p/status", "v1", "Pod"),
    ("/apis/x.io/v1/namespaces/default/things/there", "x.io/v1", "Thing"),
    ("/apis/x.io/v1/namespaces/default/things/there/status", "x.io/v1", "Thing"),
    ("/apis/x.io/v1/namespaces/default/things/there/scale", "autoscaling/v1", "Scale"),
]


@EXAMPLES
@given(st.data())
def test_no_patch_breaks_the_server(data: Any) -> None:
    path, version, kind = data.draw(st.sampled_from(PATCHED))
    current = SHARED.do("GET", path)
    media = data.draw(st.sampled_from([JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH]))
    way = data.draw(st.sampled_from(places(current)))
    value = data.draw(JSON_VALUES)
    patch: Any
    if media == JSON_PATCH:
        pointer = "/" + "/".join(str(step).replace("~", "~0").replace("/", "~1") for step in way)
        operation = {
            "op": data.draw(st.sampled_from(["add", "replace", "remove", "test", "copy", "move"])),
            "path": pointer,
            "value": value,
            "from": data.draw(st.sampled_from(["/metadata", "/spec", "/x", 5])),
        }
        patch = [data.draw(st.sampled_from([operation, {**operation, "op": value}, {**operation, "path": value}]))]
    else:
        patch = value
        for step in reversed(way):
            patch = {step: patch} if isinstance(step, str) else [patch]
        if media == APPLY_PATCH and isinstance(patch, dict):
            patch = {"apiVersion": version, "kind": kind, **patch}
    code, answer = SHARED.ask("PATCH", f"{path}?fieldManager=me&dryRun=All", patch, media)
    check(SHARED, code, answer)


@EXAMPLES
@given(
    st.binary(max_size=40) | st.text(max_size=40).map(str.encode),
    st.sampled_from(["application/json", "application/yaml"]),
)
def test_no_body_breaks_the_server(body: bytes, media: str) -> None:
    code, answer = SHARED.ask("POST", PODS, body, media)
    check(SHARED, code, answer)


@pytest.mark.parametrize(
    ("kind", "body", "want"),
    [
        pytest.param("ConfigMap", {"binaryData": {"a": None}}, {"binaryData": {"a": ""}}, id="bytes-in-a-map"),
        pytest.param("ConfigMap", {"data": {"a": None}}, {"data": {"a": ""}}, id="text-in-a-map"),
    ],
)
def test_null_in_a_map_becomes_the_zero_value_of_its_type(kind: str, body: Object, want: Object) -> None:
    result, unknown = conform("v1", kind, body)
    assert result == want
    assert unknown == []
