"""A small cluster in memory for tests of the core: objects in, decisions looked at, time moved by hand."""

from collections.abc import Sequence
from typing import Any

import msgspec

from seatrial.scheduler.api.builders import PodBuilder
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.core import Node, NodeSpec, NodeStatus, Pod, PodDisruptionBudget, PodSpec, PodStatus, Taint
from seatrial.scheduler.api.device import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    NVIDIA_GPU,
    Device,
    DeviceInfo,
    DeviceSpec,
)
from seatrial.scheduler.api.wire import Condition, ObjectMeta, ResourceList
from seatrial.scheduler.app import build_core
from seatrial.scheduler.config import Configuration, ProfileConfig, parse
from seatrial.scheduler.framework.decisions import Bind, Decision, Evict, Reject
from seatrial.scheduler.framework.extension_points import Plugin
from seatrial.scheduler.plugins.registry import Registry

GIB = 1 << 30


def profile(**parts: Any) -> Configuration:
    """A configuration of one profile for the default scheduler."""
    return parse(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "default-scheduler", **parts}],
        }
    )


class Rig:
    """One core with helpers; nothing is bound until the test (or `run`) says so."""

    def __init__(
        self,
        configuration: Configuration | None = None,
        *,
        plugins: Sequence[type[Plugin]] = (),
        plugins_may_raise: bool = False,
        kept_decisions: int = 1_000,
    ) -> None:
        """`plugins`: classes that profiles can name besides the built-in ones."""
        self._plugins_may_raise = plugins_may_raise
        self.clock = SimClock()
        self.core = build_core(
            configuration or Configuration(profiles=(ProfileConfig("default-scheduler"),)),
            self.clock,
            registry=Registry(plugins),
            kept_decisions=kept_decisions,
        )
        self.pods: dict[str, Pod] = {}
        self.decisions: list[Decision] = []

    # -- objects ------------------------------------------------------------------------------------------------------

    def node(
        self,
        name: str,
        *,
        cpu: str = "64",
        memory: str = "512Gi",
        pods: int = 110,
        gpus: int = 0,
        gpu_memory: str = "80Gi",
        taints: tuple[Taint, ...] = (),
        labels: dict[str, str] | None = None,
        unschedulable: bool = False,
        more: ResourceList | None = None,
    ) -> None:
        allocatable: ResourceList = {"cpu": cpu, "memory": memory, "pods": pods, **(more or {})}
        if gpus:
            allocatable |= {GPU: gpus * 100, GPU_CORE: gpus * 100, GPU_MEMORY_RATIO: gpus * 100, NVIDIA_GPU: gpus}
            allocatable[GPU_MEMORY] = str(int(gpu_memory.removesuffix("Gi")) * gpus) + "Gi"
        self.core.intake.set_node(
            Node(
                ObjectMeta(name=name, uid=f"uid-{name}", labels=labels or {}),
                NodeSpec(unschedulable=unschedulable, taints=taints),
                NodeStatus(allocatable=allocatable),
            )
        )
        if gpus:
            self.device(name, gpus, gpu_memory=gpu_memory)

    def device(self, name: str, gpus: int, *, gpu_memory: str = "80Gi", sick: tuple[int, ...] = ()) -> None:
        each: ResourceList = {GPU_CORE: 100, GPU_MEMORY: gpu_memory, GPU_MEMORY_RATIO: 100}
        infos = tuple(
            DeviceInfo("gpu", minor, f"GPU-{name}-{minor}", health=minor not in sick, resources=each)
            for minor in range(gpus)
        )
        self.core.intake.set_device(name, Device(ObjectMeta(name=name), DeviceSpec(infos)))

    def pod(self, builder: PodBuilder, *, started: str | None = None, labels: dict[str, str] | None = None) -> Pod:
        """A pod as the API server would show it after creation."""
        manifest = builder.manifest
        spec = msgspec.convert(manifest["spec"], PodSpec)
        metadata = manifest["metadata"]
        pod = Pod(
            ObjectMeta(
                name=metadata["name"],
                namespace=metadata.get("namespace", "default"),
                uid=f"uid-{metadata['name']}",
                labels={**metadata.get("labels", {}), **(labels or {})},
                annotations=metadata.get("annotations", {}),
            ),
            spec,
            PodStatus(phase="Pending", start_time=started),
        )
        self.pods[pod.metadata.name] = pod
        return pod

    def submit(self, *builders: PodBuilder) -> None:
        for builder in builders:
            self.core.intake.set_pod(self.pod(builder))

    def running(self, builder: PodBuilder, node: str, **marks: Any) -> Pod:
        """A pod that is on a node already."""
        pod = self.pod(builder, **marks)
        placed = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))
        self.pods[pod.metadata.name] = placed
        self.core.intake.set_pod(placed)
        return placed

    def delete(self, name: str) -> None:
        self.core.intake.remove_pod(self.pods[name].metadata.uid)

    def terminating(self, name: str) -> None:
        """The pod was preempted and is on its way out."""
        pod = self.pods[name]
        metadata = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        condition = Condition("DisruptionTarget", "True", "PreemptionByScheduler")
        status = msgspec.structs.replace(pod.status, conditions=(condition,))
        self.pods[name] = msgspec.structs.replace(pod, metadata=metadata, status=status)
        self.core.intake.set_pod(self.pods[name])

    def budget(self, name: str, labels: dict[str, str], *, allowed: int, namespace: str = "default") -> None:
        self.core.intake.set_budget(
            msgspec.convert(
                {
                    "metadata": {"name": name, "namespace": namespace},
                    "spec": {"selector": {"matchLabels": labels}},
                    "status": {"disruptionsAllowed": allowed},
                },
                PodDisruptionBudget,
            )
        )

    # -- deciding -----------------------------------------------------------------------------------------------------

    def run(self, *, bind: bool = True) -> list[Decision]:
        """Decide until no pod is left to decide; confirm every binding unless told not to."""
        made: list[Decision] = []
        while self.core.busy:
            for decision in self.core.decide():
                made.append(decision)
                if bind and isinstance(decision, Bind):
                    self.core.bound(decision.info.uid)
        self.decisions += made
        errors = self.core.handle.plugin_errors.counts
        assert self._plugins_may_raise or not errors, f"plugins raised exceptions; they are logged: {dict(errors)}"
        return made

    def complaints(self) -> list[str]:
        """What the scheduler did not understand, since the last call."""
        return self.core.handle.take_complaints()

    def where(self, name: str) -> str:
        """The node that a pod is on or is to go to; "" if none."""
        placed = self.core.cache.placed(f"uid-{name}")
        return placed.node_name if placed else ""

    def binding(self, name: str) -> Bind:
        """The decision that bound a pod."""
        return next(d for d in reversed(self.decisions) if isinstance(d, Bind) and d.info.pod.metadata.name == name)

    def message(self, name: str) -> str:
        """What the pod's owner was last told."""
        decisions = (d for d in reversed(self.decisions) if isinstance(d, Reject) and d.info.pod.metadata.name == name)
        return next(decisions).message

    def rejection(self, name: str) -> Reject:
        return next(d for d in reversed(self.decisions) if isinstance(d, Reject) and d.info.pod.metadata.name == name)

    def victims(self) -> list[str]:
        return [d.victim.pod.metadata.name for d in self.decisions if isinstance(d, Evict)]
