import copy
from typing import Any

import pytest

from harness.apiserver.causes import Cause
from harness.apiserver.defaults import default
from harness.apiserver.validation import message, validate

Object = dict[str, Any]

SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end"
    " with an alphanumeric character (e.g. 'example.com', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an"
    " alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
REFUSED = (
    "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing"
    " tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def told(causes: list[Cause]) -> list[str]:
    return [f"{cause.field}: {cause.message}" for cause in causes]


def pod(container: Object | None = None, **spec: Any) -> Object:
    obj = {
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "web:1", **(container or {})}], **spec},
    }
    default("", "Pod", obj)
    return obj


def refused(group: str, kind: str, obj: Object, old: Object | None = None, **more: Any) -> list[str]:
    """What a create or update is told after defaulting."""
    for part in (obj, old):
        if part is not None:
            part.setdefault("metadata", {}).setdefault("name", "a")
            default(group, kind, part)
    return told(validate(group, kind, obj, old, **more))


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
            [f'metadata.name: Invalid value: "{"a" * 254}": must be no more than 253 bytes'],
            id="a-long-name",
        ),
        pytest.param({"name": "web-x1", "generateName": "web-"}, [], id="a-generated-name"),
        pytest.param(
            {"name": "a", "labels": {"a/b/c": ""}},
            [
                "metadata.labels: Invalid value: \"a/b/c\": a qualified name must consist of alphanumeric characters, '-',"
                " '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or"
                " '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS"
                " subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ],
            id="two-slashes-in-a-label",
        ),
        pytest.param(
            {"name": "a", "labels": {"a": "no spaces"}},
            [
                'metadata.labels: Invalid value: "no spaces": a valid label must be an empty string or consist of'
                " alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g."
                " 'MyValue',  or 'my_value',  or '12345', regex used for validation is"
                " '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
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
            ['metadata.ownerReferences.uid: Invalid value: "": must not be empty'],
            id="an-owner-without-uid",
        ),
        pytest.param(
            {"name": "a", "finalizers": ["orphan", "foregroundDeletion"]},
            [
                'metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]:'
                " finalizer orphan and foregroundDeletion cannot be both set"
            ],
            id="finalizers-that-contradict",
        ),
    ],
)
def test_metadata(metadata: Object, want: list[str]) -> None:
    assert told(validate("example.com", "Widget", {"metadata": metadata})) == want


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
    assert told(validate("example.com", "Widget", new, old)) == [
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted,"
        ' found new finalizers []string{"x.y/new"}',
        'metadata.uid: Invalid value: "v": field is immutable',
    ]


def gpu(request: Any, limit: Any) -> Object:
    return {
        "resources": {"requests": {"koordinator.sh/gpu-core": request}, "limits": {"koordinator.sh/gpu-core": limit}}
    }


