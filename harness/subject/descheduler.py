"""The descheduler under test: ours in this process on simulated time, ours as a process, or another binary."""

import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from seatrial.harness.clusters.fault_injection.proxy_process import TroubledWay
from seatrial.harness.clusters.fault_injection.transport import FaultyTransport, Link
from seatrial.harness.clusters.protocol import Capability, Cluster
from seatrial.harness.errors import NotStarted, SubjectError, UsageError
from seatrial.harness.processes import START_WITHIN, start_child, stop
from seatrial.harness.subject.foreign import binary_words
from seatrial.harness.subject.services import ask, free_port
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.transport import Response
from seatrial.scheduler.descheduler.app import ConfigError, build_descheduler, build_routes, load

READY_LINE = "descheduler synced"
ANSWERS_WITHIN = 20.0  # seconds in which a binary must end, or its health port must answer
LAST_CHARACTERS = 4000  # of the log, in an error
OURS = "seatrial"
PORT = "{port}"
Configuration = Mapping[str, Any]
_NUMBERS = count()  # a name of its own in leader elections for each descheduler in this process


def check_file(config: Path) -> None:
    """
    Raises:
        UsageError: the file is no DeschedulerConfiguration that our descheduler can use.
    """
    try:
        load(config)
    except ConfigError as error:
        raise UsageError(f"--descheduler-config {config}: {error}") from error


class Descheduler(ABC):
    """A running descheduler."""

    @abstractmethod
    def metrics(self) -> str:
        """Its metrics in text format; "" if it serves none."""

    def log(self) -> str:
        """What it has logged; "" if that is part of this process's log."""
        return ""

    @abstractmethod
    def troubled(self) -> AbstractContextManager[Link]:
        """Its connection to the API server, which can be made to fail; a process is started again for it."""

    @abstractmethod
    def kill(self) -> None:
        """Stop it without cleanup."""

    @abstractmethod
    def start_again(self) -> None:
        """After `kill`: a new one, whose state comes from the API server alone.

        Raises:
            NotStarted: it did not start.
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
        identity = f"in-process-{next(_NUMBERS)}"
        try:
            self._descheduler = build_descheduler(self._link, self._cluster.clock, self._configuration, identity)
        except ConfigError as error:
            raise UsageError(f"descheduler: {error}") from error
        shell = self._descheduler.shell
        self._routes = build_routes(shell)
        self._descheduler.start()
        if not self._cluster.wait(lambda: shell.ready, within=START_WITHIN):
            raise SubjectError(f"the descheduler did not see the whole cluster within {START_WITHIN:.0f} s")

    def metrics(self) -> str:
        return self._routes.answer("GET", "/metrics").body.decode()

    @property
    def link(self) -> Link:
        """Its connection to the API server, which can be made to fail; another one after `start_again`."""
        return self._link

    @contextmanager
    def troubled(self) -> Iterator[Link]:
        link = self._link
        try:
            yield link
        finally:
            link.heal()

    def kill(self) -> None:
        self._link.die()
        self._descheduler.shell.stop()

    def close(self) -> None:
        self._descheduler.stop()


class ProcessDescheduler(Descheduler):
    """A child process: ours, or a binary's command line (`command_of`)."""

    def __init__(self, name: str, kubeconfig: Path, configuration: Configuration, folder: Path) -> None:
        self._name, self._kubeconfig, self._configuration = name, kubeconfig, configuration
        self._config, self._log = folder / "descheduler.yaml", folder / "descheduler.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._cluster: Cluster | None = None

    def _write_config(self) -> None:
        completed = dict(self._configuration)
        if self._name != OURS:
            completed = {
                "leaderElection": {"leaderElect": False},
                "healthzBindAddress": f"127.0.0.1:{self._port}",
                "metricsBindAddress": f"127.0.0.1:{self._port}",
                **self._configuration,
                "clientConnection": {"kubeconfig": str(self._kubeconfig)},
            }
        self._config.write_text(yaml.safe_dump(completed))

    def start(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.start_again()

    def start_again(self) -> None:
        self._port = free_port()
        self._write_config()
        if self._name == OURS:
            command = [
                sys.executable,
                "-m",
                "seatrial.scheduler.descheduler",
                "--kubeconfig",
                str(self._kubeconfig),
                "--config",
                str(self._config),
                "--port",
                str(self._port),
            ]
        else:
            values = {"{kubeconfig}": self._kubeconfig, "{config}": self._config, PORT: self._port}
            command = [_filled(word, values) for word in command_of(self._name)]
        before = len(self.log())
        with self._log.open("ab") as sink:
            self._process = start_child(command, stdout=sink, stderr=sink)
        if self._cluster is None:
            return
        process = self._process

        def ended() -> bool:
            return process.poll() is not None

        def ready() -> bool:
            if self._name == OURS:
                return READY_LINE in self.log()[before:]
            return self._ask("/healthz").code == 200

        self._cluster.wait(lambda: ready() or ended(), within=START_WITHIN if self._name == OURS else ANSWERS_WITHIN)
        if (self._name == OURS and not ready()) or process.poll() not in {None, 0}:
            raise NotStarted(f"descheduler {self._name!r} did not start\n" + self.log()[before:][:LAST_CHARACTERS])

    @contextmanager
    def troubled(self) -> Iterator[Link]:
        own = self._kubeconfig
        with TroubledWay(own) as way:
            self._connect(way.offered)
            try:
                yield way
            finally:
                self._connect(own)

    def _connect(self, kubeconfig: Path) -> None:
        """Start again with another way to the API server."""
        self.kill()
        self._kubeconfig = kubeconfig
        self.start_again()

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def _ask(self, path: str) -> Response:
        return ask(f"http://127.0.0.1:{self._port}", "GET", path)

    def metrics(self) -> str:
        answer = self._ask("/metrics")
        return answer.body.decode() if answer.code == 200 else ""

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        if self._process is not None:
            stop(self._process)


def command_of(text: str) -> list[str]:
    """A command line given by the user as a list of words; `{kubeconfig}`, `{config}` and `{port}` stay in it.

    `--config {config}` is added if it is missing. The configuration that it gets names the cluster and a free port,
    because koord-descheduler has no flag for a kubeconfig, and its flag for a port has no effect beside `--config`.

    Raises:
        UsageError: its first word is no executable file, or a quote is left open.
    """
    words = binary_words(text, "descheduler", f"{OURS}, or the path of a binary with its flags")
    return words if any("{config}" in word for word in words) else [*words, "--config", "{config}"]


def _filled(word: str, values: Mapping[str, object]) -> str:
    for name, value in values.items():
        word = word.replace(name, str(value))
    return word


@contextmanager
def open_descheduler(name: str, cluster: Cluster, configuration: Configuration) -> Iterator[Descheduler]:
    """Start the descheduler `name` ("": ours, in this process if the cluster is there too) on `cluster`.

    Raises:
        UsageError: no such descheduler, or a configuration that it cannot use.
        NotStarted: it did not start.
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
