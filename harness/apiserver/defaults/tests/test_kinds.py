import copy
from typing import Any

import pytest

from seatrial.harness.apiserver.defaults.kinds import default
from seatrial.harness.apiserver.defaults.pods import canonical, pull_policy

Object = dict[str, Any]

CONTAINER = {
    "imagePullPolicy": "IfNotPresent",
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
POD_SPEC = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "securityContext": {},
}
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}}
TEMPLATE_FILLED = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "web:1", **CONTAINER}], **POD_SPEC},
}


def filled(group: str, kind: str, obj: Object) -> Object:
    """A copy of the object with its defaults; a second call must change nothing."""
    once = copy.deepcopy(obj)
    default(group, kind, once)
    twice = copy.deepcopy(once)
    default(group, kind, twice)
    assert twice == once
    return once


def container(**fields: Any) -> Object:
    pod = filled("", "Pod", {"spec": {"containers": [{"name": "c", "image": "web:1", **fields}]}})
    return pod["spec"]["containers"][0]


def test_plain_pod() -> None:
    pod = filled("", "Pod", {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}})

    assert pod == {
        "metadata": {"name": "a"},
        "spec": {
            "containers": [{"name": "c", "image": "web:1", **CONTAINER}],
            **POD_SPEC,
            "enableServiceLinks": True,
            "serviceAccountName": "default",
            "serviceAccount": "default",
        },
        "status": {"phase": "Pending"},
    }


def test_explicit_values_are_kept() -> None:
    spec = {
        "restartPolicy": "Never",
        "dnsPolicy": "Default",
        "schedulerName": "koord-scheduler",
        "terminationGracePeriodSeconds": 0,
        "securityContext": {"runAsUser": 1},
        "enableServiceLinks": False,
        "serviceAccountName": "robot",
        "containers": [{"name": "c", "image": "web", **CONTAINER, "imagePullPolicy": "Never"}],
    }

    assert filled("", "Pod", {"spec": spec})["spec"] == {**spec, "serviceAccount": "robot"}


@pytest.mark.parametrize(
    ("image", "want"),
    [
        pytest.param("web", "Always", id="no-tag-is-latest"),
        pytest.param("web:latest", "Always", id="latest"),
        pytest.param("web:1.2", "IfNotPresent", id="a-version"),
        pytest.param("host:5000/team/web", "Always", id="a-port-is-no-tag"),
        pytest.param("host:5000/team/web:1", "IfNotPresent", id="a-port-and-a-tag"),
        pytest.param("web@sha256:0123", "IfNotPresent", id="a-digest"),
        pytest.param("web:latest@sha256:0123", "Always", id="latest-with-a-digest"),
        pytest.param("", "IfNotPresent", id="no-image-at-all"),
    ],
)
def test_pull_policy_by_tag(image: str, want: str) -> None:
    assert pull_policy(image) == want


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        pytest.param("1024Mi", "1Gi", id="largest-binary-suffix"),
        pytest.param(0.5, "500m", id="a-number-without-quotes"),
        pytest.param("2000m", "2", id="whole-cores"),
        pytest.param("100u", "1m", id="rounded-up-to-thousandths"),
        pytest.param("lots", "lots", id="no-quantity-is-left-for-validation"),
    ],
)
def test_quantities_are_stored_in_canonical_form(written: Any, stored: Any) -> None:
    assert canonical(written) == stored


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        pytest.param({"limits": {"cpu": "2"}}, {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}, id="limits-alone"),
        pytest.param(
            {"limits": {"cpu": "2", "memory": "1024Mi"}, "requests": {"cpu": 1}},
            {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
            id="only-what-is-missing",
        ),
        pytest.param({"requests": {"cpu": "1"}}, {"requests": {"cpu": "1"}}, id="requests-set-no-limits"),
    ],
)
def test_requests_come_from_limits(resources: Object, want: Object) -> None:
    assert container(resources=resources)["resources"] == want


