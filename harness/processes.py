"""Child processes: they end with their parent, and are stopped by SIGTERM before SIGKILL."""

import ctypes
import signal
import subprocess
from pathlib import Path

STOP_WITHIN = 10.0  # seconds between SIGTERM and SIGKILL
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """In the child, before exec: request SIGTERM when the parent ends, even if it was killed."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def stop(process: "subprocess.Popen[bytes]", *, within: float = STOP_WITHIN) -> None:
    """Send SIGTERM, and SIGKILL after `within` seconds."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(within)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


def started_at(pid: int) -> int:
    """The start time of a process in clock ticks since boot; 0 if it does not exist or is a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    fields = text.rpartition(")")[2].split()
    return 0 if fields[0] in {"Z", "X"} else int(fields[19])