@pytest.mark.parametrize(
    ("container", "want"),
    [
        pytest.param({}, [], id="a-plain-container"),
        pytest.param({"name": ""}, ["name: Required value"], id="no-name"),
        pytest.param({"name": "C"}, [f'name: Invalid value: "C": {LABEL}'], id="a-capital-name"),
        pytest.param({"image": ""}, ["image: Required value"], id="no-image"),
        pytest.param(
            {"image": " web"},
            ['image: Invalid value: " web": must not have leading or trailing whitespace'],
            id="image-with-a-space",
        ),
        pytest.param(
            {"imagePullPolicy": "Sometimes"},
            [
                'imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"',
            ],
            id="pull-policy",
        ),
        pytest.param(
            {"ports": [{"containerPort": 70000}, {"protocol": "ICMP"}]},
            [
                "ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
                "ports[1].containerPort: Required value",
                'ports[1].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"',
            ],
            id="ports",
        ),
        pytest.param(
            {"ports": [{"name": "http", "containerPort": 80}, {"name": "http", "containerPort": 81}]},
            ['ports[1].name: Duplicate value: "http"'],
            id="port-name-twice",
        ),
        pytest.param(
            {"env": [{"value": "x"}, {"name": "A=B"}]},
            [
                "env[0].name: Required value",
                'env[1].name: Invalid value: "A=B": a valid environment variable name must consist only of printable'
                " ASCII characters other than '='",
            ],
            id="environment",
        ),
        pytest.param(
            {"volumeMounts": [{"name": "data", "mountPath": "/x"}]},
            ['volumeMounts[0].name: Not found: "data"'],
            id="mount-of-no-volume",
        ),
        pytest.param(
            {"readinessProbe": {"exec": {}, "tcpSocket": {"port": 1}}},
            [
                "readinessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
                "readinessProbe.exec.command: Required value",
            ],
            id="probe-with-two-handlers",
        ),
        pytest.param(
            {"livenessProbe": {"tcpSocket": {"port": 1}, "successThreshold": 2}},
            ["livenessProbe.successThreshold: Invalid value: 2: must be 1"],
            id="liveness-after-two-successes",
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            ['resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'],
            id="request-over-limit",
        ),
        pytest.param(
            gpu("50", "100"),
            ['resources.requests: Invalid value: "50": must be equal to koordinator.sh/gpu-core limit of 100'],
            id="extended-request-below-limit",
        ),
        pytest.param(gpu(50, "50"), [], id="extended-request-as-a-number"),
        pytest.param(
            gpu("500m", "500m"),
            [
                "resources.limits[koordinator.sh/gpu-core]: Invalid value: 500m: must be an integer",
                "resources.requests[koordinator.sh/gpu-core]: Invalid value: 500m: must be an integer",
            ],
            id="half-a-card",
        ),
        pytest.param(
            {"resources": {"requests": {"nvidia.com/gpu": "1"}}},
            ["resources.limits: Required value: Limit must be set for non overcommitable resources"],
            id="a-card-without-a-limit",
        ),
        pytest.param({"resources": {"requests": {"kubernetes.io/batch-cpu": "1500"}}}, [], id="batch-is-overcommitted"),
        pytest.param(
            {"resources": {"requests": {"cpu": "lots"}}},
            [
                'resources.requests[cpu]: Invalid value: "lots": quantities must match the regular expression'
                " '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            ],
            id="no-quantity",
        ),
        pytest.param(
            {"resources": {"requests": {"memory": "-1"}}},
            ['resources.requests[memory]: Invalid value: "-1": must be greater than or equal to 0'],
            id="less-than-nothing",
        ),
        pytest.param(
            {"resources": {"requests": {"gpu": "1"}}},
            [
                'resources.requests[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified',
                'resources.requests[gpu]: Invalid value: "gpu": must be a standard resource for containers',
            ],
            id="a-resource-without-a-domain",
        ),
        pytest.param(
            {"resources": {"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}}},
            [
                'resources.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of'
                " hugepages-2Mi",
                'resources.requests[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of'
                " hugepages-2Mi",
            ],
            id="a-page-and-a-half",
        ),
        pytest.param(
            {"resources": {"limits": {"hugepages-2Mi": "4Mi"}}},
            ["resources: Forbidden: HugePages require cpu or memory"],
            id="pages-alone",
        ),
    ],
)
def test_containers(container: Object, want: list[str]) -> None:
    assert told(validate("", "Pod", pod(container))) == [f"spec.containers[0].{problem}" for problem in want]


def term(**fields: Any) -> Object:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [fields]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


NODE_TERM = (
    "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0]"
)


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"containers": []}, ["containers: Required value"], id="no-containers"),
        pytest.param(
            {"containers": [{"name": "c", "image": "x"}, {"name": "c", "image": "x"}]},
            ['containers[1].name: Duplicate value: "c"'],
            id="containers-of-one-name",
        ),
        pytest.param(
            {"initContainers": [{"name": "c", "image": "x"}]},
            ['initContainers[0].name: Duplicate value: "c"'],
            id="an-init-container-of-the-same-name",
        ),
        pytest.param(
            {"initContainers": [{"name": "i", "image": "x", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}]},
            ["initContainers[0].lifecycle: Forbidden: may not be set for init containers without restartPolicy=Always"],
            id="a-hook-on-an-init-container",
        ),
        pytest.param(
            {"restartPolicy": "Sometimes"},
            ['restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"'],
            id="restart-policy",
        ),
        pytest.param(
            {"dnsPolicy": "Mine"},
            [
                'dnsPolicy: Unsupported value: "Mine": supported values: "ClusterFirstWithHostNet", "ClusterFirst",'
                ' "Default", "None"'
            ],
            id="dns-policy",
        ),
        pytest.param(
            {"terminationGracePeriodSeconds": -5},
            ["terminationGracePeriodSeconds: Invalid value: -5: must be greater than or equal to 0"],
            id="grace-below-zero",
        ),
        pytest.param(
            {"activeDeadlineSeconds": 0},
            ["activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
            id="no-time-at-all",
        ),
        pytest.param({"nodeName": "N"}, [f'nodeName: Invalid value: "N": {SUBDOMAIN}'], id="node-name"),
        pytest.param(
            {"nodeName": "n", "schedulingGates": [{"name": "g"}]},
            ["nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
            id="gated-and-bound",
        ),
        pytest.param(
            {"schedulingGates": [{"name": "g"}, {"name": "g"}]},
            ['schedulingGates[1]: Duplicate value: "g"'],
            id="a-gate-twice",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]},
            ['volumes[1].name: Duplicate value: "v"'],
            id="a-volume-twice",
        ),
        pytest.param(
            {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]},
            ["volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"],
            id="a-volume-of-two-kinds",
        ),
        pytest.param(
            {"tolerations": [{"operator": "Equal"}]},
            [
                'tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means'
                ' "match all values and all keys"'
            ],
            id="toleration-without-a-key",
        ),
        pytest.param(
            {"tolerations": [{"key": "k", "operator": "Like", "effect": "NoStart"}]},
            [
                'tolerations[0].operator: Unsupported value: "Like": supported values: "Equal", "Exists"',
                'tolerations[0].effect: Unsupported value: "NoStart": supported values: "NoSchedule", "PreferNoSchedule",'
                ' "NoExecute"',
            ],
            id="toleration-operator-and-effect",
        ),
        pytest.param(
            {"tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 1}]},
            [
                "tolerations[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when"
                " `tolerationSeconds` is set"
            ],
            id="seconds-without-no-execute",
        ),
        pytest.param(
            {"topologySpreadConstraints": [{"maxSkew": 0, "whenUnsatisfiable": "Cry"}]},
            [
                "topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
                "topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
                'topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "Cry": supported values:'
                ' "DoNotSchedule", "ScheduleAnyway"',
            ],
            id="spread",
        ),
        pytest.param(
            {"affinity": term(key="zone", operator="In")},
            [f"{NODE_TERM}.values: Required value: must be specified when `operator` is 'In' or 'NotIn'"],
            id="in-nothing",
        ),
        pytest.param(
            {"affinity": term(key="zone", operator="Near", values=["a"])},
            [f'{NODE_TERM}.operator: Invalid value: "Near": not a valid selector operator'],
            id="no-such-operator",
        ),
        pytest.param({"affinity": term(key="cards", operator="Gt", values=["4"])}, [], id="more-than-four"),
        pytest.param(
            {"ephemeralContainers": [{"name": "debug", "image": "x"}]},
            ["ephemeralContainers: Forbidden: cannot be set on create"],
            id="ephemeral-from-the-start",
        ),
    ],
)
def test_pod_specs(spec: Object, want: list[str]) -> None:
    assert told(validate("", "Pod", pod(**spec))) == [f"spec.{problem}" for problem in want]


