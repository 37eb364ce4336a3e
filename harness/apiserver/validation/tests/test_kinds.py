import copy
from typing import Any

import pytest

from seatrial.harness.apiserver.defaults.kinds import default
from seatrial.harness.apiserver.field_errors import Cause
from seatrial.harness.apiserver.validation.kinds import message, validate
from seatrial.harness.apiserver.validation.tests.causes import LABEL, SUBDOMAIN, cause_lines

Object = dict[str, Any]

NO_MATCH = "`selector` does not match template `labels`"


def refused(group: str, kind: str, obj: Object, old: Object | None = None, **more: Any) -> list[str]:
    """The causes for a create or update, after defaulting."""
    for part in (obj, old):
        if part is not None:
            part.setdefault("metadata", {}).setdefault("name", "a")
            default(group, kind, part)
    return cause_lines(validate(group, kind, obj, old, **more))


def test_message_of_one_cause_and_of_several() -> None:
    one = Cause("spec.containers", "FieldValueRequired", "Required value")
    two = Cause("spec.x", "FieldValueForbidden", "Forbidden: no")
    assert message("Pod", "x", [one]) == 'Pod "x" is invalid: spec.containers: Required value'
    assert message("Pod", "x", [one, two, one]) == (
        'Pod "x" is invalid: [spec.containers: Required value, spec.x: Forbidden: no]'
    )
    assert message("Deployment", "x", [two], group="apps") == 'Deployment.apps "x" is invalid: spec.x: Forbidden: no'


