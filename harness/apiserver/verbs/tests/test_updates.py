"""Updates that create, need a resourceVersion or set unknown fields; warnings beside errors (API-A8, API-A9)."""

import pytest

from seatrial.harness.apiserver.schemas.tests.test_shapes import CRD
from seatrial.harness.apiserver.tests.asking import PODS, Api, Object, pod
from seatrial.scheduler.api.transport import APPLY_PATCH, JSON, MERGE_PATCH, Request, Response

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/x.io/v1/namespaces/default/things"
GROUP = "rbac.authorization.k8s.io"


@pytest.fixture
def api() -> Api:
    return Api()


def lease(name: str, holder: str, **metadata: str) -> Object:
    return {"metadata": {"name": name, **metadata}, "spec": {"holderIdentity": holder}}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param(f"{LEASES}/x", lease("x", "a"), id="lease"),
        pytest.param(f"{LEASES}/x", lease("x", "a", resourceVersion="5"), id="that-was-deleted"),
        pytest.param("/api/v1/namespaces/default/endpoints/x", {"metadata": {"name": "x"}}, id="endpoints"),
        pytest.param(f"{ROLES}/x", {"metadata": {"name": "x"}, "rules": []}, id="role"),
    ],
)
def test_an_update_creates_an_object_of_some_kinds(api: Api, path: str, body: Object) -> None:
    assert api.ask("PUT", path, body)[0] == 201
    assert api.do("GET", path)["metadata"]["name"] == "x"


def test_an_update_of_another_kind_creates_nothing(api: Api) -> None:
    assert api.ask("PUT", f"{PODS}/x", pod("x"))[0] == 404


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        pytest.param(lease("y", "a"), 400, "the name of the object (y) does not match", id="another-name"),
        pytest.param(lease("x", "a", uid="u"), 409, "UID in precondition: u", id="uid"),
    ],
)
def test_an_update_that_creates_names_the_object(api: Api, body: Object, code: int, message: str) -> None:
    value, status = api.ask("PUT", f"{LEASES}/x", body)
    assert value == code
    assert message in status["message"]
    assert api.ask("GET", f"{LEASES}/x")[0] == 404


def test_an_update_that_creates_needs_the_right_to_create(api: Api) -> None:
    """A user may update leases; the administrator's request impersonates the user."""
    rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update"]}
    api.do("POST", ROLES, {"metadata": {"name": "updater"}, "rules": [rule]})
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": "updater"}
    subject = {"kind": "User", "apiGroup": GROUP, "name": "bob"}
    api.do("POST", BINDINGS, {"metadata": {"name": "updater"}, "roleRef": reference, "subjects": [subject]})
    body = b'{"metadata":{"name":"x"}}'
    refused = api.server.handle(Request("PUT", f"{LEASES}/x", body, JSON, {"impersonate-user": "bob"}))
    assert isinstance(refused, Response)
    assert refused.code == 403
    assert b'cannot create resource \\"leases\\"' in refused.body


def test_an_update_of_some_kinds_needs_the_resource_version(api: Api) -> None:
    version = api.do("POST", LEASES, lease("x", "a"))["metadata"]["resourceVersion"]
    code, status = api.ask("PUT", f"{LEASES}/x", lease("x", "b"))
    message = 'leases.coordination.k8s.io "x" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified'
    assert (code, status["message"]) == (422, f"{message} for an update")
    patched = {"metadata": {"resourceVersion": None}, "spec": {"holderIdentity": "b"}}
    assert api.ask("PATCH", f"{LEASES}/x", patched, MERGE_PATCH)[0] == 422
    api.do("PUT", f"{LEASES}/x", lease("x", "b", resourceVersion=version))
    api.do("PATCH", f"{LEASES}/x", {"spec": {"holderIdentity": "c"}}, MERGE_PATCH)


def test_a_namespaced_object_is_not_created_without_a_namespace_in_the_path(api: Api) -> None:
    body = pod("x")
    body["metadata"]["namespace"] = "default"
    assert api.ask("POST", "/api/v1/pods", body)[0] == 405


