"""`seatrial replay openb` and `compare`: GPU allocation of placement policies on a production trace."""

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, validators

from seatrial.harness.commands.output_paths import check_writable
from seatrial.harness.errors import UsageError
from seatrial.harness.interrupts import interruptible
from seatrial.harness.replay.comparison import AT, Difference, difference, markdown, workload_of
from seatrial.harness.replay.openb import load as load_trace
from seatrial.harness.replay.outcome import Outcome
from seatrial.harness.replay.plot import check_target, draw, draw_comparison
from seatrial.harness.replay.policies import POLICIES, policy_named
from seatrial.harness.replay.published import Comparison, check_workload, hold_against
from seatrial.harness.replay.series import Series, run, series
from seatrial.harness.replay.through_scheduler import POLICY as SCHEDULER
from seatrial.harness.workers import CarriedFile, results_of

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
    scheduler_config: list[Path] | None = None,
    jobs: Positive = 1,
    on: str = "",
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
        check: Compare with the published results of the workload that the pod file is named after, which are means of
            10 seeds; exit with 1 if one is too far off.
        scheduler_config: The scheduler's configuration file, for --policy scheduler. Several are replayed one after the
            other, beside the scheduler without one, and are named after their files.
        jobs: Number of replays side by side, each in a process; the figures are the same.
        on: Replay on a Dask cluster, as in dask:tcp://127.0.0.1:8786, in place of this machine.
        json_: Print figures as JSON.
    """
    names = list(POLICIES) if policy == "all" else [SCHEDULER if policy == SCHEDULER else policy_named(policy).name]
    if scheduler_config and policy != SCHEDULER:
        raise UsageError(f"--scheduler-config needs --policy {SCHEDULER}, found --policy {policy}")
    configs: list[Path | None] = [*scheduler_config] if scheduler_config else [None]
    if scheduler_config and len(configs) > 1:
        stems = [config.stem for config in scheduler_config]
        if len(set(stems)) < len(stems):
            raise UsageError(f"--scheduler-config: expected files with different names, found {', '.join(stems)}")
        configs = [None, *configs]
    if check and load != 1.3:
        raise UsageError(f"--check compares with published results: expected --load 1.3, found --load {load:g}")
    if plot:
        check_target(plot)
    if check:
        check_workload(workload_of(pods))
    trace = load_trace(nodes, pods)
    titles = [_named(name, config) if len(configs) > 1 else name for name in names for config in configs]
    numbers = range(seed, seed + seeds)
    files = [CarriedFile.of(config, "--scheduler-config") for config in configs]
    parts = ((trace, name, load, number, file) for name in names for file in files for number in numbers)
    progress = _progress([_named(name, config) for name in names for config in configs], seeds)
    with interruptible():
        outcomes = results_of(run, parts, on=on, jobs=jobs, done=progress)
    every = [series(title, numbers, outcomes[at * seeds : (at + 1) * seeds]) for at, title in enumerate(titles)]
    comparisons = hold_against(workload_of(pods), {each.policy: each.allocated() for each in every}) if check else []
    if plot:
        draw({each.policy: each.curve() for each in every}, plot)
    if json_:
        print(json.dumps(_document(every, load, comparisons if check else None, curve=curve), indent=2))
    else:
        _print(every, comparisons, curve=curve)
    return 0 if all(each.ok for each in comparisons) else 1


def compare(
    pods: Annotated[list[Path], Parameter(required=True)],
    *,
    nodes: Path,
    policy: str = "opportunity",
    beside: str = "fgd",
    seed: int = 42,
    seeds: Positive = 10,
    within: Annotated[float | None, Parameter(validator=validators.Number(gte=0))] = None,
    plot: Path | None = None,
    table: Path | None = None,
    scheduler_config: Path | None = None,
    jobs: Positive = 1,
    on: str = "",
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Compare two placement policies on openb traces, when 90, 95, 100 and 130 % of the GPU capacity have arrived.

    Args:
        pods: Pod files of the traces, as for `replay openb`; one workload each.
        nodes: The traces' nodes.
        policy: The policy that is judged; see `replay openb`.
        beside: The policy that it is compared with.
        seed: The first seed.
        seeds: Number of replays of each workload and policy; both see the same arrivals.
        within: Exit with 1 if a mean difference is below minus this many percentage points, or one of the largest pods
            is refused earlier with any seed.
        plot: Draw what both allocate at all loads, and what no policy can exceed, into this PNG file.
        table: Write the differences into this file, as a Markdown table.
        scheduler_config: The scheduler's configuration file, for the policy scheduler.
        jobs: Number of replays side by side, each in a process; the figures are the same.
        on: Replay on a Dask cluster, as in dask:tcp://127.0.0.1:8786, in place of this machine.
        json_: Print figures as JSON.
    """
    for name in (policy, beside):
        if name != SCHEDULER:
            policy_named(name)
    if scheduler_config is not None and SCHEDULER not in (policy, beside):
        raise UsageError(f"--scheduler-config needs the policy {SCHEDULER}, found {policy} and {beside}")
    if plot:
        check_target(plot)
    if table:
        check_writable("--table", table)
    differences: list[Difference] = []
    with interruptible():
        for number, path in enumerate(pods, start=1):
            trace, name = load_trace(nodes, path), workload_of(path)
            print(f"{name}: workload {number} of {len(pods)}", file=sys.stderr)
            numbers = range(seed, seed + seeds)
            row = difference(name, trace, policy, beside, seeds=numbers, config=scheduler_config, on=on, jobs=jobs)
            if not json_:
                if number == 1:
                    _print_header()
                _print_difference(row)
            differences.append(row)
    if not json_:
        _print_unplaced(differences, policy, beside)
    if plot:
        draw_comparison(differences, policy, beside, plot)
    if table:
        table.write_text(markdown(differences, policy, beside) + "\n", encoding="utf-8")
    if json_:
        rows = [row.document() for row in differences]
        print(json.dumps({"policy": policy, "beside": beside, "seeds": seeds, "workloads": rows}, indent=2))
    failed = within is not None and any(row.worst < -within or row.earlier for row in differences)
    return 1 if failed else 0


