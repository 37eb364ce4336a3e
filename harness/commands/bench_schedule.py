"""`seatrial bench schedule`: how fast pods are placed, and what the limit was."""

import json
import sys
from typing import Annotated, Literal

from cyclopts import Parameter, validators

from harness.bench.core import Size, bench_core
from harness.bench.mixes import mix as mix_named
from harness.errors import UsageError

Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]


def schedule(
    *,
    nodes: Positive = 5000,
    pods: Positive = 20000,
    mix: str = "accelerators",
    run: Positive = 1,
    repeat: Positive = 3,
    seed: int = 0,
    through: Literal["core", "http"] = "core",
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Place pods on a cluster of 8-GPU nodes and print throughput and latency.

    Args:
        nodes: How many nodes.
        pods: How many pods.
        mix: Which shapes: accelerators (32: whole cards, shares by percent and by bytes, none), whole, shared, cpu.
        run: So many pods in a row share a shape, as the replicas of a job do; 1 is the hardest.
        repeat: How often; figures are medians with the lowest and the highest.
        seed: Decides which pod has which shape, and ties between nodes.
        through: core: our scheduler's decisions alone. http: API server and scheduler as processes of their own.
        json_: Print figures as JSON.
    """
    if through == "http":
        raise UsageError("bench schedule --through http is not there yet; use --through core")
    size = Size(nodes, pods, repeat, run, seed)
    figures = bench_core(size, mix_named(mix), lambda text: print(text, file=sys.stderr))
    if json_:
        print(json.dumps(figures, indent=2))
        return
    rate, decision = figures["pods_per_second"], figures["decision_us"]
    print(f"{nodes:,} nodes, {pods:,} pods, mix {mix} ({figures['shapes']} shapes, {run} in a row), through {through}")
    print(f"throughput  {rate['median']:,.0f} pods/s (lowest {rate['low']:,.0f}, highest {rate['high']:,.0f})")
    print(f"a decision  {decision['p50']} us median, {decision['p99']} us p99")
    print(f"placed      {figures['placed']:,}, not placed {figures['unplaced']:,}")
    print(f"limit       {figures['limit']}")
