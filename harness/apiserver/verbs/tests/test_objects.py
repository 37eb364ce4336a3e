"""Create, update and patch (API-A7 to API-A9), with upstream's messages."""

import re

import orjson
import pytest

from seatrial.harness.apiserver.schemas.tests.test_shapes import CRD, THING, at
from seatrial.harness.apiserver.tests.asking import CONFIGS, PODS, Api, Object, config, pod
from seatrial.scheduler.api.transport import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    Request,
    Response,
)

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/x.io/v1/namespaces/default/things"
MODIFIED = (
    'Operation cannot be fulfilled on configmaps "c": the object has been modified;'
    " please apply your changes to the latest version and try again"
)


@pytest.fixture
def api() -> Api:
    return Api()


# -- create ------------------------------------------------------------------------------------------------------------


def test_create_sets_what_the_server_owns(api: Api) -> None:
    before = api.version
    body = at(pod("a"), "metadata.uid", "mine")
    metadata = api.do("POST", PODS, body)["metadata"]
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", metadata["uid"])
    assert int(metadata["resourceVersion"]) == before + 1
    assert metadata["creationTimestamp"] == api.clock.timestamp()
    assert (metadata["generation"], metadata["namespace"]) == (1, "default")


def test_one_counter_serves_all_kinds(api: Api) -> None:
    first = int(api.do("POST", CONFIGS, config("a"))["metadata"]["resourceVersion"])
    second = int(api.do("POST", PODS, pod("a"))["metadata"]["resourceVersion"])
    assert second == first + 1


