"""The command `seatrial`: names only. Each command lives in `harness/commands/` and is imported when it is asked for,
so that `seatrial up` does not pay for what `seatrial report` needs. Commands that stand on `reports/` live there: they
are named here by string alone.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any

import cyclopts

import seatrial
from harness.errors import HarnessError, UsageError

COMMANDS = {  # name → where it is, and what `seatrial --help` says of it
    "run": ("fixtures.run:run", "The main job: suites, load, and the sign-off report."),
    "up": ("harness.commands.up:up", "Start a cluster to play with."),
    "down": ("harness.commands.up:down", "End a cluster that was started with up --detach."),
    "load": ("harness.commands.load:load", "Submit pods by Locust and measure what becomes of them."),
    "devices": ("harness.commands.devices:devices", "What is in this machine, through the vendors' own libraries."),
    "report": ("reports.commands:report", "The sign-off page, from what runs left on disk."),
    "compare": ("reports.commands:compare", "Verdicts that changed and figures that moved between two runs."),
    "explain": ("harness.commands.explain:explain", "Why a pod is where it is, or nowhere, by our scheduler."),
    "scheduler": ("harness.commands.scheduler:scheduler", "Run our scheduler against any API server."),
    "vgpu-monitor": ("harness.commands.vgpu_monitor:vgpu_monitor", "Metrics of shared cards under HAMi's names."),
    "isolation": ("harness.commands.isolation:isolation", "HAMi-core's limits, measured on a real GPU."),
}

BENCHMARKS = {
    "api": ("harness.commands.bench_api:api", "What the API server does in a second, and what an object costs it."),
    "start": ("harness.commands.bench_start:start", "From nothing to a cluster that answers kubectl."),
    "preempt": ("harness.commands.bench_preempt:preempt", "What it costs to decide who has to go."),
    "schedule": ("harness.commands.bench_schedule:schedule", "Throughput and latency of placing pods."),
}

REPLAYS = {
    "openb": ("harness.commands.replay:openb", "A production GPU-sharing trace, by seven placement policies."),
}


def whole_numbers(type_: Any, tokens: Sequence[cyclopts.Token]) -> Any:
    """Cyclopts' own conversion, which would round: `--repeat 1.5` and `--port 80.5` are mistakes, not 2 and 80."""
    for token in tokens:
        if type_ is int and any(sign in token.value.lower() for sign in (".", "e", "_")) and "0x" not in token.value:
            raise ValueError(f"expected a whole number, found {token.value!r}")
    return cyclopts.convert(type_, tokens)


app = cyclopts.App(
    name="seatrial",
    default_parameter=cyclopts.Parameter(converter=whole_numbers),
    help="Hardware-in-the-loop tests and benchmarks for accelerator scheduling on Kubernetes.",
    version=lambda: seatrial.__version__,
    version_flags=["--version"],
    result_action="return_value",
    suppress_keyboard_interrupt=False,  # it would end us without a word; `main` says that all has been stopped
)
bench = cyclopts.App(name="bench", help="Benchmarks; each prints medians with their spread.")
app.command(bench)
replay = cyclopts.App(name="replay", help="Recorded workloads, replayed against placement policies.")
app.command(replay)
for parent, table in ((app, COMMANDS), (bench, BENCHMARKS), (replay, REPLAYS)):
    for name, (where, text) in table.items():
        if name == "scheduler":  # hands all its flags on, --help too
            parent.command(where, name=name, help=text, help_flags=[], version_flags=[])
        else:
            parent.command(where, name=name, help=text)
app.register_install_completion_command(help="Install completion for this shell (bash, zsh or fish), and exit.")


def refuse_empty(words: list[str]) -> None:
    """An empty word is nearly always a variable of the shell that was not set; as a path it would mean this folder.

    Raises:
        UsageError: there is one. The scheduler's own flags are its own matter.
    """
    if words[:1] == ["scheduler"]:
        return
    for before, word in zip(["seatrial", *words], words, strict=False):
        flag, equals, value = word.partition("=")
        if not word.strip():
            raise UsageError(f"after {before}: expected a value, found an empty one; leave it out for the default")
        if flag.startswith("--") and equals and not value.strip():
            raise UsageError(f"{flag}: expected a value, found an empty one; leave it out for the default")


def main() -> None:
    """Entry point: exit status 0 all is well, 1 a verdict failed, 2 the harness or its use was at fault."""
    try:
        words = sys.argv[1:]
        refuse_empty(words)
        result = app(words)
    except HarnessError as error:
        print(f"seatrial: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # whoever read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.filename is None:  # not about a file that somebody named: ours to repair, with its traceback
            raise
        print(f"seatrial: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("seatrial: interrupted; everything that was started has been stopped", file=sys.stderr)
        sys.exit(130)
    sys.exit(result if isinstance(result, int) else 0)
