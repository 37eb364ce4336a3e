"""`seatrial bench churn`: memory of the scheduler's core while pods come and go."""

import json
import sys
from typing import Annotated

from cyclopts import Parameter, validators

from seatrial.harness.bench.churn import READINGS, WARM, bench_churn


def churn(
    *,
    nodes: Annotated[int, Parameter(validator=validators.Number(gte=10))] = 500,
    placements: Annotated[int, Parameter(validator=validators.Number(gte=100))] = 1_000_000,
    seed: int = 0,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Place pods and remove the oldest ones without end, and print the memory after each tenth.

    Exits with 1 if memory grows by more than 5 % after the first two tenths.

    Args:
        nodes: Number of nodes with 8 GPUs; four times as many pods are there at a time.
        placements: Number of pods that are placed.
        seed: Decides the shape of each pod, and ties between nodes.
        json_: Print figures as JSON.
    """
    figures = bench_churn(nodes, placements, lambda text: print(text, file=sys.stderr), seed=seed)
    if json_:
        print(json.dumps(figures, indent=2))
    else:
        met = "met" if figures["within_budget"] else "not met"
        print(f"{nodes:,} nodes, {placements:,} placements, {figures['alive']:,} pods at a time")
        print(f"memory      {' '.join(f'{each:g}' for each in figures['mib'])} MiB, a reading each tenth")
        print(
            f"growth      {figures['growth_percent']} % from reading {WARM} to {READINGS},"
            f" {figures['bytes_per_placement']} bytes a placement (budget {figures['budget_percent']:g} %: {met})"
        )
    return 0 if figures["within_budget"] else 1