def test_generated_names_have_five_characters_and_differ(api: Api) -> None:
    body = {"metadata": {"generateName": "job-"}}
    names = {api.do("POST", CONFIGS, body)["metadata"]["name"] for _ in range(50)}
    assert len(names) == 50
    assert all(re.fullmatch(r"job-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


def test_a_generated_name_is_cut_to_what_a_label_may_have(api: Api) -> None:
    name = api.do("POST", CONFIGS, {"metadata": {"generateName": "x" * 80}})["metadata"]["name"]
    assert len(name) == 63


@pytest.mark.parametrize(
    ("path", "body", "code", "reason", "message"),
    [
        pytest.param(PODS, pod("taken"), 409, "AlreadyExists", 'pods "taken" already exists', id="taken"),
        pytest.param(
            "/api/v1/namespaces/nowhere/pods",
            pod("a"),
            404,
            "NotFound",
            'namespaces "nowhere" not found',
            id="no-such-namespace",
        ),
        pytest.param(
            PODS,
            at(pod("a"), "metadata.namespace", "other"),
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
            id="elsewhere",
        ),
        pytest.param(PODS, {"metadata": {"name": "a"}}, 422, "Invalid", 'Pod "a" is invalid: spec', id="no-spec"),
        pytest.param(PODS, pod("Not_A_Name"), 422, "Invalid", "a lowercase RFC 1123 subdomain", id="bad-name"),
        pytest.param(
            PODS, pod("a", labels={"-x": "y"}), 422, "Invalid", "metadata.labels: Invalid value", id="bad-label-key"
        ),
        pytest.param(PODS, {"spec": {}}, 422, "Invalid", "name or generateName is required", id="no-name"),
    ],
)
def test_invalid_creates_are_refused(  # noqa: PLR0917
    api: Api, path: str, body: Object, code: int, reason: str, message: str
) -> None:
    api.do("POST", PODS, pod("taken"))
    before = api.version
    value, status = api.ask("POST", path, body)
    assert (value, status["reason"], status["kind"]) == (code, reason, "Status")
    assert message in status["message"]
    assert api.version == before


def test_a_dry_run_changes_nothing(api: Api) -> None:
    api.do("POST", CONFIGS, config("c", a="1"))
    before = api.version
    assert api.do("POST", f"{PODS}?dryRun=All", pod("p"))["metadata"]["uid"]
    assert api.do("PATCH", f"{CONFIGS}/c?dryRun=All", {"data": {"a": "2"}}, MERGE_PATCH)["data"] == {"a": "2"}
    api.do("PUT", f"{CONFIGS}/c?dryRun=All", config("c", a="3"))
    api.do("DELETE", f"{CONFIGS}/c?dryRun=All")
    assert api.version == before
    assert api.do("GET", f"{CONFIGS}/c")["data"] == {"a": "1"}
    assert api.ask("GET", f"{PODS}/p")[0] == 404


@pytest.mark.parametrize(
    ("strictness", "code", "kept"),
    [
        pytest.param("Strict", 400, False, id="strict-refuses"),
        pytest.param("Warn", 201, True, id="warn-warns"),
        pytest.param("Ignore", 201, False, id="ignore-is-silent"),
        pytest.param("OptionalVariable", 422, False, id="no-such-word"),
    ],
)
def test_unknown_fields(api: Api, strictness: str, code: int, kept: bool) -> None:
    body = at(pod("a"), "spec.foo", 1)
    path = f"{PODS}?fieldValidation={strictness}"
    answer = api.server.handle(Request("POST", path, orjson.dumps(body)))
    assert isinstance(answer, Response)
    assert answer.code == code
    assert ("warning" in answer.headers) is kept
    if kept:
        assert answer.headers["warning"] == '299 - "unknown field \\"spec.foo\\""'
    if code == 201:
        assert "foo" not in orjson.loads(answer.body)["spec"]


# -- update ------------------------------------------------------------------------------------------------------------


def test_an_update_with_an_old_revision_is_a_conflict(api: Api) -> None:
    old = api.do("POST", CONFIGS, config("c", a="1"))
    api.do("PUT", f"{CONFIGS}/c", {**old, "data": {"a": "2"}})
    code, status = api.ask("PUT", f"{CONFIGS}/c", {**old, "data": {"a": "3"}})
    assert (code, status["reason"], status["message"]) == (409, "Conflict", MODIFIED)
    assert api.do("GET", f"{CONFIGS}/c")["data"] == {"a": "2"}


def test_an_update_without_a_revision_wins(api: Api) -> None:
    api.do("POST", CONFIGS, config("c", a="1"))
    assert api.do("PUT", f"{CONFIGS}/c", config("c", a="2"))["data"] == {"a": "2"}


def test_an_update_of_a_custom_resource_needs_a_revision(api: Api) -> None:
    api.do("POST", CRDS, CRD)
    api.do("POST", THINGS, THING)
    code, status = api.ask("PUT", f"{THINGS}/t", THING)
    assert code == 422
    assert status["message"].endswith("metadata.resourceVersion: Invalid value: 0: must be specified for an update")


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
def test_an_update_without_changes_keeps_the_revision(api: Api, method: str) -> None:
    old = api.do("POST", PODS, pod("p", labels={"a": "b"}))
    before = api.version
    if method == "PUT":
        new = api.do("PUT", f"{PODS}/p", old)
    else:
        new = api.do("PATCH", f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}}, STRATEGIC_MERGE_PATCH)
    assert new == old
    assert api.version == before


def test_the_main_resource_ignores_status_and_status_ignores_spec(api: Api) -> None:
    old = api.do("POST", PODS, pod("p"))
    kept = api.do("PUT", f"{PODS}/p", {**old, "status": {"phase": "Running"}})
    assert kept["status"] == old["status"]
    status = api.do("PUT", f"{PODS}/p/status", {**old, "spec": {"containers": []}, "status": {"phase": "Running"}})
    assert status["spec"] == old["spec"]
    assert status["status"]["phase"] == "Running"