GATED = {"schedulingGates": [{"name": "queue"}]}
TOLERATION = {"key": "k", "operator": "Exists", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param({}, {}, [], id="nothing-changed"),
        pytest.param({}, {"containers": [{"name": "c", "image": "web:2"}]}, [REFUSED], id="pull-policy-moved-too"),
        pytest.param({}, {"nodeSelector": {"a": "b"}}, [REFUSED], id="node-selector"),
        pytest.param({}, {"priority": 5}, [REFUSED], id="priority"),
        pytest.param(
            {},
            {"containers": [{"name": "c", "image": "web:1"}, {"name": "d", "image": "x:1"}]},
            ["spec.containers: Forbidden: pod updates may not add or remove containers"],
            id="one-more-container",
        ),
        pytest.param({}, {"activeDeadlineSeconds": 9}, [], id="a-deadline"),
        pytest.param({"activeDeadlineSeconds": 9}, {"activeDeadlineSeconds": 5}, [], id="an-earlier-deadline"),
        pytest.param(
            {"activeDeadlineSeconds": 9},
            {"activeDeadlineSeconds": 10},
            ["spec.activeDeadlineSeconds: Invalid value: 10: must be less than or equal to previous value"],
            id="a-later-deadline",
        ),
        pytest.param(
            {"activeDeadlineSeconds": 9},
            {},
            ["spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"],
            id="no-deadline-any-more",
        ),
        pytest.param({}, {"tolerations": [TOLERATION]}, [], id="a-toleration-more"),
        pytest.param(
            {"tolerations": [TOLERATION]},
            {"tolerations": [{**TOLERATION, "tolerationSeconds": 5}]},
            [],
            id="other-seconds",
        ),
        pytest.param(
            {"tolerations": [TOLERATION]},
            {},
            ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
            id="a-toleration-less",
        ),
        pytest.param(GATED, {}, [], id="gate-opened"),
        pytest.param(
            {},
            GATED,
            [
                "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'queue'"
            ],
            id="gate-closed",
        ),
        pytest.param(GATED, {"nodeSelector": {"a": "b"}}, [], id="narrowed-while-gated"),
        pytest.param(
            {**GATED, "nodeSelector": {"a": "b"}},
            {**GATED, "nodeSelector": {"a": "z"}},
            [
                'spec.nodeSelector: Invalid value: {"a":"z"}: only additions to spec.nodeSelector are allowed'
                " (no mutations or deletions)"
            ],
            id="widened-while-gated",
        ),
        pytest.param(GATED, {"affinity": term(key="a", operator="Exists")}, [], id="affinity-while-gated"),
        pytest.param({}, {"affinity": term(key="a", operator="Exists")}, [REFUSED], id="affinity-afterwards"),
    ],
)
def test_pod_updates(before: Object, after: Object, want: list[str]) -> None:
    if "containers" in after and want == [REFUSED]:
        after["containers"][0]["imagePullPolicy"] = "Always"
    assert told(validate("", "Pod", pod(**after), pod(**before))) == want


