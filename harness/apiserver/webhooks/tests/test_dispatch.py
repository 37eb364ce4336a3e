"""Webhooks in this process: matching, order, and the effect of responses."""

from typing import Any

import orjson
import pytest

from seatrial.harness.apiserver.tests.asking import CONFIGS, PODS, Api, Object, config, pod
from seatrial.harness.apiserver.webhooks.tests.answering import (
    CONFIGURATIONS,
    PODS_CREATED,
    Witness,
    labelled,
    register,
    reviewed,
    webhook,
)
from seatrial.scheduler.api.transport import MERGE_PATCH, Request


@pytest.fixture
def api() -> Api:
    return Api(bare=True)


def test_a_patch_is_stored(api: Api) -> None:
    register(api, "a", labelled("by", "a"))

    made = api.do("POST", PODS, pod("p"))

    assert made["metadata"]["labels"] == {"by": "a"}
    assert api.do("GET", f"{PODS}/p")["metadata"]["labels"] == {"by": "a"}


def test_mutating_webhooks_are_ordered_by_configuration_name(api: Api) -> None:
    register(api, "b", labelled("last", "b"))
    register(api, "a", labelled("last", "a"))

    assert api.do("POST", PODS, pod("p"))["metadata"]["labels"] == {"last": "b"}


def test_fields_added_by_a_webhook_are_defaulted_and_count_for_qos(api: Api) -> None:
    def handle(review: Object) -> Object:
        resources = {"limits": {"cpu": "1", "memory": "1Gi"}}
        return reviewed(review, {"op": "add", "path": "/spec/containers/0/resources", "value": resources})

    register(api, "a", handle)

    made = api.do("POST", PODS, pod("p"))

    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert made["status"]["qosClass"] == "Guaranteed"


def test_validating_webhooks_see_the_mutated_object(api: Api) -> None:
    seen = Witness()
    register(api, "a", labelled("by", "a"))
    register(api, "z", seen, validating=True)

    made = api.do("POST", PODS, {**pod("p"), "metadata": {"generateName": "p-"}})

    assert seen.requests[0]["object"]["metadata"]["labels"] == {"by": "a"}
    assert seen.requests[0]["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    assert seen.requests[0]["name"] == made["metadata"]["name"]


def test_a_mutating_and_a_validating_webhook_of_one_name_get_reviews_of_their_own(api: Api) -> None:
    """Their requests are equal if nothing was changed; an answer to one must not be taken for one to the other."""
    api.do("POST", PODS, pod("p"))
    seen = Witness()
    for validating in (False, True):
        register(api, "a", seen, validating=validating, **rule(operations=["UPDATE"]))

    api.do("PATCH", f"{PODS}/p", {"metadata": {"labels": {"x": "y"}}}, MERGE_PATCH)

    first, second = seen.requests
    assert first["uid"] != second["uid"]
    assert {**first, "uid": ""} == {**second, "uid": ""}


def test_mutating_webhooks_see_no_generated_identity(api: Api) -> None:
    """Upstream generates names and UIDs after mutating webhooks."""
    seen = Witness()
    register(api, "a", seen)

    api.do("POST", PODS, {**pod("p"), "metadata": {"generateName": "p-"}})

    request = seen.requests[0]
    assert request["name"] == ""
    assert set(request["object"]["metadata"]) == {"generateName", "namespace"}
    assert request["oldObject"] is None


def test_fields_of_a_review_request(api: Api) -> None:
    seen = Witness()
    register(api, "a", seen, validating=True)

    api.do("POST", f"{PODS}?fieldManager=me&dryRun=All", pod("p"))

    request = {name: value for name, value in seen.requests[0].items() if name not in {"object", "uid"}}
    pods = {"group": "", "version": "v1", "resource": "pods"}
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    assert request == {
        "kind": kind,
        "requestKind": kind,
        "resource": pods,
        "requestResource": pods,
        "name": "p",
        "namespace": "default",
        "operation": "CREATE",
        "oldObject": None,
        "dryRun": True,
        "userInfo": {"username": "seatrial-admin", "groups": ["system:masters", "system:authenticated"]},
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me", "dryRun": ["All"]},
    }


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({"message": "too big"}, (400, "denied the request: too big"), id="with-a-message"),
        pytest.param({"reason": "TooBig", "code": 200}, (400, "denied the request: TooBig"), id="with-a-reason-alone"),
        pytest.param({}, (400, "denied the request without explanation"), id="without-a-word"),
        pytest.param({"message": "no", "code": 403}, (403, "denied the request: no"), id="with-a-code-of-its-own"),
    ],
)
@pytest.mark.parametrize("validating", [False, True])
def test_a_denied_request(api: Api, status: Object, expected: tuple[int, str], validating: bool) -> None:
    register(api, "a", lambda review: reviewed(review, allowed=False, status=status), validating=validating)

    code, body = api.ask("POST", PODS, pod("p"))

    assert (code, body["message"]) == (expected[0], f'admission webhook "a.seatrial.dev" {expected[1]}')
    assert api.ask("GET", f"{PODS}/p")[0] == 404


