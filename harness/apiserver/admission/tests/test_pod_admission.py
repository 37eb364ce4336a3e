"""Admission of pods by service account, runtime class and the pod security labels of their namespace; warnings."""

from typing import Any

import orjson
import pytest

from seatrial.harness.apiserver.tests.asking import PODS, Api, pod
from seatrial.scheduler.api.transport import JSON, MERGE_PATCH, Request, Response

NAMESPACE = "/api/v1/namespaces/default"
SAFE: dict[str, Any] = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "main",
            "image": "i",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
    ],
}


def labelled(mode: str, level: str) -> Api:
    api = Api()
    labels = {f"pod-security.kubernetes.io/{mode}": level}
    api.do("PATCH", NAMESPACE, {"metadata": {"labels": labels}}, MERGE_PATCH)
    return api


def contained(**context: Any) -> dict[str, Any]:
    return {"containers": [{"name": "main", "image": "i", "securityContext": context}]}


def warned(api: Api, path: str, body: dict[str, Any]) -> str:
    response = api.server.handle(Request("POST", path, orjson.dumps(body), JSON))
    assert isinstance(response, Response)
    assert response.code == 201, response.body
    return response.headers.get("warning", "")


@pytest.mark.parametrize(
    ("level", "spec", "expected"),
    [
        pytest.param("baseline", {}, "", id="an-ordinary-pod"),
        pytest.param("baseline", {"hostNetwork": True}, "host namespaces (hostNetwork=true)", id="host-network"),
        pytest.param(
            "baseline",
            {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
            'hostPath volumes (volume "v")',
            id="host-path",
        ),
        pytest.param(
            "baseline",
            contained(privileged=True),
            'privileged (container "main" must not set securityContext.privileged=true)',
            id="privileged",
        ),
        pytest.param(
            "baseline",
            contained(capabilities={"add": ["SYS_ADMIN", "CHOWN"]}),
            'non-default capabilities (container "main" must not include "SYS_ADMIN"',
            id="capability",
        ),
        pytest.param(
            "baseline",
            {"containers": [{"name": "m", "image": "i", "ports": [{"containerPort": 8, "hostPort": 8}]}]},
            'hostPort (container "m" uses hostPort 8)',
            id="host-port",
        ),
        pytest.param("restricted", SAFE, "", id="a-restricted-pod"),
        pytest.param("restricted", {}, 'runAsNonRoot != true (pod or container "main" must set', id="root"),
        pytest.param(
            "restricted",
            {**SAFE, "volumes": [{"name": "v", "nfs": {"server": "s", "path": "/p"}}]},
            'restricted volume types (volume "v"',
            id="volume-type",
        ),
        pytest.param("privileged", contained(privileged=True), "", id="the-level-that-allows-all"),
    ],
)
def test_enforced_levels(level: str, spec: dict[str, Any], expected: str) -> None:
    api = labelled("enforce", level)
    code, body = api.ask("POST", PODS, pod("p", **spec))
    assert code == (403 if expected else 201), body
    if expected:
        assert body["message"].startswith(f'pods "p" is forbidden: violates PodSecurity "{level}:latest": ')
        assert expected in body["message"]


def test_a_level_to_warn_of_warns_of_pods_and_workloads() -> None:
    api = labelled("warn", "restricted")
    text = 'would violate PodSecurity \\"restricted:latest\\"'
    assert text in warned(api, PODS, pod("p"))
    assert not warned(api, PODS, pod("safe", **SAFE))
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    path = "/apis/apps/v1/namespaces/default/deployments"
    assert text in warned(api, path, {"metadata": {"name": "d"}, "spec": spec})


def test_a_label_that_changes_counts_for_the_next_pod() -> None:
    api = labelled("enforce", "baseline")
    body = pod("p", hostNetwork=True)
    assert api.ask("POST", PODS, body)[0] == 403
    api.do("PATCH", NAMESPACE, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": None}}}, MERGE_PATCH)
    assert api.ask("POST", PODS, body)[0] == 201


def test_account_and_runtime_class_must_exist() -> None:
    api = Api()
    code, body = api.ask("POST", PODS, pod("p", serviceAccountName="none"))
    assert (code, body["reason"]) == (403, "Forbidden")
    assert 'error looking up service account default/none: serviceaccount "none" not found' in body["message"]
    api.do("POST", f"{NAMESPACE}/serviceaccounts", {"metadata": {"name": "none"}})
    assert api.ask("POST", PODS, pod("p", serviceAccountName="none"))[0] == 201
    api.do("DELETE", f"{NAMESPACE}/serviceaccounts/none")
    assert api.ask("POST", PODS, pod("q", serviceAccountName="none"))[0] == 403  # the spec is known from before
    assert api.ask("POST", PODS, pod("r", runtimeClassName="none"))[0] == 403


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"nodeSelector": {"beta.kubernetes.io/os": "linux"}}, "kubernetes.io/os", id="old-label"),
        pytest.param(
            {"containers": [{"name": "a", "image": "i", "env": [{"name": "A"}, {"name": "A"}]}]},
            "hides previous definition",
            id="a-variable-twice",
        ),
        pytest.param(
            {"containers": [{"name": "a", "image": "i", "resources": {"requests": {"memory": "100m"}}}]},
            "fractional byte value",
            id="part-of-a-byte",
        ),
        pytest.param({}, "", id="nothing"),
    ],
)
def test_warnings_of_pods(spec: dict[str, Any], expected: str) -> None:
    api = Api()
    for name in ("first", "second"):  # specs are cached, warnings are not
        text = warned(api, PODS, pod(name, **spec))
        assert expected in text
        assert bool(text) == bool(expected)


def test_deprecated_kinds_and_jobs_that_leave_their_pods_are_warned_of() -> None:
    api = Api()
    assert "Endpoints is deprecated" in warned(api, f"{NAMESPACE}/endpoints", {"metadata": {"name": "e"}})
    job = {"metadata": {"name": "j"}, "spec": {"template": {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}}}}
    path = "/apis/batch/v1/namespaces/default/jobs"
    api.do("POST", path, job)
    api.clock.advance(1)
    assert len(api.do("GET", PODS)["items"]) == 1
    response = api.server.handle(Request("DELETE", f"{path}/j"))
    assert isinstance(response, Response)
    assert "child pods are preserved by default" in response.headers["warning"]
    api.clock.advance(1)
    assert len(api.do("GET", PODS)["items"]) == 1