def test_an_image_may_change() -> None:
    assert validate("", "Pod", pod({"image": "web:2"}), pod()) == []


def test_a_negative_grace_period_may_become_one() -> None:
    old = pod(terminationGracePeriodSeconds=-1)
    assert validate("", "Pod", pod(terminationGracePeriodSeconds=1), old) == []
    assert told(validate("", "Pod", pod(terminationGracePeriodSeconds=2), old)) == [REFUSED]


def test_status_updates_do_not_bind() -> None:
    assert validate("", "Pod", pod(), pod(), subresource="status") == []
    assert told(validate("", "Pod", pod(nodeName="n"), pod(), subresource="status")) == [
        "status.nodeName: Forbidden: may not be changed directly"
    ]


def test_resize_moves_cpu_and_nothing_else() -> None:
    old = pod({"resources": {"requests": {"cpu": "1"}}})
    assert validate("", "Pod", pod({"resources": {"requests": {"cpu": "2"}}}), old, subresource="resize") == []
    more_disk = pod({"resources": {"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}}})
    assert told(validate("", "Pod", more_disk, old, subresource="resize")) == [
        "spec.containers[0].resources: Forbidden: only cpu and memory resources are mutable"
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
        pytest.param(workload({"app": "a"}, selector=None), None, ["spec.selector: Required value"], id="no-selector"),
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
                'metadata.taints[1]: Duplicate value: {"effect":"NoSchedule","key":"k","value":"v"}: taints must be unique'
                " by key and effect pair"
            ],
            id="a-taint-twice",
        ),
        pytest.param(
            "",
            "Node",
            {"status": {"allocatable": {"nvidia.com/gpu": "1500m"}}},
            None,
            ["status.allocatable[nvidia.com/gpu]: Invalid value: 1500m: must be an integer"],
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
                'spec: Invalid value: {"maxUnavailable":"50%","minAvailable":1}: minAvailable and maxUnavailable cannot be'
                " both set"
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