def test_generation_counts_changes_of_the_spec_alone(api: Api) -> None:
    deployment = {
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]},
        },
    }
    path = "/apis/apps/v1/namespaces/default/deployments"
    api.do("POST", path, deployment)

    def generation(patch: Object, suffix: str = "") -> int:
        value: int = api.do("PATCH", f"{path}/d{suffix}", patch, MERGE_PATCH)["metadata"]["generation"]
        return value

    assert generation({"metadata": {"labels": {"x": "y"}}}) == 1
    assert generation({"status": {"replicas": 1}}, "/status") == 1
    assert generation({"spec": {"replicas": 5}}) == 2
    assert generation({"spec": {"replicas": 5}}) == 2


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        pytest.param(
            {"metadata": {"uid": "other"}}, 422, 'metadata.uid: Invalid value: "other": field is immutable', id="uid"
        ),
        pytest.param({"spec": {"nodeName": "n"}}, 422, "pod updates may not change fields other than", id="node"),
        pytest.param({"spec": {"containers": []}}, 422, "spec.containers", id="no-containers"),
        pytest.param({"metadata": {"name": "q"}}, 400, "the name of the object (q) does not match", id="name"),
        pytest.param({"metadata": {"namespace": "q"}}, 400, "the namespace of the provided object", id="namespace"),
        pytest.param({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}}, 422, "is immutable", id="deletion"),
    ],
)
def test_immutable_metadata_cannot_change(api: Api, change: Object, code: int, message: str) -> None:
    api.do("POST", PODS, pod("p"))
    before = api.version
    value, status = api.ask("PATCH", f"{PODS}/p", change, MERGE_PATCH)
    assert value == code, status
    assert message in status["message"]
    assert api.version == before


def test_an_update_keeps_server_fields(api: Api) -> None:
    old = api.do("POST", CONFIGS, config("c"))
    body = {"metadata": {"name": "c", "creationTimestamp": "2001-01-01T00:00:00Z", "deletionTimestamp": None}}
    new = api.do("PUT", f"{CONFIGS}/c", {**body, "data": {"a": "b"}})
    assert new["metadata"]["uid"] == old["metadata"]["uid"]
    assert new["metadata"]["creationTimestamp"] == old["metadata"]["creationTimestamp"]


# -- patch -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        pytest.param(JSON_PATCH, [{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}], id="json"),
        pytest.param(MERGE_PATCH, {"metadata": {"labels": {"x": "y"}}}, id="merge"),
        pytest.param(STRATEGIC_MERGE_PATCH, {"metadata": {"labels": {"x": "y"}}}, id="strategic"),
        pytest.param(APPLY_PATCH, {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"x": "y"}}}, id="apply"),
    ],
)
def test_the_four_kinds_of_patch(api: Api, kind: str, patch: object) -> None:
    api.do("POST", PODS, pod("p"))
    assert api.do("PATCH", f"{PODS}/p?fieldManager=m", patch, kind)["metadata"]["labels"] == {"x": "y"}
    old = api.server.store.collection(("", "pods")).get(("default", "p"))
    assert old is not None


