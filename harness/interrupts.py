"""Ctrl-C during long computations: NumPy's inner loops turn the KeyboardInterrupt into errors of their own."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible() -> Iterator[None]:
    """Whatever error a Ctrl-C becomes on its way out of the body, it leaves as KeyboardInterrupt.

    For the main thread, around code without an event loop. Where Ctrl-C does something else than usual, it goes on so.
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
