"""`seatrial replay openb`: GPU allocation of placement policies on a production trace."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, validators

from seatrial.harness.errors import UsageError
from seatrial.harness.interrupts import interruptible
from seatrial.harness.replay.openb import load as load_trace
from seatrial.harness.replay.outcome import Outcome
from seatrial.harness.replay.plot import check_target, draw
from seatrial.harness.replay.policies import POLICIES, policy_named
from seatrial.harness.replay.published import Comparison, compare
from seatrial.harness.replay.series import Series, series
from seatrial.harness.replay.through_scheduler import POLICY as SCHEDULER

Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]
Load = Annotated[float, Parameter(validator=validators.Number(gt=0, lte=10))]


def openb(
    *,
    nodes: Path,
    pods: Path,
    load: Load = 1.3,
    seed: int = 42,
    policy: str = "fgd",
    seeds: Positive = 1,
    curve: bool = False,
    plot: Path | None = None,
    check: bool = False,
    scheduler_config: Path | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Replay an openb GPU-sharing trace: pods arrive, each is placed once or fails once, and none leaves.

    Args:
        nodes: The trace's nodes, a CSV file with columns sn, cpu_milli, memory_mib, gpu, model.
        pods: The trace's pods, a CSV file with columns name, cpu_milli, memory_mib, num_gpu, gpu_milli and perhaps
            gpu_spec.
        load: GPU requests of all pods, as a multiple of the GPU capacity.
        seed: Decides the order of arrivals, and ties between nodes.
        policy: Placement policy: random, dotprod, gpuclustering, gpupacking, bestfit, fgd, balanced, opportunity, or
            all of these; or scheduler, for the core of our scheduler.
        seeds: Number of replays, with consecutive seeds from --seed; figures are means with their spread.
        curve: Add one row for each whole percent arrived.
        plot: Draw allocation and fragmentation against arrivals into this PNG file.
        check: Compare with the published results of the default trace, which are means of 10 seeds; exit with 1 if one
            is too far off.
        scheduler_config: The scheduler's configuration file, for --policy scheduler.
        json_: Print figures as JSON.
    """
    names = list(POLICIES) if policy == "all" else [SCHEDULER if policy == SCHEDULER else policy_named(policy).name]
    if scheduler_config is not None and policy != SCHEDULER:
        raise UsageError(f"--scheduler-config needs --policy {SCHEDULER}, found --policy {policy}")
    if check and load != 1.3:
        raise UsageError(f"--check compares with published results: expected --load 1.3, found --load {load:g}")
    if plot:
        check_target(plot)
    trace = load_trace(nodes, pods)
    with interruptible():
        every = [
            series(
                trace,
                name,
                load=load,
                seeds=range(seed, seed + seeds),
                done=_progress(name, len(names) * seeds),
                config=scheduler_config,
            )
            for name in names
        ]
    comparisons = compare({each.policy: each.allocated() for each in every}) if check else []
    if plot:
        draw({each.policy: each.curve() for each in every}, plot)
    if json_:
        print(json.dumps(_document(every, load, comparisons if check else None, curve=curve), indent=2))
    else:
        _print(every, comparisons, curve=curve)
    return 0 if all(each.ok for each in comparisons) else 1


def _progress(name: str, replays: int) -> Callable[[Outcome], None]:
    def done(outcome: Outcome) -> None:
        if replays > 3:  # some seconds in all
            allocated = outcome.figures()["gpu_allocated_percent"]
            print(f"{name}: {allocated:.2f} % allocated in {outcome.seconds:.2f} s", file=sys.stderr)

    return done


def _document(every: list[Series], load: float, comparisons: list[Comparison] | None, *, curve: bool) -> dict[str, Any]:
    results = [each.summary() | ({"curve": each.curve()} if curve else {}) for each in every]
    document: dict[str, Any] = {"load": load}
    document |= results[0] if len(results) == 1 else {"policies": results}
    if comparisons is not None:
        document["check"] = [{field: getattr(each, field) for field in Comparison.__slots__} for each in comparisons]
    return document


def _print(every: list[Series], comparisons: list[Comparison], *, curve: bool) -> None:
    columns = ("arrived_percent", "gpu_allocated_percent", "fragmented_percent", "unplaced_pods", "seconds")
    print(f"{'policy':14}" + "".join(f"{column:>24}" for column in columns))
    for each in every:
        summary = each.summary()
        cells = [summary[column] for column in columns]
        shown = [f"{cell['mean']:g} ± {cell['sd']:g}" if isinstance(cell, dict) else f"{cell:g}" for cell in cells]
        print(f"{each.policy:14}" + "".join(f"{cell:>24}" for cell in shown))
    if curve:
        for each in every:
            for row in each.curve():
                print(f"{each.policy:14}" + "".join(f"{row.get(column, ''):>24}" for column in columns[:3]))
    for comparison in comparisons:
        verdict = "ok" if comparison.ok else "OFF"
        print(
            f"{verdict:4}{comparison.policy:14} at {comparison.arrived_percent} %: measured {comparison.measured:.2f}, "
            f"target {comparison.target:.2f}, difference {comparison.off:+.2f}"
        )
