"""Ends by signal: SIGTERM is raised as SIGINT is, with less time for the end; and Ctrl-C during long computations.

A command that gets SIGINT takes the time that an orderly end needs; a second SIGINT interrupts that. After SIGTERM
everything that was started ends within `END_WITHIN` seconds: what does not is killed.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED, TERMINATED = 130, 143  # exit statuses after SIGINT and SIGTERM, as shells have them
END_WITHIN = 1.0  # seconds from SIGTERM until what was started is killed
_SHORTEST = 0.1  # seconds that each process has in any case
_end_by: list[float] = []  # monotonic time at which what was started is killed; empty before SIGTERM


class Terminated(KeyboardInterrupt):
    """SIGTERM. Whatever handles Ctrl-C handles it too."""


def terminate(_number: int, _frame: FrameType | None) -> None:
    """A handler for SIGTERM.

    Raises:
        Terminated: always.
    """
    if not _end_by:
        _end_by.append(time.monotonic() + END_WITHIN)
    raise Terminated


def exit_status(interrupt: KeyboardInterrupt) -> int:
    """The exit status of a command that this interrupt ended."""
    return TERMINATED if isinstance(interrupt, Terminated) else INTERRUPTED


def shortened(within: float) -> float:
    """The seconds to wait for the end of something: `within`, or what is left after SIGTERM."""
    if not _end_by:
        return within
    return min(within, max(_end_by[0] - time.monotonic(), _SHORTEST))


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt if Ctrl-C was pressed in the body, whatever error the body raises.

    For the main thread, around code without an event loop. It does nothing if another handler for SIGINT is installed.
    """
    interrupted = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield
    except Exception as error:
        if interrupted:
            raise KeyboardInterrupt from error
        raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
