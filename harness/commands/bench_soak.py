"""`seatrial bench soak`: memory, lag of watches and lost events while pods come and go through the API server."""

import json
import sys
from typing import Annotated

from cyclopts import Parameter, validators

from seatrial.harness.bench.mixes import mix
from seatrial.harness.bench.soak import Load, bench_soak


def soak(
    *,
    minutes: Annotated[float, Parameter(validator=validators.Number(gt=0))] = 10.0,
    nodes: Annotated[int, Parameter(validator=validators.Number(gte=10))] = 100,
    rate: Annotated[float, Parameter(validator=validators.Number(gt=0))] = 50.0,
    alive: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 400,
    seed: int = 0,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Create and delete pods through an embedded API server with our scheduler, and watch them.

    Exits with 1 if a watch lost an event or ended, if a request was refused, or if p99 of the watches' lag is above
    100 ms. The lag is the time from sending a create request to its event.

    Args:
        minutes: How long.
        nodes: Number of nodes with 8 GPUs.
        rate: Pods a second that are created, and deleted.
        alive: Number of pods at a time.
        seed: Decides the shape of each pod, and ties between nodes.
        json_: Print figures as JSON.
    """
    load = Load(minutes * 60, nodes, rate, alive, seed)
    figures = bench_soak(load, mix("accelerators"), lambda text: print(text, file=sys.stderr))
    if json_:
        print(json.dumps(figures, indent=2))
    else:
        print(f"{figures['created']:,} pods created, {figures['bound']:,} bound, {figures['deleted']:,} deleted")
        for name, readings in figures["mib"].items():
            print(f"{name:11} {' '.join(f'{each:g}' for each in readings)} MiB, a reading each tenth")
        lag, last = figures["lag_ms"], figures["lag_ms_last_tenth"]
        print(f"lag         p50 {lag['p50']:g} ms, p99 {lag['p99']:g} ms; in the last tenth p99 {last['p99']:g} ms")
        print(f"events lost {figures['events_lost']} of {figures['watches']} watches")
        for reason in figures["failed_because"]:
            print(f"failed      {reason}")
    return 0 if figures["passed"] else 1
