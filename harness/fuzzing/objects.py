"""Objects that are valid, to be changed at random: one of each kind whose handling has code of its own."""

from typing import Any, Final

Object = dict[str, Any]

_CONTAINER: Final = {
    "name": "main",
    "image": "busybox:1",
    "env": [{"name": "A", "value": "b"}],
    "ports": [{"containerPort": 80, "name": "web"}],
    "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "1", "memory": "1Gi"}},
    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
}
_SPEC: Final = {
    "containers": [_CONTAINER],
    "volumes": [{"name": "v", "emptyDir": {}}],
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "nodeSelector": {"a": "b"},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    ],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
            }
        }
    },
}
_TEMPLATE: Final = {"metadata": {"labels": {"app": "x"}}, "spec": _SPEC}
_SELECTED: Final = {"selector": {"matchLabels": {"app": "x"}}, "template": _TEMPLATE}
_ONCE: Final = {"template": {**_TEMPLATE, "spec": {**_SPEC, "restartPolicy": "Never"}}}
_RULES: Final = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
_ROLE: Final = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
_MATCH: Final = {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*"]}]}
_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "count": {"type": "integer", "minimum": 1, "default": 2},
                "names": {"type": "array", "maxItems": 5, "items": {"type": "string", "pattern": "^a+$"}},
            },
            "x-kubernetes-validations": [{"rule": "self.count > 0", "message": "positive"}],
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


def _of(version: str, kind: str, plural: str, *, namespaced: bool = True, **fields: Any) -> tuple[str, Object]:
    """The collection's path and an object of it."""
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    where = f"{root}/namespaces/default/{plural}" if namespaced else f"{root}/{plural}"
    return where, {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "labels": {"app": "x"}}, **fields}


