"""Valid objects of all kinds that the scheduler reads, with its vocabulary of labels and annotations, to be changed."""

import json
import pkgutil
import re
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from seatrial.scheduler.api import device
from seatrial.scheduler.api.device import (
    DEVICE_ALLOCATE_HINT,
    DEVICE_ALLOCATED,
    DEVICE_JOINT_ALLOCATE,
    GPU_PARTITION_SPEC,
    GPU_PARTITIONS,
)
from seatrial.scheduler.api.networktopology import GATHER_SPEC
from seatrial.scheduler.api.numa import (
    CPU_BASIC_INFO,
    CPU_TOPOLOGY,
    KUBELET_CPU_MANAGER,
    NODE_RESERVATION,
    NUMA_TOPOLOGY_SPEC,
    POD_CPU_ALLOCS,
    RESOURCE_SPEC,
    RESOURCE_STATUS,
    SYSTEM_QOS,
)
from seatrial.scheduler.api.podgroup import GANG_GROUPS, GANG_MIN, GANG_NAME, GANG_TOTAL, GANG_WAITING_TIME
from seatrial.scheduler.api.quota import NAMESPACES, SHARED_WEIGHT, TOTAL_RESOURCE
from seatrial.scheduler.api.reservation import RESERVATION_AFFINITY, RESERVATION_OWNERS, RESIZE_ALLOCATABLE
from seatrial.scheduler.api.slo import ESTIMATED_FACTORS, RAW_ALLOCATABLE, USAGE_THRESHOLDS

Object = dict[str, Any]
_KEY: Final = re.compile(r"[a-z0-9.-]+\.[a-z]+/[A-Za-z][-A-Za-z./]*")
CREATED: Final = "2026-01-01T00:00:00Z"


def vocabulary() -> tuple[str, ...]:
    """The keys of labels and annotations that are constants of the API vocabulary."""
    folder = str(Path(device.__file__).parent)
    modules = [import_module(f"{device.__package__}.{item.name}") for item in pkgutil.iter_modules([folder])]
    return tuple(
        sorted(
            {
                value
                for module in modules
                for value in vars(module).values()
                if isinstance(value, str) and _KEY.fullmatch(value)
            }
        )
    )


def _of(
    path: str,
    name: str,
    namespace: str = "",
    *,
    labels: Object | None = None,
    notes: Object | None = None,
    **fields: Any,
) -> tuple[str, Object]:
    """The path of its collection in all namespaces, and the object."""
    metadata = {
        "name": name,
        "uid": f"uid-{name}",
        "creationTimestamp": CREATED,
        "labels": {"app": "x", **(labels or {})},
        "annotations": {key: n if isinstance(n, str) else json.dumps(n) for key, n in (notes or {}).items()},
    }
    return path, {"metadata": {**metadata, **({"namespace": namespace} if namespace else {})}, **fields}


