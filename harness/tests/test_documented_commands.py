"""The commands of README.md and of the pages below docs/ exist as they are written, with all their flags.

Which of them also run in a test: the session "A local cluster" of README.md in `harness/commands/tests/test_up.py`, the
recipes of CONTRIBUTING.md in `test_contributing.py`, `docs/own-suites.md` in `fixtures/tests/test_installed.py`,
`make test` and `make test-real` in CI.
"""

import os
import re
from importlib import import_module

import cyclopts
import pytest

from seatrial.harness.cli import PROGRAMS, app
from seatrial.harness.tests.documented import PAGES, ROOT, Command, commands

APPS = {  # the programs of scheduler/ parse their flags themselves
    "scheduler": "seatrial.scheduler.__main__",
    "descheduler": "seatrial.scheduler.descheduler.__main__",
    "manager": "seatrial.scheduler.manager.__main__",
    "koordlet": "seatrial.scheduler.koordlet.__main__",
    "yarn-operator": "seatrial.scheduler.yarn.__main__",
    "webhooks": "seatrial.scheduler.webhooks.__main__",
}
OTHERS = frozenset(
    {  # programs that are not ours; `kubectl` and `helm` have tests of their own
        ".",
        "GOFLAGS=-mod=mod",
        "cd",
        "curl",
        "do",
        "done",
        "export",
        "for",
        "go",
        "helm",
        "jq",
        "kubectl",
        "echo",
        "mkdir",
        "mod=$(go",
        "pip",
        "sed",
    }
)
TOOLS = frozenset({"ruff", "mypy", "lint-imports", "python"})
COMMANDS = [command for page in PAGES for command in commands(page)]


def of(program: str) -> list[Command]:
    return [command for command in COMMANDS if command.words[:1] == (program,)]


def test_each_command_is_of_a_known_program() -> None:
    """A misspelt `seatrail` is found here; the number guards the reader of the pages."""
    names = {command.words[0] for command in COMMANDS}
    scripts = {".ci/other-schedulers"}
    assert names - OTHERS - TOOLS - scripts == {"seatrial", "make", "pytest"}
    assert all(os.access(ROOT / name, os.X_OK) for name in scripts)
    assert len(of("seatrial")) > 90


def test_the_programs_of_the_scheduler_are_all_here() -> None:
    assert APPS.keys() == PROGRAMS.keys()


@pytest.mark.parametrize("command", of("seatrial"), ids=str)
def test_a_command_is_accepted_as_it_is_written(command: Command) -> None:
    """Command, flags and types of values; whether a file exists is not checked."""
    words = [word.replace("…", "x") for word in command.words[1:]]
    parser: cyclopts.App = app
    if words[0] in APPS:
        parser = import_module(APPS[words.pop(0)]).app
    _, _, unused = parser.parse_args(words, print_error=False, exit_on_error=False)
    assert not unused


@pytest.mark.parametrize("command", of("pytest"), ids=str)
def test_options_of_pytest_exist(command: Command, pytestconfig: pytest.Config) -> None:
    for word in command.words[1:]:
        if word.startswith("--"):
            name = word.partition("=")[0]
            pytestconfig.getoption(name.removeprefix("--").replace("-", "_"))


@pytest.mark.parametrize("command", of("make"), ids=str)
def test_targets_of_make_exist(command: Command) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert command.words[1] in targets
    variables = {word.partition("=")[0] for word in command.words[2:]}
    assert variables <= {"ARGS", "RESULTS", "PUSH", "LAB", "PLACE", "CARDS", "WINDOW", "INPUTS", "SEED"}


def test_files_of_the_repository_that_commands_name_exist() -> None:
    folders = ("suites/", "docs/", "harness/")
    named = {word.partition("::")[0] for command in COMMANDS for word in command.words if word.startswith(folders)}
    assert len(named) > 5
    assert [path for path in named if not (ROOT / path).exists()] == []
