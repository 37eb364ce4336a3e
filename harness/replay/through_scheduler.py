"""A replay whose placements are those of our scheduler's core: the trace as Node, Device and Pod objects.

A part of a card becomes `koordinator.sh/gpu-core` and `gpu-memory-ratio`, in percent rounded up; whole cards become
`nvidia.com/gpu`. GPU models become the label `node.koordinator.sh/gpu-model` and a required node affinity. The core
decides each pod when it arrives. A pod that fits nowhere is deleted, as each is placed once or fails once. Figures are
counted from the allocations that the scheduler writes.
"""

import json
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from seatrial.harness.replay.openb import Node, Trace, arrivals
from seatrial.harness.replay.outcome import Log, Outcome, fragmented
from seatrial.harness.subject.inprocess import BareCore
from seatrial.scheduler.api import device
from seatrial.scheduler.packing.fragments import Fragments
from seatrial.scheduler.packing.shapes import CARD, NodeStates, Shape, typical_pods

POLICY = "scheduler"
_PERCENT = CARD // 100
_CARD_BYTES = 80 << 30


class SchedulerReplay:
    """One trace in one scheduler, and what its allocations left on the nodes."""

    def __init__(self, trace: Trace, seed: int, config: Path | None) -> None:
        """
        Raises:
            UsageError: `config` is no configuration that the scheduler can use.
        """
        self._core = BareCore(seed=seed, configuration=config)
        self._numbers = {node.name: number for number, node in enumerate(trace.nodes)}
        self._pods = 0
        models = sorted({node.model for node in trace.nodes})
        width = max(node.gpus for node in trace.nodes)
        self.states = NodeStates(
            np.array([models.index(node.model) for node in trace.nodes]),
            np.array([node.cpu_milli for node in trace.nodes]),
            np.array([node.memory_mib for node in trace.nodes]),
            np.array([[CARD] * node.gpus + [0] * (width - node.gpus) for node in trace.nodes]),
        )
        self._specs = {
            shape: self._core.spec(_spec(shape, self._core.scheduler_name)) for shape in {p.shape for p in trace.pods}
        }
        for node in trace.nodes:
            self._core.add_node(_node(node), _devices(node))

    def arrive(self, shape: Shape) -> int | None:
        """Create a pod and let the scheduler decide. Returns the number of its node, None if it fits nowhere."""
        return self.count(shape) if self.decide(shape) else None

    def decide(self, shape: Shape) -> bool:
        """Create a pod and let the scheduler decide; a pod that fits nowhere is deleted. Returns whether it fits."""
        self._pods += 1
        name = f"pod-{self._pods:06}"
        self._core.add_pod(name, self._specs[shape])
        bound = 0
        while self._core.ready:
            bound += self._core.decide()
        if not bound:
            self._core.remove_pod(name)
        return bool(bound)

    def count(self, shape: Shape) -> int:
        """Count what the pod that was placed last takes of its node. Returns the node's number."""
        where, annotations = self._core.last
        number = self._numbers[where]
        self.states.cpu[number] -= shape.cpu_milli
        for card in json.loads(annotations.get(device.DEVICE_ALLOCATED, "{}")).get("gpu", []):
            self.states.cards[number, card["minor"]] -= min(shape.gpu_milli, CARD)
        return number


def replay(
    trace: Trace, *, load: float, seed: int, config: Path | None = None, clock: Callable[[], float] = time.perf_counter
) -> Outcome:
    """Replay a trace through the scheduler until `load` times the GPU capacity has arrived.

    The outcome's seconds, read from `clock`, are those of all decisions, from the first pod to the last.

    Raises:
        UsageError: `config` is no configuration that the scheduler can use.
    """
    order = arrivals(trace, load, seed)
    run = SchedulerReplay(trace, seed, config)
    models = sorted({node.model for node in trace.nodes})
    fragments = Fragments(typical_pods(Counter(pod.shape for pod in trace.pods)), models, run.states.cards.shape[1])
    placed: list[bool] = []
    log: Log = []
    now = fragments.of(run.states)
    seconds = 0.0
    for shape in order:
        start = clock()
        fits = run.decide(shape)
        seconds += clock() - start
        number = run.count(shape) if fits else None
        placed.append(number is not None)
        if number is not None:
            log.append((number, int(run.states.cpu[number]), run.states.cards[number].copy()))
    request = np.array([shape.gpu_request for shape in order], np.int64)
    done = np.array(placed, np.bool_)
    return Outcome(
        capacity=trace.gpu_capacity,
        arrived=request.cumsum(),
        allocated=(request * done).cumsum(),
        fragmented=fragmented(log, fragments, run.states.model, now, done),
        gpus=np.array([0.5 if shape.shares else shape.gpus for shape in order]),
        placed=done,
        seconds=seconds,
    )


def _node(node: Node) -> dict[str, Any]:
    percent = str(100 * node.gpus)
    resources = {
        "cpu": f"{node.cpu_milli}m",
        "memory": f"{node.memory_mib}Mi",
        "pods": "1000",
        device.NVIDIA_GPU: str(node.gpus),
        device.GPU_CORE: percent,
        device.GPU_MEMORY_RATIO: percent,
        device.GPU_MEMORY: str(_CARD_BYTES * node.gpus),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "uid": node.name, "labels": {device.GPU_MODEL_LABEL: node.model}},
        "status": {"capacity": resources, "allocatable": resources},
    }


def _devices(node: Node) -> dict[str, Any]:
    each = {device.GPU_CORE: "100", device.GPU_MEMORY_RATIO: "100", device.GPU_MEMORY: str(_CARD_BYTES)}
    cards = [
        {"type": "gpu", "minor": minor, "id": f"GPU-{node.name}-{minor}", "health": True, "resources": each}
        for minor in range(node.gpus)
    ]
    return {
        "apiVersion": device.GROUP_VERSION,
        "kind": "Device",
        "metadata": {"name": node.name},
        "spec": {"devices": cards},
    }


def _spec(shape: Shape, scheduler: str) -> dict[str, Any]:
    requests = {"cpu": f"{shape.cpu_milli}m", "memory": f"{shape.memory}Mi"}
    if shape.shares:
        percent = str(-(-shape.gpu_milli // _PERCENT))
        requests |= {device.GPU_CORE: percent, device.GPU_MEMORY_RATIO: percent}
    elif shape.gpus:
        requests[device.NVIDIA_GPU] = str(shape.gpus)
    container = {"name": "main", "image": "busybox", "resources": {"requests": requests, "limits": requests}}
    spec: dict[str, Any] = {"schedulerName": scheduler, "containers": [container]}
    if shape.models:
        amounts = {"key": device.GPU_MODEL_LABEL, "operator": "In", "values": list(shape.models)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [amounts]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return spec
