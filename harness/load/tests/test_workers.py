"""A load from a master and workers, each a process of the command line, as on several machines."""

import http.server
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

import seatrial
from seatrial.harness.clusters.embedded import EmbeddedCluster, start_process
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.load.record import Sample
from seatrial.harness.load.settings import LoadSettings, WorkerSettings
from seatrial.harness.load.task_queue import creations
from seatrial.harness.load.tests.test_run import NOWHERE, pods_and_namespaces
from seatrial.harness.processes import die_with_parent, stop
from seatrial.harness.subject.protocol import OURS, open_subject
from seatrial.harness.subject.services import free_port
from seatrial.harness.tests.command_line import run_command

END_WITHIN = 120  # seconds


class Load:
    """A master and its workers at a free port."""

    def __init__(self, kubeconfig: Path, *flags: str, workers: int = 2, address: str = "127.0.0.1") -> None:
        self.port, self.address, self.kubeconfig = free_port(), address, kubeconfig
        words = ["--master", "--bind", f"{address}:{self.port}", "--expect-workers", str(workers), "--json"]
        self.master = self._start([*words, *flags])
        self.workers: list[subprocess.Popen[str]] = []

    def work(self, *, kubeconfig: Path | None = None, before: Sequence[str] = (), **env: str) -> None:
        """Start a worker; `before`: words before the command."""
        words = ["--worker", "--master-host", self.address, "--master-port", str(self.port)]
        self.workers.append(self._start(words, kubeconfig=kubeconfig, before=before, **env))

    def _start(
        self, words: Sequence[str], *, kubeconfig: Path | None = None, before: Sequence[str] = (), **env: str
    ) -> "subprocess.Popen[str]":
        command = [*before, sys.executable, "-m", "seatrial", "load", "--kubeconfig"]
        return subprocess.Popen(
            [*command, str(kubeconfig or self.kubeconfig), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
            preexec_fn=_as_in_a_terminal,  # noqa: PLW1509 two calls
        )

    def heard(self, pattern: str) -> None:
        """Wait until the master says what matches."""
        assert self.master.stderr is not None
        lines = []
        for line in self.master.stderr:
            lines.append(line)
            if re.search(pattern, line):
                return
        raise AssertionError(lines)

    def end(self) -> list[tuple[int, str]]:
        """Exit status and messages of master and workers."""
        ended = []
        for process in (self.master, *self.workers):
            self.output, errors = process.communicate(timeout=END_WITHIN)
            ended.append((process.returncode, errors))
            if process is self.master:
                self.figures: dict[str, Any] = orjson.loads(self.output) if self.output else {}
        return ended


def _as_in_a_terminal() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    die_with_parent()


def _kubeconfig(cluster: EmbeddedCluster) -> Path:
    assert cluster.endpoint is not None
    return cluster.endpoint.kubeconfig


def _clean(cluster: EmbeddedCluster) -> bool:
    pods, namespaces = pods_and_namespaces(cluster)
    return pods == 0 and not [name for name in namespaces if name.startswith("seatrial-load-")]


def _pods(samples: Path) -> list[str]:
    return sorted(msgspec.json.decode(line, type=Sample).pod for line in samples.read_bytes().splitlines())


def test_one_worker_has_the_gangs_beside_the_plan(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    samples = tmp_path / "samples.jsonl"
    flags = ["--rate", "10", "--seconds", "2", "--hold", "0.2", "--users", "4", "--mix", "cpu", "--also", "gangs"]
    load = Load(_kubeconfig(cluster), *flags, "--samples", str(samples))
    for _ in range(2):
        load.work()
    (status, messages), *others = load.end()
    assert status in {0, 3}, messages  # 3: the load was not valid, as on a busy machine
    assert [status for status, _ in others] == [0, 0]
    of_gangs = [pod for pod in _pods(samples) if pod.startswith("gang-")]
    assert len({pod.split("-")[1] for pod in of_gangs}) == 1
    assert len(of_gangs) == 4 * load.figures["rows"]["GANG create to last bound"]["count"]


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_together_submit_the_plan_of_one_process(
    cluster: EmbeddedCluster, tmp_path: Path, workers: int
) -> None:
    """A mix from a file of the master, which the workers do not have; equal pods for any number of workers."""
    mix, samples = tmp_path / "mix.yaml", tmp_path / "samples.jsonl"
    mix.write_text("shapes: [{name: one, requests: {cpu: 1}}, {name: two, requests: {cpu: 2}}]")
    flags = ["--rate", "30", "--seconds", "1.5", "--hold", "0.2", "--users", "5", "--mix", str(mix), "--seed", "7"]
    load = Load(_kubeconfig(cluster), *flags, "--samples", str(samples), workers=workers)
    for _ in range(workers):
        load.work()
    (status, messages), *others = load.end()
    settings = LoadSettings(rate=30, seconds=1.5, mix=str(mix), seed=7)
    planned = sorted(task.pod for task in creations(WorkerSettings(settings, "", "", "", 0)))
    assert _pods(samples) == planned, messages
    assert load.figures["created"] == load.figures["bound"] == load.figures["deleted"] == len(planned)
    assert load.figures["validity"]["errors"] == {}
    assert status == (0 if load.figures["valid"] else 3)
    assert [code for code, _ in others] == [0] * workers
    assert _clean(cluster)


def test_a_lost_worker_makes_the_load_invalid_by_name(cluster: EmbeddedCluster) -> None:
    """Killed without a word, as when its machine ends: the master misses its heartbeats."""
    load = Load(_kubeconfig(cluster), "--rate", "20", "--seconds", "6", "--hold", "0.2", "--mix", "cpu", "--drain", "5")
    load.work()
    load.work()
    load.heard("created [1-9]")
    (child,) = Path(f"/proc/{load.workers[0].pid}/task/{load.workers[0].pid}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    (status, _), (of_lost, _), (of_other, _) = load.end()
    lost = [reason for reason in load.figures["invalid_because"] if "lost before the end" in reason]
    assert len(lost) == 1
    assert lost[0].startswith(("worker 0 on ", "worker 1 on "))
    assert 0 < load.figures["created"] < 120
    assert (status, of_lost, of_other) == (3, 2, 0)
    figures = sorted(load.figures["workers"], key=lambda each: each["created"])
    assert [each["created"] for each in figures] == [0, load.figures["created"]]
    assert lost[0].startswith(figures[0]["worker"])
    assert _clean(cluster)


def test_an_interrupted_master_ends_its_workers_and_leaves_nothing(cluster: EmbeddedCluster) -> None:
    load = Load(_kubeconfig(cluster), "--rate", "20", "--seconds", "60", "--mix", "cpu", "--hold", "30")
    load.work()
    load.work()
    assert cluster.wait(lambda: pods_and_namespaces(cluster)[0] > 3, within=60)
    load.master.send_signal(signal.SIGINT)
    ended = load.end()
    assert [status for status, _ in ended] == [130, 2, 2]
    for _, messages in ended[1:]:
        assert "load worker: the master ended before the load was complete" in messages  # not by missing heartbeats
    assert _clean(cluster)


def test_too_few_workers_are_told_with_the_command_for_more(cluster: EmbeddedCluster) -> None:
    """At an address of all interfaces: a warning says who can join."""
    load = Load(_kubeconfig(cluster), "--workers-within", "1", address="0.0.0.0")  # noqa: S104
    ((status, messages),) = load.end()
    assert status == 2
    assert "warning: Locust's protocol has no authentication: whoever reaches 0.0.0.0:" in messages
    assert "0 of 2 workers came within 1 s (none); start the others with `seatrial load --worker" in messages
    assert _clean(cluster)


@contextmanager
def _another_server(folder: Path) -> Iterator[Path]:
    """The kubeconfig of a server that has no namespaces."""

    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        threading.Thread(target=server.serve_forever).start()
        (folder / "other").write_text(NOWHERE.replace("127.0.0.1:9", f"127.0.0.1:{server.server_port}"))
        yield folder / "other"
        server.shutdown()


def _changed_source(folder: Path) -> str:
    """A seatrial with one file more, as PYTHONPATH."""
    (folder / "seatrial").mkdir()
    for path in Path(seatrial.__path__[0]).iterdir():
        (folder / "seatrial" / path.name).symlink_to(path)
    (folder / "seatrial" / "more.py").touch()
    return str(folder)


def test_who_cannot_take_part_hears_why_and_the_load_waits_for_others(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """A worker of another cluster, one with another source, and one more than expected."""
    load = Load(_kubeconfig(cluster), "--rate", "10", "--seconds", "1", "--mix", "cpu", workers=1)
    with _another_server(tmp_path) as other:
        load.work(kubeconfig=other)
        load.heard("1 of 1 workers")
        load.heard("0 of 1 workers")
    load.work(PYTHONPATH=_changed_source(tmp_path))
    load.workers[1].wait(END_WITHIN)
    load.work()
    load.work()
    (status, _), (first, first_said), (second, second_said), *last = load.end()
    assert "answered 404 for the master's namespace seatrial-load-" in first_said
    assert "is not the master's" in second_said
    assert (first, second) == (2, 2)
    assert sorted(code for code, _ in last) == [0, 2]
    assert "the master has its 1 workers; see --expect-workers" in last[0][1] + last[1][1]
    assert status in {0, 3}
    assert load.figures["created"] == load.figures["bound"] > 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param("--master", "--master: expected --expect-workers N", id="how-many"),
        pytest.param("--master --expect-workers 2", "--master: expected --kubeconfig FILE", id="no-kubeconfig"),
        pytest.param("--master --expect-workers 2 --kubeconfig K --web", "without --web", id="page"),
        pytest.param("--master --expect-workers 2 --bind 5557", "--bind 5557: expected HOST:PORT", id="address"),
        pytest.param("--master --expect-workers 2 --bind h:\u00b2", "--bind h:\u00b2: expected HOST:PORT", id="port"),
        pytest.param("--master --expect-workers 2 --workers-within 0", "--workers-within: expected a", id="no-time"),
        pytest.param("--master --expect-workers 30 --kubeconfig K", "at most as many as users (20)", id="users"),
        pytest.param("--expect-workers 2", "--expect-workers 2: expected --master with it", id="no-master"),
        pytest.param("--master-host h", "--master-host h: expected --worker with it", id="no-worker"),
        pytest.param("--worker", "--worker: expected --master-host HOST", id="no-host"),
        pytest.param("--worker --master --master-host h", "without --master", id="both"),
        pytest.param("--worker --master-host h --kubeconfig K", "kubeconfig K: expected a file", id="no-file"),
        pytest.param("--worker --master-host h", "or a pod with a service account", id="no-account"),
    ],
)
def test_bad_flags_end_with_two_and_a_sentence(flags: str, message: str) -> None:
    ended = run_command("load", *flags.split())
    assert ended.returncode == 2
    assert message in ended.stderr


HOST, MACHINES = "10.213.94.1", ("10.213.94.2", "10.213.94.3")


def _ip(*words: str) -> str:
    """Run `ip`; returns its message where it fails."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)  # noqa: S607
    return done.stderr if done.returncode else ""


@contextmanager
def _machines() -> Iterator[list[list[str]]]:
    """For each of two network namespaces, which reach `HOST` alone, the words before a command that runs in it."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and the program `ip`")
    with ExitStack() as stack:
        commands = []
        for number, address in enumerate(MACHINES):
            name, link = f"seatrial-{os.getpid()}-{number}", f"st{os.getpid()}n{number}"
            failure = _ip("netns", "add", name)
            if failure:
                pytest.skip(f"network namespaces are not allowed here: {failure}")
            stack.callback(_ip, "netns", "del", name)
            failure = (
                _ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
                or _ip("addr", "add", HOST, "peer", address, "dev", link)
                or _ip("link", "set", link, "up")
                or _ip("-n", name, "addr", "add", address, "peer", HOST, "dev", "eth0")
                or _ip("-n", name, "link", "set", "eth0", "up")
            )
            if failure:
                pytest.skip(f"virtual network cards are not allowed here: {failure}")
            commands.append(["ip", "netns", "exec", name])
        yield commands


def test_two_machines_drive_one_cluster(tmp_path: Path) -> None:
    """Workers in network namespaces of their own, which reach the API server and the master by their network cards."""
    kubeconfig, samples = tmp_path / "kubeconfig", tmp_path / "samples.jsonl"
    with _machines() as machines, ExitStack() as stack:
        server, _ = start_process(kubeconfig, fleet="default", seed=0, port=0, log=tmp_path / "log", host=HOST)
        stack.callback(stop, server)
        cluster = EmbeddedCluster("embedded", load_access(kubeconfig), kubeconfig)
        stack.callback(cluster.close)
        stack.enter_context(open_subject(OURS, cluster))
        flags = ["--rate", "20", "--seconds", "2", "--hold", "0.2", "--mix", "cpu", "--samples", str(samples)]
        load = Load(kubeconfig, *flags, address=HOST)
        for before in machines:
            load.work(before=before)
        (status, messages), *others = load.end()
        planned = [task.pod for task in creations(WorkerSettings(LoadSettings(rate=20, seconds=2), "", "", "", 0))]
        assert _pods(samples) == planned, messages
        assert status == (0 if load.figures["valid"] else 3)
        assert [code for code, _ in others] == [0, 0]
        one, other = load.figures["workers"]
        assert [one["worker"].partition(" on ")[0], other["worker"].partition(" on ")[0]] == ["worker 0", "worker 1"]
        assert one["created"] > 0 < other["created"]
        assert one["created"] + other["created"] == load.figures["created"] == len(planned)
        assert load.figures["valid"] == (one["valid"] and other["valid"])
        assert max(one["latency_ms"]["max"], other["latency_ms"]["max"]) == load.figures["latency_ms"]["max"]
        assert _clean(cluster)
