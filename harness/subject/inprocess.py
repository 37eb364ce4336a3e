"""Our own scheduler in this process, on the cluster's simulated time: the one place that knows `scheduler.app`."""

import logging
from types import TracebackType
from typing import Self

from harness.clusters.protocol import Cluster
from harness.errors import SubjectError
from harness.subject.protocol import IN_PROCESS, Subject
from scheduler.app import build_shell

LOG_LINES = 2000


class _Kept(logging.Handler):
    """Keeps the last lines that the scheduler logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.setFormatter(logging.Formatter("%(levelname).1s %(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))
        del self.lines[:-LOG_LINES]


class InProcess(Subject):
    """Runs while entered."""

    name = IN_PROCESS
    version = "this checkout"

    def __init__(self, cluster: Cluster, *, seed: int = 0) -> None:
        self._cluster = cluster
        self._shell = build_shell(cluster.transport, cluster.clock, seed=seed)
        self._kept = _Kept()

    def __enter__(self) -> Self:
        logging.getLogger("scheduler").addHandler(self._kept)
        self._shell.start()
        if not self._cluster.wait(lambda: self._shell.ready, within=60):
            self.__exit__(None, None, None)
            raise SubjectError("the scheduler did not see the whole cluster within 60 s\n" + self.log())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shell.stop()
        logging.getLogger("scheduler").removeHandler(self._kept)

    def log(self) -> str:
        return "\n".join(self._kept.lines)

    def check(self) -> None:
        if not self._shell.ready:
            raise SubjectError("the scheduler in this process has stopped\n" + self.log())
