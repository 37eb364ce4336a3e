"""Bindings, evictions and scales (API-A14, API-A15)."""

from typing import Any

import pytest

from seatrial.harness.apiserver.schemas.tests.test_shapes import at
from seatrial.harness.apiserver.tests.asking import PODS, Api, Object, pod
from seatrial.harness.apiserver.verbs.tests.bound import bound
from seatrial.scheduler.api.transport import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


@pytest.fixture
def api() -> Api:
    return Api()


def test_a_binding_sets_node_annotations_and_condition(api: Api) -> None:
    api.do("POST", PODS, pod("p", labels={"a": "b"}))
    body = {
        "metadata": {"name": "p", "annotations": {"x": "y"}, "labels": {"c": "d"}},
        "target": {"kind": "Node", "name": "n"},
    }
    assert api.ask("POST", f"{PODS}/p/binding", body)[0] == 201
    response = api.do("GET", f"{PODS}/p")
    assert (response["spec"]["nodeName"], response["metadata"]["generation"]) == ("n", 1)
    assert (response["metadata"]["annotations"], response["metadata"]["labels"]) == ({"x": "y"}, {"a": "b", "c": "d"})
    (condition,) = [condition for condition in response["status"]["conditions"] if condition["type"] == "PodScheduled"]
    assert condition["status"] == "True"


def test_the_old_path_for_bindings_works_too(api: Api) -> None:
    api.do("POST", PODS, pod("p"))
    body = {"metadata": {"name": "p"}, "target": {"name": "n"}}
    assert api.ask("POST", "/api/v1/namespaces/default/bindings", body)[0] == 201
    assert api.do("GET", f"{PODS}/p")["spec"]["nodeName"] == "n"


@pytest.mark.parametrize(
    ("made", "binding", "code", "message"),
    [
        pytest.param("bound", {}, 409, 'pod p is already assigned to node "node-1"', id="bound-already"),
        pytest.param("going", {}, 409, "pod p is being deleted, cannot be assigned to a host", id="going"),
        pytest.param("gated", {}, 409, "pod p has non-empty .spec.schedulingGates", id="gated"),
        pytest.param("none", {}, 404, 'pods "p" not found', id="not-there"),
        pytest.param("plain", {"target": {"name": ""}}, 422, "target.name: Required value", id="no-node-named"),
        pytest.param("plain", {"target": {"kind": "Rack", "name": "n"}}, 422, "Unsupported value", id="no-node"),
        pytest.param("plain", {"metadata": {"name": "p", "uid": "x"}}, 409, "Precondition failed: UID", id="other-uid"),
        pytest.param("plain", {"metadata": {"name": "q"}}, 400, "does not match name in Binding", id="other-name"),
    ],
)
def test_invalid_bindings_are_refused(api: Api, made: str, binding: Object, code: int, message: str) -> None:
    if made == "bound":
        bound(api, "p")
    elif made == "going":
        api.do("POST", PODS, at(pod("p"), "metadata.finalizers", ["x.io/a"]))
        api.do("DELETE", f"{PODS}/p")
    elif made == "gated":
        api.do("POST", PODS, pod("p", schedulingGates=[{"name": "x.io/g"}]))
    elif made == "plain":
        api.do("POST", PODS, pod("p"))
    before = api.version
    body = {"metadata": {"name": "p"}, "target": {"name": "n"}, **binding}
    value, status = api.ask("POST", f"{PODS}/p/binding", body)
    assert (value, api.version) == (code, before), status
    assert message in status["message"]


