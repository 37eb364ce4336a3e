"""The state files of clusters, with sleeping programs in the place of their processes."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from seatrial.harness.clusters import detached
from seatrial.harness.clusters.cluster_state import answers_ready, state_of
from seatrial.harness.clusters.start_lock import start_lock
from seatrial.harness.errors import UsageError
from seatrial.harness.processes import started_at

HOLDER = """
import sys, time
from pathlib import Path
from seatrial.harness.clusters.start_lock import start_lock
with start_lock("r", Path(sys.argv[1])):
    print(flush=True)
    time.sleep(600)
"""
OURS = "{current-context: seatrial, users: [{name: seatrial-admin, user: {token: t}}]}"

Sleeper = Callable[[], "subprocess.Popen[bytes]"]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return detached.state_folder()


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    """Start programs that sleep; they are killed in the end."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> "subprocess.Popen[bytes]":
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
        return started[-1]

    yield start
    for process in started:
        kill(process)


def kill(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


def write(name: str, *processes: "subprocess.Popen[bytes]", kubeconfig: Path, programs: str = "") -> detached.Detached:
    """Write the state file of a cluster whose first process is the server; `programs` are those of the others."""
    logs = tuple((each, str(detached.new_log(name, each))) for each in ("server", *programs.split()))
    pairs = tuple((process.pid, started_at(process.pid)) for process in processes)
    cluster = detached.Detached(name, "https://127.0.0.1:1", str(kubeconfig), pairs, logs=logs)
    detached.remember(cluster)
    return cluster


# -- the lock ---------------------------------------------------------------------------------------------------------


def test_one_of_two_starts_of_a_name_is_refused(tmp_path: Path, state: Path) -> None:
    with (
        start_lock("r", tmp_path / "k1"),
        pytest.raises(UsageError, match="cluster 'r' is being started"),
        start_lock("r", tmp_path / "k2"),
    ):
        raise AssertionError("two")
    assert list(state.iterdir()) == []


def test_one_of_two_starts_with_a_kubeconfig_is_refused(tmp_path: Path) -> None:
    with (
        start_lock("a", tmp_path / "k"),
        pytest.raises(UsageError, match=r"--kubeconfig .*/k: another cluster is being started"),
        start_lock("b", tmp_path / "k"),
    ):
        raise AssertionError("two")


def test_a_released_lock_is_free_before_its_block_ends(tmp_path: Path) -> None:
    with start_lock("r", tmp_path / "k") as release:
        release()
        with start_lock("r", tmp_path / "k"):
            pass


def test_the_lock_of_a_killed_process_does_not_block(tmp_path: Path) -> None:
    """A process holds the lock and is killed; its lock file stays."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "k")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n"
        with (
            pytest.raises(UsageError, match=f"is being started by process {holder.pid}"),
            start_lock("r", tmp_path / "k"),
        ):
            raise AssertionError("two")
        holder.kill()
    with start_lock("r", tmp_path / "k"):
        pass


# -- the state --------------------------------------------------------------------------------------------------------


def test_the_state_names_what_has_ended(tmp_path: Path, sleeper: Sleeper) -> None:
    server, manager, scheduler = sleeper(), sleeper(), sleeper()
    cluster = write("a", server, manager, scheduler, kubeconfig=tmp_path / "k", programs="manager scheduler")

    assert state_of(cluster, lambda _: True) == "running"
    assert state_of(cluster, lambda _: False) == "API server does not answer"
    kill(scheduler)
    assert state_of(cluster, lambda _: True) == "scheduler ended"
    kill(manager)
    assert state_of(cluster, lambda _: True) == "manager ended, scheduler ended"
    kill(server)
    assert state_of(cluster, lambda _: True) == "API server ended"


def test_a_process_that_has_the_id_of_an_ended_server_is_not_the_server(tmp_path: Path, sleeper: Sleeper) -> None:
    process = sleeper()
    other = detached.Detached("a", "https://127.0.0.1:1", str(tmp_path / "k"), ((process.pid, 1),))
    assert state_of(other, lambda _: True) == "API server ended"


@pytest.mark.parametrize(("code", "ready"), [(200, True), (401, True), (403, True), (500, False)])
def test_an_api_server_that_refuses_strangers_answers(code: int, ready: bool) -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/prefix/readyz"
            self.send_response(code)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.handle_request)
        thread.start()
        assert answers_ready(f"http://127.0.0.1:{server.server_port}/prefix") is ready
        thread.join()
    assert not answers_ready(f"http://127.0.0.1:{server.server_port}")


def test_an_ended_cluster_stays_recorded_and_is_not_up(tmp_path: Path, sleeper: Sleeper) -> None:
    server = sleeper()
    write("a", server, kubeconfig=tmp_path / "k")
    kill(server)
    assert detached.find("a") is None
    assert detached.names() == []
    recorded = detached.recorded("a")
    assert recorded is not None
    assert detached.recorded_names() == ["a"]


def test_the_end_of_a_cluster_leaves_the_kubeconfig_of_another_one(tmp_path: Path, sleeper: Sleeper) -> None:
    """The file of a cluster that was killed may be used again under another name."""
    killed, alive = sleeper(), sleeper()
    kubeconfig = tmp_path / "k"
    kubeconfig.write_text(OURS)
    first = write("first", killed, kubeconfig=kubeconfig)
    kill(killed)
    second = write("second", alive, kubeconfig=kubeconfig)
    detached.end(first)
    assert kubeconfig.exists()
    kill(alive)
    detached.end(second)
    assert not kubeconfig.exists()


def test_a_kubeconfig_that_another_program_has_written_since_is_left(tmp_path: Path, sleeper: Sleeper) -> None:
    killed = sleeper()
    cluster = write("a", killed, kubeconfig=tmp_path / "k")
    kill(killed)
    (tmp_path / "k").write_text("{current-context: production, users: [{name: me}]}")
    detached.end(cluster)
    assert (tmp_path / "k").exists()


@pytest.mark.parametrize(
    ("name", "command"), [("seatrial", "`seatrial down`"), ("dies", "`seatrial down dies`")], ids=["default", "other"]
)
def test_the_command_that_ends_a_cluster_has_its_name(name: str, command: str) -> None:
    assert detached.down_command(name) == command
