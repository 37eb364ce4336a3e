"""Arithmetic over pods that the scheduler uses: requests, host ports, selectors, CPU binding classes.

The types are in `seatrial.scheduler.api`, which harness and suites share. This package is the scheduler's own: the
judges compute what they expect with code of their own, and an import contract keeps this package from them.
"""
