"""An interrupt that became another error on its way is an interrupt again."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from seatrial.harness.interrupts import interruptible


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
