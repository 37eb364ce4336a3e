"""An interrupt that became another error on its way is an interrupt again; SIGTERM shortens what follows."""

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from seatrial.harness import interrupts
from seatrial.harness.interrupts import END_WITHIN, Terminated, exit_status, interruptible, shortened, terminate


@pytest.fixture(autouse=True)
def _usual_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted_as(kind: type[Exception]) -> None:
    """What NumPy does when the interrupt comes within one of its loops."""
    try:
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(5)
    except KeyboardInterrupt:
        raise kind("the inner loop gave up") from None


def test_an_interrupt_that_became_an_error_is_one_again() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        interrupted_as(TypeError)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_errors_of_their_own_stay_what_they_are() -> None:
    with pytest.raises(TypeError, match="mine"), interruptible():
        raise TypeError("mine")


def test_who_ignores_interrupts_goes_on_doing_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interruptible():
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_sigterm_is_an_interrupt_that_leaves_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interrupts, "_end_by", [])
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert shortened(60.0) == 60.0
    with pytest.raises(KeyboardInterrupt) as raises:
        terminate(signal.SIGTERM, None)
    assert (exit_status(raises.value), exit_status(KeyboardInterrupt())) == (143, 130)
    assert (shortened(60.0), shortened(0.3)) == (END_WITHIN, 0.3)
    now[0] += 60
    with pytest.raises(Terminated):  # a second one gives no more time
        terminate(signal.SIGTERM, None)
    assert 0 < shortened(60.0) < 0.2  # what has not been told to end yet is told