def test_templates_get_no_requests_from_limits() -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "web:1", "resources": {"limits": {"cpu": "1"}}}]}}
    spec = filled("apps", "ReplicaSet", {"spec": {"template": template}})["spec"]["template"]["spec"]
    assert spec["containers"][0]["resources"] == {"limits": {"cpu": "1"}}
    assert "serviceAccountName" not in spec
    assert "enableServiceLinks" not in spec


def test_pod_level_requests() -> None:
    spec = {
        "resources": {"limits": {"cpu": "8", "memory": "8Gi"}},
        "initContainers": [
            {"name": "setup", "image": "s:1", "resources": {"requests": {"cpu": "3"}}},
            {"name": "proxy", "image": "p:1", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
        ],
        "containers": [{"name": "c", "image": "web:1", "resources": {"requests": {"cpu": "1"}}}],
    }
    pod = filled("", "Pod", {"spec": spec})
    assert pod["spec"]["resources"]["requests"] == {"cpu": "3", "memory": "8Gi"}


@pytest.mark.parametrize(
    ("field", "written", "want"),
    [
        pytest.param("ports", [{"containerPort": 80}], [{"containerPort": 80, "protocol": "TCP"}], id="protocol"),
        pytest.param(
            "livenessProbe",
            {"httpGet": {"port": 80}},
            {
                "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                "timeoutSeconds": 1,
                "periodSeconds": 10,
                "successThreshold": 1,
                "failureThreshold": 3,
            },
            id="probe-over-http",
        ),
        pytest.param(
            "startupProbe",
            {"grpc": {"port": 80}, "periodSeconds": 2},
            {
                "grpc": {"port": 80, "service": ""},
                "timeoutSeconds": 1,
                "periodSeconds": 2,
                "successThreshold": 1,
                "failureThreshold": 3,
            },
            id="probe-over-grpc",
        ),
        pytest.param(
            "env",
            [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
            [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName", "apiVersion": "v1"}}}],
            id="field-reference",
        ),
        pytest.param(
            "env",
            [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
            [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}}],
            id="resource-reference",
        ),
        pytest.param(
            "lifecycle",
            {"preStop": {"httpGet": {"port": 80}}},
            {"preStop": {"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}}},
            id="hook",
        ),
    ],
)
def test_container_fields(field: str, written: Any, want: Any) -> None:
    assert container(**{field: written})[field] == want


@pytest.mark.parametrize(
    ("volume", "want"),
    [
        pytest.param({"configMap": {"name": "x"}}, {"configMap": {"name": "x", "defaultMode": 420}}, id="config-map"),
        pytest.param({"secret": {}}, {"secret": {"defaultMode": 420}}, id="secret"),
        pytest.param({"secret": {"defaultMode": 0}}, {"secret": {"defaultMode": 0}}, id="mode-zero-is-a-mode"),
        pytest.param({}, {"emptyDir": {}}, id="no-kind-is-an-empty-dir"),
        pytest.param({"hostPath": {"path": "/x"}}, {"hostPath": {"path": "/x", "type": ""}}, id="host-path"),
        pytest.param(
            {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {
                "projected": {
                    "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
                    "defaultMode": 420,
                }
            },
            id="projected-token",
        ),
    ],
)
def test_volumes(volume: Object, want: Object) -> None:
    pod = filled("", "Pod", {"spec": {"volumes": [{"name": "v", **volume}]}})
    assert pod["spec"]["volumes"] == [{"name": "v", **want}]


def test_ports_on_the_host_network_are_host_ports() -> None:
    ports = [{"containerPort": 80}]
    spec = {"hostNetwork": True, "containers": [{"name": "c", "image": "web:1", "ports": ports}]}
    pod = filled("", "Pod", {"spec": spec})
    assert pod["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("group", "kind", "want"),
    [
        pytest.param(
            "apps",
            "Deployment",
            {
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
            },
            id="deployment",
        ),
        pytest.param("apps", "ReplicaSet", {"replicas": 1}, id="replica-set"),
        pytest.param(
            "apps",
            "StatefulSet",
            {
                "replicas": 1,
                "revisionHistoryLimit": 10,
                "podManagementPolicy": "OrderedReady",
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
            },
            id="stateful-set",
        ),
        pytest.param(
            "apps",
            "DaemonSet",
            {
                "revisionHistoryLimit": 10,
                "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
            },
            id="daemon-set",
        ),
        pytest.param(
            "batch",
            "Job",
            {
                "completions": 1,
                "parallelism": 1,
                "backoffLimit": 6,
                "completionMode": "NonIndexed",
                "manualSelector": False,
                "suspend": False,
                "podReplacementPolicy": "TerminatingOrFailed",
            },
            id="job",
        ),
    ],
)
def test_workloads(group: str, kind: str, want: Object) -> None:
    obj = filled(group, kind, {"spec": {"template": TEMPLATE}})
    assert obj["spec"] == {"template": TEMPLATE_FILLED, **want}


def test_recreate_has_no_rolling_update_defaults() -> None:
    obj = filled("apps", "Deployment", {"spec": {"strategy": {"type": "Recreate"}, "template": TEMPLATE}})
    assert obj["spec"]["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"parallelism": 4}, {"parallelism": 4, "backoffLimit": 6}, id="a-work-queue-has-no-count"),
        pytest.param({"completions": 4}, {"completions": 4, "parallelism": 1}, id="one-at-a-time"),
        pytest.param({"backoffLimitPerIndex": 1}, {"backoffLimit": 2147483647}, id="limit-per-index"),
        pytest.param({"podFailurePolicy": {"rules": []}}, {"podReplacementPolicy": "Failed"}, id="failure-policy"),
    ],
)
def test_job_numbers(spec: Object, want: Object) -> None:
    got = filled("batch", "Job", {"spec": {**spec, "template": TEMPLATE}})["spec"]
    assert {field: got.get(field) for field in want} == want
    assert ("completions" in got) == ("parallelism" not in spec)


def test_a_job_selects_its_own_pods_once_it_has_a_uid() -> None:
    job = filled("batch", "Job", {"metadata": {"name": "train", "uid": "u-1"}, "spec": {"template": TEMPLATE}})
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u-1"}}
    assert job["spec"]["template"]["metadata"]["labels"] == {
        "app": "web",
        "controller-uid": "u-1",
        "batch.kubernetes.io/controller-uid": "u-1",
        "job-name": "train",
        "batch.kubernetes.io/job-name": "train",
    }


def test_job_templates_of_cron_jobs_get_no_job_defaults() -> None:
    obj = filled(
        "batch", "CronJob", {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}}}
    )
    assert obj["spec"] == {
        "schedule": "* * * * *",
        "concurrencyPolicy": "Allow",
        "suspend": False,
        "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1,
        "jobTemplate": {"metadata": {}, "spec": {"template": TEMPLATE_FILLED}},
    }


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(
            {"ports": [{"port": 80}]},
            {
                "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
                "sessionAffinity": "None",
                "type": "ClusterIP",
                "internalTrafficPolicy": "Cluster",
            },
            id="cluster-ip",
        ),
        pytest.param(
            {"type": "LoadBalancer", "sessionAffinity": "ClientIP"},
            {
                "type": "LoadBalancer",
                "sessionAffinity": "ClientIP",
                "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
                "externalTrafficPolicy": "Cluster",
                "internalTrafficPolicy": "Cluster",
                "allocateLoadBalancerNodePorts": True,
            },
            id="load-balancer",
        ),
        pytest.param(
            {"type": "ExternalName", "externalName": "a.b"},
            {"type": "ExternalName", "externalName": "a.b", "sessionAffinity": "None"},
            id="external-name",
        ),
    ],
)
def test_services(spec: Object, want: Object) -> None:
    assert filled("", "Service", {"spec": spec})["spec"] == want


