"""Runs commands for power and images: lists of words without a shell, a time limit, retries."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping

from seatrial.harness.lab.errors import HookFailed
from seatrial.harness.lab.inventory import Hook
from seatrial.harness.processes import start_child, stop_group

SHOWN = 2000  # characters of a failed command's output
_BRACES = re.compile(r"\{([a-z]+)\}")


def run_hook(
    name: str, hook: Hook, values: Mapping[str, str], environment: Mapping[str, str], *, before: Callable[[], None]
) -> str:
    """Run the command, again if it fails and has retries left, and return its output. `before` is called before each
    try: it confirms the lease, so that a holder that lost it does not switch off a machine that another holder has.

    Raises:
        HookFailed: every try failed; the message has the last one's output.
    """
    command = [_BRACES.sub(lambda match: values[match[1]], word) for word in hook.command]
    why = ""
    for _ in range(hook.retries + 1):
        before()
        output, why = _try(command, hook.within, {**os.environ, **environment})
        if not why:
            return output
    tries = f" ({hook.retries + 1} tries)" if hook.retries else ""
    raise HookFailed(f"hook {name!r} of machine {values['machine']!r}: {why}{tries}")


def _try(command: list[str], within: float, environment: dict[str, str]) -> tuple[str, str]:
    """The command's output, and why it failed; it and its children are ended after `within` seconds."""
    try:
        process = start_child(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    except OSError as error:
        return "", f"{command[0]}: cannot be started: {error.strerror}"
    try:
        message, _ = process.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        message, _ = process.communicate()
        return "", f"{command[0]} did not end within {within:g} s{_shown(message)}"
    finally:
        stop_group(process.pid)
    output = message.decode(errors="replace")
    if process.returncode:
        return output, f"{command[0]} ended with status {process.returncode}{_shown(message)}"
    return output, ""


def _shown(message: bytes) -> str:
    text = message.decode(errors="replace").strip()[-SHOWN:]
    return f"; its output: {text}" if text else ""
