"""Programs of other projects, unchanged: where their binaries are, and how long tests wait for what they do.

Each is named by an environment variable or found on PATH; docs/subjects.md says how to build them.
"""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import orjson
import pytest

from seatrial.harness.clusters.embedded import EmbeddedCluster
from seatrial.scheduler.api.transport import Request

WITHIN = 60.0  # seconds


def binary(name: str) -> str:
    """The path of a program; the test is skipped where there is none."""
    variable = "SEATRIAL_" + name.upper().replace("-", "_")
    named = os.environ.get(variable)
    if named and not Path(named).is_file():
        pytest.fail(f"{variable}: expected the path of {name}, found no file {named!r}")
    result = named or shutil.which(name)
    if result is None:
        pytest.skip(f"{name}: expected {variable} or the program on PATH, found neither; see docs/subjects.md")
    return str(Path(result).resolve())


def wait_until(done: Callable[[], bool], what: str, evidence: Callable[[], str] = str) -> None:
    """Wait until it holds; `evidence` is shown where it never does."""
    end, tick = monotonic() + WITHIN, threading.Event()
    while not done():
        assert monotonic() < end, f"{what}: expected within {WITHIN:.0f} s, not seen\n{evidence()}"
        tick.wait(0.05)


def create(cluster: EmbeddedCluster, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Create one object; the object as it was stored."""
    answer = cluster.call(Request("POST", path, orjson.dumps(body)))
    assert answer.code == 201, answer.body.decode()
    document: dict[str, Any] = orjson.loads(answer.body)
    return document


def read(cluster: EmbeddedCluster, path: str) -> dict[str, Any]:
    """An object or a list; empty if it is not there."""
    answer = cluster.call(Request("GET", path))
    body: dict[str, Any] = orjson.loads(answer.body)
    return body if answer.code == 200 else {}
