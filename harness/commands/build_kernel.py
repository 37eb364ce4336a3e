"""`seatrial build-kernel`: compile the scheduler's kernel."""

from seatrial.harness.errors import HarnessError
from seatrial.scheduler.packing.kernel import KernelError, build


def build_kernel() -> int:
    """Compile the scheduler's kernel with this machine's C compiler, and print where it is.

    The kernel computes scores of fragmentation, and what a placement changes on its node for all pods. Without it,
    Python computes the same results more slowly. SEATRIAL_KERNEL=off leaves it unused; `seatrial --version` shows
    whether it is used.
    """
    try:
        print(build())
    except KernelError as error:
        raise HarnessError(str(error)) from error
    return 0
