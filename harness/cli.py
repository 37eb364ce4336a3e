"""The command `seatrial`: the table of commands.

Each command is a module of `harness/commands/` that is imported when the command is used, which keeps start-up short.
Commands that need `reports/` or `fixtures/` are there; this module names them by string and does not import them.
"""

import errno
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, Literal

import cyclopts
from cyclopts.annotations import resolve_optional
from cyclopts.completion.detect import ShellDetectionError, detect_shell

from seatrial.harness.errors import HarnessError, UsageError
from seatrial.harness.interrupts import exit_status, terminate

COMMANDS = {  # name → module and function, and the text of `seatrial --help`
    "run": (
        "seatrial.fixtures.run.command:run",
        "Run suites and load against a scheduler, and write the sign-off page.",
    ),
    "nightly": (
        "seatrial.harness.commands.nightly:nightly",
        "Run suites with their long cases; keep and push the results.",
    ),
    "up": ("seatrial.harness.commands.up:up", "Start a local cluster."),
    "down": ("seatrial.harness.commands.up:down", "End a cluster that was started with `up`."),
    "list": ("seatrial.harness.commands.clusters:list_", "The clusters that `up` started, and their state."),
    "logs": ("seatrial.harness.commands.clusters:logs", "Logs of a cluster's components."),
    "load": (
        "seatrial.harness.commands.load:load",
        "Create, watch and delete pods with Locust; latency and throughput.",
    ),
    "build-kernel": (
        "seatrial.harness.commands.build_kernel:build_kernel",
        "Compile the scheduler's kernel: the same scores and filter results in less time.",
    ),
    "clean": ("seatrial.harness.commands.clean:clean", "Remove what killed runs left on a cluster."),
    "devices": (
        "seatrial.harness.commands.devices:devices",
        "Devices of this machine, read through the vendors' libraries.",
    ),
    "report": ("seatrial.reports.commands:report", "The sign-off page, from the files of runs."),
    "compare": ("seatrial.reports.commands:compare", "Changed verdicts and figures between two runs."),
    "scoreboard": ("seatrial.fixtures.scoreboard:scoreboard", "Several schedulers by the same cases, on one page."),
    "matrix": ("seatrial.reports.commands:matrix", "Suite by backend: passed, failed and skipped cases."),
    "explain": ("seatrial.harness.commands.explain:explain", "Why a pod is on its node, or not placed."),
    "differential": (
        "seatrial.harness.commands.differential:differential",
        "Send the same requests to two API servers and list different answers.",
    ),
    "device-plugin": (
        "seatrial.harness.commands.device_plugin:device_plugin",
        "Give containers of a real kubelet the devices that the scheduler allocated.",
    ),
    "vgpu-monitor": (
        "seatrial.harness.commands.vgpu_monitor:vgpu_monitor",
        "Metrics of shared cards under HAMi's names.",
    ),
    "audit": ("seatrial.harness.commands.audit:audit", "Check the invariants of scheduling on a cluster that runs."),
    "mutate": ("seatrial.harness.commands.mutate:mutate", "Run the suites over seeded faults of our scheduler."),
    "fuzz": ("seatrial.harness.commands.fuzz:fuzz", "Give random inputs to the API server and to readers of files."),
    "isolation": ("seatrial.harness.commands.isolation:isolation", "HAMi-core's limits, measured on a real GPU."),
}

PROGRAMS = {  # of scheduler/; each takes all its flags itself, `--help` too
    "scheduler": ("seatrial.harness.commands.programs:scheduler", "Run our scheduler against any API server."),
    "descheduler": ("seatrial.harness.commands.programs:descheduler", "Run our descheduler against any API server."),
    "manager": (
        "seatrial.harness.commands.programs:manager",
        "Keep usage reports, normalization ratios, batch and mid resources on any API server.",
    ),
    "koordlet": (
        "seatrial.harness.commands.programs:koordlet",
        "Run our node agent: usage reports, and protection from best-effort pods.",
    ),
    "yarn-operator": ("seatrial.harness.commands.programs:yarn_operator", "Share batch resources with Hadoop YARN."),
    "webhooks": (
        "seatrial.harness.commands.programs:webhooks",
        "Serve our admission webhooks for pods, quotas and nodes to any API server.",
    ),
}

