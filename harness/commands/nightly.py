"""`seatrial nightly`: all suites with their long cases, on devices of a lab; results are kept and pushed."""

import datetime as dt
import os
import re
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from seatrial.harness.commands.output_paths import check_writable
from seatrial.harness.errors import HarnessError, UsageError
from seatrial.harness.lab.lab import VARIABLE
from seatrial.harness.processes import start_child, stop_group

_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d{6}Z", re.ASCII)
AtLeastOne = Annotated[int, Parameter(validator=validators.Number(gte=1))]


def nightly(
    *arguments: Annotated[str, Parameter(allow_leading_hyphen=True)],
    results: Path = Path("nightly"),
    keep: AtLeastOne = 30,
    push: str = "",
    lab: Annotated[Path | None, Parameter(env_var=VARIABLE)] = None,
    place: str = "",
    cards: AtLeastOne = 1,
    window: str = "",
    wait: Annotated[float, Parameter(validator=validators.Number(gte=0))] = 3600.0,
) -> int:
    """Run `seatrial run --long` into a new folder, push it, and remove old folders.

    The exit status is that of the run; 2 if the push failed and the run had passed.

    Args:
        arguments: Arguments of `seatrial run`, after `--`: suites, --backend and others.
        results: The folder that has a folder for each run, named by its beginning in UTC.
        keep: How many runs stay there.
        push: A command that gets the run's folder and its name as last arguments, as in 'rsync -a' or './upload'. It
            is split into words; no shell reads it.
        lab: The inventory of a lab; by default that of $SEATRIAL_LAB.
        place: Hold devices of the lab while the run lasts: a model or tag, as in h100.
        cards: How many cards.
        window: The lab's window that the run belongs to.
        wait: Seconds to wait in line for the devices.
    """
    words = _push_command(push)
    check_writable("--results", results / "run")
    if place and lab is None:
        raise UsageError(f"--place {place}: expected the inventory of a lab: give --lab FILE or set ${VARIABLE}")
    if not place:
        _check_no_lab(lab, cards, window)
    name = dt.datetime.fromtimestamp(time.time(), dt.UTC).strftime("%Y-%m-%dT%H%M%SZ")
    folder = results / name
    command = [sys.executable, "-m", "seatrial", "run", "--long", "--report", str(folder), *arguments]
    if place:
        held = ["--cards", str(cards), "--wait", str(wait), "--lab", str(lab)]
        held += ["--window", window] if window else []
        command = [sys.executable, "-m", "seatrial", "lab", "acquire", place, *held, "--", *command]
    status = _run(command)
    if words and folder.is_dir():
        pushed = _run([*words, str(folder), name])
        if pushed:
            print(f"seatrial: {words[0]} ended with status {pushed}; the results are in {folder}", file=sys.stderr)
            status = status or HarnessError.exit_code
    _remove_old(results, keep)
    return status


def _check_no_lab(lab: Path | None, cards: int, window: str) -> None:
    """
    Raises:
        UsageError: a flag says how to hold devices, and none says which. $SEATRIAL_LAB alone is no such flag.
    """
    own_lab = lab is not None and str(lab) != os.environ.get(VARIABLE)
    for flag, value in (("--lab", own_lab), ("--cards", cards != 1), ("--window", bool(window))):
        if value:
            raise UsageError(f"{flag}: expected --place MODEL beside it, as in --place h100; found none")


def _push_command(push: str) -> list[str]:
    if not push:
        return []
    try:
        words = shlex.split(push)
    except ValueError as error:
        raise UsageError(f"--push: expected a command, found {push!r}: {error}") from error
    if not words or shutil.which(words[0]) is None:
        raise UsageError(f"--push: expected a program that can be started, found {words[0] if words else push!r}")
    return words


def _run(command: list[str]) -> int:
    """Run a command to its end. SIGTERM and Ctrl-C are passed on to it."""
    process = start_child(command, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    interrupted = False
    try:
        while True:
            try:
                status = process.wait()
            except KeyboardInterrupt:
                interrupted = True
                process.send_signal(signal.SIGINT)
            else:
                return 130 if interrupted else status if status >= 0 else 128 - status
    finally:
        signal.signal(signal.SIGTERM, before)
        stop_group(process.pid)


def _remove_old(results: Path, keep: int) -> None:
    """Remove all but the newest runs; other folders are left alone."""
    if results.is_dir():
        runs = sorted(path for path in results.iterdir() if path.is_dir() and _NAME.fullmatch(path.name))
        for path in runs[:-keep]:
            shutil.rmtree(path)