def rule(**more: Any) -> Object:
    return {"rules": [{**PODS_CREATED, **more}]}


@pytest.mark.parametrize(
    ("more", "called"),
    [
        pytest.param({}, True, id="the-very-resource"),
        pytest.param(rule(operations=["*"]), True, id="every-operation"),
        pytest.param(rule(operations=["UPDATE"]), False, id="another-operation"),
        pytest.param(rule(resources=["*"]), True, id="every-resource"),
        pytest.param(rule(resources=["*/*"]), True, id="every-resource-and-subresource"),
        pytest.param(rule(resources=["pods/*"]), True, id="pods-with-their-subresources"),
        pytest.param(rule(resources=["pods/status"]), False, id="a-subresource-alone"),
        pytest.param(rule(apiGroups=["apps"]), False, id="another-group"),
        pytest.param(rule(scope="Namespaced"), True, id="namespaced-things"),
        pytest.param(rule(scope="Cluster"), False, id="things-of-the-cluster"),
        pytest.param({"namespaceSelector": {"matchLabels": {"team": "a"}}}, False, id="other-namespaces"),
        pytest.param(
            {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}},
            True,
            id="namespaces-without-a-label",
        ),
        pytest.param({"objectSelector": {"matchLabels": {"app": "x"}}}, True, id="pods-with-a-label"),
        pytest.param({"objectSelector": {"matchLabels": {"app": "y"}}}, False, id="pods-with-another-label"),
    ],
)
def test_which_webhooks_are_called(api: Api, more: Object, called: bool) -> None:
    seen = Witness()
    register(api, "a", seen, validating=True, **more)

    api.do("POST", PODS, pod("p", labels={"app": "x"}))

    assert bool(seen.requests) is called


def test_specs_are_shared_where_a_webhook_selects_other_pods(api: Api) -> None:
    """Completing and validating each replica anew would double the time of a create."""
    seen = Witness()
    register(api, "a", seen, validating=True, objectSelector={"matchLabels": {"app": "y"}})

    for name in ("first", "second"):
        api.do("POST", PODS, pod(name, labels={"app": "x"}))
    api.do("POST", PODS, pod("third", labels={"app": "y"}))

    first, second, third = (
        api.server.store.collection(("", "pods")).get(("default", name)).obj["spec"]  # type: ignore[union-attr]
        for name in ("first", "second", "third")
    )
    assert first is second
    assert third == first
    assert [request["name"] for request in seen.requests] == ["third"]


@pytest.mark.parametrize(
    ("policy", "code"), [pytest.param("Fail", 500, id="fail"), pytest.param("Ignore", 201, id="ignore")]
)
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(lambda _: {}, "webhook response was absent", id="no-response"),
        pytest.param(
            lambda review: {**reviewed(review), "kind": "Review"},
            "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got admission.k8s.io/v1, "
            "Kind=Review",
            id="another-kind",
        ),
        pytest.param(
            lambda review: reviewed(review, patch="W10="),
            "webhook returned response.patch but not response.patchType",
            id="a-patch-without-type",
        ),
    ],
)
def test_invalid_responses(api: Api, answer: Any, why: str, policy: str, code: int) -> None:
    register(api, "a", answer, failurePolicy=policy)

    found_code, body = api.ask("POST", PODS, pod("p"))

    assert found_code == code
    if code == 500:
        prefix = 'Internal error occurred: failed calling webhook "a.seatrial.dev": received invalid webhook response: '
        assert body["message"] == prefix + why


def test_a_cluster_without_network_makes_no_calls(api: Api) -> None:
    register(api, "a", None)

    code, body = api.ask("POST", PODS, pod("p"))

    assert code == 500
    assert body["message"] == (
        'Internal error occurred: failed calling webhook "a.seatrial.dev": failed to call webhook:'
        ' Post "https://a.test/?timeout=10s": this cluster makes no calls over the network'
    )


