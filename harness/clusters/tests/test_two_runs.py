"""Runs on a real API server that others use, killed and interrupted in the middle; what is there before and after.

Skipped where the programs of envtest are missing.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from seatrial.harness.clusters.control_plane import control_plane, missing_programs
from seatrial.harness.clusters.existing import WholeCluster
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.clusters.leftovers import runs_on
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.transport import Request

MISSING = missing_programs()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

ROOT = Path(__file__).resolve().parents[3]
CASES = "suites/allocation/test_gpu.py"
OTHERS = "/api/v1/namespaces/default/configmaps"
# Controllers of the cluster write Events about nodes into `default`, and keep them for an hour.
NOT_LISTED = frozenset({"events"})
WITHIN = 120.0
NAMESPACES = 4  # of a new cluster


@pytest.fixture
def shared() -> Iterator[WholeCluster]:
    """A cluster of others: a node that is not ours, and an object of theirs."""
    with private_folder() as folder, control_plane(folder) as plane:
        cluster = WholeCluster("shared", load_access(plane.kubeconfig), plane.kubeconfig)
        for path, body in (
            ("/api/v1/nodes", {"kind": "Node", "metadata": {"name": "n1", "labels": {"team": "them"}}}),
            (OTHERS, {"kind": "ConfigMap", "metadata": {"name": "theirs"}, "data": {"a": "b"}}),
        ):
            assert cluster.call(Request("POST", path, orjson.dumps({"apiVersion": "v1", **body}))).code == 201
        until(lambda: begun(cluster), "each namespace has its service account and the certificate")
        try:
            yield cluster
        finally:
            cluster.close()


def begun(cluster: WholeCluster) -> bool:
    """Whether kube-controller-manager has made what each namespace has from the start."""
    made = [line.partition("/")[2] for line in everything(cluster)]
    return made.count("default") > NAMESPACES and made.count("kube-root-ca.crt") == NAMESPACES


def everything(cluster: WholeCluster) -> list[str]:
    """Each object of each kind that the API server can list.

    A group whose last definition goes is in the list of groups for a moment longer, and has no objects then.
    """
    served = orjson.loads(cluster.call(Request("GET", "/apis")).body)["groups"]
    messages = []
    for group in ("/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in served)):
        described = cluster.call(Request("GET", group))
        for kind in orjson.loads(described.body)["resources"] if described.code != 404 else ():
            if "list" not in kind["verbs"] or kind["name"] in NOT_LISTED:
                continue
            listed = cluster.call(Request("GET", f"{group}/{kind['name']}"))
            items = orjson.loads(listed.body)["items"] if listed.code != 404 else ()
            names = (f"{item['metadata'].get('namespace', '')}/{item['metadata']['name']}" for item in items)
            messages += [f"{kind['name']} {name}" for name in names]
    return sorted(messages)


@contextmanager
def run(cluster: WholeCluster, log: Path, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A run of cases, as another user of the cluster starts it."""
    assert cluster.endpoint is not None
    command = [
        sys.executable,
        "-m",
        "pytest",
        CASES,
        "-q",
        "-p",
        "no:cacheprovider",
        "--seatrial-subject=seatrial",
        "--seatrial-backend=existing",
        f"--seatrial-kubeconfig={cluster.endpoint.kubeconfig}",
        *words,
    ]
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=sink,
            stderr=sink,
            process_group=0,
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 scripts with `&` ignore it
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def seatrial(cluster: WholeCluster, *words: str) -> str:
    """What a command prints."""
    assert cluster.endpoint is not None
    command = [sys.executable, "-m", "seatrial", *words, "--kubeconfig", str(cluster.endpoint.kubeconfig)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def pods_of(cluster: WholeCluster, run_id: str) -> list[dict[str, Any]]:
    answer = cluster.call(Request("GET", f"/api/v1/pods?labelSelector=seatrial.dev/run%3D{run_id}"))
    items: list[dict[str, Any]] = orjson.loads(answer.body)["items"]
    return items


def until(condition: Any, what: str | Callable[[], str]) -> None:
    deadline = time.monotonic() + WITHIN
    while not condition():
        assert time.monotonic() < deadline, what if isinstance(what, str) else what()
        time.sleep(0.2)


def test_one_of_two_runs_is_killed_and_nothing_of_either_remains(shared: WholeCluster, tmp_path: Path) -> None:
    """The other run passes all its cases; the next run removes what the killed one left, before it begins."""
    before = everything(shared)
    theirs = shared.call(Request("GET", f"{OTHERS}/theirs")).body
    with run(shared, tmp_path / "killed.log") as victim:
        until(lambda: len(runs_on(shared)) == 1, "the first run began")
        (killed,) = runs_on(shared)
        with run(shared, tmp_path / "other.log") as other:
            until(lambda: len(runs_on(shared)) == 2, "the second run began")
            until(lambda: pods_of(shared, killed), "a case of the first run has pods")
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait()
            assert other.wait() == 0, (tmp_path / "other.log").read_text()
    assert runs_on(shared) == [killed]
    assert any(f"st-{killed}" in line for line in everything(shared))
    with run(shared, tmp_path / "next.log", "-k", "whole") as following:
        assert following.wait() == 0, (tmp_path / "next.log").read_text()
    assert runs_on(shared) == []
    # The garbage collector removes Leases of nodes that are gone.
    until(lambda: everything(shared) == before, lambda: f"left: {set(everything(shared)) ^ set(before)}")
    assert shared.call(Request("GET", f"{OTHERS}/theirs")).body == theirs


def test_clean_removes_an_interrupted_and_a_killed_run(shared: WholeCluster, tmp_path: Path) -> None:
    """The commands with --dry-run change nothing. Of one run its group gets Ctrl-C twice, as from a terminal."""
    before = everything(shared)
    assert "Namespace st-RUN" in seatrial(shared, "run", "allocation", "--backend", "existing", "--dry-run")
    assert everything(shared) == before

    with run(shared, tmp_path / "interrupted.log") as interrupted:
        until(lambda: len(runs_on(shared)) == 1, "the first run began")
        (first,) = runs_on(shared)
        until(lambda: pods_of(shared, first), "a case of the first run has pods")
        os.killpg(interrupted.pid, signal.SIGINT)
        time.sleep(0.5)  # the first Ctrl-C has begun to clean up when the second comes
        with contextlib.suppress(ProcessLookupError):
            os.killpg(interrupted.pid, signal.SIGINT)
        assert interrupted.wait(WITHIN) != 0
    with run(shared, tmp_path / "killed.log") as victim:
        until(lambda: set(runs_on(shared)) - {first}, "the second run began")
        (second,) = set(runs_on(shared)) - {first}
        until(lambda: pods_of(shared, second), "a case of the second run has pods")
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()

    def left() -> list[str]:
        """Of the interrupted run namespaces may still be going."""
        return [line for line in everything(shared) if second in line]

    before_clean = left()
    assert before_clean
    assert f"run {second}" in seatrial(shared, "clean", "--dry-run").splitlines()
    assert left() == before_clean
    lines: set[str] = set()

    def cleaned() -> bool:
        """A run that was killed less than 30 s ago may live, and is left alone."""
        lines.update(seatrial(shared, "clean").splitlines())
        return not runs_on(shared)

    until(cleaned, f"clean said {lines}")
    assert f"run {second}: removed" in lines
    until(lambda: everything(shared) == before, f"left: {set(everything(shared)) ^ set(before)}")
