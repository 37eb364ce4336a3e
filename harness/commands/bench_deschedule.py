"""`seatrial bench deschedule`: time of a LowNodeLoad round on a large cluster."""

import json
import statistics
import subprocess
import sys
from typing import Annotated

from cyclopts import Parameter, validators

from seatrial.harness.errors import HarnessError

BUDGET = 1.0  # seconds of a round
Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]


def deschedule(
    *,
    nodes: Annotated[int, Parameter(validator=validators.Number(gte=2))] = 5000,
    pods: Positive = 100_000,
    repeat: Positive = 5,
    seed: int = 1,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Run rounds of LowNodeLoad over nodes of which a tenth is hot, in a process of its own.

    Args:
        nodes: Number of nodes, each with a usage report.
        pods: Number of pods on them.
        repeat: Number of rounds.
        seed: Decides what nodes and pods use.
        json_: Print figures as JSON.
    """
    command = [
        sys.executable,
        "-m",
        "seatrial.scheduler.descheduler.measure",
        "--nodes",
        str(nodes),
        "--pods",
        str(pods),
        "--repeat",
        str(repeat),
        "--seed",
        str(seed),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HarnessError(f"the rounds could not be run:\n{done.stderr[-4000:]}")
    figures = json.loads(done.stdout)
    if json_:
        print(json.dumps(figures, indent=2))
        return
    seconds = figures["seconds"]
    print(f"round      {statistics.median(seconds):.3f} s median, {max(seconds):.3f} s worst (budget {BUDGET:.0f} s)")
    print(f"size       {figures['nodes']:,} nodes, {figures['pods']:,} pods, {figures['evictions']:,} evictions")
