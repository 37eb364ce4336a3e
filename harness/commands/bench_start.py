"""`seatrial bench start`: how long a cluster takes to come up."""

import json
import sys
from typing import Annotated

from cyclopts import Parameter, validators

from harness.bench.start import bench_start


def start(
    *,
    repeat: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 5,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Start the embedded cluster with ten nodes of eight cards again and again, and time it.

    Args:
        repeat: How often; figures are medians with the lowest and the highest.
        json_: Print figures as JSON.
    """
    figures = bench_start(repeat, lambda text: print(text, file=sys.stderr))
    if json_:
        print(json.dumps(figures, indent=2))
        return
    for name, key in (("ready", "seconds"), ("first answer", "first_answer_seconds")):
        found = figures[key]
        print(f"{name:13} {found['median']} s (lowest {found['low']}, highest {found['high']})")
    print(f"asked by      {figures['asked_by']}, {figures['nodes']} nodes")
