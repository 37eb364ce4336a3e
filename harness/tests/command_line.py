"""Run `seatrial WORDS` in this process, for commands that end by themselves and replace no process.

A process of its own takes half a second of CPU time, nearly all of it to load modules that the tests have loaded.
What depends on the process is tested with one: signals, closed or full output, detached clusters.
"""

import io
import signal
import sys
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from seatrial.harness import cli


def run_command(
    *words: str, folder: Path | None = None, environment: Mapping[str, str | None] | None = None
) -> "CompletedProcess[str]":
    """Exit status and output of the command.

    Args:
        words: What follows `seatrial` on the command line.
        folder: The working directory during the command; by default this process's.
        environment: Variables that are set, or with None removed, during the command.
    """
    output, errors = io.StringIO(), io.StringIO()
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
        patch.setattr(sys, "argv", ["seatrial", *words])
        for name, value in (environment or {}).items():
            if value is None:
                patch.delenv(name, raising=False)
            else:
                patch.setenv(name, value)
        try:
            with chdir(folder or Path.cwd()), pytest.raises(SystemExit) as ended:
                cli.main()
        finally:
            signal.signal(signal.SIGTERM, handler)  # `main` installs its own
    status = ended.value.code
    assert isinstance(status, int)
    return CompletedProcess(("seatrial", *words), status, output.getvalue(), errors.getvalue())
