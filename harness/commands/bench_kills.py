"""`seatrial bench kills`: our scheduler as a process is killed again and again under a mixed load."""

import json
import sys
from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter, validators

from seatrial.harness.clusters.embedded import EmbeddedBackend
from seatrial.harness.kill_trials.trial import DESCHEDULER, Pauses, Restarted, run_trial
from seatrial.harness.subject.descheduler import open_descheduler
from seatrial.harness.subject.process import fault_lines
from seatrial.harness.subject.protocol import OURS, open_subject

PAUSES = Pauses(before_kill=1.0, before_start=0.5, after_start=2.0, late=8.0, rest=90.0, patience=300.0)


def kills(
    *,
    number: Annotated[int, Parameter(name="--kills", validator=validators.Number(gte=1))] = 50,
    seed: int = 0,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Kill the scheduler, or the descheduler, under gangs, quotas, reservations, migrations and preemption.

    The connection of the scheduler loses and delays answers meanwhile. Exits with 1 if something is wrong after a kill
    or at the end: by the auditor, by checks that share no code with it, and by faults in the programs' logs. About 8
    seconds a kill, and minutes after.

    Args:
        number: How many kills.
        seed: Decides the load, the faults and the times of kills.
        json_: Print what was found as JSON.
    """
    with EmbeddedBackend(seed=seed).start() as cluster, open_subject(OURS, cluster, seed=seed) as subject:
        assert subject is not None
        begin = cluster.clock.monotonic()
        with (
            subject.troubled() as link,
            open_descheduler("", cluster, DESCHEDULER) as descheduler,
            descheduler.troubled() as other,
        ):
            outcome = run_trial(
                cluster,
                Restarted(subject, lambda: link),
                Restarted(descheduler, lambda: other),
                seed=seed,
                kills=number,
                pauses=PAUSES,
                on_kill=lambda done: print(f"kill {done + 1}", file=sys.stderr),
            )
            outcome.wrong += fault_lines(subject.log() + descheduler.log())
        seconds = round(cluster.clock.monotonic() - begin)
    if json_:
        print(json.dumps({**asdict(outcome), "seconds": seconds}, indent=2))
    else:
        print(
            f"{outcome.kills} kills in {seconds} s, {outcome.bound} pods on nodes at the end,"
            f" {len(outcome.wrong)} violations"
        )
        print("".join(f"{text}\n" for text in outcome.wrong), end="")
    return 1 if outcome.wrong else 0
