"""`seatrial build-kernel`: compile what makes scores of fragmentation fast."""

from seatrial.harness.errors import HarnessError
from seatrial.scheduler.packing.kernel import KernelError, build


def build_kernel() -> int:
    """Compile the scheduler's kernel with this machine's C compiler, and print where it is.

    Without it the scheduler computes the same scores in Python, more slowly. SEATRIAL_KERNEL=off leaves it unused.
    """
    try:
        print(build())
    except KernelError as error:
        raise HarnessError(str(error)) from error
    return 0