BENCHMARKS = {
    "api": (
        "seatrial.harness.commands.bench_api:api",
        "Request rates of the API server, and its memory for each object.",
    ),
    "churn": ("seatrial.harness.commands.bench_churn:churn", "Memory of the scheduler's core while pods come and go."),
    "start": ("seatrial.harness.commands.bench_start:start", "Start-up time of a cluster."),
    "deschedule": (
        "seatrial.harness.commands.bench_deschedule:deschedule",
        "Time of a LowNodeLoad round on a large cluster.",
    ),
    "gang-day": ("seatrial.harness.commands.bench_gang_day:gang_day", "A day of gangs in virtual time, with a digest."),
    "hostile": (
        "seatrial.harness.commands.bench_hostile:hostile",
        "Latency of a client while another one orders costly computations.",
    ),
    "preempt": ("seatrial.harness.commands.bench_preempt:preempt", "Time of a preemption decision on a full cluster."),
    "colocation": (
        "seatrial.harness.commands.bench_colocation:colocation",
        "What best-effort load costs a latency-sensitive pod of this machine.",
    ),
    "load-aware": ("seatrial.harness.commands.bench_load_aware:load_aware", "What usage reports cost the scheduler."),
    "node-qos": (
        "seatrial.harness.commands.bench_node_qos:node_qos",
        "What usage reports, the manager and one node agent cost.",
    ),
    "quota": ("seatrial.harness.commands.bench_quota:quota", "What elastic quotas cost the scheduler."),
    "soak": (
        "seatrial.harness.commands.bench_soak:soak",
        "Memory, lag of watches and lost events while pods come and go through the API server.",
    ),
    "kills": (
        "seatrial.harness.commands.bench_kills:kills",
        "Violations while the scheduler is killed again and again under a mixed load.",
    ),
    "schedule": ("seatrial.harness.commands.bench_schedule:schedule", "Throughput and latency of placing pods."),
}

REPLAYS = {
    "openb": (
        "seatrial.harness.commands.replay:openb",
        "Replay a production GPU-sharing trace with placement policies, or through the scheduler.",
    ),
    "compare": (
        "seatrial.harness.commands.replay:compare",
        "Compare two placement policies on openb traces, at four loads.",
    ),
    "day": (
        "seatrial.harness.commands.replay_day:day",
        "A day of a fleet whose load changes, without and with the descheduler, as a picture.",
    ),
}

GROUPS = {  # of `seatrial --help`, in this order; each command is in one
    "Start here": ("run", "up", "down"),
    "A cluster that runs": ("list", "logs", "scale", "snapshot", "explain", "audit", "load", "clean"),
    "Results of runs": ("report", "compare", "scoreboard", "matrix"),
    "Machines and cards": ("lab", "nightly", "devices", "isolation"),
    "Benchmarks": ("bench", "replay"),
    "Programs": (
        "scheduler",
        "descheduler",
        "manager",
        "koordlet",
        "webhooks",
        "yarn-operator",
        "device-plugin",
        "vgpu-monitor",
    ),
    "Development": ("build-kernel", "mutate", "fuzz", "differential"),
}

SCALES = {"nodes": ("seatrial.harness.commands.scale:nodes", "Add or remove simulated nodes of a node shape: h100=20.")}

SNAPSHOTS = {
    "save": ("seatrial.harness.commands.snapshot:save", "Write all objects of a cluster to a file."),
    "restore": (
        "seatrial.harness.commands.snapshot:restore",
        "Start a cluster of `up` anew with a snapshot's objects.",
    ),
}

LABS = {
    "list": ("seatrial.harness.commands.lab:list_", "Machines, cards and NICs of a lab, and which are free."),
    "acquire": ("seatrial.harness.commands.lab:acquire", "Take devices, for a command or for a time."),
    "release": ("seatrial.harness.commands.lab:release", "Return devices before their lease ends."),
    "who": ("seatrial.harness.commands.lab:who", "Who holds devices, and who waits in line."),
    "restore": ("seatrial.harness.commands.lab:restore", "Put a machine back into service."),
}
# Files from which the shells load completion by themselves; zsh does if the folder is in its fpath.
COMPLETIONS: dict[str, str] = {
    "bash": "~/.local/share/bash-completion/completions/seatrial",
    "zsh": "~/.zsh/completions/_seatrial",
    "fish": "~/.config/fish/completions/seatrial.fish",
}


def whole_numbers(type_: Any, tokens: Sequence[cyclopts.Token]) -> Any:
    """Cyclopts' conversion without its rounding: `--repeat 1.5` and `--port 80.5` are mistakes, not 2 and 80."""
    type_ = resolve_optional(type_)  # cyclopts does that for parameters, but not for fields of dataclasses
    for token in tokens:
        if type_ is int and any(sign in token.value.lower() for sign in (".", "e", "_")) and "0x" not in token.value:
            raise ValueError(f"expected a whole number, found {token.value!r}")
    return cyclopts.convert(type_, tokens)