def test_reinvocation_after_a_later_webhooks_change(api: Api) -> None:
    seen = Witness()
    register(api, "a", seen, reinvocationPolicy="IfNeeded")
    register(api, "b", labelled("by", "b"))
    register(api, "c", Witness())

    api.do("POST", PODS, pod("p"))

    assert [request["object"]["metadata"].get("labels") for request in seen.requests] == [None, {"by": "b"}]


def test_no_reinvocation_for_a_webhooks_own_change(api: Api) -> None:
    count = Witness()

    def handle(review: Object) -> Object:
        count(review)
        return labelled("by", "a")(review)

    register(api, "a", handle, reinvocationPolicy="IfNeeded")

    api.do("POST", PODS, pod("p"))

    assert len(count.requests) == 1


def test_warnings_reach_the_client(api: Api) -> None:
    register(api, "a", lambda review: reviewed(review, warnings=["mind the gap"]), validating=True)
    answer = api.server.handle(Request("POST", PODS, orjson.dumps(pod("p"))))

    assert answer.headers["warning"] == '299 - "mind the gap"'  # type: ignore[union-attr]


def test_updates_and_deletes_include_the_old_object(api: Api) -> None:
    seen = Witness()
    register(
        api,
        "a",
        seen,
        validating=True,
        rules=[{**PODS_CREATED, "operations": ["UPDATE", "DELETE"], "resources": ["configmaps"]}],
    )
    api.do("POST", CONFIGS, config("c", a="1"))

    api.do("PATCH", f"{CONFIGS}/c", {"data": {"a": "2"}}, MERGE_PATCH)
    api.do("DELETE", f"{CONFIGS}/c")

    shown = [
        (request["operation"], (request["oldObject"] or {}).get("data"), (request["object"] or {}).get("data"))
        for request in seen.requests
    ]
    assert shown == [("UPDATE", {"a": "1"}, {"a": "2"}), ("DELETE", {"a": "2"}, None)]


@pytest.mark.parametrize(
    ("before", "after", "called"),
    [
        pytest.param("mine", "other", True, id="the-old-object-alone"),
        pytest.param("other", "mine", True, id="the-new-object-alone"),
        pytest.param("other", "none", False, id="neither"),
    ],
)
@pytest.mark.parametrize("method", ["PATCH", "PUT"])
def test_an_update_is_reviewed_if_the_old_or_the_new_pod_is_selected(
    api: Api, method: str, before: str, after: str, called: bool
) -> None:
    made = api.do("POST", PODS, pod("p", labels={"team": before}))
    seen = Witness()
    register(api, "a", seen, objectSelector={"matchLabels": {"team": "mine"}}, **rule(operations=["UPDATE"]))
    made["metadata"]["labels"] = {"team": after}

    if method == "PUT":
        api.do("PUT", f"{PODS}/p", made)
    else:
        api.do("PATCH", f"{PODS}/p", {"metadata": {"labels": {"team": after}}}, MERGE_PATCH)

    assert len(seen.requests) == called


def test_a_delete_can_be_denied(api: Api) -> None:
    register(
        api,
        "a",
        lambda review: reviewed(review, allowed=False, status={"message": "keep it"}),
        validating=True,
        rules=[{**PODS_CREATED, "operations": ["DELETE"], "resources": ["configmaps"]}],
    )
    api.do("POST", CONFIGS, config("c"))

    assert api.ask("DELETE", f"{CONFIGS}/c")[0] == 400
    assert api.ask("DELETE", CONFIGS)[0] == 400
    assert api.ask("GET", f"{CONFIGS}/c")[0] == 200


