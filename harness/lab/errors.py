"""Errors of the lab. None is a verdict on a scheduler."""

from seatrial.harness.errors import HarnessError


class LabError(HarnessError):
    """A place cannot be given, or the lab's ledger cannot be read or written."""


class PlaceTaken(LabError):
    """The devices that were asked for stayed in use for as long as the caller wanted to wait."""

    def __init__(self, name: str, *, waited: float, holders: str) -> None:
        self.requirement, self.waited, self.holders = name, waited, holders
        super().__init__(
            f"no place for {name} became free within {waited:g} s; {holders}; wait longer with --wait"
            f" (pytest: --seatrial-lab-wait), or see `seatrial lab who`"
        )


class LeaseLost(LabError):
    """A place is no longer held: its lease ran out, was taken back, or the store cannot be reached."""


class HookFailed(LabError):
    """A command for power or images did not succeed."""
