"""ValidatingAdmissionPolicies: matching, denial and messages."""

from typing import Any

import orjson
import pytest

from seatrial.harness.apiserver.tests.asking import CONFIGS, PODS, Api, Object, config, pod
from seatrial.harness.apiserver.tests.kubectl import Kubectl
from seatrial.scheduler.api.transport import JSON, MERGE_PATCH, Request, Response

pytest.importorskip("celpy", reason="cel-python is not installed yet: make the environment anew")

GROUP = "/apis/admissionregistration.k8s.io/v1"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}
SMALL = {"expression": "!has(object.data) || size(object.data) <= 2"}
NEVER = {"expression": "false"}
DENIED = "ValidatingAdmissionPolicy 'small' with binding 'everywhere' denied request: "


def policy(*validations: Object, rules: list[Object] | None = None, **spec: Any) -> Object:
    constraints = {"resourceRules": rules or [RULE], **spec.pop("matchConstraints", {})}
    return {
        "metadata": {"name": "small"},
        "spec": {"matchConstraints": constraints, "validations": list(validations or (SMALL,)), **spec},
    }


def binding(**spec: Any) -> Object:
    body = {"policyName": "small", "validationActions": ["Deny"], **spec}
    return {"metadata": {"name": "everywhere"}, "spec": body}


def bound(api: Api, made: Object, **spec: Any) -> None:
    api.do("POST", f"{GROUP}/validatingadmissionpolicies", made)
    api.do("POST", f"{GROUP}/validatingadmissionpolicybindings", binding(**spec))


@pytest.fixture
def api() -> Api:
    return Api()


def test_a_failed_validation_denies_the_write(api: Api) -> None:
    api.do("POST", f"{GROUP}/validatingadmissionpolicies", policy())
    api.do("POST", CONFIGS, config("before", a="1", b="2", c="3"))  # nothing is bound yet
    api.do("POST", f"{GROUP}/validatingadmissionpolicybindings", binding())
    api.do("POST", CONFIGS, config("x", a="1"))
    for method, path, body in (
        ("POST", CONFIGS, config("y", a="1", b="2", c="3")),
        ("PUT", f"{CONFIGS}/x", config("x", a="1", b="2", c="3")),
    ):
        code, answer = api.ask(method, path, body)
        assert (code, answer["reason"]) == (422, "Invalid")
        name = body["metadata"]["name"]
        assert answer["message"] == (
            f'configmaps "{name}" is forbidden: {DENIED}failed expression: {SMALL["expression"]}'
        )
    api.do("DELETE", f"{GROUP}/validatingadmissionpolicybindings/everywhere")
    api.do("POST", CONFIGS, config("y", a="1", b="2", c="3"))


@pytest.mark.parametrize(
    ("validation", "code", "words"),
    [
        pytest.param({"expression": "false", "message": "too many"}, 422, "too many", id="in-words"),
        pytest.param(
            {"expression": "false", "messageExpression": "'found ' + string(size(object.data))"},
            422,
            "found 1",
            id="in-words-that-are-worked-out",
        ),
        pytest.param({"expression": "false", "reason": "Forbidden"}, 403, "failed expression: false", id="forbidden"),
        pytest.param({"expression": "object.nothing == 1"}, 422, "resulted in error: no such key: nothing", id="error"),
        pytest.param({"expression": "request.operation == 'CREATE' && oldObject == null"}, 201, "", id="of-both"),
        pytest.param({"expression": "namespaceObject.metadata.name == 'default'"}, 201, "", id="of-the-namespace"),
        pytest.param({"expression": "variables.count == 1 && variables.twice == 2"}, 201, "", id="of-variables"),
        pytest.param({"expression": "request.userInfo.username == 'seatrial-admin'"}, 201, "", id="of-the-user"),
    ],
)
def test_validations(api: Api, validation: Object, code: int, words: str) -> None:
    variables = [
        {"name": "count", "expression": "size(object.data)"},
        {"name": "twice", "expression": "variables.count * 2"},
        {"name": "broken", "expression": "object.nothing"},
    ]
    bound(api, policy(validation, variables=variables))
    found_code, body = api.ask("POST", CONFIGS, config("x", a="1"))
    assert found_code == code, body
    if words:
        assert words in body["message"]
        assert words in body["details"]["causes"][0]["message"]