def _pod(name: str, notes: Object | None = None, **fields: Any) -> tuple[str, Object]:
    spec = {
        "schedulerName": "koord-scheduler",
        "containers": [{"name": "main", "image": "a:1", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
        **fields,
    }
    return _of("/api/v1/pods", name, "default", labels={"a": "2"}, notes=notes, spec=spec, status={"phase": "Pending"})


_SELECTOR: Final = {"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["2"]}]}
_TERM: Final = {"labelSelector": _SELECTOR, "topologyKey": "zone", "namespaces": ["default"]}
_OTHERS: Final = {"labelSelector": {"matchLabels": {"app": "y"}}, "topologyKey": "zone"}
_TOPOLOGY: Final = {"detail": [{"id": number, "core": number, "socket": 0, "node": 0} for number in range(16)]}
OBJECTS: Final = (
    _pod(
        "shaped",
        nodeSelector={"a": "2"},
        tolerations=[{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}],
        priorityClassName="x",
        volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}],
        topologySpreadConstraints=[
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": _SELECTOR}
        ],
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}]
                }
            },
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": _TERM}]
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_OTHERS]},
        },
    ),
    _pod(
        "member",
        {
            GANG_NAME: "train",
            GANG_MIN: "1",
            GANG_TOTAL: "1",
            GANG_WAITING_TIME: "10s",
            GANG_GROUPS: ["default/train"],
            GATHER_SPEC: {"gatherStrategy": [{"layer": "Block", "strategy": "PreferGather", "podCountMultiple": 1}]},
        },
    ),
    _pod(
        "cards",
        {
            GPU_PARTITION_SPEC: {"allocatePolicy": "Restricted", "ringBusBandwidth": "100Gi"},
            DEVICE_ALLOCATE_HINT: {"gpu": {"selector": {"matchLabels": {"a": "b"}}, "allocateStrategy": "ApplyForAll"}},
            DEVICE_JOINT_ALLOCATE: {"deviceTypes": ["gpu"], "requiredScope": "SamePCIe"},
        },
        containers=[
            {
                "name": "main",
                "resources": {"requests": {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}},
            }
        ],
    ),
    _pod(
        "cores",
        {
            RESOURCE_SPEC: {"requiredCPUBindPolicy": "FullPCPUs", "preferredCPUExclusivePolicy": "PCPULevel"},
            NUMA_TOPOLOGY_SPEC: {"numaTopologyPolicy": "SingleNUMANode"},
            ESTIMATED_FACTORS: {"cpu": 80},
        },
    ),
    _pod(
        "owner",
        {
            RESERVATION_AFFINITY: {
                "tolerations": [{"key": "a", "operator": "Exists"}],
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "reservationSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
                    ]
                },
            }
        },
    ),
    _pod(
        "bound",
        {
            DEVICE_ALLOCATED: {"gpu": [{"minor": 1, "resources": {"koordinator.sh/gpu-core": "50"}}]},
            RESOURCE_STATUS: {"cpuset": "0-1", "numaNodeResources": [{"node": 0, "resources": {"cpu": "2"}}]},
            RESERVATION_OWNERS: [{"labelSelector": _SELECTOR}],
        },
        nodeName="n1",
    ),
    _of(
        "/api/v1/nodes",
        "n1",
        labels={"a": "2", "zone": "z"},
        notes={
            NODE_RESERVATION: {"resources": {"cpu": "1"}, "reservedCPUs": "0", "applyPolicy": "Default"},
            RAW_ALLOCATABLE: {"cpu": "8"},
            USAGE_THRESHOLDS: {"usageThresholds": {"cpu": 60}, "aggregatedUsage": {"usageAggregatedDuration": "5m"}},
            "node.koordinator.sh/resource-amplification-ratio": {"cpu": 1.5},
        },
        spec={"taints": [{"key": "a", "value": "b", "effect": "PreferNoSchedule", "timeAdded": CREATED}]},
        status={
            "allocatable": {
                "cpu": "16",
                "memory": "64Gi",
                "pods": "110",
                "koordinator.sh/gpu-core": "200",
                "koordinator.sh/gpu-memory-ratio": "200",
                "koordinator.sh/gpu-memory": "80Gi",
            },
            "images": [{"names": ["a:1"], "sizeBytes": 1000}],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": CREATED}],
        },
    ),
    _of(
        "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups",
        "group",
        "default",
        spec={"minMember": 1, "scheduleTimeoutSeconds": 5, "minResources": {"cpu": "1"}},
        status={"phase": "Scheduling", "scheduled": 1, "scheduleStartTime": CREATED},
    ),
    _of(
        "/apis/scheduling.koordinator.sh/v1alpha1/reservations",
        "kept",
        labels={"a": "b"},
        notes={RESIZE_ALLOCATABLE: {"resources": {"cpu": "2"}}},
        spec={
            "template": {
                "spec": {
                    "schedulerName": "koord-scheduler",
                    "containers": [{"name": "main", "resources": {"requests": {"cpu": "4", "memory": "8Gi"}}}],
                }
            },
            "owners": [{"labelSelector": _SELECTOR}, {"object": {"kind": "Pod", "name": "x"}}],
            "ttl": "1h",
            "allocateOnce": False,
            "expires": "2027-01-01T00:00:00Z",
            "taints": [{"key": "a", "effect": "NoSchedule"}],
        },
        status={
            "phase": "Available",
            "nodeName": "n1",
            "allocatable": {"cpu": "4", "memory": "8Gi"},
            "conditions": [
                {"type": "Ready", "status": "True", "lastProbeTime": CREATED, "lastTransitionTime": CREATED}
            ],
        },
    ),
    _of(
        "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas",
        "team",
        "default",
        notes={SHARED_WEIGHT: {"cpu": "10"}, TOTAL_RESOURCE: {"cpu": "16", "memory": "64Gi"}, NAMESPACES: ["default"]},
        spec={"min": {"cpu": "16", "memory": "64Gi"}, "max": {"cpu": "16", "memory": "64Gi"}},
        status={"used": {"cpu": "1"}},
    ),
    _of(
        "/apis/quota.koordinator.sh/v1alpha1/elasticquotaprofiles",
        "tree",
        "default",
        spec={"quotaName": "root", "quotaLabels": {"a": "b"}, "resourceRatio": "0.9", "nodeSelector": _SELECTOR},
    ),
    _of(
        "/apis/scheduling.koordinator.sh/v1alpha1/devices",
        "n1",
        notes={GPU_PARTITIONS: {"1": [{"minors": [0], "gpuLinkType": "NVLink", "ringBusBandwidth": "200Gi"}]}},
        spec={
            "devices": [
                {
                    "type": "gpu",
                    "minor": minor,
                    "id": f"GPU-{minor}",
                    "health": True,
                    "labels": {"a": "b"},
                    "resources": {
                        "koordinator.sh/gpu-core": "100",
                        "koordinator.sh/gpu-memory": "40Gi",
                        "koordinator.sh/gpu-memory-ratio": "100",
                    },
                    "topology": {"socketID": 0, "nodeID": 0, "pcieID": "0", "busID": "0000:00:01.0"},
                }
                for minor in range(2)
            ]
        },
    ),
    _of(
        "/apis/slo.koordinator.sh/v1alpha1/nodemetrics",
        "n1",
        spec={"metricCollectPolicy": {"reportIntervalSeconds": 60}},
        status={
            "updateTime": CREATED,
            "nodeMetric": {
                "nodeUsage": {"resources": {"cpu": "1", "memory": "1Gi"}},
                "aggregatedNodeUsages": [{"duration": "5m0s", "usage": {"p95": {"resources": {"cpu": "1"}}}}],
            },
            "podsMetric": [{"namespace": "default", "name": "bound", "podUsage": {"resources": {"cpu": "1"}}}],
        },
    ),
    _of(
        "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies",
        "n1",
        notes={
            CPU_TOPOLOGY: _TOPOLOGY,
            CPU_BASIC_INFO: {"cpuModel": "x"},
            SYSTEM_QOS: {"cpuset": "3"},
            POD_CPU_ALLOCS: [{"namespace": "default", "name": "bound", "cpuset": "0-1", "managedByKubelet": True}],
            KUBELET_CPU_MANAGER: {"policy": "static", "options": {"full-pcpus-only": "true"}, "reservedCPUs": "0"},
        },
        topologyPolicies=["SingleNUMANodePodLevel"],
        zones=[
            {
                "name": "node-0",
                "type": "Node",
                "resources": [{"name": "cpu", "capacity": "16", "allocatable": "16", "available": "16"}],
            }
        ],
    ),
    _of(
        "/apis/scheduling.koordinator.sh/v1alpha1/clusternetworktopologies",
        "default",
        spec={
            "networkTopologySpec": [
                {"topologyLayer": "Block", "labelKey": ["zone"]},
                {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "Block"},
            ]
        },
    ),
    _of(
        "/api/v1/namespaces/koordinator-system/configmaps",
        "gpu-shared-resource-templates",
        "koordinator-system",
        data={"data.yaml": 'vendor-model:\n  small: {koordinator.sh/gpu-core: "10"}\n'},
    ),
    _of(
        "/apis/policy/v1/poddisruptionbudgets",
        "budget",
        "default",
        spec={"minAvailable": "50%", "selector": _SELECTOR},
        status={"disruptionsAllowed": 1},
    ),
    _of("/api/v1/namespaces", "default"),
    _of("/api/v1/services", "service", "default", spec={"selector": {"app": "x"}}),
    _of("/apis/apps/v1/replicasets", "set", "default", spec={"selector": _SELECTOR}),
    _of(
        "/api/v1/persistentvolumeclaims",
        "x",
        "default",
        spec={"storageClassName": "c", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    ),
    _of(
        "/api/v1/persistentvolumes",
        "pv",
        spec={"storageClassName": "c", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"]},
        status={"phase": "Available"},
    ),
    _of(
        "/apis/storage.k8s.io/v1/storageclasses",
        "c",
        provisioner="x.io/y",
        volumeBindingMode="WaitForFirstConsumer",
        allowedTopologies=[{"matchLabelExpressions": [{"key": "zone", "values": ["z"]}]}],
    ),
    _of(
        "/apis/storage.k8s.io/v1/csinodes",
        "n1",
        spec={"drivers": [{"name": "x.io/y", "nodeID": "n1", "allocatable": {"count": 4}}]},
    ),
    _of(
        "/apis/resource.k8s.io/v1/deviceclasses",
        "card",
        spec={
            "selectors": [{"cel": {"expression": "device.driver == 'x.io'"}}],
            "config": [{"opaque": {"driver": "x.io", "parameters": {"a": 1}}}],
            "extendedResourceName": "x.io/card",
        },
    ),
    _of(
        "/apis/resource.k8s.io/v1/resourceslices",
        "n1-x.io",
        spec={
            "driver": "x.io",
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "sharedCounters": [{"name": "set", "counters": {"memory": {"value": "80Gi"}}}],
            "devices": [
                {
                    "name": f"d{number}",
                    "attributes": {"model": {"string": "a"}, "n": {"int": number}, "v": {"version": "1.2.3-rc.1"}},
                    "capacity": {
                        "memory": {
                            "value": "40Gi",
                            "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}},
                        }
                    },
                    "allowMultipleAllocations": number == 2,
                    "consumesCounters": [{"counterSet": "set", "counters": {"memory": {"value": "20Gi"}}}],
                    "taints": [{"key": "a", "effect": "NoSchedule", "timeAdded": CREATED}] if number == 3 else [],
                    "bindsToNode": number == 2,
                    "bindingConditions": ["ready"] if number == 3 else [],
                }
                for number in range(4)
            ],
        },
    ),
    _of(
        "/apis/resource.k8s.io/v1/resourceclaims",
        "wanted",
        "default",
        spec={
            "devices": {
                "requests": [
                    {
                        "name": "a",
                        "exactly": {
                            "deviceClassName": "card",
                            "selectors": [{"cel": {"expression": "device.attributes['x.io'].n < 3"}}],
                            "allocationMode": "ExactCount",
                            "count": 1,
                            "capacity": {"requests": {"memory": "2Gi"}},
                            "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
                        },
                    },
                    {"name": "b", "firstAvailable": [{"name": "c", "deviceClassName": "card", "count": 1}]},
                ],
                "constraints": [{"requests": ["a", "b"], "matchAttribute": "x.io/model"}],
                "config": [{"requests": ["a"], "opaque": {"driver": "x.io", "parameters": {"a": 1}}}],
            }
        },
    ),
    _of(
        "/apis/resource.k8s.io/v1/resourceclaims",
        "given",
        "default",
        spec={"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "card"}}]}},
        status={
            "allocation": {
                "devices": {"results": [{"request": "a", "driver": "x.io", "pool": "n1", "device": "d3"}]},
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
                    ]
                },
                "allocationTimestamp": CREATED,
            },
            "reservedFor": [{"resource": "pods", "name": "bound", "uid": "bound"}],
        },
    ),
    _pod(
        "claiming",
        resourceClaims=[{"name": "x", "resourceClaimName": "wanted"}],
        containers=[{"name": "main", "resources": {"claims": [{"name": "x", "request": "a"}]}}],
    ),
    _of(
        "/apis/resource.k8s.io/v1/resourceclaims",
        "missed",
        "default",
        spec={
            "devices": {
                "requests": [
                    {
                        "name": "a",
                        "exactly": {"deviceClassName": "card", "selectors": [{"cel": {"expression": "false"}}]},
                    }
                ]
            }
        },
    ),
    _pod("missing", resourceClaims=[{"name": "x", "resourceClaimName": "missed"}], containers=[{"name": "main"}]),
    _pod("extended", containers=[{"name": "main", "resources": {"limits": {"x.io/card": "1"}}}]),
    _of(
        "/apis/scheduling.k8s.io/v1beta1/podgroups",
        "native",
        "default",
        spec={"schedulingPolicy": {"gang": {"minCount": 1}}},
        status={"conditions": [{"type": "Scheduled", "status": "False", "lastTransitionTime": CREATED}]},
    ),
    _pod("grouped", schedulingGroup={"podGroupName": "native"}, containers=[{"name": "main"}]),
)
