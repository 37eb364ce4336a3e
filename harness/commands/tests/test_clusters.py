"""`seatrial list`, `logs` and `explain` with clusters of `seatrial up`, as a user calls them."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import pytest

from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.detached import Detached
from seatrial.harness.clusters.embedded import EmbeddedCluster
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.commands.tests.test_up import Shell
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.transport import Request

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.seatrial("down", "--all")


def up(shell: Shell, name: str, *more: str) -> None:
    done = shell.seatrial("up", "--detach", "--kubeconfig", name, "--name", name, "--fleet", "none", *more)
    assert done.returncode == 0, done.stderr


def submit(shell: Shell, kubeconfig: str, name: str) -> None:
    """Create a pod and wait until the scheduler has tried it."""
    path = shell.folder / kubeconfig
    with closing(EmbeddedCluster("embedded", load_access(path), path)) as cluster:
        accepted(cluster.call(Request("POST", PODS, orjson.dumps(pod(name).namespace("default").manifest))), "create")
        events = Request("GET", "/api/v1/namespaces/default/events")
        assert cluster.wait(lambda: b"FailedScheduling" in cluster.call(events).body, within=60)


def listed(shell: Shell) -> dict[str, dict[str, str]]:
    done = shell.seatrial("list", "--json")
    assert done.returncode == 0, done.stderr
    return {each["name"]: each for each in json.loads(done.stdout)}


def test_each_cluster_has_its_own_scheduler(shell: Shell) -> None:
    """Two clusters with a pod of one name each; a third program may sit on the default port."""
    up(shell, "a")
    up(shell, "b")
    found = listed(shell)
    assert set(found) == {"a", "b"}
    assert found["a"]["scheduler"] != found["b"]["scheduler"]
    assert found["a"]["uid"] != found["b"]["uid"]
    assert all(urlsplit(each["scheduler"]).port not in {10251, 10252} for each in found.values())
    state = shell.folder / "state" / "seatrial" / "clusters"
    assert {path.name for path in state.iterdir()} == {
        f"{name}{end}" for name in "ab" for end in (".json", ".server.log", ".scheduler.log")
    }
    assert {path.stat().st_mode & 0o777 for path in state.iterdir()} == {0o600}
    table = shell.seatrial("list").stdout.splitlines()
    assert table[0].split() == ["name", "backend", "api", "scheduler", "with", "since"]
    assert table[1].split() == ["a", "embedded", found["a"]["api"], found["a"]["scheduler"], "-", found["a"]["since"]]

    submit(shell, "a", "p")
    submit(shell, "b", "p")
    for name in "ab":
        done = shell.seatrial("explain", "p", "--kubeconfig", name)
        assert "by our scheduler:\ndefault/p: pending" in done.stdout, done.stdout + done.stderr
    unclear = shell.seatrial("explain", "p")
    assert unclear.returncode == 2
    assert "several clusters are up: a, b" in unclear.stderr

    said = shell.seatrial("logs", "a", "--component", "scheduler")
    assert "shell synced" in said.stdout, said.stderr
    assert [line.split()[1] for line in shell.seatrial("logs", "a").stdout.splitlines() if line.startswith("==>")] == [
        "server:",
        "scheduler:",
    ]
    assert "has logs of: server, scheduler" in shell.seatrial("logs", "a", "--component", "x").stderr
    assert shell.seatrial("down", "--all").returncode == 0
    assert list(state.iterdir()) == []
    assert shell.seatrial("list").stdout == "no cluster is up\n"


def test_another_cluster_under_a_recorded_name_is_refused(shell: Shell) -> None:
    """The kubeconfig of the recorded cluster is replaced by that of a cluster in another state folder."""
    other = Shell(shell.folder)
    other.env = {**shell.env, "XDG_STATE_HOME": str(shell.folder / "other-state")}
    up(shell, "a")
    up(other, "b", "--subject", "seatrial")
    try:
        submit(shell, "b", "p")
        unknown = shell.seatrial("explain", "p", "--kubeconfig", "b")
        assert "started no scheduler for the cluster at" in unknown.stdout
        assert "give its address with --server" in unknown.stdout
        recorded, found = listed(shell)["a"]["uid"], listed(other)["b"]["uid"]
        shutil.copy(shell.folder / "b", shell.folder / "a")
        for words in ([], ["--kubeconfig", "a"]):
            refused = shell.seatrial("explain", "p", *words)
            assert refused.returncode == 2, refused.stdout
            assert f"recorded with UID {recorded}" in refused.stderr
            assert f"answers has UID {found}" in refused.stderr
    finally:
        assert other.seatrial("down", "--all").returncode == 0


def test_a_scheduler_that_ended_is_told(shell: Shell) -> None:
    up(shell, "a")
    submit(shell, "a", "p")
    state = json.loads((shell.folder / "state" / "seatrial" / "clusters" / "a.json").read_bytes())
    os.kill(Detached(**state).processes[-1][0], signal.SIGKILL)
    done = shell.seatrial("explain", "p", "--kubeconfig", "a")
    assert done.returncode == 0, done.stderr
    assert "the scheduler of cluster 'a' has ended; `seatrial logs a --component scheduler`" in done.stdout


def test_a_cluster_in_the_foreground_is_listed_until_down(shell: Shell) -> None:
    command = [sys.executable, "-m", "seatrial", "up", "--kubeconfig", "K", "--fleet", "none"]
    process = subprocess.Popen(command, cwd=shell.folder, env=shell.env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "Kubernetes API at" in process.stdout.readline()
    found = listed(shell)["seatrial"]
    url = urlsplit(found["scheduler"])
    with socket.create_connection((url.hostname, url.port), timeout=10):
        pass
    assert "cluster 'seatrial' is up already" in shell.seatrial("up", "--kubeconfig", "L").stderr
    assert shell.seatrial("down").returncode == 0
    process.communicate(timeout=600)
    assert process.returncode == 0
    assert listed(shell) == {}


def test_nothing_is_asked_where_no_cluster_is_up(shell: Shell) -> None:
    done = shell.seatrial("explain", "p")
    assert done.returncode == 2
    assert "expected --kubeconfig FILE or --server URL, because no cluster is up" in done.stderr
    assert "no cluster 'a' is up (up: none)" in shell.seatrial("logs", "a").stderr
