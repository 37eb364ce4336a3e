"""`seatrial bench gang-day`: a day of gangs in virtual time."""

import json
import sys
from typing import Annotated

from cyclopts import Parameter, validators

from seatrial.harness.bench.gang_day import gang_day as run_day


def gang_day(
    *,
    nodes: Annotated[int, Parameter(validator=validators.Number(gte=4))] = 200,
    hours: Annotated[float, Parameter(validator=validators.Number(gt=0))] = 24.0,
    seed: int = 0,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Let gangs of all kinds arrive and end for a day of virtual time; print how long they waited, and a digest.

    Args:
        nodes: Number of nodes with 8 GPUs, in four spines; the number of gangs grows with it.
        hours: Length in virtual hours.
        seed: Decides arrivals, sizes, durations and ties; the same seed gives the same digest.
        json_: Print figures as JSON.
    """
    figures = run_day(nodes, seed, lambda text: print(text, file=sys.stderr), hours=hours)
    if json_:
        print(json.dumps(figures, indent=2))
        return
    print(f"{nodes:,} nodes, {hours:g} h, seed {seed}, in {figures['seconds']} s")
    print(
        f"gangs       {figures['gangs']:,} came, {figures['bound']:,} were bound, {figures['waiting']:,} wait,"
        f" {figures['partly_bound']:,} are bound in part"
    )
    if figures["wait_seconds"]:
        waited = figures["wait_seconds"]
        print(f"waited      {waited['p50']} s median, {waited['p99']} s p99 (virtual)")
    print(f"digest      {figures['digest']}")
