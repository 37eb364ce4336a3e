"""`seatrial bench preempt`: time of a preemption decision on a full cluster."""

import json
import sys
from typing import Annotated

from cyclopts import Parameter, validators

from seatrial.harness.bench.preempt import bench_preempt

Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]


def preempt(
    *,
    nodes: Positive = 5000,
    pods: Positive = 20000,
    preemptions: Positive = 500,
    repeat: Positive = 3,
    seed: int = 0,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Fill a cluster of 8-GPU nodes with low-priority pods, preempt them, and print the time of a preemption decision.

    Args:
        nodes: Number of nodes.
        pods: Number of pods that fill the nodes: 1, 2, 4 or 8 times as many.
        preemptions: Number of preemptions.
        repeat: Number of repetitions, each with a fresh scheduler.
        seed: Decides ties between nodes, and the offset at which preemption starts.
        json_: Print figures as JSON.
    """
    figures = bench_preempt(
        nodes, pods, preemptions, lambda text: print(text, file=sys.stderr), repeat=repeat, seed=seed
    )
    if json_:
        print(json.dumps(figures, indent=2))
        return
    each = figures["preemption_ms"]
    print(f"{nodes:,} nodes full of {pods:,} pods, {preemptions:,} preemptions, {figures['victims']:,} victims")
    print(f"a preemption  {each['p50']} ms median, {each['p99']} ms p99, {each['highest']} ms at most")
    print(f"budget        {figures['budget_ms']} ms: {'met' if figures['within_budget'] else 'not met'}")