def _print_header() -> None:
    cells = "".join(f"{f'at {percent} %':>16}" for percent in AT)
    print(f"{'workload':14}{cells}{'allocated at 130 %':>20}  largest pods refused earlier")


def _print_difference(row: Difference) -> None:
    points = [f"{row.points[percent]['mean']:+.2f} ± {row.points[percent]['sd']:.2f}" for percent in AT]
    earlier = ", ".join(f"seed {seed}" for seed in row.earlier) or "never"
    cells = "".join(f"{cell:>16}" for cell in points)
    print(f"{row.workload:14}{cells}{row.allocated[130]:>20.2f}  {earlier}", flush=True)


def _print_unplaced(rows: list[Difference], policy: str, beside: str) -> None:
    print(f"\nunplaced pods by size at 130 %: {policy} ({beside}); where the difference is lowest")
    for row in rows:
        sizes = ", ".join(
            f"{size.replace('_', ' ')} {own:g} ({other:g})" for size, (own, other) in row.unplaced.items()
        )
        lowest, where = row.lowest
        print(f"{row.workload:14}{sizes}; {lowest:+.2f} at {where} %")


def _named(policy: str, config: Path | None) -> str:
    """What a policy is called beside others; the scheduler's configurations by their files."""
    return policy if config is None else config.stem


def _progress(names: list[str], seeds: int) -> Callable[[Outcome], None]:
    """Print a line for each replay that ends, if there are several; each name has `seeds` of them."""
    numbers = itertools.count()

    def done(outcome: Outcome) -> None:
        name = names[next(numbers) // seeds]
        if len(names) * seeds > 3:  # some seconds in all
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
    columns = (
        "arrived_percent",
        "gpu_allocated_percent",
        "fragmented_percent",
        "unplaced_pods",
        "seconds",
        "pods_per_second",
    )
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
