"""`python -m seatrial.harness.mutation.program MODULE …`: run one of our programs with the mutant of the environment.

A campaign judges the webhooks by this: their process is another than that of the suites. The program itself does not
read the variable.
"""

import os
import runpy
import sys

from seatrial.harness.mutation.importing import apply
from seatrial.harness.processes import MUTANT


def main() -> None:
    """Apply the mutant that the environment names, then run the module of the first argument."""
    del sys.argv[0]  # the program sees its own arguments
    apply(os.environ[MUTANT])
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
