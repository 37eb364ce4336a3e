"""What a scheduling benchmark submits: mixes of pod shapes, and the nodes that they are placed on.

A mix is a fixed table of shapes; which pod has which shape is drawn from the run's seed. Nodes are all alike: what is
measured is the scheduler, not the luck of a fleet.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError
from scheduler.api import device
from scheduler.api.wire import ResourceList

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
    return [{"cpu": cpu, "memory": memory, **wanted} for wanted, (cpu, memory) in zip(devices, _SIZES, strict=True)]


MIXES: dict[str, list[ResourceList]] = {
    "accelerators": [shape for family in (_WHOLE, _SHARED, _BYTES, _NONE) for shape in _with_sizes(family)],
    "whole": _with_sizes(_WHOLE),
    "shared": _with_sizes(_SHARED),
    "cpu": _with_sizes(_NONE),
}


@dataclass(frozen=True, slots=True)
class Mix:
    """Shapes and who gets which."""

    name: str
    shapes: list[ResourceList]

    def draw(self, count: int, seed: int, *, run: int = 1) -> list[int]:
        """Which shape each of `count` pods has; `run` pods in a row share one, as the replicas of a job do."""
        rng = random.Random(seed)  # noqa: S311 a benchmark's shuffle
        drawn: list[int] = []
        while len(drawn) < count:
            drawn += [rng.randrange(len(self.shapes))] * min(run, count - len(drawn))
        return drawn


def mix(name: str) -> Mix:
    """A mix by name.

    Raises:
        UsageError: there is none of that name.
    """
    if name not in MIXES:
        raise UsageError(f"no mix {name!r}; known: {', '.join(MIXES)}")
    return Mix(name, MIXES[name])


def node_manifest(name: str) -> Manifest:
    """One of the nodes, as the API server would show it."""
    gpus = NODE_GPUS * 100
    resources = {
        "cpu": str(NODE_CPU), "memory": NODE_MEMORY, "pods": str(NODE_PODS), device.NVIDIA_GPU: str(NODE_GPUS),
        device.GPU: str(gpus), device.GPU_CORE: str(gpus), device.GPU_MEMORY_RATIO: str(gpus),
        device.GPU_MEMORY: f"{NODE_GPUS * GPU_GIB}Gi", device.GPU_SHARED: str(gpus),
    }  # fmt: skip
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"node-{name}", "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": resources, "allocatable": resources},
    }


def device_manifest(name: str) -> Manifest:
    """The Device object of one of the nodes."""
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
    resources = {"requests": shape, "limits": shape}
    return {"schedulerName": scheduler, "containers": [{"name": "main", "image": "busybox", "resources": resources}]}


def names(prefix: str, count: int) -> Iterator[str]:
    width = len(str(count - 1))
    return (f"{prefix}-{number:0{width}}" for number in range(count))
