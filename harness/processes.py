"""Child processes: they end with their parent, and are stopped by SIGTERM before SIGKILL."""

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, Any

from seatrial.harness.errors import ClusterError
from seatrial.harness.interrupts import shortened
from seatrial.scheduler.api.integers import integer

# Seconds in which a program that was started must be ready; on a busy machine 60 were not enough.
START_WITHIN = 180.0
STOP_WITHIN = 10.0  # seconds between SIGTERM and SIGKILL
GROUP_STOP_WITHIN = 5.0  # the same, for what an interrupted program left behind
LAST_LINES = 8  # of the log of a program that ended
MUTANT = "SEATRIAL_MUTANT"  # set in a campaign of mutants: the mutant that our programs run with
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def program(module: str) -> list[str]:
    """The command that runs one of our programs; in a mutation campaign with the campaign's mutant."""
    launcher = ["-m", "seatrial.harness.mutation.program"] if MUTANT in os.environ else ["-m"]
    return [sys.executable, *launcher, module]


def die_with_parent(number: int = signal.SIGTERM) -> None:
    """In the child, before exec: request a signal when the parent ends, even if it was killed."""
    _libc.prctl(_PR_SET_PDEATHSIG, number)


def start_child(
    command: Sequence[str],
    *,
    stdin: int | IO[bytes] | None = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    env: Mapping[str, str] | None = None,
    last_signal: int = signal.SIGTERM,
) -> "subprocess.Popen[bytes]":
    """Start a program in a process group of its own, so that Ctrl-C reaches its parent alone, which ends it in order.

    `last_signal` is sent to it when the parent has ended, even if it was killed. OSError where it cannot be started.
    """
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=env,
        process_group=0,
        preexec_fn=partial(die_with_parent, last_signal),  # noqa: PLW1509 one call into libc, which is loaded
    )


def start_logged(
    command: Sequence[str],
    log: Path,
    cleanup: ExitStack,
    *,
    output: int | None = None,
    env: Mapping[str, str] | None = None,
) -> "subprocess.Popen[bytes]":
    """Start a program whose output goes to a file, and its standard output to `output` if given; `cleanup` stops it."""
    sink = cleanup.enter_context(log.open("ab"))
    process = start_child(command, stdout=sink if output is None else output, stderr=sink, env=env)
    cleanup.callback(lambda: stop(process))
    return process


def first_answer(process: "subprocess.Popen[bytes]", *, within: float = START_WITHIN) -> dict[str, Any]:
    """The JSON object in the first line that a child writes to its standard output, which is a pipe.

    Where there is none, `error` in it says whether the child has ended or only takes long.
    """
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], within)
    if not readable:
        return {"error": f"the process runs, and did not answer within {within:g} s"}
    line = process.stdout.readline()
    answer: dict[str, Any] = json.loads(line) if line else {}
    return answer


def check_running(name: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Check that a program of a cluster runs.

    Raises:
        ClusterError: it has ended; the message has the last lines of its log.
    """
    code = process.poll()
    if code is not None:
        last = "\n".join(log.read_text(errors="replace").splitlines()[-LAST_LINES:])
        raise ClusterError(f"{name} ended with status {code}; its last log lines:\n{last}")


def stop(process: "subprocess.Popen[bytes]", *, within: float = STOP_WITHIN) -> None:
    """Send SIGTERM, and SIGKILL after `within` seconds; sooner if this process got SIGTERM itself."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(shortened(within))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


def stop_group(group: int, *, within: float = GROUP_STOP_WITHIN) -> None:
    """End what is left of a process group whose leader has ended: SIGTERM, and SIGKILL after `within` seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(group, number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + shortened(within)
        while _has_members(group) and time.monotonic() < deadline:
            time.sleep(0.02)


def _has_members(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def started_at(pid: int) -> int:
    """The start time of a process in clock ticks since boot; 0 if it does not exist or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] in {"Z", "X"} else int(fields[19])


def own_identity() -> str:
    """What distinguishes this process from all others of this boot: its ID and start time."""
    return f"{os.getpid()}-{started_at(os.getpid())}"


def has_ended(identity: str) -> bool:
    """Whether the process of `own_identity` is gone; no for other texts."""
    pid, start = (integer(part, 0) for part in identity.partition("-")[::2])
    return pid is not None and start is not None and started_at(pid) != start
