from typing import Any

import pytest

from seatrial.harness.apiserver.defaults.kinds import default
from seatrial.harness.apiserver.validation.kinds import validate
from seatrial.harness.apiserver.validation.tests.causes import LABEL, SUBDOMAIN, cause_lines

Object = dict[str, Any]

REFUSED = (
    "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing"
    " tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod(container: Object | None = None, **spec: Any) -> Object:
    obj = {
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "web:1", **(container or {})}], **spec},
    }
    default("", "Pod", obj)
    return obj


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
            ['imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"'],
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
                (
                    'env[1].name: Invalid value: "A=B": a valid environment variable name must consist only of'
                    " printable"
                    " ASCII characters other than '='"
                ),
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
                'resources.limits[koordinator.sh/gpu-core]: Invalid value: "500m": must be an integer',
                'resources.requests[koordinator.sh/gpu-core]: Invalid value: "500m": must be an integer',
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
                (
                    'resources.requests[cpu]: Invalid value: "lots": quantities must match the regular expression'
                    " '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                )
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
                (
                    'resources.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of'
                    " hugepages-2Mi"
                ),
                (
                    'resources.requests[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of'
                    " hugepages-2Mi"
                ),
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
    assert cause_lines(validate("", "Pod", pod(container))) == [f"spec.containers[0].{problem}" for problem in want]


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
                (
                    'dnsPolicy: Unsupported value: "Mine": supported values: "ClusterFirstWithHostNet", "ClusterFirst",'
                    ' "Default", "None"'
                )
            ],
            id="dns-policy",
        ),
        pytest.param({"terminationGracePeriodSeconds": -5}, [], id="grace-below-zero-counts-as-one-second"),
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
                (
                    'tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key`'
                    " is empty, which means"
                    ' "match all values and all keys"'
                )
            ],
            id="toleration-without-a-key",
        ),
        pytest.param(
            {"tolerations": [{"key": "k", "operator": "Like", "effect": "NoStart"}]},
            [
                'tolerations[0].operator: Unsupported value: "Like": supported values: "Equal", "Exists"',
                (
                    'tolerations[0].effect: Unsupported value: "NoStart": supported values:'
                    ' "NoSchedule", "PreferNoSchedule",'
                    ' "NoExecute"'
                ),
            ],
            id="toleration-operator-and-effect",
        ),
        pytest.param(
            {"tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 1}]},
            [
                (
                    "tolerations[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when"
                    " `tolerationSeconds` is set"
                )
            ],
            id="seconds-without-no-execute",
        ),
        pytest.param(
            {"topologySpreadConstraints": [{"maxSkew": 0, "whenUnsatisfiable": "Cry"}]},
            [
                "topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
                "topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
                (
                    'topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "Cry": supported values:'
                    ' "DoNotSchedule", "ScheduleAnyway"'
                ),
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
    assert cause_lines(validate("", "Pod", pod(**spec))) == [f"spec.{problem}" for problem in want]


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
                (
                    "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new"
                    " scheduling gate 'queue'"
                )
            ],
            id="gate-closed",
        ),
        pytest.param(GATED, {"nodeSelector": {"a": "b"}}, [], id="narrowed-while-gated"),
        pytest.param(
            {**GATED, "nodeSelector": {"a": "b"}},
            {**GATED, "nodeSelector": {"a": "z"}},
            [
                (
                    'spec.nodeSelector: Invalid value: {"a":"z"}: only additions to spec.nodeSelector are allowed'
                    " (no mutations or deletions)"
                )
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
    assert cause_lines(validate("", "Pod", pod(**after), pod(**before))) == want


def test_an_image_may_change() -> None:
    assert validate("", "Pod", pod({"image": "web:2"}), pod()) == []


def test_a_negative_grace_period_may_become_one() -> None:
    old = pod(terminationGracePeriodSeconds=-1)
    assert validate("", "Pod", pod(terminationGracePeriodSeconds=1), old) == []
    assert cause_lines(validate("", "Pod", pod(terminationGracePeriodSeconds=2), old)) == [REFUSED]


def test_status_updates_do_not_bind() -> None:
    assert validate("", "Pod", pod(), pod(), subresource="status") == []
    assert cause_lines(validate("", "Pod", pod(nodeName="n"), pod(), subresource="status")) == [
        "status.nodeName: Forbidden: may not be changed directly"
    ]


GOOD = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
FIELD = "status.extendedResourceClaimStatus"


@pytest.mark.parametrize(
    ("status", "problems"),
    [
        pytest.param({"resourceClaimName": "p-x", "requestMappings": [GOOD]}, [], id="good"),
        pytest.param(
            {},
            [
                f"{FIELD}.requestMappings: Required value: at least one request mapping is required",
                f"{FIELD}.resourceClaimName: Required value",
            ],
            id="empty",
        ),
        pytest.param(
            {"resourceClaimName": "p-x", "requestMappings": [{**GOOD, "containerName": "d"}]},
            [
                (
                    f'{FIELD}.requestMappings[0].containerName: Invalid value: "d": must match the name of an entry in'
                    " spec.initContainers.name or spec.containers.name"
                )
            ],
            id="container",
        ),
        pytest.param(
            {"resourceClaimName": "p-x", "requestMappings": [{**GOOD, "resourceName": "example.com/nic"}]},
            [
                (
                    f'{FIELD}.requestMappings[0].resourceName: Invalid value: "example.com/nic": must match the'
                    " extended resource name of an entry in spec.initContainers.resources.requests or"
                    " spec.containers.resources.requests"
                )
            ],
            id="resource",
        ),
        pytest.param(
            {"resourceClaimName": "p-x", "requestMappings": [GOOD, GOOD]},
            [f'{FIELD}.requestMappings[1].{name}: Duplicate value: "{value}"' for name, value in GOOD.items()],
            id="twice",
        ),
    ],
)
def test_the_status_of_a_claim_for_extended_resources(status: dict[str, Any], problems: list[str]) -> None:
    """It may be replaced: a scheduler whose binding failed makes another claim."""
    old, new = (pod({"resources": {"requests": {"example.com/gpu": "1"}}}) for _ in range(2))
    old["status"] = {"extendedResourceClaimStatus": {"resourceClaimName": "p-y", "requestMappings": [GOOD]}}
    new["status"] = {"extendedResourceClaimStatus": {**status, "requestMappings": status.get("requestMappings", [])}}
    if not status:
        new["status"]["extendedResourceClaimStatus"]["resourceClaimName"] = ""
    assert cause_lines(validate("", "Pod", new, old, subresource="status")) == problems


def test_a_mirror_pod_has_a_node() -> None:
    mirror = pod(nodeName="n1")
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert validate("", "Pod", mirror) == []
    del mirror["spec"]["nodeName"]
    (cause,) = validate("", "Pod", mirror)
    assert cause.field == "metadata.annotations[kubernetes.io/config.mirror]"
    assert cause.message == 'Invalid value: "x": must set spec.nodeName if mirror pod annotation is set'


def test_a_pod_is_resized_only_if_its_node_reports_resources() -> None:
    old, new = (pod({"resources": {"requests": {"cpu": amount}}}) for amount in ("1", "2"))
    status = {"name": "c", "state": {"running": {}}}
    for reported, problems in (
        ({"resources": {}}, []),
        ({}, ["spec: Forbidden: Pod running on node without support for resize"]),
    ):
        old["status"] = new["status"] = {"containerStatuses": [{**status, **reported}]}
        assert cause_lines(validate("", "Pod", new, old, subresource="resize")) == problems


def test_resize_changes_cpu_and_memory_only() -> None:
    old = pod({"resources": {"requests": {"cpu": "1"}}})
    assert validate("", "Pod", pod({"resources": {"requests": {"cpu": "2"}}}), old, subresource="resize") == []
    more_disk = pod({"resources": {"requests": {"cpu": "1", "ephemeral-storage": "1Gi"}}})
    assert cause_lines(validate("", "Pod", more_disk, old, subresource="resize")) == [
        "spec.containers[0].resources: Forbidden: only cpu and memory resources are mutable"
    ]
