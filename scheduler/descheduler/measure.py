"""Measures rounds of LowNodeLoad on a cluster in memory: `python -m seatrial.scheduler.descheduler.measure`.

A tenth of the nodes is hot, the others use 10 % to 70 %. Prints figures as JSON.
"""

import json
import random
import sys
import time
from typing import Any

import cyclopts
import msgspec

from seatrial.scheduler.api.clock import SimClock, rfc3339
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.slo import NodeMetric
from seatrial.scheduler.descheduler.args import read_args
from seatrial.scheduler.descheduler.framework import Evictor, Handle
from seatrial.scheduler.descheduler.limits import EvictionLimiter
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.plugins.low_node_load import LowNodeLoad, LowNodeLoadArgs
from seatrial.scheduler.descheduler.state import ClusterState

CORES, GIB = 64, 256  # of a node
HOT_EACH, HOT_SHARE = 10, 0.9
ARGS = {
    "lowThresholds": {"cpu": 45, "memory": 55},
    "highThresholds": {"cpu": 75, "memory": 80},
    "anomalyCondition": {"consecutiveAbnormalities": 1},
}

app = cyclopts.App(name="python -m seatrial.scheduler.descheduler.measure", help=__doc__, result_action="return_value")


class CountingEvictor(Evictor):
    """Accepts every eviction, and counts."""

    name = "Counting"

    def __init__(self) -> None:
        self.count = 0

    def may_evict(self, pod: Pod) -> bool:  # noqa: ARG002
        return True

    def evict(self, pod: Pod, trigger: str, reason: str) -> bool:  # noqa: ARG002
        self.count += 1
        return True


@app.default
def measure(*, nodes: int = 5000, pods: int = 100_000, repeat: int = 5, seed: int = 1) -> int:
    """Measure rounds on `nodes` nodes with `pods` pods."""
    state, clock = ClusterState(), SimClock()
    fill(state, clock, nodes, max(1, pods // nodes), random.Random(seed))  # noqa: S311
    strategy = LowNodeLoad(read_args(LowNodeLoadArgs, ARGS))
    seconds, evictions = [], 0
    for _ in range(repeat):
        evictor = CountingEvictor()
        handle = Handle(state, clock, evictor, EvictionLimiter())
        began = time.perf_counter()
        strategy.run(handle, list(state.nodes.values()))
        seconds.append(time.perf_counter() - began)
        evictions = evictor.count
    figures = {"nodes": nodes, "pods": len(state.pods), "evictions": evictions, "seconds": seconds}
    print(json.dumps(figures))  # noqa: T201
    return 0


def fill(state: ClusterState, clock: SimClock, nodes: int, each: int, chance: random.Random) -> None:
    """Nodes with `each` pods, and a report of each node."""
    for number in range(nodes):
        name = f"n{number}"
        share = HOT_SHARE if number % HOT_EACH == 0 else chance.uniform(0.1, 0.7)
        metrics = []
        for index in range(each):
            pod = f"p{number}-{index}"
            state.set_pod(_pod(pod, name))
            milli = int(1000 * CORES * share / each * chance.uniform(0.9, 1.1))
            used = {"cpu": f"{milli}m", "memory": f"{GIB * 1024 // each // 3}Mi"}
            metrics.append({"namespace": "default", "name": pod, "podUsage": {"resources": used}})
        status = {"updateTime": rfc3339(clock.now()), "nodeMetric": {}, "podsMetric": metrics}
        state.set_node(_node(name))
        state.set_metric(msgspec.convert({"metadata": {"name": name}, "status": status}, NodeMetric))


def _node(name: str) -> Node:
    allocatable = {"cpu": str(CORES), "memory": f"{GIB}Gi", "pods": "110"}
    ready: dict[str, Any] = {"type": "Ready", "status": "True"}
    status = {"allocatable": allocatable, "conditions": [ready]}
    return msgspec.convert({"metadata": {"name": name, "uid": name}, "status": status}, Node)


def _pod(name: str, on: str) -> Pod:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}
    old = "2025-12-31T00:00:00Z"
    container = {"name": "main", "resources": {"requests": {"cpu": "100m"}}}
    metadata = {"name": name, "namespace": "default", "uid": name, "creationTimestamp": old, "ownerReferences": [owner]}
    status = {"phase": "Running", "startTime": old, "conditions": [{"type": "Ready", "status": "True"}]}
    return msgspec.convert(
        {"metadata": metadata, "spec": {"nodeName": on, "containers": [container]}, "status": status}, Pod
    )


if __name__ == "__main__":
    sys.exit(app())