@pytest.mark.parametrize(
    ("subresource", "path", "body"),
    [
        pytest.param("binding", "p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}}, id="binding"),
        pytest.param("eviction", "p/eviction", {"metadata": {"name": "p"}}, id="eviction"),
    ],
)
def test_subresources_that_are_created(api: Api, subresource: str, path: str, body: Object) -> None:
    seen = Witness()
    register(api, "a", seen, validating=True, **rule(resources=[f"pods/{subresource}"]))
    api.do("POST", PODS, pod("p"))

    api.do("POST", f"{PODS}/{path}", body)

    assert [(request["subResource"], request["kind"]["kind"]) for request in seen.requests] == [
        (subresource, subresource.capitalize())
    ]


def test_status_updates_reach_webhooks_with_a_status_rule(api: Api) -> None:
    seen = Witness()
    register(api, "a", seen, validating=True, **rule(operations=["UPDATE"], resources=["pods/status"]))
    api.do("POST", PODS, pod("p"))

    api.do("PATCH", f"{PODS}/p/status", {"status": {"phase": "Running"}}, MERGE_PATCH)

    assert [request["object"]["status"]["phase"] for request in seen.requests] == ["Running"]


def test_webhooks_are_not_called_for_webhook_configurations(api: Api) -> None:
    register(
        api,
        "a",
        lambda review: reviewed(review, allowed=False),
        validating=True,
        **rule(apiGroups=["*"], resources=["*"], operations=["*"], apiVersions=["*"]),
    )

    api.do("DELETE", f"{CONFIGURATIONS}/validatingwebhookconfigurations/a")

    api.do("POST", PODS, pod("p"))


def test_a_webhook_with_side_effects_rejects_dry_runs(api: Api) -> None:
    seen = Witness()
    body = {"metadata": {"name": "a"}, "webhooks": [webhook("a", sideEffects="None")]}
    made = api.do("POST", f"{CONFIGURATIONS}/validatingwebhookconfigurations", body)
    stored = api.server.store.collection(("admissionregistration.k8s.io", "validatingwebhookconfigurations"))
    old = {**made, "webhooks": [{**made["webhooks"][0], "sideEffects": "Some"}]}
    stored.put(("", "a"), old)  # as an older version of the API may have left it
    api.server.admission.webhooks.local["https://a.test/"] = seen

    code, answer = api.ask("POST", f"{PODS}?dryRun=All", pod("p"))

    assert (code, answer["message"]) == (400, 'admission webhook "a.seatrial.dev" does not support dry run')
    assert seen.requests == []


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_fields_added_by_a_webhook_have_no_manager(operation: str) -> None:
    api = Api()
    if operation == "UPDATE":
        api.do("POST", f"{PODS}?fieldManager=first", pod("p"))
    register(api, "a", labelled("by", "a"), rules=[{**PODS_CREATED, "operations": [operation]}])
    if operation == "CREATE":
        api.do("POST", f"{PODS}?fieldManager=me", pod("p", labels={"mine": "x"}))
    else:
        api.do("PATCH", f"{PODS}/p?fieldManager=me", {"metadata": {"labels": {"mine": "x"}}}, MERGE_PATCH)
    metadata = api.do("GET", f"{PODS}/p")["metadata"]
    assert metadata["labels"] == {"mine": "x", "by": "a"}
    owned = {
        field["manager"]: field["fieldsV1"]["f:metadata"]
        for field in metadata["managedFields"]
        if "f:metadata" in field["fieldsV1"]
    }
    assert owned["me"]["f:labels"] == {".": {}, "f:mine": {}}


DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
SCALED = {"operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"]}


def deployment(replicas: int) -> Object:
    labels = {"app": "d"}
    template = {"metadata": {"labels": labels}, "spec": pod("p")["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": "d"}, "spec": spec}


def test_a_scale_update_is_reviewed_as_a_scale(api: Api) -> None:
    parent, scale = Witness(), Witness()
    api.do("POST", DEPLOYMENTS, deployment(1))
    register(api, "a", parent, rules=[{**SCALED, "resources": ["deployments"]}])
    register(api, "b", scale, validating=True, rules=[{**SCALED, "resources": ["deployments/scale"]}])

    api.do("PATCH", f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 3}}, MERGE_PATCH)

    assert parent.requests == []
    (request,) = scale.requests
    assert request["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert (request["resource"]["resource"], request["subResource"]) == ("deployments", "scale")
    assert (request["oldObject"]["spec"], request["object"]["spec"]) == ({"replicas": 1}, {"replicas": 3})


def test_a_webhook_can_change_the_replicas_of_a_scale(api: Api) -> None:
    def fewer(review: Object) -> Object:
        return reviewed(review, {"op": "replace", "path": "/spec/replicas", "value": 2})

    api.do("POST", DEPLOYMENTS, deployment(1))
    register(api, "a", fewer, rules=[{**SCALED, "resources": ["deployments/scale"]}])

    scale = api.do(
        "PUT", f"{DEPLOYMENTS}/d/scale", {**api.do("GET", f"{DEPLOYMENTS}/d/scale"), "spec": {"replicas": 9}}
    )

    assert scale["spec"] == {"replicas": 2}
    assert api.do("GET", f"{DEPLOYMENTS}/d")["spec"]["replicas"] == 2


def test_updates_without_changes_are_reviewed(api: Api) -> None:
    witness = Witness()
    made = api.do("POST", CONFIGS, config("c"))
    rule = {"operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    register(api, "a", witness, validating=True, rules=[rule])

    same = api.do("PUT", f"{CONFIGS}/c", made)

    assert len(witness.requests) == 1
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