def test_a_refused_request_has_the_warnings_too(api: Api) -> None:
    refused = api.server.handle(Request("GET", "/api/v1/namespaces/default/endpoints/none"))
    assert isinstance(refused, Response)
    assert (refused.code, "v1 Endpoints is deprecated" in refused.headers["warning"]) == (404, True)


EVENT: Object = {
    "metadata": {"name": "e"},
    "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
    "reason": "R",
    "action": "A",
    "type": "Normal",
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "reportingController": "x.io/c",
    "reportingInstance": "i",
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"note": "é" * 512}, "", id="note-of-1024-bytes"),
        pytest.param({"note": "é" * 513}, 'message: Invalid value: "": can have at most 1024 characters', id="note"),
        pytest.param({"reason": "R" * 129}, "reason: Invalid value", id="reason"),
        pytest.param({"action": "A" * 129}, "action: Invalid value", id="action"),
        pytest.param({"deprecatedCount": 1}, 'count: Invalid value: "": needs to be unset', id="count"),
        pytest.param({"series": {"count": 1}}, "series.lastObservedTime: Required value", id="series"),
        pytest.param({"series": {"count": 1}}, "series.count: Invalid value", id="series-of-one"),
    ],
)
def test_what_new_events_may_have(api: Api, change: Object, message: str) -> None:
    code, status = api.ask("POST", EVENTS, {**EVENT, **change})
    assert code == (422 if message else 201)
    assert message in status.get("message", "")


def test_the_field_selectors_of_new_events(api: Api) -> None:
    api.do("POST", EVENTS, EVENT)
    for name, count in (("p", 1), ("q", 0)):
        response = api.do("GET", f"{EVENTS}?fieldSelector=type%3DNormal,regarding.name%3D{name}")
        assert len(response["items"]) == count
    assert api.ask("GET", f"{EVENTS}?fieldSelector=involvedObject.name%3Dp")[0] == 400
    assert api.ask("GET", "/api/v1/events?fieldSelector=regarding.name%3Dp")[0] == 400


def test_a_budget_without_a_number_wants_no_pod(api: Api) -> None:
    api.do("POST", BUDGETS, {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"a": "b"}}}})
    api.clock.advance(5)
    assert api.do("GET", f"{BUDGETS}/b")["status"]["desiredHealthy"] == 0


def thing(**fields: object) -> Object:
    return {"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "t"}, **fields}


def test_a_write_of_a_custom_objects_status_keeps_its_metadata(api: Api) -> None:
    api.do("POST", CRDS, CRD)
    before = api.do("POST", THINGS, thing(spec={"size": 3}))
    changed = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "status": {"size": 1},
        "spec": {"size": 4},
    }
    response = api.do("PATCH", f"{THINGS}/t/status", changed, MERGE_PATCH)
    assert (response["status"], response["spec"]) == ({"size": 1}, {"size": 3})
    assert {**response["metadata"], "resourceVersion": ""} == {**before["metadata"], "resourceVersion": ""}


@pytest.mark.parametrize(
    ("fields", "unknown"),
    [
        pytest.param({"spec": {"sise": 3}}, ".spec.sise", id="a-field"),
        pytest.param({"top": 1}, ".top", id="at-the-top"),
        pytest.param({"spec": {"free": {"any": {"thing": 1}}}}, "", id="where-unknown-fields-are-kept"),
    ],
)
def test_an_apply_of_a_custom_object_has_known_fields_only(api: Api, fields: Object, unknown: str) -> None:
    api.do("POST", CRDS, CRD)
    api.do("POST", THINGS, thing(spec={"size": 3}))
    code, body = api.ask("PATCH", f"{THINGS}/t?fieldManager=m", thing(**fields), APPLY_PATCH)
    assert code == (400 if unknown else 200)
    assert body.get("message", "").endswith(f"{unknown}: field not declared in schema" if unknown else "")
    assert api.do("GET", f"{THINGS}/t")["spec"]["size"] == 3
