"""`seatrial scheduler`: run our scheduler against any API server."""

import os
import sys
from typing import Annotated

from cyclopts import Parameter


def scheduler(*words: Annotated[str, Parameter(allow_leading_hyphen=True)]) -> None:
    """Run our scheduler until it is stopped; all flags, `--help` too, are passed to it."""
    os.execv(sys.executable, [sys.executable, "-m", "seatrial.scheduler", *words])  # noqa: S606 our own interpreter, no shell
