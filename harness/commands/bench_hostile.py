"""`seatrial bench hostile`: latency of a client while another one sends requests that order costly computations."""

import json
import sys
from typing import Annotated

from cyclopts import Parameter, validators

from seatrial.harness.bench.attacks import ATTACKS, Attack
from seatrial.harness.bench.hostile import bench_hostile
from seatrial.harness.bench.scheduler_attacks import SCHEDULER_ATTACKS, SchedulerAttack, bench_scheduler_attacks
from seatrial.harness.errors import UsageError


def hostile(
    *names: str,
    rounds: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 6,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Attack fresh embedded servers and schedulers, and print what others notice. Exit code 1: more than the limit.

    The limits are a p99 of 100 ms for the reads of a second client, and of 2 s for the binding of other pods.

    Args:
        names: The attacks; all of them by default.
        rounds: Number of requests of each attack.
        json_: Print figures as JSON.
    """
    known = {attack.name: attack for attack in ATTACKS} | {attack.name: attack for attack in SCHEDULER_ATTACKS}
    for name in names:
        if name not in known:
            raise UsageError(f"attack {name!r}: expected one of {', '.join(known)}")
    chosen = [known[name] for name in dict.fromkeys(names)] or known.values()

    def progress(text: str) -> None:
        print(text, file=sys.stderr)

    on_server = bench_hostile([attack for attack in chosen if isinstance(attack, Attack)], rounds, progress)
    on_scheduler = bench_scheduler_attacks(
        [attack for attack in chosen if isinstance(attack, SchedulerAttack)], rounds, progress
    )
    figures = on_server | on_scheduler
    if json_:
        print(json.dumps(figures, indent=2))
    else:
        rows = [(name, ",".join(map(str, row["codes"])), "loop", row) for name, row in on_server.items()]
        rows += [(name, f"{row['bound']}/{row['pods']}", "processor", row) for name, row in on_scheduler.items()]
        print(f"{'attack':20} {'codes, bound':12} {'p99':>9} {'longest':>9}   processor time in ms")
        for name, outcome, kind, row in rows:
            print(f"{name:20} {outcome:12} {row[f'{kind}_p99_ms']:9.1f} {row[f'{kind}_max_ms']:9.1f}")
    return 0 if all(row["within_limit"] for row in figures.values()) else 1
