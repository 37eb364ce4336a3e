"""The pods and nodes of scheduling benchmarks: mixes of pod shapes, and nodes that are all equal.

A mix is a fixed table of shapes. The shape of each pod is drawn with the run's seed.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from seatrial.harness.errors import UsageError
from seatrial.scheduler.api import device
from seatrial.scheduler.api.networktopology import GATHER_SPEC, MUST_GATHER, NODE_LAYER, PREFER_GATHER
from seatrial.scheduler.api.podgroup import GANG_MIN, GANG_NAME
from seatrial.scheduler.api.wire import ResourceList

Manifest = dict[str, Any]

NODE_CPU, NODE_MEMORY, NODE_PODS, NODE_GPUS, GPU_GIB = 128, "1Ti", 110, 8, 80

_WHOLE = [{device.NVIDIA_GPU: cards} for cards in (1, 1, 2, 4)] + [{device.GPU: 100 * cards} for cards in (1, 1, 2, 8)]
_SHARED: list[dict[str, int]] = [
    {device.GPU_CORE: percent, device.GPU_MEMORY_RATIO: percent} for percent in (10, 20, 25, 30, 40, 50, 60, 75)
]
_BYTES: list[dict[str, Any]] = [
    {device.GPU_CORE: core, device.GPU_MEMORY: f"{gib}Gi"}
    for core, gib in ((5, 4), (10, 8), (10, 16), (20, 16), (25, 20), (30, 24), (50, 40), (60, 40))
]
_NONE: list[dict[str, int]] = [{}] * 8
_SIZES = (
    ("1", "4Gi"),
    ("2", "8Gi"),
    ("4", "16Gi"),
    ("8", "32Gi"),
    ("2", "16Gi"),
    ("4", "8Gi"),
    ("8", "64Gi"),
    ("16", "64Gi"),
)


def _with_sizes(devices: list[Any]) -> list[ResourceList]:
    return [{"cpu": cpu, "memory": memory, **device} for device, (cpu, memory) in zip(devices, _SIZES, strict=True)]


_ALL = [shape for family in (_WHOLE, _SHARED, _BYTES, _NONE) for shape in _with_sizes(family)]

ZONE, HOST, APP = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "app"
ZONES = 8
SKEW = 5  # maxSkew over zones
CLAIM = "gpu"  # the entry of a pod's claims

Rules = Callable[[int], Manifest]  # number of a shape → fields of its pods' specs with rules on other pods' places


def _no_rules(number: int) -> Manifest:  # noqa: ARG001
    return {}


def _spread(number: int) -> Manifest:
    """Topology spread: evenly over zones (required) and over nodes (preferred)."""
    own = {"matchLabels": {APP: _app(number)}}
    rules = ((ZONE, SKEW, "DoNotSchedule"), (HOST, 1, "ScheduleAnyway"))
    return {
        "topologySpreadConstraints": [
            {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": unless, "labelSelector": own}
            for key, skew, unless in rules
        ]
    }


def _apart(number: int) -> Manifest:
    """Affinity: odd shapes have required anti-affinity by node, even ones prefer other nodes of the same zone."""
    own = {"labelSelector": {"matchLabels": {APP: _app(number)}}}
    if number % 2:
        far: Manifest = {"requiredDuringSchedulingIgnoredDuringExecution": [{**own, "topologyKey": HOST}]}
        return {"affinity": {"podAntiAffinity": far}}
    return {
        "affinity": {
            kind: {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": weight, "podAffinityTerm": {**own, "topologyKey": key}}
                ]
            }
            for kind, weight, key in (("podAntiAffinity", 100, HOST), ("podAffinity", 10, ZONE))
        }
    }


def _app(number: int) -> str:
    return f"app-{number}"


MIXES: dict[str, tuple[list[ResourceList], Rules]] = {
    "accelerators": (_ALL, _no_rules),
    "whole": (_with_sizes(_WHOLE), _no_rules),
    "shared": (_with_sizes(_SHARED), _no_rules),
    "cpu": (_with_sizes(_NONE), _no_rules),
    "spread": (_ALL, _spread),
    "affinity": (_ALL, _apart),
    "gangs": (_with_sizes(_WHOLE), _no_rules),
    "topology": (_with_sizes(_WHOLE), _no_rules),
    "dra": (_with_sizes(_NONE), _no_rules),
}
GANG_SIZES = {"gangs": 1000, "topology": 1000}  # members of a gang, by mix
GATHER = {"topology": (("SpineLayer", MUST_GATHER), ("BlockLayer", PREFER_GATHER))}  # rules of gangs, by mix
SPINE, BLOCK = "network.topology.nvidia.com/spine", "network.topology.nvidia.com/block"
SPINES, BLOCK_NODES = 4, 50


@dataclass(frozen=True, slots=True)
class Mix:
    """A mix: shapes, and rules on the places of other pods."""

    name: str
    shapes: list[ResourceList]
    rules: Rules = _no_rules
    gang: int = 0  # consecutive pods that are a gang; 0: pods are in no gangs

    @property
    def claims(self) -> bool:
        """Whether pods ask for cards by claims, which nodes offer in ResourceSlices (`bench.claims`)."""
        return self.name == "dra"

    def spec(self, number: int, scheduler: str) -> Manifest:
        """The pod spec of a shape."""
        entry = {"name": CLAIM, "resourceClaimTemplateName": template_name(number)}
        more = {"resourceClaims": [entry]} if self.claims else {}
        return {**pod_spec(self.shapes[number], scheduler), **self.rules(number), **more}

    def labels(self, number: int) -> dict[str, str]:
        """The labels of a shape's pods: an app label for each shape if the mix has rules."""
        return {APP: _app(number)} if self.rules is not _no_rules else {}

    def annotations(self, index: int, count: int) -> dict[str, str]:
        """The annotations of pod `index` of `count`: those of its gang."""
        if not self.gang:
            return {}
        number = index // self.gang
        members = min(self.gang, count - number * self.gang)
        own = {GANG_NAME: f"gang-{number}", GANG_MIN: str(members)}
        rules = [{"layer": layer, "strategy": strategy} for layer, strategy in GATHER.get(self.name, ())]
        return {**own, GATHER_SPEC: json.dumps({"gatherStrategy": rules})} if rules else own

    def draw(self, count: int, seed: int, *, run: int = 1) -> list[int]:
        """The shape number of each of `count` pods; `run` consecutive pods share one, as the replicas of a job do."""
        run = max(run, self.gang)
        rng = random.Random(seed)  # noqa: S311 a benchmark's shuffle
        drawn: list[int] = []
        while len(drawn) < count:
            drawn += [rng.randrange(len(self.shapes))] * min(run, count - len(drawn))
        return drawn