@pytest.mark.parametrize(
    ("kind", "patch", "query", "code", "message"),
    [
        pytest.param(MERGE_PATCH, {"metadata": {"resourceVersion": "1"}}, "", 409, "modified", id="an-old-revision"),
        pytest.param(
            JSON_PATCH,
            [{"op": "test", "path": "/metadata/name", "value": "q"}],
            "",
            422,
            "test failed",
            id="a-test-that-fails",
        ),
        pytest.param(JSON_PATCH, {"op": "remove"}, "", 400, "list of operations", id="no-list"),
        pytest.param(JSON_PATCH, [{}] * 10_001, "", 413, "maximum operations", id="ten-thousand-and-one-operations"),
        pytest.param(
            JSON_PATCH, [{"op": "test", "path": "", "value": 1}] * 5000, "", 413, "16000 values", id="many-values"
        ),
        pytest.param(
            JSON_PATCH,
            [
                {"op": "add", "path": "/metadata/annotations", "value": {"a": "x" * 1000}},
                *({"op": "copy", "from": "/metadata", "path": "/metadata/more"} for _ in range(100)),
            ],
            "",
            400,
            "exceed the limit",
            id="copies-of-copies",
        ),
        pytest.param("text/plain", {}, "", 415, "unknown format", id="no-patch"),
        pytest.param(
            APPLY_PATCH, {"apiVersion": "v1", "kind": "Pod"}, "", 422, "fieldManager: Required value", id="no-manager"
        ),
        pytest.param(MERGE_PATCH, {"metadata": None}, "", 400, "metadata", id="no-metadata-left"),
        pytest.param(
            MERGE_PATCH,
            {"metadata": {"labels": "x"}},
            "",
            422,
            ": json: cannot unmarshal string into Go struct field ObjectMeta.metadata.labels of type map",
            id="text-as-labels",
        ),
        pytest.param(
            JSON_PATCH,
            [{"op": "add", "path": "/metadata/labels", "value": []}],
            "",
            422,
            "cannot unmarshal array into Go struct field",
            id="list-as-labels",
        ),
        pytest.param(
            STRATEGIC_MERGE_PATCH,
            {"metadata": {"labels": "x"}},
            "",
            422,
            'is invalid: patch: Invalid value: "map[metadata:map[labels:x]]": cannot restore map from string',
            id="strategic-text-as-labels",
        ),
        pytest.param(
            STRATEGIC_MERGE_PATCH,
            {"metadata": {"finalizers": "x"}},
            "",
            422,
            "cannot restore slice from string",
            id="strategic-text-as-list",
        ),
        pytest.param(
            STRATEGIC_MERGE_PATCH,
            {"metadata": "x"},
            "",
            422,
            "cannot restore struct from: string",
            id="strategic-text-as-metadata",
        ),
        pytest.param(
            STRATEGIC_MERGE_PATCH,
            {"metadata": {"labels": {"a": 1}}},
            "",
            422,
            '"map[metadata:map[labels:map[a:1]]]": cannot convert int64 to string',
            id="strategic-number",
        ),
        pytest.param(
            MERGE_PATCH,
            {"spec": {"foo": 1}},
            "?fieldValidation=Strict",
            422,
            'unknown field "spec.foo"',
            id="an-unknown-field",
        ),
        pytest.param(
            STRATEGIC_MERGE_PATCH,
            {"spec": {"foo": 1}},
            "?fieldValidation=Strict",
            422,
            ' "" is invalid: patch: Invalid value: "map[spec:map[foo:1]]": strict decoding error:',
            id="strategic-unknown-field",
        ),
    ],
)
def test_patches_that_are_refused(  # noqa: PLR0917
    api: Api, kind: str, patch: object, query: str, code: int, message: str
) -> None:
    api.do("POST", PODS, pod("p"))
    before = api.version
    value, status = api.ask("PATCH", f"{PODS}/p{query}", patch, kind)
    assert (value, api.version) == (code, before), status
    assert message in status["message"]


def test_a_strategic_patch_of_a_custom_resource_is_refused(api: Api) -> None:
    api.do("POST", CRDS, CRD)
    api.do("POST", THINGS, THING)
    assert api.ask("PATCH", f"{THINGS}/t", {}, STRATEGIC_MERGE_PATCH)[0] == 415


def test_apply_creates_a_missing_object(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"a": "b"}}
    assert api.ask("PATCH", f"{CONFIGS}/new?fieldManager=m", body, APPLY_PATCH)[0] == 201
    assert api.ask("PATCH", f"{CONFIGS}/new?fieldManager=m", body, APPLY_PATCH)[0] == 200
    code, status = api.ask("PATCH", f"{CONFIGS}/new?fieldManager=n", at(body, "data.a", "c"), APPLY_PATCH)
    assert (code, status["details"]["causes"][0]["field"]) == (409, ".data.a")


TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": pod("p")["spec"]}
SELECTED = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}