@pytest.mark.parametrize(
    ("metadata", "want"),
    [
        pytest.param({"name": "a.b-c"}, [], id="a-fine-name"),
        pytest.param({}, ["metadata.name: Required value: name or generateName is required"], id="no-name"),
        pytest.param({"name": "A_b"}, [f'metadata.name: Invalid value: "A_b": {SUBDOMAIN}'], id="capitals"),
        pytest.param(
            {"name": "a" * 254},
            [f'metadata.name: Invalid value: "{"a" * 254}": must be no more than 253 characters'],
            id="a-long-name",
        ),
        pytest.param({"name": "web-x1", "generateName": "web-"}, [], id="a-generated-name"),
        pytest.param(
            {"name": "a", "labels": {"a/b/c": ""}},
            [
                (
                    'metadata.labels: Invalid value: "a/b/c": a qualified name must consist of'
                    " alphanumeric characters, '-',"
                    " '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or"
                    " 'my.name',  or"
                    " '123-abc', regex used for validation is"
                    " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS"
                    " subdomain prefix and '/' (e.g. 'example.com/MyName')"
                )
            ],
            id="two-slashes-in-a-label",
        ),
        pytest.param(
            {"name": "a", "labels": {"a": "no spaces"}},
            [
                (
                    'metadata.labels: Invalid value: "no spaces": a valid label must be an empty string or consist of'
                    " alphanumeric characters, '-', '_' or '.', and must start and end with an"
                    " alphanumeric character (e.g."
                    " 'MyValue',  or 'my_value',  or '12345', regex used for validation is"
                    " '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
                )
            ],
            id="a-label-with-a-space",
        ),
        pytest.param(
            {"name": "a", "annotations": {"Note": "x" * 262144}},
            ["metadata.annotations: Too long: may not be more than 262144 bytes"],
            id="annotations-over-256-kib",
        ),
        pytest.param(
            {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n"}]},
            ["metadata.ownerReferences[0].uid: Required value: must not be empty"],
            id="an-owner-without-uid",
        ),
        pytest.param(
            {"name": "a", "finalizers": ["orphan", "foregroundDeletion"]},
            [
                (
                    'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]:'
                    " finalizer orphan and foregroundDeletion cannot be both set"
                )
            ],
            id="finalizers-that-contradict",
        ),
    ],
)
def test_metadata(metadata: Object, want: list[str]) -> None:
    assert cause_lines(validate("example.com", "Widget", {"metadata": metadata})) == want


def test_two_controllers() -> None:
    owners = [{"apiVersion": "v1", "kind": "K", "name": name, "uid": name, "controller": True} for name in ("x", "y")]
    (cause,) = validate("", "ConfigMap", {"metadata": {"name": "a", "ownerReferences": owners}})
    assert cause.message.endswith(
        'Only one reference can have Controller set to true. Found "true" in references for K/x and K/y'
    )


def test_metadata_updates() -> None:
    old = {"metadata": {"name": "a", "uid": "u", "finalizers": ["x.y/z"], "deletionTimestamp": "2030-01-01T00:00:00Z"}}
    new = copy.deepcopy(old)
    new["metadata"] |= {"uid": "v", "finalizers": ["x.y/z", "x.y/new"]}
    assert cause_lines(validate("example.com", "Widget", new, old)) == [
        (
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted,"
            ' found new finalizers []string{"x.y/new"}'
        ),
        'metadata.uid: Invalid value: "v": field is immutable',
    ]


def workload(labels: Object, **spec: Any) -> Object:
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    return {"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template, **spec}}


@pytest.mark.parametrize(
    ("obj", "old", "want"),
    [
        pytest.param(workload({"app": "a"}), None, [], id="a-fine-deployment"),
        pytest.param(
            workload({"app": "b"}),
            None,
            ['spec.template.metadata.labels: Invalid value: {"app":"b"}: `selector` does not match template `labels`'],
            id="selector-misses-the-template",
        ),
        pytest.param(
            workload({"app": "a"}, selector=None),
            None,
            [
                "spec.selector: Required value",
                f'spec.template.metadata.labels: Invalid value: {{"app":"a"}}: {NO_MATCH}',
            ],
            id="no-selector",
        ),
        pytest.param(
            workload({"app": "a"}, selector={}),
            None,
            ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
            id="empty-selector",
        ),
        pytest.param(
            workload({"app": "a"}, replicas=-1),
            None,
            ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
            id="fewer-than-none",
        ),
        pytest.param(
            workload({"app": "a"}, strategy={"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}}),
            None,
            ["spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"],
            id="no-room-to-roll",
        ),
        pytest.param(
            workload({"app": "b"}, selector={"matchLabels": {"app": "b"}}),
            workload({"app": "a"}),
            ['spec.selector: Invalid value: {"matchLabels":{"app":"b"}}: field is immutable'],
            id="another-selector",
        ),
    ],
)
def test_deployments(obj: Object, old: Object | None, want: list[str]) -> None:
    assert refused("apps", "Deployment", copy.deepcopy(obj), copy.deepcopy(old)) == want


def job(image: str = "x", policy: str = "Never", **spec: Any) -> Object:
    template = {"spec": {"restartPolicy": policy, "containers": [{"name": "c", "image": image}]}}
    return {"metadata": {"name": "a", "uid": "u"}, "spec": {"template": template, **spec}}


def test_jobs() -> None:
    assert refused("batch", "Job", job()) == []
    assert refused("batch", "Job", job(policy="")) == [
        'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    ]
    assert refused("batch", "Job", job(completionMode="Indexed", parallelism=2)) == [
        "spec.completions: Required value: when completion mode is Indexed"
    ]
    (changed,) = refused("batch", "Job", job("y"), job("x"))
    assert changed.startswith("spec.template: Invalid value: {")
    assert changed.endswith(": field is immutable")


def test_stateful_sets_keep_their_claims() -> None:
    claims = [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]
    (problem,) = refused(
        "apps", "StatefulSet", workload({"app": "a"}, volumeClaimTemplates=claims), workload({"app": "a"})
    )
    assert problem == (
        "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template',"
        " 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are"
        " forbidden"
    )


TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("group", "kind", "obj", "old", "want"),
    [
        pytest.param(
            "",
            "Namespace",
            {"metadata": {"name": "a.b"}},
            None,
            [f'metadata.name: Invalid value: "a.b": {LABEL}'],
            id="a-namespace-is-one-label",
        ),
        pytest.param(
            "",
            "Node",
            {"spec": {"taints": [TAINT, TAINT]}},
            None,
            [
                (
                    'metadata.taints[1]: Duplicate value: {"effect":"NoSchedule","key":"k","value":"v"}:'
                    " taints must be unique"
                    " by key and effect pair"
                )
            ],
            id="a-taint-twice",
        ),
        pytest.param(
            "",
            "Node",
            {"status": {"allocatable": {"nvidia.com/gpu": "1500m"}}},
            None,
            ['status.allocatable[nvidia.com/gpu]: Invalid value: "1500m": must be an integer'],
            id="a-card-and-a-half",
        ),
        pytest.param(
            "",
            "Service",
            {"spec": {"ports": [{"port": 80}, {"port": 0, "name": "b"}]}},
            None,
            [
                "spec.ports[0].name: Required value",
                "spec.ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ports[1].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
            ],
            id="service-ports",
        ),
        pytest.param("", "Service", {"spec": {}}, None, ["spec.ports: Required value"], id="a-service-without-ports"),
        pytest.param(
            "",
            "ConfigMap",
            {"data": {"..": ""}},
            None,
            ["data[..]: Invalid value: \"..\": must not be '..'"],
            id="a-key-that-is-a-folder",
        ),
        pytest.param(
            "",
            "ConfigMap",
            {"data": {"a": "2"}, "immutable": True},
            {"data": {"a": "1"}, "immutable": True},
            ["data: Forbidden: field is immutable when `immutable` is set"],
            id="a-frozen-config-map",
        ),
        pytest.param(
            "",
            "Secret",
            {"type": "b"},
            {"type": "a"},
            ['type: Invalid value: "b": field is immutable'],
            id="the-type-of-a-secret",
        ),
        pytest.param(
            "scheduling.k8s.io",
            "PriorityClass",
            {"value": 1_000_000_001},
            None,
            ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
            id="too-important",
        ),
        pytest.param(
            "scheduling.k8s.io",
            "PriorityClass",
            {"value": 2},
            {"value": 1},
            ["value: Forbidden: may not be changed in an update."],
            id="more-important-later",
        ),
        pytest.param(
            "policy",
            "PodDisruptionBudget",
            {"spec": {"minAvailable": 1, "maxUnavailable": "50%"}},
            None,
            [
                (
                    'spec: Invalid value: {"maxUnavailable":"50%","minAvailable":1}: minAvailable and'
                    " maxUnavailable cannot be"
                    " both set"
                )
            ],
            id="budget-with-both",
        ),
        pytest.param(
            "coordination.k8s.io",
            "Lease",
            {"spec": {"leaseDurationSeconds": 0}},
            None,
            ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"],
            id="a-lease-for-no-time",
        ),
        pytest.param(
            "rbac.authorization.k8s.io",
            "Role",
            {"metadata": {"name": "system:a"}, "rules": [{"apiGroups": [""], "resources": ["pods"]}]},
            None,
            ["rules[0].verbs: Required value: verbs must contain at least one value"],
            id="a-role-for-nothing",
        ),
        pytest.param(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            {
                "metadata": {"name": "devices.example.com"},
                "spec": {
                    "group": "example.com",
                    "scope": "Cluster",
                    "names": {"plural": "widgets", "kind": "Widget"},
                    "versions": [{"name": "v1", "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}],
                },
            },
            None,
            ['metadata.name: Invalid value: "devices.example.com": must be spec.names.plural+"."+spec.group'],
            id="a-definition-of-another-name",
        ),
    ],
)
def test_other_kinds(group: str, kind: str, obj: Object, old: Object | None, want: list[str]) -> None:
    assert refused(group, kind, copy.deepcopy(obj), copy.deepcopy(old)) == want


def test_a_match_condition_without_a_name_is_refused() -> None:
    webhook = {
        "name": "a.b.c",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:9/x"},
        "matchConditions": [{"name": None, "expression": "true"}],
    }
    names = refused("admissionregistration.k8s.io", "MutatingWebhookConfiguration", {"webhooks": [webhook]})
    assert names == ["webhooks[0].matchConditions[0].name: Required value"]
