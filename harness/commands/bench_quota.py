"""`seatrial bench quota`: what elastic quotas cost the scheduler."""

import json
import sys
from typing import Annotated

from cyclopts import Parameter, validators

from seatrial.harness.bench.quota import LOSS_BUDGET, NODE_BUDGET_MS, REQUEST_BUDGET_US, bench_quota

Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]


def quota(
    *,
    quotas: Positive = 10000,
    changes: Annotated[int, Parameter(validator=validators.Number(gte=2))] = 20000,
    nodes: Positive = 500,
    placing: Positive = 1000,
    repeat: Positive = 3,
    seed: int = 0,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Build a tree of quotas in five levels, change requests and add nodes, and place pods with and without quotas.

    Args:
        quotas: Number of quotas in the tree.
        changes: Number of requests that change.
        nodes: Number of nodes that are added, and on which pods are placed.
        placing: Number of quotas while pods are placed.
        repeat: Number of repetitions of the placement.
        seed: Decides ties between nodes.
        json_: Print figures as JSON.
    """
    figures = bench_quota(
        quotas, changes, nodes, lambda text: print(text, file=sys.stderr), placing=placing, repeat=repeat, seed=seed
    )
    if json_:
        print(json.dumps(figures, indent=2))
        return
    request, node = figures["request_us"], figures["node_ms"]
    rate, without = figures["pods_per_second"], figures["pods_per_second_without"]
    print(f"a request change  {request['p50']} us median, {request['p99']} us p99 (budget {REQUEST_BUDGET_US:.0f} us)")
    print(f"a node added      {node['p50']} ms median, {node['p99']} ms p99 (budget {NODE_BUDGET_MS:.0f} ms)")
    print(f"memory            {figures['bytes_per_quota']:,} bytes for each of {quotas:,} quotas")
    print(
        f"placing           {rate['median']:,} pods/s with {placing:,} quotas, {without['median']:,} without:"
        f" {figures['loss_percent']} % less (budget {LOSS_BUDGET:.0f} %)"
    )
