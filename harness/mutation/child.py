"""One mutant in a process of its own: an import hook applies it, then pytest runs the suites and stops at a failure.

`python -m seatrial.harness.mutation.child RESULT MUTANT SECONDS PYTEST-ARGUMENTS`; an empty MUTANT runs the original.
The process is ended after so many seconds of processor time, which a busy machine does not change.
"""

import importlib.abc
import importlib.machinery
import math
import resource
import sys
import time
import types
from collections.abc import Generator, Sequence
from pathlib import Path

import msgspec
import pytest

from seatrial.harness.mutation.catalogue import Mutant, load, mutated, select


class Result(msgspec.Struct):
    """What the suites said of a mutant."""

    mutant: str
    caught: bool = False
    by: str = ""  # node ID of the test
    case: str = ""  # its case ID
    verdict: str = ""  # failed, broken or hung
    message: str = ""
    seconds: float = 0.0  # until the failure, without imports
    tests: int = 0  # tests that ran before
    files: dict[str, float] = {}  # seconds of each test file, with setup


class MutantLoader(importlib.machinery.SourceFileLoader):
    """Compiles the mutated source and neither reads nor writes cached bytecode."""

    def __init__(self, name: str, path: str, mutant: Mutant) -> None:
        super().__init__(name, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> types.CodeType:
        path = Path(self.get_filename(fullname))
        file = fullname.removeprefix("seatrial.").replace(".", "/")
        file += "/__init__.py" if path.name == "__init__.py" else ".py"
        code: types.CodeType = compile(mutated(self._mutant, file, path.read_text()), str(path), "exec")
        return code


class MutantFinder(importlib.abc.MetaPathFinder):
    """Finds the modules that the mutant changes."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        loaded = self._modules() & sys.modules.keys()
        if loaded:
            raise RuntimeError(f"mutant {mutant.id} comes too late: {', '.join(sorted(loaded))} is imported already")

    def _modules(self) -> frozenset[str]:
        return frozenset(module.removesuffix(".__init__") for module in self._mutant.modules)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._modules():
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = MutantLoader(fullname, spec.origin, self._mutant)
        return spec


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
            said = str(error).strip().splitlines() or [""]
            result.message = (said[0] if judged else f"{type(error).__name__}: {said[0]}")[:400]
            result.seconds = round(time.perf_counter() - self._began, 2)
        return report


def main(arguments: Sequence[str]) -> int:
    """Run; returns pytest's exit status. The result is written even where nothing fails."""
    file, name, seconds, *rest = arguments
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(float(seconds)), resource.RLIM_INFINITY))
    result = Result(name)
    if name:
        (mutant,) = select(load(), ids=[name])
        sys.meta_path.insert(0, MutantFinder(mutant))
    code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *rest], plugins=[FirstFailure(result)]))
    if code not in {0, 1, 5} and not result.caught:
        result.caught, result.verdict, result.message = True, "broken", f"pytest ended with exit status {code}"
    Path(file).write_bytes(msgspec.json.encode(result))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
