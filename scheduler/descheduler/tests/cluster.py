"""Clusters for tests: nodes, pods and usage without an API server."""

from typing import Any

import msgspec

from seatrial.scheduler.api.clock import SimClock, rfc3339
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.slo import NodeMetric
from seatrial.scheduler.descheduler.framework import Evictor, Handle
from seatrial.scheduler.descheduler.limits import EvictionLimiter
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.state import ClusterState

CONTROLLER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}


def node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "8Gi",
    pods: int = 110,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Node:
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": name, "labels": labels or {}},
            "spec": spec,
            "status": {
                "allocatable": {"cpu": cpu, "memory": memory, "pods": str(pods)},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        Node,
    )


def pod(
    name: str,
    on: str = "",
    *,
    cpu: str = "100m",
    memory: str = "",
    owner: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    **fields: Any,
) -> Pod:
    """A running pod of a ReplicaSet; `fields` go into its metadata."""
    requests = {"cpu": cpu, "memory": memory} if memory else {"cpu": cpu}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "creationTimestamp": "2025-12-31T00:00:00Z",
                "ownerReferences": [CONTROLLER if owner is None else owner],
                **fields,
            },
            "spec": {
                "nodeName": on,
                "containers": [{"name": "main", "resources": {"requests": requests}}],
                **(spec or {}),
            },
            "status": {
                "phase": "Running",
                "startTime": "2025-12-31T00:00:00Z",
                "conditions": [{"type": "Ready", "status": "True"}],
                **(status or {}),
            },
        },
        Pod,
    )


def usage(name: str, pods: dict[str, dict[str, str]], *, at: float) -> NodeMetric:
    """A report about one node; usage by the name of the pod."""
    return msgspec.convert(
        {
            "metadata": {"name": name},
            "status": {
                "updateTime": rfc3339(at),
                "nodeMetric": {},
                "podsMetric": [
                    {"namespace": "default", "name": key, "podUsage": {"resources": used}} for key, used in pods.items()
                ],
            },
        },
        NodeMetric,
    )


class RecordingEvictor(Evictor):
    """Accepts every eviction, and records it, but for pods that are `protected` or whose eviction is `refused`."""

    name = "Recording"

    def __init__(self) -> None:
        self.evicted: list[str] = []
        self.reasons: list[str] = []
        self.protected: set[str] = set()
        self.refused: set[str] = set()

    def may_evict(self, pod: Pod) -> bool:
        return pod.metadata.name not in self.protected

    def evict(self, pod: Pod, trigger: str, reason: str) -> bool:
        if pod.metadata.name in self.refused:
            return False
        self.evicted.append(pod.metadata.name)
        self.reasons.append(reason)
        return True


def handle_of(state: ClusterState, clock: SimClock, limiter: EvictionLimiter | None = None) -> Handle:
    return Handle(state, clock, RecordingEvictor(), limiter or EvictionLimiter())