OBJECTS: Final = (
    _of("v1", "Pod", "pods", spec=_SPEC),
    _of("v1", "ConfigMap", "configmaps", data={"a": "b"}, binaryData={"c": "AAAA"}),
    _of("v1", "Secret", "secrets", stringData={"a": "b"}, type="Opaque"),
    _of("v1", "Service", "services", spec={"selector": {"app": "x"}, "ports": [{"port": 80, "targetPort": "web"}]}),
    _of("v1", "Endpoints", "endpoints", subsets=[{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]),
    _of(
        "v1",
        "Node",
        "nodes",
        namespaced=False,
        spec={"taints": [{"key": "a", "effect": "NoSchedule"}]},
        status={"allocatable": {"cpu": "8", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
    ),
    _of("v1", "Namespace", "namespaces", namespaced=False),
    _of(
        "v1",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    ),
    _of(
        "v1",
        "PersistentVolume",
        "persistentvolumes",
        namespaced=False,
        spec={"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}},
    ),
    _of(
        "v1",
        "ResourceQuota",
        "resourcequotas",
        spec={"hard": {"pods": "5", "requests.cpu": "4"}, "scopes": ["BestEffort"]},
    ),
    _of("v1", "LimitRange", "limitranges", spec={"limits": [{"type": "Container", "default": {"cpu": "1"}}]}),
    _of(
        "v1",
        "ReplicationController",
        "replicationcontrollers",
        spec={"replicas": 1, "selector": {"app": "x"}, "template": _TEMPLATE},
    ),
    _of(
        "v1",
        "Event",
        "events",
        involvedObject={"kind": "Pod", "name": "x", "namespace": "default"},
        reason="A",
        type="Normal",
    ),
    _of("v1", "ServiceAccount", "serviceaccounts"),
    _of("apps/v1", "Deployment", "deployments", spec={"replicas": 2, **_SELECTED}),
    _of("apps/v1", "ReplicaSet", "replicasets", spec={"replicas": 2, **_SELECTED}),
    _of("apps/v1", "StatefulSet", "statefulsets", spec={"replicas": 2, "serviceName": "x", **_SELECTED}),
    _of("apps/v1", "DaemonSet", "daemonsets", spec=_SELECTED),
    _of("batch/v1", "Job", "jobs", spec={"parallelism": 2, "completions": 2, "completionMode": "Indexed", **_ONCE}),
    _of("batch/v1", "CronJob", "cronjobs", spec={"schedule": "*/5 * * * *", "jobTemplate": {"spec": _ONCE}}),
    _of(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        spec={
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"},
            "maxReplicas": 3,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
                }
            ],
        },
    ),
    _of(
        "policy/v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        spec={"minAvailable": "50%", "selector": {"matchLabels": {"app": "x"}}},
    ),
    _of("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", namespaced=False, value=5),
    _of("storage.k8s.io/v1", "StorageClass", "storageclasses", namespaced=False, provisioner="x.io/y"),
    _of("coordination.k8s.io/v1", "Lease", "leases", spec={"holderIdentity": "a", "leaseDurationSeconds": 5}),
    _of(
        "networking.k8s.io/v1",
        "Ingress",
        "ingresses",
        spec={
            "rules": [
                {
                    "host": "a.b",
                    "http": {
                        "paths": [
                            {
                                "path": "/",
                                "pathType": "Prefix",
                                "backend": {"service": {"name": "x", "port": {"number": 80}}},
                            }
                        ]
                    },
                }
            ]
        },
    ),
    _of(
        "networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", spec={"podSelector": {}, "policyTypes": ["Ingress"]}
    ),
    _of("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", namespaced=False, rules=_RULES),
    _of(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        "rolebindings",
        roleRef=_ROLE,
        subjects=[{"kind": "User", "name": "a", "apiGroup": "rbac.authorization.k8s.io"}],
    ),
    _of(
        "certificates.k8s.io/v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        namespaced=False,
        spec={"request": "AAAA", "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]},
    ),
    _of(
        "resource.k8s.io/v1",
        "ResourceClaim",
        "resourceclaims",
        spec={"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "x"}}]}},
    ),
    _of(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        namespaced=False,
        spec={"matchConstraints": _MATCH, "validations": [{"expression": "object.metadata.name != 'y'"}]},
    ),
    _of(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        namespaced=False,
        spec={"policyName": "x", "validationActions": ["Deny"]},
    ),
    _of(
        "admissionregistration.k8s.io/v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        namespaced=False,
        webhooks=[
            {
                "name": "a.b.c",
                "clientConfig": {"url": "https://127.0.0.1:9/x"},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "matchConditions": [{"name": "a", "expression": "true"}],
            }
        ],
    ),
    _of(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
        spec={
            "group": "x.io",
            "scope": "Namespaced",
            "names": {"plural": "samples", "kind": "Sample", "singular": "sample", "listKind": "SampleList"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _SCHEMA},
                    "subresources": {
                        "status": {},
                        "scale": {"specReplicasPath": ".spec.count", "statusReplicasPath": ".status.count"},
                    },
                    "additionalPrinterColumns": [{"name": "Count", "type": "integer", "jsonPath": ".spec.count"}],
                }
            ],
        },
    ),
    _of(
        "authorization.k8s.io/v1",
        "SubjectAccessReview",
        "subjectaccessreviews",
        namespaced=False,
        spec={"user": "a", "resourceAttributes": {"verb": "get", "resource": "pods"}},
    ),
    _of("authentication.k8s.io/v1", "TokenReview", "tokenreviews", namespaced=False, spec={"token": "a"}),
    _of(
        "scheduling.koordinator.sh/v1alpha1",
        "Reservation",
        "reservations",
        namespaced=False,
        spec={"template": {"spec": _SPEC}, "owners": [{"labelSelector": {"matchLabels": {"a": "b"}}}], "ttl": "1h"},
    ),
    _of("scheduling.sigs.k8s.io/v1alpha1", "PodGroup", "podgroups", spec={"minMember": 2, "scheduleTimeoutSeconds": 5}),
    _of(
        "scheduling.koordinator.sh/v1alpha1",
        "Device",
        "devices",
        namespaced=False,
        spec={
            "devices": [{"type": "gpu", "minor": 0, "health": True, "resources": {"koordinator.sh/gpu-core": "100"}}]
        },
    ),
)
CUSTOM: Final = _of("x.io/v1", "Sample", "samples", spec={"count": 2, "names": ["a", "aa"]})
