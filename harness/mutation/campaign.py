"""Run the suites over many mutants, several processes side by side, and sum up which were caught and by whom."""

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from seatrial.harness.mutation.catalogue import PACKAGE, Mutant
from seatrial.harness.mutation.child import Result

TIMEOUT = 300.0  # seconds for one mutant; the original takes about 40
SUITES = (PACKAGE / "suites").resolve()


class Outcome(msgspec.Struct, frozen=True):
    """One mutant with its result."""

    mutant: Mutant
    result: Result

    @property
    def counted(self) -> bool:
        """Whether it counts for the catch rate: equivalent mutants do not."""
        return not self.mutant.equivalent


def files_of(mutant: Mutant, *, all_suites: bool) -> list[list[Path]]:
    """The test files to run, in groups: those of the mutant's area first, then all others."""
    first: list[Path] = []
    for name in mutant.suites:
        path = SUITES / name
        first += sorted(path.glob("test_*.py")) if path.is_dir() else [path]
    if not all_suites:
        return [first]
    others = [path for path in sorted(SUITES.glob("*/test_*.py")) if path not in first]
    return [first, others]


async def _run_one(mutant: Mutant, *, all_suites: bool, subject: str, limit: float) -> Result:
    result = Result(mutant.id)
    spent, ran = 0.0, 0
    for files in files_of(mutant, all_suites=all_suites):
        result = await _run_files(mutant.id, files, subject=subject, limit=limit)
        spent, ran = spent + result.seconds, ran + result.tests
        if result.caught:
            break
    result.tests, result.seconds = ran, round(spent, 2)
    return result


async def _run_files(name: str, files: Sequence[Path], *, subject: str, limit: float) -> Result:
    with tempfile.TemporaryDirectory(prefix="seatrial-mutant-") as folder:
        out = Path(folder) / "result.json"
        command = [sys.executable, "-m", "seatrial.harness.mutation.child", str(out), name]
        command += [*map(str, files), "-c", str(SUITES / "pytest.run.ini"), "-p", "seatrial.testing"]
        command += [
            "--import-mode=importlib",
            f"--rootdir={SUITES}",
            f"--seatrial-subject={subject}",
            f"--basetemp={Path(folder) / 'pytest'}",
        ]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "PYTHONHASHSEED": "0"},
        )
        try:
            said, _ = await asyncio.wait_for(process.communicate(), limit)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            return Result(name, True, "", "", "hung", f"the suites did not end within {limit:g} s", limit)
        finally:
            if process.returncode is None:
                process.kill()
        if out.exists():
            return msgspec.json.decode(out.read_bytes(), type=Result)
        last = said.decode(errors="replace").strip().splitlines()[-1:] or [""]
        return Result(name, True, "", "", "broken", f"exit status {process.returncode}: {last[0][:300]}")


async def run_campaign(
    mutants: Sequence[Mutant],
    *,
    jobs: int,
    all_suites: bool = True,
    subject: str = "inprocess",
    limit: float = TIMEOUT,
    progress: Callable[[Outcome], None] = lambda _: None,
) -> list[Outcome]:
    """Run the suites over each mutant, `jobs` at a time; outcomes are in the order of `mutants`."""
    free = asyncio.Semaphore(jobs)

    async def one(mutant: Mutant) -> Outcome:
        async with free:
            result = await _run_one(mutant, all_suites=all_suites, subject=subject, limit=limit)
        outcome = Outcome(mutant, result)
        progress(outcome)
        return outcome

    return list(await asyncio.gather(*map(one, mutants)))


def catch_rate(outcomes: Sequence[Outcome]) -> tuple[int, int]:
    """How many mutants were caught, and how many count."""
    counted = [outcome for outcome in outcomes if outcome.counted]
    return sum(outcome.result.caught for outcome in counted), len(counted)


def markdown(outcomes: Sequence[Outcome]) -> str:
    """The table of docs/mutants.md."""
    caught, counted = catch_rate(outcomes)
    share = 100 * caught / counted if counted else 0.0
    lines = [
        f"{caught} of {counted} mutants caught ({share:.1f} %).",
        "",
        "| mutant | area | fault | upstream fix | caught by | tests run | symptom |",
        "| --- | --- | --- | --- | --- | ---: | --- |",
    ]
    for outcome in outcomes:
        mutant, result = outcome.mutant, outcome.result
        by = (result.case or result.by or result.verdict) if result.caught else "**not caught**"
        if mutant.equivalent:
            by, said = "equivalent", mutant.equivalent
        else:
            said = result.message
        cells = (mutant.id, mutant.area, mutant.fault, mutant.fix, by, str(result.tests), said[:160])
        lines.append("| " + " | ".join(_cell(text) for text in cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