def test_evictions_stop_when_the_budget_is_used_up(api: Api) -> None:
    for name in ("a", "b", "c"):
        bound(api, name)
    api.do(
        "POST",
        BUDGETS,
        {"metadata": {"name": "two"}, "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "a"}}}},
    )
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction"}
    assert api.ask("POST", f"{PODS}/a/eviction?dryRun=All", {**eviction, "metadata": {"name": "a"}})[0] == 201
    assert api.ask("POST", f"{PODS}/a/eviction", {**eviction, "metadata": {"name": "a"}})[0] == 201
    assert api.do("GET", f"{PODS}/a")["metadata"]["deletionTimestamp"]
    code, status = api.ask("POST", f"{PODS}/b/eviction", {**eviction, "metadata": {"name": "b"}})
    assert (code, status["reason"]) == (429, "TooManyRequests")
    assert status["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    (cause,) = status["details"]["causes"]
    assert cause == {
        "reason": "DisruptionBudget",
        "message": "The disruption budget two needs 2 healthy pods and has 2 currently",
    }
    assert "deletionTimestamp" not in api.do("GET", f"{PODS}/b")["metadata"]


@pytest.mark.parametrize("precondition", [{"uid": "other"}, {"resourceVersion": "1"}], ids=["uid", "version"])
def test_a_refused_eviction_changes_nothing(api: Api, precondition: dict[str, str]) -> None:
    """The preconditions name another pod, or another version: the condition DisruptionTarget is not written."""
    bound(api, "p")
    before = api.version
    body = {"metadata": {"name": "p"}, "deleteOptions": {"preconditions": precondition}}
    assert api.ask("POST", f"{PODS}/p/eviction", body)[0] == 409
    assert api.version == before


def test_a_dry_run_of_finalize_stores_nothing(api: Api) -> None:
    before = api.version
    body = {"metadata": {"name": "default"}, "spec": {"finalizers": ["x.io/y"]}}
    answer = api.do("PUT", "/api/v1/namespaces/default/finalize?dryRun=All", body)
    assert answer["spec"]["finalizers"] == ["x.io/y"]
    assert api.version == before
    assert api.do("GET", "/api/v1/namespaces/default")["spec"]["finalizers"] == ["kubernetes"]


def test_a_pod_that_does_not_run_yet_may_always_be_evicted(api: Api) -> None:
    api.do("POST", PODS, pod("p", labels={"app": "a"}))
    api.do(
        "POST",
        BUDGETS,
        {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}},
    )
    assert api.ask("POST", f"{PODS}/p/eviction", {"metadata": {"name": "p"}})[0] == 201


def test_two_budgets_for_one_pod_are_an_error(api: Api) -> None:
    bound(api, "p")
    for name in ("one", "two"):
        api.do(
            "POST",
            BUDGETS,
            {"metadata": {"name": name}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "a"}}}},
        )
    code, status = api.ask("POST", f"{PODS}/p/eviction", {"metadata": {"name": "p"}})
    assert code == 500
    assert "more than one PodDisruptionBudget" in status["message"]


SETS = "/apis/apps/v1/namespaces/default/replicasets"


@pytest.mark.parametrize(
    ("patch", "kind", "code", "replicas"),
    [
        pytest.param({"spec": {"replicas": 2}}, MERGE_PATCH, 200, 2, id="merge"),
        pytest.param({"spec": {"replicas": 2}}, STRATEGIC_MERGE_PATCH, 200, 2, id="strategic"),
        pytest.param([{"op": "replace", "path": "/spec/replicas", "value": 2}], JSON_PATCH, 200, 2, id="json"),
        pytest.param(
            [{"op": "test", "path": "/spec/replicas", "value": 9}], JSON_PATCH, 422, 1, id="a-test-that-fails"
        ),
        pytest.param({"spec": {"replicas": -1}}, MERGE_PATCH, 422, 1, id="fewer-than-none"),
        pytest.param({"metadata": {"resourceVersion": "1"}}, MERGE_PATCH, 409, 1, id="of-another-revision"),
        pytest.param({"spec": {"replicas": 2}}, APPLY_PATCH, 400, 1, id="an-apply-without-a-kind"),
        pytest.param([], MERGE_PATCH, 400, 1, id="a-list"),
        pytest.param({"spec": 7}, MERGE_PATCH, 422, 1, id="a-spec-that-is-none"),
    ],
)
def test_patches_of_a_scale(patch: Any, kind: str, code: int, replicas: int) -> None:
    api = Api(bare=True)
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": pod("p")["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    api.do("POST", SETS, {"metadata": {"name": "s"}, "spec": spec})
    assert api.ask("PATCH", f"{SETS}/s/scale?fieldManager=me", patch, kind)[0] == code
    response = api.do("GET", f"{SETS}/s")
    assert response["spec"]["replicas"] == replicas
    mine = [entry for entry in response["metadata"]["managedFields"] if entry["manager"] == "me"]
    want: list[tuple[str, Object]] = [("scale", {"f:spec": {"f:replicas": {}}})] if code == 200 else []
    assert [(entry["subresource"], entry["fieldsV1"]) for entry in mine] == want
