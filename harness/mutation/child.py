"""One mutant in a process of its own: an import hook applies it, then pytest runs the suites and stops at a failure.

`python -m seatrial.harness.mutation.child RESULT MUTANT SECONDS PYTEST-ARGUMENTS`; an empty MUTANT runs the original.
The process is ended after a limit of processor time, which a busy machine does not change.
"""

import math
import os
import resource
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import msgspec
import pytest

from seatrial.harness.expectations import expectation_message
from seatrial.harness.mutation.importing import apply
from seatrial.harness.processes import MUTANT


class Result(msgspec.Struct):
    """The suites' verdict on a mutant."""

    mutant: str
    caught: bool = False
    by: str = ""  # node ID of the test
    case: str = ""  # its case ID
    verdict: str = ""  # failed, broken or hung
    message: str = ""
    seconds: float = 0.0  # until the failure, without imports
    tests: int = 0  # tests that ran before
    files: dict[str, float] = {}  # seconds of each test file, with setup


class FirstFailure:
    """A pytest plugin that keeps the first failure."""

    def __init__(self, result: Result) -> None:
        self._result, self._began = result, time.perf_counter()
        self._cases: dict[str, str] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            mark = item.get_closest_marker("case")
            self._cases[item.nodeid] = str(mark.args[0]) if mark and mark.args else ""
        self._began = time.perf_counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: "pytest.CallInfo[None]"
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        result = self._result
        if report.when == "call":
            result.tests += 1
        file = item.nodeid.partition("::")[0]
        result.files[file] = round(result.files.get(file, 0.0) + report.duration, 3)
        if report.failed and not result.caught and call.excinfo is not None:
            error = call.excinfo.value
            judged = isinstance(error, AssertionError | pytest.fail.Exception)
            result.caught, result.verdict = True, "failed" if judged else "broken"
            result.by, result.case = item.nodeid, self._cases.get(item.nodeid, "")
            text = expectation_message(call.excinfo) if judged else f"{type(error).__name__}: {error}"
            result.message = next(iter(text.strip().splitlines()), "")[:400]
            result.seconds = round(time.perf_counter() - self._began, 2)
        return report


def begun_file(result: Path) -> Path:
    """A file that is written before the suites run. Without it the process did not fail by its mutant."""
    return result.with_suffix(".begun")


def main(arguments: Sequence[str]) -> int:
    """Run; returns pytest's exit status. The result is written even where nothing fails."""
    file, name, seconds, *rest = arguments
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(float(seconds)), resource.RLIM_INFINITY))
    result = Result(name)
    if name:
        apply(name)
        os.environ[MUTANT] = name  # the webhooks' process applies it too
    begun_file(Path(file)).touch()
    code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *rest], plugins=[FirstFailure(result)]))
    if code not in {0, 1, 5} and not result.caught:
        result.caught, result.verdict, result.message = True, "broken", f"pytest ended with exit status {code}"
    Path(file).write_bytes(msgspec.json.encode(result))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