@pytest.mark.parametrize(
    ("made", "spec", "denied"),
    [
        pytest.param(policy(NEVER), {}, True, id="all-of-them"),
        pytest.param(policy(NEVER, rules=[{**RULE, "resources": ["pods"]}]), {}, False, id="others"),
        pytest.param(policy(NEVER, rules=[{**RULE, "resourceNames": ["other"]}]), {}, False, id="other-names"),
        pytest.param(policy(NEVER, matchConstraints={"excludeResourceRules": [RULE]}), {}, False, id="excluded"),
        pytest.param(
            policy(NEVER, matchConstraints={"objectSelector": {"matchLabels": {"a": "b"}}}),
            {},
            False,
            id="other-labels",
        ),
        pytest.param(
            policy(NEVER),
            {"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}}},
            False,
            id="bound-elsewhere",
        ),
        pytest.param(
            policy(NEVER, matchConditions=[{"name": "c", "expression": "object.metadata.name == 'y'"}]),
            {},
            False,
            id="under-other-conditions",
        ),
        pytest.param(policy({"expression": "object.nothing"}, failurePolicy="Ignore"), {}, False, id="errors-ignored"),
        pytest.param(policy(NEVER), {"validationActions": ["Audit"]}, False, id="only-audited"),
    ],
)
def test_match_constraints(api: Api, made: Object, spec: Object, denied: bool) -> None:
    bound(api, made, **spec)
    assert (api.ask("POST", CONFIGS, config("x", a="1"))[0] == 422) is denied


def test_a_warning_does_not_deny(api: Api) -> None:
    bound(api, policy(NEVER), validationActions=["Warn"])
    response = api.server.handle(Request("POST", CONFIGS, orjson.dumps(config("x")), JSON))
    assert isinstance(response, Response)
    assert response.code == 201
    assert (
        "Validation failed for ValidatingAdmissionPolicy 'small' with binding 'everywhere'"
        in response.headers["warning"]
    )


def test_deletes_and_subresources(api: Api) -> None:
    rules = [
        {**RULE, "operations": ["DELETE"]},
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]},
    ]
    kept = {"expression": "request.operation != 'DELETE' || oldObject.metadata.name != 'kept'"}
    full = {"expression": "request.operation != 'CREATE' || object.target.name != 'full'"}
    bound(api, policy(kept, full, rules=rules))
    for name in ("kept", "other"):
        api.do("POST", CONFIGS, config(name))
    assert api.ask("DELETE", f"{CONFIGS}/kept")[0] == 422
    assert api.ask("DELETE", f"{CONFIGS}/other")[0] == 200
    api.do("POST", PODS, pod("p"))
    assert api.ask("POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "full"}})[0] == 422
    assert api.ask("POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "empty"}})[0] == 201


def test_parameters(api: Api) -> None:
    made = policy(
        {"expression": "!has(object.data) || size(object.data) <= int(params.data.most)"},
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
    )
    bound(api, made, paramRef={"name": "limits", "parameterNotFoundAction": "Deny"})
    code, body = api.ask("POST", CONFIGS, config("x"))
    assert (code, "no params found" in body["message"]) == (422, True)
    api.do("DELETE", f"{GROUP}/validatingadmissionpolicybindings/everywhere")
    api.do("POST", CONFIGS, config("limits", most="1"))
    spec = binding(paramRef={"name": "limits", "parameterNotFoundAction": "Deny"})
    api.do("POST", f"{GROUP}/validatingadmissionpolicybindings", spec)
    assert api.ask("POST", CONFIGS, config("x", a="1"))[0] == 201
    assert api.ask("POST", CONFIGS, config("y", a="1", b="2"))[0] == 422
    api.do("PATCH", f"{CONFIGS}/limits", {"data": {"most": "2"}}, MERGE_PATCH)
    assert api.ask("POST", CONFIGS, config("y", a="1", b="2"))[0] == 201


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        pytest.param("policies", policy({"expression": "x.y"}), "spec.validations[0].expression", id="unknown-name"),
        pytest.param("policies", policy({"expression": "1 +"}), "spec.validations[0].expression", id="half-of-one"),
        pytest.param("policies", policy({"expression": ""}), "spec.validations[0].expression", id="none"),
        pytest.param("policies", policy({"expression": "params.x"}), "spec.validations[0].expression", id="no-params"),
        pytest.param(
            "policies",
            policy(variables=[{"name": "v", "expression": "x"}]),
            "spec.variables[0].expression",
            id="a-bad-variable",
        ),
        pytest.param("policybindings", binding(policyName=""), "spec.policyName", id="bound-to-nothing"),
        pytest.param("policybindings", binding(validationActions=[]), "spec.validationActions", id="nothing-to-do"),
        pytest.param(
            "policybindings", binding(validationActions=["Deny", "Warn"]), "spec.validationActions", id="said-twice"
        ),
    ],
)
def test_invalid_policies_are_rejected(api: Api, path: str, body: Object, field: str) -> None:
    code, answer = api.ask("POST", f"{GROUP}/validatingadmission{path}", body)
    assert (code, [cause["field"] for cause in answer["details"]["causes"]]) == (422, [field])


def test_kubectl_lists_policies_and_is_denied_by_them(kubectl: Kubectl, namespace: str) -> None:
    made = policy({"expression": "object.metadata.name != 'forbidden'"})
    made["spec"]["matchConstraints"]["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    for kind, body in (("ValidatingAdmissionPolicy", made), ("ValidatingAdmissionPolicyBinding", binding())):
        full = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, **body}
        code, output = kubectl.run(["create", "-f", "-"], stdin=orjson.dumps(full).decode())
        assert code == 0, output
    try:
        code, output = kubectl.run(["get", "validatingadmissionpolicies,validatingadmissionpolicybindings"])
        assert code == 0, output
        assert "small" in output
        assert "everywhere" in output
        code, output = kubectl.run(["-n", namespace, "create", "cm", "forbidden"])
        assert code != 0
        assert DENIED in output
        assert kubectl.run(["-n", namespace, "create", "cm", "allowed"])[0] == 0
    finally:
        kubectl.run(["delete", "validatingadmissionpolicybinding/everywhere", "validatingadmissionpolicy/small"])
