"""`seatrial mutate`: run the suites over seeded faults of our scheduler, and print which were caught."""

import asyncio
import json
import math
import os
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter, validators

from seatrial.harness.errors import UsageError
from seatrial.harness.mutation.campaign import (
    MAX_SLOWDOWN,
    TIMEOUT,
    Outcome,
    Progress,
    RunFiles,
    catch_rate,
    files_of,
    run_baseline,
    run_campaign,
    run_here,
)
from seatrial.harness.mutation.catalogue import INPROCESS, Mutant, drift, load, select
from seatrial.harness.mutation.child import Result
from seatrial.harness.mutation.generated import generate
from seatrial.harness.mutation.on_dask import dask_runs
from seatrial.harness.mutation.results_file import ResultsFile, remaining
from seatrial.harness.mutation.table import caught_by, markdown

Plain = Annotated[bool, Parameter(negative="")]


def mutate(
    *ids: str,
    area: tuple[str, ...] = (),
    jobs: Annotated[int | None, Parameter(name=["--jobs", "-j"], validator=validators.Number(gte=1))] = None,
    on: str = "",
    timeout: Annotated[float, Parameter(validator=validators.Number(gt=0))] = TIMEOUT,
    quick: Plain = False,
    results: Path | None = None,
    again: Plain = False,
    list_: Annotated[bool, Parameter(name="--list", negative="")] = False,
    generated: Plain = False,
    kind: tuple[str, ...] = (),
    in_: Annotated[tuple[str, ...], Parameter(name="--in")] = (),
    sample: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 0,
    seed: int = 0,
    drift_: Annotated[bool, Parameter(name="--drift", negative="")] = False,
    table: Path | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Apply each seeded fault, run the suites with the auditor, and print who caught it.

    Each fault is applied in a process of its own while the code is imported; no file is changed. The suites first run
    over the original and must pass.
    A mutant that does not apply to today's source has drifted: it is reported and not judged.
    Exit status: 0 all caught, 1 some got away or drifted, 2 the suites fail over the original, or its use was at fault.

    Args:
        ids: IDs of mutants; by default all.
        area: Only mutants of these areas.
        jobs: Number of processes side by side; by default the number of cores, or of the threads of all Dask workers.
        on: Run the suites on a Dask cluster, as in dask:tcp://127.0.0.1:8786; by default as processes of this machine.
        timeout: Seconds of processor time for a group of suites; a mutant with which they do not end counts as caught.
        quick: Run only the suites of each mutant's area.
        results: Write each result to this file as it comes, and take over those that it has already.
        again: Of the mutants in the results file, run those again that got away.
        list_: Print the catalogue; run nothing.
        generated: Faults that are made by rule from the source in place of the catalogue's.
        kind: With --generated: only wakes, undoes, subscriptions, preconditions, lists, boundaries or numbers.
        in_: With --generated: only this file or folder, as in scheduler/quota.
        sample: With --generated: that many, drawn by --seed; by default all, which takes hours.
        seed: With --sample: decides which.
        drift_: Print the mutants that have drifted, with the reason; run nothing.
        table: Also write the outcomes to this file, as Markdown.
        json_: Print outcomes as JSON.
    """
    if not generated and (kind or in_ or sample):
        raise UsageError("--kind, --in, --sample: expected --generated with them")
    if generated and (area or ids):
        raise UsageError("--generated: expected --kind and --in to choose; --area and IDs are the catalogue's")
    catalogue = load()
    mutants = (
        generate(catalogue, kinds=kind, folders=in_, sample=sample, seed=seed)
        if generated
        else select(catalogue, area, ids)
    )
    if list_:
        _list(mutants, as_json=json_)
        return 0
    drifted = drift(mutants)
    if drift_:
        _print_drift(drifted, len(mutants), as_json=json_)
        return 1 if drifted else 0
    mutants = [mutant for mutant in mutants if mutant.id not in drifted]
    if table is not None and not table.resolve().parent.is_dir():
        raise UsageError(f"--table {table}: expected a file in an existing folder")
    if again and results is None:
        raise UsageError("--again: expected --results FILE with it, the results of an earlier run")
    file = ResultsFile(results) if results is not None else None
    to_run = remaining(mutants, file, again=again)
    ran = asyncio.run(_run(to_run, file, jobs=jobs, on=on, quick=quick, limit=timeout))
    outcomes = [ran.get(mutant.id) or Outcome(mutant, _kept(file, mutant)) for mutant in mutants]
    if table is not None:
        table.write_text(markdown(outcomes))
    caught, counted = catch_rate(outcomes)
    away = [outcome.mutant for outcome in outcomes if outcome.counted and not outcome.result.caught]
    if json_:
        document = {"caught": caught, "counted": counted, "drifted": drifted, "outcomes": msgspec.to_builtins(outcomes)}
        print(json.dumps(document, indent=2))
    else:
        print(f"{caught} of {counted} mutants caught, {len(outcomes) - counted} equivalent")
        for mutant in away:
            print(f"not caught  {mutant.id}: {mutant.fault}")
        for reason in drifted.values():
            print(f"drifted     {reason}")
    return 1 if away or drifted else 0


async def _run(
    mutants: list[Mutant], file: ResultsFile | None, *, jobs: int | None, on: str, quick: bool, limit: float
) -> dict[str, Outcome]:
    """Outcomes by mutant, after the baseline."""
    if not mutants:
        return {}
    async with AsyncExitStack() as stack:
        run, threads = await stack.enter_async_context(dask_runs(on)) if on else (run_here, os.cpu_count() or 1)
        return await _judge(mutants, file, jobs=jobs or threads, run=run, quick=quick, limit=limit)


async def _judge(
    mutants: list[Mutant], file: ResultsFile | None, *, jobs: int, run: RunFiles, quick: bool, limit: float
) -> dict[str, Outcome]:
    by_subject: dict[str, dict[Path, None]] = {}
    for mutant in mutants:
        for number, part in enumerate(files_of(mutant, all_suites=not quick)):
            by_subject.setdefault(INPROCESS if number else mutant.subject, {}).update(dict.fromkeys(part))
    seconds: dict[str, float] = {}
    for subject, files in by_subject.items():
        print(f"the suites over the original: {len(files)} files, subject {subject}", file=sys.stderr, flush=True)
        baseline = await run_baseline(list(files), subject=subject, limit=limit, run=run)
        seconds = baseline.files | seconds
    limit = max(limit, MAX_SLOWDOWN * sum(seconds.values()))

    def progress(made: Progress) -> None:
        if file is not None:
            file.add(made.outcome.mutant, made.outcome.result)
        _print_progress(made)

    outcomes = await run_campaign(
        mutants, jobs=jobs, all_suites=not quick, limit=limit, seconds=seconds, run=run, progress=progress
    )
    return {outcome.mutant.id: outcome for outcome in outcomes}


def _kept(file: ResultsFile | None, mutant: Mutant) -> Result:
    result = file.result_of(mutant) if file is not None else None
    if result is None:
        raise RuntimeError(f"mutant {mutant.id} was neither run nor in the results file")
    return result


def _list(mutants: list[Mutant], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(msgspec.to_builtins(mutants), indent=2))
        return
    for mutant in mutants:
        print(f"{mutant.id:8} {mutant.area:14} {mutant.fault} ({mutant.fix})")
    print(f"{len(mutants)} mutants")


def _print_drift(drifted: Mapping[str, str], count: int, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(drifted, indent=2))
        return
    for reason in drifted.values():
        print(reason)
    print(f"{len(drifted)} of {count} mutants have drifted")


def _print_progress(made: Progress) -> None:
    result = made.outcome.result
    if result.caught:
        text = f"{result.verdict} {caught_by(made.outcome)} after {result.seconds:g} s: {result.message}"
    else:
        text = f"not caught by {result.tests} tests"
    left = f"{made.done}/{made.total}, {math.ceil(made.seconds_left / 60)} min left"
    print(f"{left}  {made.outcome.mutant.id:8} {text}"[:220], file=sys.stderr, flush=True)