def _version() -> str:
    from seatrial.harness.version import version

    return version()


app = cyclopts.App(
    name="seatrial",
    default_parameter=cyclopts.Parameter(converter=whole_numbers),
    help="Hardware-in-the-loop tests and benchmarks for accelerator scheduling on Kubernetes.",
    version=_version,
    version_format="plaintext",
    version_flags=["--version"],
    result_action="return_value",
    suppress_keyboard_interrupt=False,  # cyclopts would exit without a message; `main` prints one
)
_TABLES = {
    "scale": (SCALES, "Another number of simulated nodes on a cluster that `up` started."),
    "snapshot": (SNAPSHOTS, "The objects of a cluster in a file, and back."),
    "bench": (BENCHMARKS, "Benchmarks; each prints medians with their spread."),
    "replay": (REPLAYS, "Recorded workloads, replayed against placement policies."),
    "lab": (LABS, "Machines and cards of a lab: who holds which, and for how long."),
}
for place, (title, names) in enumerate(GROUPS.items()):
    group = cyclopts.Group(title, sort_key=place)
    for name in names:
        if name in COMMANDS:
            app.command(COMMANDS[name][0], name=name, help=COMMANDS[name][1], group=group)
        elif name in PROGRAMS:
            where, text = PROGRAMS[name]
            app.command(where, name=name, help=text, group=group, help_flags=[], version_flags=[])
        else:
            table, text = _TABLES[name]
            app.command(parent := cyclopts.App(name=name, help=text, group=group))
            for command, (where, text) in table.items():
                parent.command(where, name=command, help=text)
_OPTIONS = cyclopts.Group("Options", sort_key=len(GROUPS))


@app.command(name="--install-completion")
def print_completion(*, shell: Literal["bash", "zsh", "fish"] | None = None) -> int:
    """Print the completion script of this shell, and say where to save it; no file is changed.

    Args:
        shell: The shell; by default the one that runs this command.
    """
    if shell is None:
        try:
            result = detect_shell()
        except ShellDetectionError:
            result = None
        if result is None or result == "powershell":
            raise UsageError(f"--install-completion: the shell is not known; add --shell {'|'.join(COMPLETIONS)}")
        shell = result
    print(app.generate_completion(shell=shell))
    print(f"to install it: seatrial --install-completion --shell {shell} > {COMPLETIONS[shell]}", file=sys.stderr)
    return 0


for flag in ("--help", "--version", "--install-completion"):
    app[flag].group = (_OPTIONS,)


def refuse_empty(words: list[str]) -> None:
    """Refuse empty arguments: they usually come from unset shell variables, and an empty path means this folder.

    Raises:
        UsageError: an argument is empty. Flags of the programs of `scheduler/` are not checked.
    """
    if words and words[0] in PROGRAMS:
        return
    for before, word in zip(["seatrial", *words], words, strict=False):
        flag, equals, value = word.partition("=")
        if not word.strip():
            raise UsageError(f"after {before}: expected a value, found an empty one; leave it out for the default")
        if flag.startswith("--") and equals and not value.strip():
            raise UsageError(f"{flag}: expected a value, found an empty one; leave it out for the default")


def _drop_output() -> None:
    """Let what is still buffered go nowhere, so that the interpreter's end does not fail with it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Entry point.

    Exit status 0: success, 1: a verdict failed, 2: the harness or its use was at fault, 130: SIGINT, 143: SIGTERM,
    unless the command has a handler of its own.
    """
    try:
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, terminate)
        words = sys.argv[1:]
        refuse_empty(words)
        result = app(words)
        sys.stdout.flush()  # what is still buffered may not fit on a full disk
    except HarnessError as error:
        print(f"seatrial: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # the reader of our output has closed it
        _drop_output()
        sys.exit(0)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT} and error.filename is None:
            print(f"seatrial: output: {error.strerror}", file=sys.stderr)
            _drop_output()
            sys.exit(2)
        if error.filename is None:  # not about a file that the user named: a bug, so show the traceback
            raise
        print(f"seatrial: {error.filename}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as interrupt:
        for number in (signal.SIGINT, signal.SIGTERM):  # only the removal of temporary folders is left
            signal.signal(number, signal.SIG_IGN)
        print("seatrial: interrupted; everything that was started has been stopped", file=sys.stderr)
        sys.exit(exit_status(interrupt))
    sys.exit(result if isinstance(result, int) else 0)
