"""`seatrial manager`: run our manager of NodeMetrics and CPU normalization against any API server."""

import os
import sys
from typing import Annotated

from cyclopts import Parameter


def manager(*words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Run our manager until it is stopped; all flags, `--help` too, are passed to it."""
    command = [sys.executable, "-m", "seatrial.scheduler.controllers", *words]
    os.execv(sys.executable, command)  # noqa: S606 our own interpreter, no shell
