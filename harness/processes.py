"""Child processes: they end with us, whatever happens to us, and are stopped politely first."""

import ctypes
import signal
import subprocess

STOP_WITHIN = 10.0  # seconds between asking and killing
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def die_with_parent() -> None:
    """In the child, before exec: be told to end when the parent is gone, even if it was killed."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def stop(process: "subprocess.Popen[bytes]", *, within: float = STOP_WITHIN) -> None:
    """Ask the process to end, and kill it if it does not within `within` seconds."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(within)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stdout is not None:
        process.stdout.close()