@pytest.mark.parametrize(
    ("group", "kind", "obj", "want"),
    [
        pytest.param(
            "",
            "Namespace",
            {"metadata": {"name": "a", "labels": {"x": "y"}}},
            {
                "metadata": {"name": "a", "labels": {"x": "y", "kubernetes.io/metadata.name": "a"}},
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            },
            id="namespace",
        ),
        pytest.param(
            "",
            "Namespace",
            {
                "metadata": {"name": "a", "deletionTimestamp": "2030-01-01T00:00:00Z"},
                "status": {"phase": "Terminating"},
            },
            {
                "metadata": {
                    "name": "a",
                    "deletionTimestamp": "2030-01-01T00:00:00Z",
                    "labels": {"kubernetes.io/metadata.name": "a"},
                },
                "spec": {},
                "status": {"phase": "Terminating"},
            },
            id="a-dying-namespace-gets-no-finalizer-back",
        ),
        pytest.param(
            "",
            "Node",
            {"status": {"capacity": {"cpu": "8000m", "nvidia.com/gpu": 8}}},
            {
                "spec": {},
                "status": {
                    "capacity": {"cpu": "8", "nvidia.com/gpu": "8"},
                    "allocatable": {"cpu": "8", "nvidia.com/gpu": "8"},
                },
            },
            id="node",
        ),
        pytest.param(
            "",
            "PersistentVolumeClaim",
            {},
            {"spec": {"volumeMode": "Filesystem"}, "status": {"phase": "Pending"}},
            id="claim",
        ),
        pytest.param(
            "",
            "PersistentVolume",
            {},
            {
                "spec": {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"},
                "status": {"phase": "Pending"},
            },
            id="volume",
        ),
        pytest.param("", "Secret", {"stringData": {"a": "b"}}, {"type": "Opaque", "data": {"a": "Yg=="}}, id="secret"),
        pytest.param(
            "",
            "LimitRange",
            {"spec": {"limits": [{"type": "Container", "max": {"cpu": "4"}, "default": {"memory": "1Gi"}}]}},
            {
                "spec": {
                    "limits": [
                        {
                            "type": "Container",
                            "max": {"cpu": "4"},
                            "default": {"cpu": "4", "memory": "1Gi"},
                            "defaultRequest": {"cpu": "4", "memory": "1Gi"},
                        }
                    ]
                }
            },
            id="limit-range",
        ),
        pytest.param(
            "scheduling.k8s.io",
            "PriorityClass",
            {"value": 1},
            {"value": 1, "preemptionPolicy": "PreemptLowerPriority"},
            id="priority-class",
        ),
        pytest.param(
            "storage.k8s.io",
            "StorageClass",
            {},
            {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
            id="storage-class",
        ),
        pytest.param(
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration",
            {"webhooks": [{"name": "a", "rules": [{}], "clientConfig": {"service": {"name": "s"}}}]},
            {
                "webhooks": [
                    {
                        "name": "a",
                        "rules": [{"scope": "*"}],
                        "clientConfig": {"service": {"name": "s", "port": 443}},
                        "failurePolicy": "Fail",
                        "matchPolicy": "Equivalent",
                        "timeoutSeconds": 10,
                        "namespaceSelector": {},
                        "objectSelector": {},
                        "reinvocationPolicy": "Never",
                    }
                ]
            },
            id="webhooks",
        ),
        pytest.param("coordination.k8s.io", "Lease", {"spec": {}}, {"spec": {}}, id="a-lease-needs-nothing"),
        pytest.param("scheduling.koordinator.sh", "Device", {"spec": {}}, {"spec": {}}, id="nor-does-a-custom-kind"),
    ],
)
def test_other_kinds(group: str, kind: str, obj: Object, want: Object) -> None:
    assert filled(group, kind, obj) == want
