"""One object of each group of rules that kube-apiserver 1.34.2 refuses, with its message.

More of them, and valid neighbours, are compared in `differential/values.yaml`.
"""

from typing import Any

import pytest

from seatrial.harness.apiserver.tests.asking import PODS, Api, Object, pod
from seatrial.scheduler.api.transport import MERGE_PATCH

JOBS = "/apis/batch/v1/namespaces/default/jobs"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NEVER = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "x"}]}}


def secured(**context: Any) -> Object:
    return pod("p", containers=[{"name": "a", "image": "x", "securityContext": context}])


def job(**spec: Any) -> Object:
    return {"metadata": {"name": "j"}, "spec": {"template": NEVER, **spec}}


def definition(schema: Object | None = None, **version: Any) -> Object:
    shown = {"type": "object", "properties": {"l": schema}} if schema else {"type": "object"}
    of_version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": shown}, **version}
    names = {"plural": "as", "kind": "A"}
    return {
        "metadata": {"name": "as.x.io"},
        "spec": {"group": "x.io", "scope": "Cluster", "names": names, "versions": [of_version]},
    }


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        pytest.param(
            PODS,
            secured(runAsUser=-1),
            "spec.containers[0].securityContext.runAsUser: Invalid value: -1:"
            " must be between 0 and 2147483647, inclusive",
            id="user",
        ),
        pytest.param(
            PODS,
            secured(privileged=True, allowPrivilegeEscalation=False),
            "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            id="privileged",
        ),
        pytest.param(
            PODS,
            pod("p", os={"name": "windows"}, securityContext={"runAsUser": 5}),
            "spec.securityContext.runAsUser: Forbidden: cannot be set for a windows pod",
            id="windows",
        ),
        pytest.param(
            PODS,
            pod("p", hostUsers=False, hostPID=True),
            "spec.HostPID: Forbidden: when `hostUsers` is false",
            id="users-of-the-host",
        ),
        pytest.param(
            PODS,
            pod("p", resourceClaims=[{"name": "a"}]),
            "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            id="claim",
        ),
        pytest.param(
            JOBS,
            job(podFailurePolicy={"rules": [{"action": "FailJob"}]}),
            "specifying one of OnExitCodes and OnPodConditions is required",
            id="failure-policy",
        ),
        pytest.param(
            JOBS,
            job(completionMode="Indexed", completions=3, successPolicy={"rules": [{"succeededIndexes": "2,1"}]}),
            "error parsing succeededIndexes: non-increasing order, previous: 2, current: 1",
            id="success",
        ),
        pytest.param(JOBS, job(managedBy="x"), 'must be a domain-prefixed path (such as "acme.io/foo")', id="manager"),
        pytest.param(
            DEFINITIONS,
            definition({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
            "x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
            id="list-keys",
        ),
        pytest.param(
            DEFINITIONS,
            definition(additionalPrinterColumns=[{"name": "x", "type": "string", "jsonPath": "$..a"}]),
            'spec.additionalPrinterColumns[0].JSONPath: Invalid value: "$..a": must be a simple json path'
            " starting with .",
            id="column",
        ),
        pytest.param(
            DEFINITIONS,
            definition(selectableFields=[{"jsonPath": ".spec.a"}]),
            "is an invalid path: does not refer to a valid field",
            id="selectable-field",
        ),
        pytest.param(
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            {"metadata": {"name": "l"}, "spec": {"renewTime": "2026-01-01T00:00:00Z"}},
            'cannot parse "Z" as ".000000"',
            id="time-without-microseconds",
        ),
    ],
)
def test_refused(path: str, body: Object, message: str) -> None:
    code, answer = Api().ask("POST", path, body)
    assert code in {400, 422}
    assert message in answer["message"]


def test_a_deployment_may_double_its_pods() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "x"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "101%"}}
    assert Api().ask("POST", DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": {**spec, "strategy": strategy}})[0] == 201


@pytest.mark.parametrize(
    ("status", "message"),
    [
        pytest.param({"podIP": "zz"}, 'status.podIPs[0]: Invalid value: "zz": must be a valid IP address', id="ip"),
        pytest.param(
            {"podIPs": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.5"}]},
            "no more than one IP for each IP family",
            id="two-of-one-family",
        ),
        pytest.param({"hostIP": "1.2.3.4", "hostIPs": [{"ip": "1.2.3.5"}]}, "must be equal to `hostIP`", id="host"),
        pytest.param({"qosClass": "Burstable"}, 'status.qosClass: Invalid value: "Burstable"', id="qos"),
        pytest.param({"nominatedNodeName": "A B"}, "status.nominatedNodeName: Invalid value", id="node"),
    ],
)
def test_status_of_a_pod_that_is_refused(status: Object, message: str) -> None:
    api = Api()
    api.do("POST", PODS, pod("p"))
    code, body = api.ask("PATCH", f"{PODS}/p/status", {"status": status}, MERGE_PATCH)
    assert code == 422
    assert message in body["message"]
