"""Plays commands of the real kubectl against one embedded server and says where its answers differ."""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from seatrial.harness.clusters.embedded import EmbeddedCluster

WITHIN = 60.0  # seconds for one command
MANIFESTS = Path(__file__).parent / "manifests"


@dataclass(frozen=True, slots=True)
class Step:
    """A command line, and what its output (both streams together) must match, as regular expressions over lines.

    `stdin` names a manifest beside this file, in which each text of `replacing` is replaced by another.
    """

    command: str
    matches: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    fails: bool = False
    stdin: str = ""
    replacing: Mapping[str, str] | None = None
    env: Mapping[str, str] | None = None


def step(command: str, *matches: str, lacks: Sequence[str] = (), fails: bool = False) -> Step:
    """A command without input."""
    return Step(command, matches, tuple(lacks), fails=fails)


def fed(
    command: str, stdin: str, *matches: str, fails: bool = False, replacing: Mapping[str, str] | None = None
) -> Step:
    """A command that reads a manifest; `replacing` has texts in it and what stands there instead."""
    return Step(command, matches, fails=fails, stdin=stdin, replacing=replacing)


class Kubectl:
    """One binary and one cluster."""

    def __init__(self, binary: str, kubeconfig: Path, folder: Path) -> None:
        self.binary, self.kubeconfig, self.folder = binary, kubeconfig, folder
        self.env = {
            **os.environ,
            "KUBECONFIG": str(kubeconfig),
            "KUBECACHEDIR": str(folder / "cache"),
            "HOME": str(folder),
            "TMPDIR": str(folder),
        }

    @classmethod
    def of(cls, cluster: EmbeddedCluster, folder: Path) -> Self:
        """The one on PATH, for that cluster; a skip where there is none."""
        binary = shutil.which("kubectl")
        if binary is None:
            pytest.skip("kubectl: expected on PATH, not found; install it to run the tests with the real client")
        assert cluster.endpoint is not None
        return cls(binary, cluster.endpoint.kubeconfig, folder)

    def run(
        self, arguments: Sequence[str], *, stdin: str = "", env: Mapping[str, str] | None = None
    ) -> tuple[int, str]:
        """The exit code and all that it printed."""
        done = subprocess.run(
            [self.binary, *arguments],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WITHIN,
            env={**self.env, **(env or {})},
            cwd=self.folder,
            check=False,
        )
        return done.returncode, done.stdout

    def play(self, steps: Sequence[Step], namespace: str) -> None:
        """Run the steps in order in a namespace; the first difference is an AssertionError with the whole output."""
        for item in steps:
            text = item.command.replace("$NS", namespace).replace("$MANIFESTS", str(MANIFESTS))
            stdin = (MANIFESTS / item.stdin).read_text() if item.stdin else ""
            stdin = stdin.replace("$NS", namespace)
            for old, new in (item.replacing or {}).items():
                assert old in stdin, f"{item.stdin} has no {old!r} to replace"
                stdin = stdin.replace(old, new)
            code, output = self.run(["-n", namespace, *shlex.split(text)], stdin=stdin, env=item.env)
            line = f"$ kubectl {text}\n{output}\n(exit code {code})"
            assert (code != 0) is item.fails, line
            for pattern in item.matches:
                assert re.search(pattern, output, re.MULTILINE), f"expected /{pattern}/ in\n{line}"
            for pattern in item.lacks:
                assert not re.search(pattern, output, re.MULTILINE), f"expected no /{pattern}/ in\n{line}"
