"""The commands of `seatrial`, one module each, imported when the command is used.

Commands parse options, call other packages and print. Commands that need suites or reports are in `seatrial.fixtures`
and `seatrial.reports`. The table of commands is in `seatrial.harness.cli`.
"""
