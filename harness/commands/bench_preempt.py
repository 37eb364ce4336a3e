"""`seatrial bench preempt`: what it costs to decide who has to go."""

import json
import sys
from typing import Annotated

from cyclopts import Parameter, validators

from harness.bench.preempt import bench_preempt

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
    """Fill a cluster of 8-GPU nodes, then have important pods make others go, and print the time of one such decision.

    Args:
        nodes: How many nodes.
        pods: How many pods fill them: 1, 2, 4 or 8 times as many.
        preemptions: How many times somebody has to go.
        repeat: How often all of it; each time with a fresh scheduler.
        seed: Decides ties between nodes, and where preemption starts to look.
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
