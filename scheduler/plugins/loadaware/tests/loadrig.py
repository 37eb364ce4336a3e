"""A core with LoadAwareScheduling, and NodeMetrics as tests write them."""

from typing import Any

import msgspec

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.clock import rfc3339
from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.api.slo import NodeMetric
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.plugins.loadaware.plugin import LoadAwareScheduling
from seatrial.scheduler.tests.rig import Rig, profile

GI = 1 << 30
FACTORS = {"cpu": 85, "memory": 70}


def usage(cpu: str = "0", memory: str = "0") -> dict[str, Any]:
    return {"resources": {"cpu": cpu, "memory": memory}}


class LoadRig(Rig):
    """Nodes of 96 cores and 512 Gi, as in Koordinator's tests."""

    def __init__(self, **args: Any) -> None:
        super().__init__(
            profile(
                plugins={"multiPoint": {"enabled": [{"name": "LoadAwareScheduling"}]}},
                pluginConfig=[{"name": "LoadAwareScheduling", "args": args}],
            )
        )
        (runner,) = self.core.runners.values()
        self.plugin: LoadAwareScheduling = next(
            candidate for candidate in runner.profile.all if isinstance(candidate, LoadAwareScheduling)
        )

    def machine(self, name: str = "n1", **annotations: str) -> None:
        """A node; annotations with the keys `thresholds` and `raw`."""
        keys = {
            "thresholds": "scheduling.koordinator.sh/usage-thresholds",
            "raw": "node.koordinator.sh/raw-allocatable",
        }
        self.core.intake.set_node(
            msgspec.convert(
                {
                    "metadata": {"name": name, "annotations": {keys[key]: text for key, text in annotations.items()}},
                    "status": {"allocatable": {"cpu": "96", "memory": "512Gi", "pods": "110"}},
                },
                Node,
            )
        )

    def report(
        self,
        name: str = "n1",
        node: dict[str, Any] | None = None,
        *,
        age: float = 0.0,
        pods: dict[str, tuple[str, str, str]] | None = None,
        aggregates: dict[str, dict[str, Any]] | None = None,
        system: dict[str, Any] | None = None,
        interval: int = 60,
    ) -> None:
        """A NodeMetric. `pods`: name → cpu, memory, priority class; `aggregates`: duration → type → usage."""
        info: dict[str, Any] = {"nodeUsage": node or usage(), "systemUsage": system or usage()}
        info["aggregatedNodeUsages"] = [
            {"duration": duration, "usage": results} for duration, results in (aggregates or {}).items()
        ]
        status: dict[str, Any] = {
            "updateTime": rfc3339(self.clock.now() - age),
            "nodeMetric": info,
            "podsMetric": [
                {"namespace": "default", "name": pod_name, "podUsage": usage(cpu, memory), "priority": priority}
                for pod_name, (cpu, memory, priority) in (pods or {}).items()
            ],
        }
        spec = {"metricCollectPolicy": {"reportIntervalSeconds": interval}}
        manifest = {"metadata": {"name": name}, "spec": spec, "status": status}
        self.core.intake.set_node_metric(msgspec.convert(manifest, NodeMetric))

    def info(self, result: PodBuilder | Pod) -> PodInfo:
        made = result if isinstance(result, Pod) else self.pod(result)
        return PodInfo(made, self.core.cache.classes.of(made))

    def score(self, result: PodBuilder | Pod, name: str = "n1") -> int:
        """The plugin's score for a pod."""
        info, state = self.info(result), CycleState()
        self.plugin.pre_filter(state, info.pod)
        return self.plugin.score(state, info.pod, self.core.cache.nodes[name])

    def rejection(self, overrides: PodBuilder | Pod, name: str = "n1") -> str:  # type: ignore[override]
        """What the plugin's filter says; "" if the pod fits."""
        info, state = self.info(overrides), CycleState()
        self.plugin.pre_filter(state, info.pod)
        return self.plugin.filter(state, info.pod, self.core.cache.nodes[name]).message


def asking(name: str = "p", cpu: int = 16, memory: str = "32Gi") -> PodBuilder:
    """A pod with equal requests and limits."""
    return pod(name).request(cpu=cpu, memory=memory)
