"""A scheduler binary that is not ours: its command line, and its configuration completed with the kubeconfig."""

import mmap
import os
import re
import shlex
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from seatrial.harness.errors import UsageError
from seatrial.scheduler.api.yaml_files import load_yaml

KIND = "KubeSchedulerConfiguration"


def binary_words(text: str, role: str, expected: str) -> list[str]:
    """A command line given by the user as a list of words. `role` and `expected` are for messages.

    Raises:
        UsageError: its first word is no executable file, or a quote is left open.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{role} {text!r}: expected a command line as for a shell; {error}") from error
    if not words or not Path(words[0]).is_file():
        raise UsageError(f"no {role} {text!r}: expected {expected}")
    if not os.access(words[0], os.X_OK):
        raise UsageError(f"{role} {text!r}: {words[0]} may not be executed")
    if "/" not in words[0]:
        words[0] = f"./{words[0]}"  # the file that was found is meant, not another one on PATH
    return words


def foreign_command(text: str, kubeconfig: Path, config: Path | None = None) -> list[str]:
    """A command line given by the user as a list of words.

    `{kubeconfig}` and `{config}` stand for the two files; a file that is not named so is added with its flag.

    Raises:
        UsageError: its first word is no executable file, or a quote is left open.
    """
    words = binary_words(text, "subject", "inprocess, seatrial, deployed, none, or the path of a binary")
    value = {"kubeconfig": kubeconfig} | ({"config": config} if config is not None else {})
    for flag, path in value.items():
        if not any(f"{{{flag}}}" in word for word in words):
            words += [f"--{flag}", f"{{{flag}}}"]
        words = [word.replace(f"{{{flag}}}", str(path)) for word in words]
    return words


_WITH_GATES = ("kube-scheduler", "koord-scheduler")  # programs that know Kubernetes' feature gates


def is_kube_scheduler(command: str) -> bool:
    """Whether a command line starts kube-scheduler, by the name of its program."""
    return _WITH_GATES[0] in Path(_program(command)).name


def version_of(command: str) -> str:
    """What kube-scheduler says to be, as in 1.37.2; "" if it does not say it."""
    try:
        words = [_program(command), "--version"]
        answer = subprocess.run(words, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    match = re.search(r"v([0-9]+\.[0-9]+\.[0-9]+)", answer.stdout)
    return match[1] if match else ""


def kubernetes_of(command: str) -> str:
    """The Kubernetes that a program is built on, as in 1.28.7, by the modules that Go lists in it; "" without them."""
    return _modules(command).get("k8s.io/kubernetes", "")


def koordinator_of(command: str) -> str:
    """The release of Koordinator that a program is from, as in 1.8.0; "" if it is not, or does not say it.

    What was built without a tag is at most 1.7 if it is built on a Kubernetes that is older than that of 1.8.0, 1.35.
    """
    release = _modules(command).get(_KOORDINATOR)
    if release is None or release:
        return release or ""
    minor = re.match(r"1\.([0-9]+)", kubernetes_of(command))
    return "1.7" if minor is not None and int(minor[1]) < 35 else ""


_KOORDINATOR = "github.com/koordinator-sh/koordinator"
_MODULE = re.compile(
    rb"\t(k8s\.io/kubernetes|" + re.escape(_KOORDINATOR.encode()) + rb")\t(?:v([0-9]+\.[0-9]+\.[0-9]+)|\(devel\))"
)


@cache
def _modules(command: str) -> dict[str, str]:
    """The release of Kubernetes and of Koordinator among the modules that Go lists in a program; "": of no tag."""
    try:
        with Path(_program(command)).open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as binary:
            modules = _MODULE.findall(binary)
    except (OSError, ValueError):  # no file, or an empty one
        return {}
    # A replaced module comes before its replacement.
    return {name.decode(): release.decode() for name, release in modules}


def switched_off(command: str, gates: Iterable[str]) -> list[str]:
    """Those of these feature gates that a command line leaves off, of kube-scheduler or what is built on Kubernetes."""
    if not any(name in Path(_program(command)).name for name in _WITH_GATES) and not kubernetes_of(command):
        return []
    on: set[str] = set()
    for entry in re.findall(r"--feature-gates[= ](\S+)", command):
        pairs = (pair.partition("=") for pair in entry.strip("'\"").split(","))
        on |= {name.removeprefix("kube:") for name, _, value in pairs if value.lower() == "true"}
    return [] if on & {"AllAlpha", "AllBeta"} else [gate for gate in gates if gate not in on]


def _program(command: str) -> str:
    word = next(iter(command.split()), "")
    return word if "/" in word else f"./{word}"  # as `binary_words` has it


def completed(config: Path, kubeconfig: Path) -> dict[str, Any]:
    """A KubeSchedulerConfiguration that names the cluster.

    Schedulers built on upstream's take no `--kubeconfig` beside a `--config`: the cluster must be in the file. Leader
    election is turned off unless the file sets it, because no other scheduler runs in the cluster.

    Raises:
        UsageError: the file is no KubeSchedulerConfiguration.
    """
    try:
        current_yaml = load_yaml(config.read_bytes())
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(f"--scheduler-config {config}: expected a {KIND} file ({error})") from error
    if not isinstance(current_yaml, dict) or current_yaml.get("kind") != KIND:
        kind = current_yaml.get("kind") if isinstance(current_yaml, dict) else type(current_yaml).__name__
        raise UsageError(f"--scheduler-config {config}: expected a {KIND}, found {kind!r}")
    connection = {"kubeconfig": str(kubeconfig), **_without_empty(current_yaml.get("clientConnection"))}
    election = {"leaderElect": False, **(current_yaml.get("leaderElection") or {})}
    return {**current_yaml, "clientConnection": connection, "leaderElection": election}


def _without_empty(section: dict[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (section or {}).items() if value != ""}


__all__ = ["completed", "foreign_command"]
