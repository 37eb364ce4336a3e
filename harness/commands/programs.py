"""The programs of `scheduler/`, against any API server: `seatrial scheduler`, `descheduler`, `koordlet` and others.

Each becomes that program: all flags, `--help` too, are passed to it, and signals reach it directly.
"""

import os
import sys
from typing import Annotated, NoReturn

from cyclopts import Parameter

Words = Annotated[str, Parameter(allow_leading_hyphen=True)]


def scheduler(*words: Words) -> None:
    """Run our scheduler until it is stopped."""
    _become("seatrial.scheduler", words)


def descheduler(*words: Words) -> None:
    """Run our descheduler until it is stopped."""
    _become("seatrial.scheduler.descheduler", words)


def manager(*words: Words) -> None:
    """Run our manager of usage reports, CPU normalization and colocation until it is stopped."""
    _become("seatrial.scheduler.manager", words)


def koordlet(*words: Words) -> None:
    """Run our node agent until it is stopped: usage reports, and quality of service of pods."""
    _become("seatrial.scheduler.koordlet", words)


def yarn_operator(*words: Words) -> None:
    """Run our operator for Hadoop YARN on batch resources until it is stopped."""
    _become("seatrial.scheduler.yarn", words)


def webhooks(*words: Words) -> None:
    """Serve our admission webhooks until they are stopped."""
    _become("seatrial.scheduler.webhooks", words)


def _become(module: str, words: tuple[str, ...]) -> NoReturn:
    os.execv(sys.executable, [sys.executable, "-m", module, *words])  # noqa: S606 our own interpreter, no shell
