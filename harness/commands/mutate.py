"""`seatrial mutate`: run the suites over seeded faults of our scheduler, and print which were caught."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter, validators

from seatrial.harness.errors import UsageError
from seatrial.harness.mutation.campaign import TIMEOUT, Outcome, catch_rate, markdown, run_campaign
from seatrial.harness.mutation.catalogue import Mutant, check, load, select

Plain = Annotated[bool, Parameter(negative="")]


def mutate(
    *ids: str,
    area: tuple[str, ...] = (),
    jobs: Annotated[int | None, Parameter(name=["--jobs", "-j"], validator=validators.Number(gte=1))] = None,
    timeout: Annotated[float, Parameter(validator=validators.Number(gt=0))] = TIMEOUT,
    quick: Plain = False,
    list_: Annotated[bool, Parameter(name="--list", negative="")] = False,
    table: Path | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Apply each seeded fault, run the suites with the auditor in virtual time, and print who caught it.

    Each fault is applied in a process of its own while the code is imported; no file is changed.
    Exit status: 0 all caught, 1 some got away, 2 the catalogue does not match the source, or its use was at fault.

    Args:
        ids: IDs of mutants; by default all.
        area: Only mutants of these areas.
        jobs: Number of processes side by side; by default the number of cores.
        timeout: Seconds for each group of suites; a mutant with which they do not end counts as caught.
        quick: Run only the suites of each mutant's area.
        list_: Print the catalogue and check that it matches the source; run nothing.
        table: Also write the Markdown table to this file.
        json_: Print outcomes as JSON.
    """
    mutants = select(load(), area, ids)
    for mutant in mutants:
        check(mutant)
    if list_:
        _list(mutants, as_json=json_)
        return 0
    if table is not None and not table.resolve().parent.is_dir():
        raise UsageError(f"--table {table}: expected a file in an existing folder")
    jobs = jobs or os.cpu_count() or 1
    outcomes = asyncio.run(run_campaign(mutants, jobs=jobs, all_suites=not quick, limit=timeout, progress=_progress))
    if table is not None:
        table.write_text(markdown(outcomes))
    caught, counted = catch_rate(outcomes)
    away = [outcome.mutant for outcome in outcomes if outcome.counted and not outcome.result.caught]
    if json_:
        print(json.dumps({"caught": caught, "counted": counted, "outcomes": msgspec.to_builtins(outcomes)}, indent=2))
    else:
        print(f"{caught} of {counted} mutants caught, {len(outcomes) - counted} equivalent")
        for mutant in away:
            print(f"not caught  {mutant.id}: {mutant.fault}")
    return 1 if away else 0


def _list(mutants: list[Mutant], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(msgspec.to_builtins(mutants), indent=2))
        return
    for mutant in mutants:
        print(f"{mutant.id:8} {mutant.area:14} {mutant.fault} ({mutant.fix})")
    print(f"{len(mutants)} mutants, all match the source")


def _progress(outcome: Outcome) -> None:
    result = outcome.result
    if result.caught:
        who = result.case or result.by.rpartition("::")[2]
        text = f"{result.verdict} {who} after {result.seconds:g} s: {result.message}"
    else:
        text = f"not caught by {result.tests} tests"
    print(f"{outcome.mutant.id:8} {text}"[:200], file=sys.stderr, flush=True)
