"""Errors of the harness and of its use.

A verdict on a scheduler is an AssertionError (Allure: failed). The errors below are never a verdict (Allure: broken).
Their messages state what was wanted, what was found, and what to do next.
"""

from collections.abc import Sequence
from typing import Any


class HarnessError(Exception):
    """The harness, its surroundings or its use are at fault."""

    exit_code = 2


def shown_at_the_case(info: Any) -> bool:
    """A value of `__tracebackhide__`: of an error whose message says all, pytest shows the line of the case alone.

    `info` is pytest's ExceptionInfo; of other errors every line is shown.
    """
    return isinstance(info.value, HarnessError)


class UsageError(HarnessError):
    """A flag, a file or a name that the user gave cannot be used."""


class ClusterError(HarnessError):
    """A cluster could not be started, reached or cleaned."""


class HardwareMissingError(ClusterError):
    """No node that is marked for trials has the hardware that a case states; the case is skipped."""


class ApiRefused(ClusterError):
    """The API server refused a request that the harness expected to succeed."""

    def __init__(self, what: str, *, code: int, reason: str, message: str) -> None:
        self.what, self.code, self.reason, self.message = what, code, reason, message
        super().__init__(f"{what}: the API server refused with {code} {reason}: {message}")


class MissingRightsError(ClusterError):
    """The account of a run has no right to what its cases, its nodes or its scheduler request."""

    def __init__(self, requests: Sequence[str]) -> None:
        self.requests = requests
        super().__init__(
            f"requests that the ClusterRole does not allow: {', '.join(requests)};"
            " add these rights, or leave the case out"
        )


class SubjectError(HarnessError):
    """The scheduler under test could not be started, or it ended."""


class NotStarted(SubjectError):
    """A program ended at its start, as one does that does not know a part of its configuration."""


class DeviceError(HarnessError):
    """A vendor's library or a device gave an answer that cannot be used."""


class ResultsError(HarnessError):
    """A results folder is missing, unreadable or not written by this program."""
