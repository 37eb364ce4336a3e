"""Whose fault it was.

A verdict on a scheduler is an AssertionError (Allure: failed). Everything below is the harness's or its user's fault
and never a verdict (Allure: broken); its message says what was wanted, what stood in the way, and the next step.
"""


class HarnessError(Exception):
    """The harness, its surroundings or its use are at fault."""

    exit_code = 2


class UsageError(HarnessError):
    """A flag, a file or a name that the user gave cannot be used."""


class ClusterError(HarnessError):
    """A cluster could not be started, reached or cleaned."""


class ApiRefused(ClusterError):
    """The API server answered with a refusal that the harness did not expect."""

    def __init__(self, what: str, *, code: int, reason: str, message: str) -> None:
        self.what, self.code, self.reason, self.message = what, code, reason, message
        super().__init__(f"{what}: the API server refused with {code} {reason}: {message}")


class SubjectError(HarnessError):
    """The scheduler under test could not be started or died."""


class DeviceError(HarnessError):
    """A vendor's library or a device answered in a way nobody can work with."""


class ResultsError(HarnessError):
    """A results folder is missing, unreadable or not from this program."""
