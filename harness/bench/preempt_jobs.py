"""`bench preempt --gang`: time of the decision that preempts for a whole gang on a full cluster.

Jobs of low priority hold all cards. Then gangs of high priority arrive one after the other; each member wants all cards
of a node. The decision that finds no room for a gang, and selects the jobs to evict and the nodes of all members, is
timed. Then the victims are removed, and the gang is bound to its nominated nodes.
"""

import gc
import time
from typing import Any

from seatrial.harness.bench.core import Progress
from seatrial.harness.bench.mixes import NODE_GPUS
from seatrial.harness.bench.preempt import HIGH_PRIORITY, PAUSE, check_sizes, filled, spec_of
from seatrial.harness.errors import SubjectError
from seatrial.harness.sample_statistics import percentile, spread
from seatrial.harness.subject.inprocess import BareCore
from seatrial.scheduler.api.podgroup import GANG_MIN, GANG_NAME

BUDGET_MS = 500.0  # a gang of 64 members with 8 cards each on 5,000 full nodes


def bench_preempt_jobs(
    nodes: int,
    pods: int,
    preemptions: int,
    progress: Progress,
    *,
    gang: int,
    job: int = 1,
    repeat: int = 1,
    seed: int = 0,
) -> dict[str, Any]:
    """Run the benchmark and return the documented fields. `gang`: members of a gang; `job`: pods of a job in the way.

    Raises:
        UsageError: `pods` is not 1, 2, 4 or 8 times `nodes`.
        SubjectError: a gang did not preempt although it had to, or was not bound whole afterwards.
    """
    each = check_sizes(nodes, pods)
    medians: list[float] = []
    samples: list[float] = []
    victims = 0
    for number in range(repeat):
        core = filled(BareCore(seed=seed, preempting_jobs=True), nodes, pods, NODE_GPUS // each, job=job)
        taken = _preempt(core, preemptions, gang)
        samples += [milliseconds for milliseconds, _ in taken]
        medians.append(percentile(sorted(milliseconds for milliseconds, _ in taken), 50))
        victims = sum(gone for _, gone in taken)
        progress(f"repetition {number + 1} of {repeat}: {medians[-1]:.1f} ms a gang, {victims} victims")
    ordered = sorted(samples)
    return {
        "through": "core",
        "nodes": nodes,
        "pods": pods,
        "preemptions": preemptions,
        "gang": gang,
        "job": job,
        "victims": victims,
        "repeat": repeat,
        "seed": seed,
        "preemption_ms": {
            "p50": round(percentile(ordered, 50), 3),
            "p99": round(percentile(ordered, 99), 3),
            "highest": round(ordered[-1], 3),
        },
        "median_ms": {name: round(value, 3) for name, value in spread(medians).items()},
        "budget_ms": BUDGET_MS,
        "within_budget": ordered[-1] <= BUDGET_MS,
    }


def _preempt(core: BareCore, count: int, gang: int) -> list[tuple[float, int]]:
    """For each gang: milliseconds of the decision, and the number of victims."""
    spec = core.spec(spec_of(NODE_GPUS, HIGH_PRIORITY, core.scheduler_name))
    taken: list[tuple[float, int]] = []
    gc.collect()
    gc.freeze()  # as the scheduler's process does after the first synchronisation
    try:
        for number in range(count):
            annotations = {GANG_NAME: f"gang-{number}", GANG_MIN: str(gang)}
            for member in range(gang):
                core.add_pod(f"gang-{number}-{member}", spec, annotations=annotations)
            core.evicted.clear()
            if not core.ready:
                raise SubjectError(f"bench preempt: expected gang {number} to be ready, found it held back")
            began = time.perf_counter()
            bound = core.decide()
            seconds = time.perf_counter() - began
            if bound or not core.evicted:
                raise SubjectError(f"bench preempt: expected victims for gang {number}, found {bound} pods bound")
            taken.append((seconds * 1000, len(core.evicted)))
            for victim in list(core.evicted):
                core.remove_pod(victim)
            core.pause(PAUSE)
            while bound < gang and core.ready:
                bound += core.decide()
            if bound != gang:
                raise SubjectError(f"bench preempt: expected {gang} members of gang {number} bound, found {bound}")
    finally:
        gc.unfreeze()
    return taken
