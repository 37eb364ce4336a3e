"""Run the suites over many mutants, several processes side by side, and sum up which were caught and by whom.

For each mutant the suites of its area run first and the others, the quick ones first, only when these do not catch it.
Before all, the suites run over the original: a suite that fails without a mutant judges none.
"""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from seatrial.harness.errors import UsageError
from seatrial.harness.mutation.catalogue import INPROCESS, PACKAGE, Mutant
from seatrial.harness.mutation.child import Result, begun_file
from seatrial.harness.processes import die_with_parent

TIMEOUT = 300.0  # seconds of processor time for a group of suites; the original takes about 80 for all
MAX_WAIT = 10  # times as many seconds of real time: a process that waits for ever uses no processor time
MAX_SLOWDOWN = 5  # times the original's seconds, when that is more: a busy machine hangs no mutant
SUITES = (PACKAGE / "suites").resolve()


class Outcome(msgspec.Struct, frozen=True):
    """One mutant with its result."""

    mutant: Mutant
    result: Result

    @property
    def counted(self) -> bool:
        """Whether it counts for the catch rate: equivalent mutants do not."""
        return not self.mutant.equivalent


class RunFiles(Protocol):
    """Runs test files over one mutant, or over the original if `name` is empty."""

    async def __call__(self, name: str, files: Sequence[Path], *, subject: str, limit: float) -> Result: ...


class BaselineError(UsageError):
    """The suites fail over the original."""


class Progress(msgspec.Struct, frozen=True):
    """How far a campaign is."""

    outcome: Outcome
    done: int
    total: int
    seconds_left: float  # by the pace so far


def files_of(mutant: Mutant, *, all_suites: bool, seconds: Mapping[str, float] | None = None) -> list[list[Path]]:
    """The test files to run, in groups: those of the mutant's area, then all others, by `seconds` of each file."""
    first: list[Path] = []
    for name in mutant.suites:
        path = SUITES / name
        first += sorted(path.glob("test_*.py")) if path.is_dir() else [path]
    if not all_suites:
        return [first]
    others = [path for path in sorted(SUITES.glob("*/test_*.py")) if path not in first]
    known = seconds or {}
    return [first, sorted(others, key=lambda path: known.get(path.relative_to(SUITES).as_posix(), 0.0))]


async def _run_one(mutant: Mutant, groups: Sequence[Sequence[Path]], *, limit: float, run: RunFiles) -> Result:
    result = Result(mutant.id)
    spent, ran = 0.0, 0
    for number, files in enumerate(groups):
        subject = INPROCESS if number else mutant.subject
        result = await run(mutant.id, files, subject=subject, limit=limit)
        spent, ran = spent + result.seconds, ran + result.tests
        if result.caught:
            break
    result.tests, result.seconds = ran, round(spent, 2)
    return result


async def run_here(name: str, files: Sequence[Path], *, subject: str, limit: float) -> Result:
    """Run the files in a process of this machine, for at most `limit` seconds of processor time.

    Raises:
        UsageError: the process was ended from outside, or before it ran a test.
    """
    with tempfile.TemporaryDirectory(prefix="seatrial-mutant-") as folder:
        out = Path(folder) / "result.json"
        command = [sys.executable, "-m", "seatrial.harness.mutation.child", str(out), name, str(limit)]
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
            # Mutants change the Python functions, in whose place a compiled kernel would run.
            env={**os.environ, "PYTHONHASHSEED": "0", "SEATRIAL_KERNEL": "off"},
            process_group=0,  # Ctrl-C reaches this process alone, which ends the others
            preexec_fn=partial(die_with_parent, signal.SIGKILL),
        )
        try:
            message, _ = await asyncio.wait_for(process.communicate(), limit * MAX_WAIT)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            return _hung(name, limit)
        finally:
            if process.returncode is None:
                process.kill()
        if out.exists():
            return msgspec.json.decode(out.read_bytes(), type=Result)
        if process.returncode == -signal.SIGXCPU:
            return _hung(name, limit)
        what = f"mutant {name}" if name else "the original"
        if process.returncode in {-signal.SIGKILL, -signal.SIGTERM}:  # nothing in the suites does that
            number = -process.returncode
            raise UsageError(f"{what}: its process was ended by signal {number} from outside; run the command again")
        last = message.decode(errors="replace").strip().splitlines()[-1:] or [""]
        ended = f"exit status {process.returncode}: {last[0][:300]}"
        if not begun_file(out).exists():
            raise UsageError(
                f"{what}: its process ended before it ran a suite, with {ended}; "
                "repair that and run the command again: results that are there are kept"
            )
        return Result(name, True, "", "", "broken", ended)


def _hung(name: str, limit: float) -> Result:
    return Result(name, True, "", "", "hung", f"the suites did not end within {limit:g} s", limit)


async def run_baseline(
    files: Sequence[Path], *, subject: str = INPROCESS, limit: float = TIMEOUT, run: RunFiles = run_here
) -> Result:
    """Run the suites over the original, for at most `limit` seconds.

    Raises:
        BaselineError: a test fails.
    """
    result = await run("", files, subject=subject, limit=limit)
    if result.caught:
        who = result.case or result.by or "the suites"
        raise BaselineError(
            f"{who} {result.verdict} without a mutant: {result.message}; a campaign needs suites that pass"
        )
    return result


async def run_campaign(
    mutants: Sequence[Mutant],
    *,
    jobs: int,
    all_suites: bool = True,
    limit: float = TIMEOUT,
    seconds: Mapping[str, float] | None = None,
    run: RunFiles = run_here,
    progress: Callable[[Progress], None] = lambda _: None,
    now: Callable[[], float] = time.monotonic,
) -> list[Outcome]:
    """Run the suites over each mutant, `jobs` at a time; outcomes are in the order of `mutants`.

    `seconds` are those of each file over the original, as `run_baseline` found them.
    """
    begun = now()
    left, outcomes = iter(enumerate(mutants)), dict[int, Outcome]()

    async def work() -> None:
        for number, mutant in left:
            groups = files_of(mutant, all_suites=all_suites, seconds=seconds)
            outcome = Outcome(mutant, await _run_one(mutant, groups, limit=limit, run=run))
            outcomes[number] = outcome
            rest = (now() - begun) / len(outcomes) * (len(mutants) - len(outcomes))
            progress(Progress(outcome, len(outcomes), len(mutants), rest))

    # No task waits for its turn: one that begins a process just as an error cancels it would wait for ever.
    await asyncio.gather(*(work() for _ in range(jobs)))
    return [outcomes[number] for number in range(len(mutants))]


def catch_rate(outcomes: Sequence[Outcome]) -> tuple[int, int]:
    """How many mutants were caught, and how many count."""
    counted = [outcome for outcome in outcomes if outcome.counted]
    return sum(outcome.result.caught for outcome in counted), len(counted)
