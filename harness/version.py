"""`seatrial --version`: the version, and whether the compiled kernel is used."""

import seatrial
from seatrial.scheduler.packing.kernel import described


def version() -> str:
    """Two lines: the package's version; `kernel: compiled`, or `kernel: Python (…)` with the reason in parentheses."""
    return f"{seatrial.__version__}\nkernel: {described()}"