def mix(name: str) -> Mix:
    """The mix of that name.

    Raises:
        UsageError: there is no such mix.
    """
    if name not in MIXES:
        raise UsageError(f"no mix {name!r}; known: {', '.join(MIXES)}")
    return Mix(name, *MIXES[name], gang=GANG_SIZES.get(name, 0))


def template_name(number: int) -> str:
    """The name of the template from which the claims of a shape's pods are made."""
    return f"shape-{number}"


def node_manifest(name: str, *, claims: bool = False) -> Manifest:
    """The Node object of a name `prefix-NUMBER`; the number decides the zone. `claims`: without extended resources."""
    number = int(name.rpartition("-")[2])
    gpus = NODE_GPUS * 100
    resources = {
        "cpu": str(NODE_CPU),
        "memory": NODE_MEMORY,
        "pods": str(NODE_PODS),
        device.NVIDIA_GPU: str(NODE_GPUS),
        device.GPU: str(gpus),
        device.GPU_CORE: str(gpus),
        device.GPU_MEMORY_RATIO: str(gpus),
        device.GPU_MEMORY: f"{NODE_GPUS * GPU_GIB}Gi",
        device.GPU_SHARED: str(gpus),
    }
    if claims:
        resources = {name: resources[name] for name in ("cpu", "memory", "pods")}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"node-{name}", "labels": {HOST: name, ZONE: f"zone-{number % ZONES}"}},
        "status": {"capacity": resources, "allocatable": resources},
    }


def in_network(node: Manifest, nodes: int) -> Manifest:
    """The node in the network of the mix `topology`: SPINES spines, with blocks of BLOCK_NODES nodes."""
    number = int(node["metadata"]["name"].rpartition("-")[2])
    spine = number * SPINES // nodes
    node["metadata"]["labels"] |= {SPINE: f"s{spine}", BLOCK: f"s{spine}-b{number // BLOCK_NODES}"}
    return node


def topology_manifest() -> Manifest:
    """The ClusterNetworkTopology of `in_network`: spines, blocks, nodes."""
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "ClusterNetworkTopology",
        "metadata": {"name": "default"},
        "spec": {
            "networkTopologySpec": [
                {"topologyLayer": "SpineLayer", "labelKey": [SPINE]},
                {"topologyLayer": "BlockLayer", "parentTopologyLayer": "SpineLayer", "labelKey": [BLOCK]},
                {"topologyLayer": NODE_LAYER, "parentTopologyLayer": "BlockLayer"},
            ]
        },
    }


def device_manifest(name: str) -> Manifest:
    """The Device object of a node, with NODE_GPUS healthy GPUs."""
    each = {device.GPU_CORE: "100", device.GPU_MEMORY: f"{GPU_GIB}Gi", device.GPU_MEMORY_RATIO: "100"}
    cards = [
        {"type": "gpu", "minor": minor, "id": f"GPU-{name}-{minor}", "health": True, "resources": each}
        for minor in range(NODE_GPUS)
    ]
    return {
        "apiVersion": device.GROUP_VERSION,
        "kind": "Device",
        "metadata": {"name": name},
        "spec": {"devices": cards},
    }


def pod_spec(shape: ResourceList, scheduler: str) -> Manifest:
    """The spec of a pod with one container whose requests and limits are `shape`."""
    resources = {"requests": shape, "limits": shape}
    return {"schedulerName": scheduler, "containers": [{"name": "main", "image": "busybox", "resources": resources}]}


def names(prefix: str, count: int) -> Iterator[str]:
    """`prefix`-0, `prefix`-1 and so on, padded with zeros to the same length."""
    width = len(str(count - 1))
    return (f"{prefix}-{number:0{width}}" for number in range(count))
