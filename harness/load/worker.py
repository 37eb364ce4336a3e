"""A worker of a load whose master is another process, perhaps on another machine: Locust's WorkerRunner.

`python -m seatrial.harness.load.worker FOLDER MASTER-HOST MASTER-PORT KUBECONFIG`; an empty KUBECONFIG is the pod's own
account. The master's plan is written to the folder as the settings of a load process, and then the Locust file runs
here as it does beside `seatrial.harness.load.run`.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gevent
import locust
import msgspec
from locust.env import Environment

from seatrial.harness.errors import UsageError
from seatrial.harness.load.messages import FILE, FORWARDED, GO, HELLO, PLAN, POLL_INTERVAL, READY, REFUSAL
from seatrial.harness.load.settings import BESIDE, WORKER_VARIABLE, StartSignal, WorkerSettings
from seatrial.harness.source import source_digest


class Worker:
    """The part of the load that runs here."""

    def __init__(self, environment: Environment, folder: Path, kubeconfig: str) -> None:
        self._environment, self._folder, self._kubeconfig = environment, folder, kubeconfig
        self._part = 0
        self.failure = "the master ended before the load was complete"  # empty: the result was sent

    def plan(self, msg: Any, **_: Any) -> None:
        """Take over the master's settings, with the files that they name, and tell it that users can come."""
        settings = msg.data["worker"]["settings"]
        for name, (file, content) in msg.data["files"].items():
            path = self._folder / Path(file).name
            path.write_bytes(content)
            settings[name] = str(path)
        own = {"kubeconfig": self._kubeconfig, "folder": str(self._folder)}
        worker = msgspec.convert(msg.data["worker"] | own, WorkerSettings)
        self._part = worker.part
        path = self._folder / "worker"
        path.write_bytes(msgspec.json.encode(worker))
        os.environ[WORKER_VARIABLE] = str(path)
        try:
            self._join(worker.namespace)
        except (OSError, UsageError) as error:
            self.end(f"the cluster of this worker: {error}")

    def _join(self, namespace: str) -> None:
        """
        Raises:
            OSError: the cluster does not answer.
            UsageError: it is not the master's.
        """
        from seatrial.harness.load import locustfile, users_beside

        answer = locustfile.get(f"/api/v1/namespaces/{namespace}")
        if answer.status != 200:
            raise UsageError(
                f"{locustfile.ACCESS.url} answered {answer.status} for the master's namespace {namespace};"
                " expected the cluster of the master, and the right to see it"
            )
        beside = [getattr(users_beside, BESIDE[name]) for name in locustfile.WORKER.settings.also]
        self._environment.user_classes = [locustfile.PodUser, *beside]
        self._environment.runner.send_message(READY)

    def go(self, msg: Any, **_: Any) -> None:
        """The clocks of two machines differ: the start is that of the message, whose way counts as no time."""
        start = StartSignal(time.monotonic() + msg.data["seconds"])
        unfinished = self._folder / "go.new"
        unfinished.write_bytes(msgspec.json.encode(start))
        unfinished.replace(self._folder / "go")

    def refusal(self, msg: Any, **_: Any) -> None:
        self.end(msg.data["reason"])

    def end(self, failure: str) -> None:
        """End this process with a failure. The master hears of it at once, and not by missing heartbeats."""
        self.failure = failure
        self._environment.runner.send_message("quit")
        self._environment.runner.greenlet.kill(block=False)

    def forward(self) -> None:
        """Send each file of the load process as it changes; the result is the last."""
        versions: dict[str, int] = {}
        while self.failure:
            for kind in FORWARDED:
                path = self._folder / f"{kind}-{self._part}"
                version = path.stat().st_mtime_ns if path.exists() else 0
                if version != versions.get(kind, 0):
                    versions[kind] = version
                    self._environment.runner.send_message(FILE, {"kind": kind, "content": path.read_bytes()})
                    if kind == "part":
                        self.failure = ""
            gevent.sleep(POLL_INTERVAL)


def main(arguments: Sequence[str]) -> str | None:
    """Work until the master ends this process, or SIGTERM; returns why the load is not complete."""
    folder, host, port, kubeconfig = arguments
    environment = Environment(events=locust.events)
    try:
        runner = environment.create_worker_runner(host, int(port))
    except ConnectionError:
        return f"no master of a load answers at {host}:{port}"
    worker = Worker(environment, Path(folder), kubeconfig)
    gevent.signal_handler(signal.SIGTERM, worker.end, "it was ended")
    listeners: dict[str, Callable[..., None]] = {PLAN: worker.plan, REFUSAL: worker.refusal, GO: worker.go}
    for kind, listener in listeners.items():
        runner.register_message(kind, listener)
    runner.send_message(HELLO, {"name": socket.gethostname(), "source": source_digest()})
    forwarding = gevent.spawn(worker.forward)
    runner.greenlet.join()
    forwarding.kill()
    return worker.failure or None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
