"""`python -m harness` is `seatrial`."""

from harness.cli import main

main()
