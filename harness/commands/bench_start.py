"""`seatrial bench start`: start-up time of a cluster."""

import json
import sys
from typing import Annotated

from cyclopts import Parameter, validators

from seatrial.harness.bench.start import bench_start


def start(
    *,
    repeat: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 5,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Start the embedded cluster with ten nodes of eight cards repeatedly and print the start-up time, and that of
    the admission of quotas.

    Args:
        repeat: Number of repetitions; figures are medians with lowest and highest.
        json_: Print figures as JSON.
    """
    figures = bench_start(repeat, lambda text: print(text, file=sys.stderr))
    if json_:
        print(json.dumps(figures, indent=2))
        return
    for name, key in (
        ("ready", "seconds"),
        ("first answer", "first_answer_seconds"),
        ("first quota", "first_quota_seconds"),
    ):
        figure = figures[key]
        print(f"{name:13} {figure['median']} s (lowest {figure['low']}, highest {figure['high']})")
    print(f"asked by      {figures['asked_by']}, {figures['nodes']} nodes")
