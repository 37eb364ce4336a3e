"""`seatrial list`, `logs` and `explain` with clusters of `seatrial up`, as a user calls them."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
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
from seatrial.harness.clusters.start_lock import start_lock
from seatrial.harness.commands.tests.test_up import Shell
from seatrial.harness.nodes.runtimes.tests.rig import WITHIN
from seatrial.harness.processes import started_at
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
    listing = listed(shell)
    assert set(listing) == {"a", "b"}
    assert listing["a"]["scheduler"] != listing["b"]["scheduler"]
    assert listing["a"]["uid"] != listing["b"]["uid"]
    assert all(urlsplit(each["scheduler"]).port not in {10251, 10252} for each in listing.values())
    state = shell.folder / "state" / "seatrial" / "clusters"
    assert {path.name for path in state.iterdir()} == {
        f"{name}{end}" for name in "ab" for end in (".json", ".server.log", ".scheduler.log")
    }
    assert {path.stat().st_mode & 0o777 for path in state.iterdir()} == {0o600}
    table = shell.seatrial("list").stdout.splitlines()
    assert table[0].split() == ["name", "backend", "state", "api", "scheduler", "web", "with", "since"]
    row = ["a", "embedded", "running", listing["a"]["api"], listing["a"]["scheduler"], "-", "-", listing["a"]["since"]]
    assert table[1].split() == row

    submit(shell, "a", "p")
    submit(shell, "b", "p")
    for name in "ab":
        done = shell.seatrial("explain", "p", "--kubeconfig", name)
        assert "by our scheduler:\ndefault/p: pending" in done.stdout, done.stdout + done.stderr
    unclear = shell.seatrial("explain", "p")
    assert unclear.returncode == 2
    assert "several clusters are up: a, b" in unclear.stderr

    process = shell.seatrial("logs", "a", "--component", "scheduler")
    assert "shell synced" in process.stdout, process.stderr
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
        recorded, uid = listed(shell)["a"]["uid"], listed(other)["b"]["uid"]
        shutil.copy(shell.folder / "b", shell.folder / "a")
        for words in ([], ["--kubeconfig", "a"]):
            refused = shell.seatrial("explain", "p", *words)
            assert refused.returncode == 2, refused.stdout
            assert f"recorded with UID {recorded}" in refused.stderr
            assert f"answers has UID {uid}" in refused.stderr
    finally:
        assert other.seatrial("down", "--all").returncode == 0


def processes(shell: Shell, name: str) -> tuple[tuple[int, int], ...]:
    state = json.loads((shell.folder / "state" / "seatrial" / "clusters" / f"{name}.json").read_bytes())
    return Detached(**state).processes


def wait_for_end(process: tuple[int, int]) -> None:
    deadline = time.monotonic() + WITHIN
    while started_at(process[0]) == process[1]:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_scheduler_that_ended_is_told(shell: Shell) -> None:
    up(shell, "a")
    submit(shell, "a", "p")
    scheduler = processes(shell, "a")[-1]
    os.kill(scheduler[0], signal.SIGKILL)
    wait_for_end(scheduler)
    assert listed(shell)["a"]["state"] == "scheduler ended"
    again = shell.seatrial("up", "--detach", "--name", "a")
    assert again.returncode == 2
    assert "cluster 'a' is up already" in again.stderr
    assert "scheduler ended" in again.stderr
    assert "end it with `seatrial down a`" in again.stderr
    done = shell.seatrial("explain", "p", "--kubeconfig", "a")
    assert done.returncode == 0, done.stderr
    assert "the scheduler of cluster 'a' has ended; `seatrial logs a --component scheduler`" in done.stdout


def test_a_cluster_whose_server_was_killed_does_not_block_its_name(shell: Shell) -> None:
    """The scheduler still runs; `up` stops it, and removes the files."""
    up(shell, "dies")
    server, scheduler = processes(shell, "dies")
    os.kill(server[0], signal.SIGKILL)
    wait_for_end(server)
    assert listed(shell)["dies"]["state"] == "API server ended"
    assert "API server ended" in shell.without_process("list").stdout
    done = shell.seatrial("up", "--detach", "--kubeconfig", "dies", "--name", "dies", "--fleet", "none")
    assert done.returncode == 0, done.stderr
    assert "cluster 'dies': API server ended; what was left of it has been removed" in done.stdout
    assert started_at(scheduler[0]) != scheduler[1]
    assert listed(shell)["dies"]["state"] == "running"


def test_the_logs_of_a_cluster_whose_processes_were_killed_are_there_until_down(shell: Shell) -> None:
    up(shell, "a", "--subject", "none")
    ((pid, start),) = processes(shell, "a")
    os.kill(pid, signal.SIGKILL)
    wait_for_end((pid, start))
    assert listed(shell)["a"]["state"] == "API server ended"
    assert "==> server:" in shell.without_process("logs", "a").stdout
    down = shell.without_process("down", "a")
    assert (down.returncode, down.stdout) == (0, "cluster 'a' had ended; its files are removed\n")
    assert list((shell.folder / "state" / "seatrial" / "clusters").iterdir()) == []
    assert not (shell.folder / "a").exists()


def test_one_of_two_starts_of_a_name_succeeds(shell: Shell) -> None:
    """Both at once: the state folder has one cluster, and no process of the other one."""
    command = [sys.executable, "-m", "seatrial", "up", "--detach", "--name", "r", "--fleet", "none"]
    both = [
        subprocess.Popen(
            [*command, "--kubeconfig", kubeconfig],
            cwd=shell.folder,
            env=shell.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for kubeconfig in ("r1", "r2")
    ]
    errors = [each.communicate(timeout=600)[1] for each in both]
    assert sorted(each.returncode for each in both) == [0, 2], errors
    (refused,) = [error for error in errors if error]
    assert "cluster 'r' is being started" in refused or "cluster 'r' is up already" in refused
    assert len(list(shell.folder.glob("r?"))) == 1
    assert len(listed(shell)) == 1


def test_a_start_beside_one_that_goes_on_says_so(shell: Shell) -> None:
    """The test holds the lock as a process that starts the cluster does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", shell.env["XDG_STATE_HOME"])
        with start_lock("r"):
            done = shell.without_process("up", "--detach", "--name", "r")
            down = shell.without_process("down", "r")
    assert done.returncode == 2
    assert f"cluster 'r' is being started by process {os.getpid()}; wait" in done.stderr
    assert "no cluster 'r' is up" in down.stderr


def test_a_cluster_in_the_foreground_is_listed_until_down(shell: Shell) -> None:
    command = [sys.executable, "-m", "seatrial", "up", "--kubeconfig", "K", "--fleet", "none"]
    process = subprocess.Popen(command, cwd=shell.folder, env=shell.env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert "Kubernetes API at" in process.stdout.readline()
    values = listed(shell)["seatrial"]
    url = urlsplit(values["scheduler"])
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
