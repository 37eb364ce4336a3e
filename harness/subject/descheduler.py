"""The descheduler under test: ours in this process on simulated time, ours as a process, or another binary."""

import shlex
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from seatrial.harness.clusters.faulty import FaultyTransport
from seatrial.harness.clusters.protocol import Capability, Cluster
from seatrial.harness.errors import SubjectError, UsageError
from seatrial.harness.private_files import private_folder
from seatrial.harness.processes import die_with_parent, stop
from seatrial.harness.subject.services import ask, free_port
from seatrial.scheduler.descheduler.app import ConfigError, build_descheduler, build_routes

READY_LINE = "descheduler synced"
START_WITHIN = 60.0
OURS = "seatrial"
Configuration = Mapping[str, Any]


class Descheduler(ABC):
    """A running descheduler."""

    @abstractmethod
    def metrics(self) -> str:
        """Its metrics in text format; "" if it serves none."""

    @abstractmethod
    def kill(self) -> None:
        """Stop it without cleanup."""

    @abstractmethod
    def start_again(self) -> None:
        """After `kill`: a new one, that knows nothing but what the API server tells it.

        Raises:
            SubjectError: it did not start.
        """


class InProcessDescheduler(Descheduler):
    """Ours, on the cluster's simulated time."""

    def __init__(self, cluster: Cluster, configuration: Configuration) -> None:
        """
        Raises:
            UsageError: the configuration cannot be used.
        """
        self._cluster, self._configuration = cluster, configuration
        self.start_again()

    def start_again(self) -> None:
        self._link = FaultyTransport(self._cluster.transport, self._cluster.clock)
        try:
            self._shell = build_descheduler(self._link, self._cluster.clock, self._configuration)
        except ConfigError as error:
            raise UsageError(f"descheduler: {error}") from error
        self._routes = build_routes(self._shell)
        self._shell.start()
        if not self._cluster.wait(lambda: self._shell.ready, within=START_WITHIN):
            raise SubjectError(f"the descheduler did not see the whole cluster within {START_WITHIN:.0f} s")

    def metrics(self) -> str:
        return self._routes.answer("GET", "/metrics").body.decode()

    def kill(self) -> None:
        self._link.die()
        self._shell.stop()

    def close(self) -> None:
        self._shell.stop()


class ProcessDescheduler(Descheduler):
    """A child process: ours, or a command line in which `{kubeconfig}`, `{config}` and `{port}` stand for those."""

    def __init__(self, name: str, kubeconfig: Path, configuration: Configuration, folder: Path) -> None:
        self._name, self._kubeconfig = name, kubeconfig
        self._config, self._log = folder / "descheduler.yaml", folder / "descheduler.log"
        completed = dict(configuration)
        if name != OURS:
            completed = {
                "clientConnection": {"kubeconfig": str(kubeconfig)}, "leaderElection": {"leaderElect": False},
                **configuration,
            }  # fmt: skip
        self._config.write_text(yaml.safe_dump(completed))
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._cluster: Cluster | None = None

    def start(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.start_again()

    def start_again(self) -> None:
        self._port = free_port()
        words = {"kubeconfig": self._kubeconfig, "config": self._config, "port": self._port}
        if self._name == OURS:
            command = [sys.executable, "-m", "seatrial.scheduler.descheduler", "--kubeconfig", str(self._kubeconfig),
                       "--config", str(self._config), "--port", str(self._port)]  # fmt: skip
        else:
            command = [word.format(**words) for word in shlex.split(self._name)]
            if not command or not Path(command[0]).is_file():
                raise UsageError(
                    f"no descheduler {self._name!r}: expected {OURS} or a command line with a binary's path"
                )
        before = len(self._read())
        with self._log.open("ab") as sink:
            self._process = subprocess.Popen(  # noqa: S603 a list of words, no shell
                command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, process_group=0,
                preexec_fn=die_with_parent,  # noqa: PLW1509 one call into libc, which is loaded
            )  # fmt: skip
        if self._name != OURS or self._cluster is None:
            return

        def settled() -> bool:
            return READY_LINE in self._read()[before:] or (
                self._process is not None and self._process.poll() is not None
            )

        self._cluster.wait(settled, within=START_WITHIN)
        if READY_LINE not in self._read()[before:]:
            raise SubjectError("the descheduler did not start\n" + self._read()[before:][-4000:])

    def _read(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def metrics(self) -> str:
        answer = ask(f"http://127.0.0.1:{self._port}", "GET", "/metrics")
        return answer.body.decode() if answer.code == 200 else ""

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        if self._process is not None:
            stop(self._process)


@contextmanager
def open_descheduler(name: str, cluster: Cluster, configuration: Configuration) -> Iterator[Descheduler]:
    """Start the descheduler `name` ("": ours, in this process if the cluster is there too) on `cluster`.

    Raises:
        UsageError: no such descheduler, or a configuration that it cannot use.
        SubjectError: it did not start.
    """
    with ExitStack() as cleanup:
        if not name and Capability.VIRTUAL_TIME in cluster.capabilities:
            inside = InProcessDescheduler(cluster, configuration)
            cleanup.callback(inside.close)
            yield inside
            return
        if cluster.endpoint is None:
            raise UsageError(
                f"descheduler {name!r} is a process, and cluster {cluster.name!r} has no address for processes"
            )
        folder = cleanup.enter_context(private_folder())
        process = ProcessDescheduler(name or OURS, cluster.endpoint.kubeconfig, configuration, folder)
        cleanup.callback(process.close)
        process.start(cluster)
        yield process
