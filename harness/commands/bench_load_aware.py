"""`seatrial bench load-aware`: what usage reports cost the scheduler."""

import json
import sys
from typing import Annotated

from cyclopts import Parameter, validators

from seatrial.harness.bench.load_aware import CORE_BUDGET, bench_load_aware

Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]


def load_aware(
    *,
    nodes: Positive = 5000,
    pods: Positive = 20,
    waiting: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 8,
    rounds: Positive = 3,
    seed: int = 0,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Deliver a NodeMetric of each node once a minute, and measure the scheduler's processor time.

    Args:
        nodes: Number of nodes.
        pods: Number of pods on each node.
        waiting: Number of pods of different shapes that wait because all nodes are hot.
        rounds: Number of minutes that are measured.
        seed: Decides the amounts in the reports.
        json_: Print figures as JSON.
    """
    aware = bench_load_aware(nodes, pods, waiting, rounds, lambda text: print(text, file=sys.stderr), seed=seed)
    if json_:
        print(json.dumps(aware, indent=2))
        return
    print(f"usage reports  {aware['core_percent']} % of a core for {nodes:,} a minute (budget {CORE_BUDGET:g} %)")
    print(f"one report     {aware['update_us']} us, {aware['report_bytes']:,} bytes with {pods} pods")