@pytest.mark.parametrize(
    ("path", "spec", "status"),
    [
        pytest.param("/apis/apps/v1/namespaces/default/replicasets", SELECTED, {"replicas": 0}, id="replica-set"),
        pytest.param(
            "/apis/apps/v1/namespaces/default/daemonsets",
            SELECTED,
            {"currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0},
            id="daemon-set",
        ),
        pytest.param(
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            {"selector": {"matchLabels": {"a": "b"}}},
            {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
            id="disruption-budget",
        ),
    ],
)
def test_a_new_object_has_the_status_fields_that_clients_require(path: str, spec: Object, status: Object) -> None:
    created = Api(bare=True).do("POST", path, {"metadata": {"name": "new"}, "spec": spec})
    assert created["status"] == status


def test_a_new_node_has_the_fields_of_node_info() -> None:
    created = Api(bare=True).do("POST", "/api/v1/nodes", {"metadata": {"name": "new"}})
    assert created["status"]["nodeInfo"]["kubeletVersion"] == ""


@pytest.mark.parametrize("kind", ["Pod", [], {}])
def test_a_deletion_needs_delete_options(api: Api, kind: object) -> None:
    api.do("POST", CONFIGS, config("c"))
    code, status = api.ask("DELETE", f"{CONFIGS}/c", {"kind": kind})
    assert (code, "expected DeleteOptions" in status["message"]) == (400, True)
    assert api.ask("GET", f"{CONFIGS}/c")[0] == 200


@pytest.mark.parametrize(
    ("body", "kind", "problem"),
    [
        pytest.param(b'{"metadata": {"name": "a", "name": "b"}}', "application/json", "metadata.name", id="json"),
        pytest.param(b"metadata:\n  name: a\n  name: b\n", "application/yaml", "metadata.name", id="yaml"),
        pytest.param(b'{"metadata":{"name":"b"},"data":{"a":"1","a":"2"}}', "application/json", "data.a", id="compact"),
        pytest.param(b'{"metadata":{"name":"b"}, "data":{"a":"b"}}', "application/json", "", id="none"),
        pytest.param(b'{"metadata":{"name":"b"}}' + b" " * 65_536, "application/json", "", id="too-long-to-search"),
    ],
)
def test_fields_named_twice(api: Api, body: bytes, kind: str, problem: str) -> None:
    request = Request("POST", f"{CONFIGS}?fieldValidation=Strict", body, kind)
    answer = api.server.handle(request)
    assert isinstance(answer, Response)
    assert answer.code == (400 if problem else 201)
    assert (f'strict decoding error: duplicate field \\"{problem}\\"'.encode() in answer.body) is bool(problem)


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        pytest.param(b'"x\xffy"', "x\ufffdy", id="a-byte"),
        pytest.param(b'"\xe2\x82"', "\ufffd\ufffd", id="each-byte-of-a-part-of-a-character"),
        pytest.param(b'"x\\ud800y"', "x\ufffdy", id="half-of-an-escaped-pair"),
        pytest.param(b'"\\ud800\\ud83d\\ude00\\udc00"', "\ufffd\U0001f600\ufffd", id="halves-around-a-pair"),
        pytest.param(b'"\\\\ud800\xff"', "\\ud800\ufffd", id="an-escaped-backslash"),
    ],
)
def test_text_that_is_not_unicode_is_replaced_as_in_go(api: Api, body: bytes, stored: str) -> None:
    response = api.do("POST", CONFIGS, b'{"metadata": {"name": "a"}, "data": {"a": ' + body + b"}}")
    assert response["data"]["a"] == stored


def test_a_new_object_with_a_resource_version_is_refused(api: Api) -> None:
    """Unless nothing is stored; kube-apiserver notices it in its storage."""
    body = {"metadata": {"name": "a", "resourceVersion": "5"}}
    assert api.do("POST", f"{CONFIGS}?dryRun=All", body)["metadata"]["name"] == "a"
    code, answer = api.ask("POST", CONFIGS, body)
    assert (code, answer["message"]) == (500, "resourceVersion should not be set on objects to be created")
    assert api.ask("GET", f"{CONFIGS}/a")[0] == 404
