"""`python -m seatrial` is `seatrial`."""

from seatrial.harness.cli import main

main()
