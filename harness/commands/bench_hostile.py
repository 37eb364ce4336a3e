"""`seatrial bench hostile`: latency of a client while another one sends requests that order costly computations."""

import json
import sys
from typing import Annotated

from cyclopts import Parameter, validators

from seatrial.harness.bench.attacks import ATTACKS
from seatrial.harness.bench.hostile import bench_hostile
from seatrial.harness.errors import UsageError


def hostile(
    *names: str,
    rounds: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 6,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Attack fresh embedded servers and print what a second client notices. Exit code 1: its p99 exceeds 100 ms.

    Args:
        names: The attacks; all of them by default.
        rounds: Number of requests of each attack.
        json_: Print figures as JSON.
    """
    known = {attack.name: attack for attack in ATTACKS}
    for name in names:
        if name not in known:
            raise UsageError(f"attack {name!r}: expected one of {', '.join(known)}")
    chosen = [known[name] for name in names] or list(ATTACKS)
    figures = bench_hostile(chosen, rounds, lambda text: print(text, file=sys.stderr))
    if json_:
        print(json.dumps(figures, indent=2))
    else:
        print(f"{'attack':20} {'codes':12} {'p99':>9} {'longest':>9}   of the event loop's processor time, in ms")
        for name, row in figures.items():
            codes = ",".join(str(code) for code in row["codes"])
            print(f"{name:20} {codes:12} {row['loop_p99_ms']:9.1f} {row['loop_max_ms']:9.1f}")
    return 0 if all(row["within_limit"] for row in figures.values()) else 1
