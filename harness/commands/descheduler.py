"""`seatrial descheduler`: run our descheduler against any API server."""

import os
import sys
from typing import Annotated

from cyclopts import Parameter


def descheduler(*words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Run our descheduler until it is stopped; all flags, `--help` too, are passed to it."""
    command = [sys.executable, "-m", "seatrial.scheduler.descheduler", *words]
    os.execv(sys.executable, command)  # noqa: S606 our own interpreter, no shell
