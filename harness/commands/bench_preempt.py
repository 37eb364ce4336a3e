"""`seatrial bench preempt`: time of a preemption decision on a full cluster."""

import json
import sys
from typing import Annotated

from cyclopts import Parameter, validators

from seatrial.harness.bench.preempt import Preemptors, bench_preempt

Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]


def preempt(
    *,
    nodes: Positive = 5000,
    pods: Positive = 20000,
    preemptions: Positive | None = None,
    gang: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 0,
    job: Positive = 1,
    repeat: Positive = 3,
    seed: int = 0,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Fill a cluster of 8-GPU nodes with low-priority pods, preempt them, and print the time of a preemption decision.

    Args:
        nodes: Number of nodes.
        pods: Number of pods that fill the nodes: 1, 2, 4 or 8 times as many.
        preemptions: Number of preemptions; by default 500, and 10 with --gang.
        gang: Members of the gangs that preempt, each with all cards of a node; 0: single pods preempt.
        job: With --gang, the number of the pods that fill the nodes which form a job, which is evicted whole.
        repeat: Number of repetitions, each with a fresh scheduler.
        seed: Decides ties between nodes, and the offset at which preemption starts.
        json_: Print figures as JSON.
    """

    def progress(text: str) -> None:
        print(text, file=sys.stderr)

    preemptors = Preemptors(preemptions or (10 if gang else 500), gang, job)
    figures = bench_preempt(nodes, pods, preemptors, progress, repeat=repeat, seed=seed)
    if json_:
        print(json.dumps(figures, indent=2))
        return
    each = figures["preemption_ms"]
    print(f"{nodes:,} nodes full of {pods:,} pods, {preemptors.count:,} preemptions, {figures['victims']:,} victims")
    print(f"a preemption  {each['p50']} ms median, {each['p99']} ms p99, {each['highest']} ms at most")
    print(f"budget        {figures['budget_ms']} ms: {'met' if figures['within_budget'] else 'not met'}")
