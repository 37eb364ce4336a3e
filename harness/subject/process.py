"""The scheduler under test as a child process: start, check, stop, log. It ends when this process ends."""

import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from seatrial.harness.clusters.fault_injection.proxy_process import TroubledWay
from seatrial.harness.clusters.fault_injection.transport import Link
from seatrial.harness.errors import SubjectError
from seatrial.harness.processes import START_WITHIN, start_child, stop
from seatrial.harness.subject.protocol import OURS, Subject
from seatrial.harness.subject.services import PORT, ask, free_port
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.transport import Response

READY_LINE = "shell synced"  # logged by our scheduler when its informers have synced
LAST_LINES = 30
PORT_TAKEN = "cannot listen"  # logged by our scheduler if another process took the port
TRIES = 3
MAX_CRASHES = 8  # in cases one after the other; then it is not started again
_GO_CRASH = ("panic: ", "fatal error: ")  # begin the line before the stacks of a Go program
ALONE = 5.0  # seconds that a program stays up without a case's objects, if it panicked in its first case


def fault_lines(log: str) -> list[str]:
    """The lines of our scheduler's or descheduler's log about exceptions that cost one object its work."""
    return [line for line in log.splitlines() if " seatrial.scheduler.api.faults fault id=" in line]


def our_command(kubeconfig: Path, seed: int, config: Path | None = None) -> list[str]:
    """Our own scheduler, by the interpreter we run on; `config` is a KubeSchedulerConfiguration file."""
    command = [sys.executable, "-m", "seatrial.scheduler", "--kubeconfig", str(kubeconfig), "--seed", str(seed)]
    return [*command, "--config", str(config)] if config is not None else command


class Worded(Protocol):
    """Words the command of a scheduler for a kubeconfig, with its own configuration or `other`."""

    def __call__(self, kubeconfig: Path, other: Path | None = None) -> list[str]: ...


class ProcessSubject(Subject):
    """Runs while entered."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        ways: tuple[Path, Worded] | None = None,
        log_file: Path | None = None,
        services: str = "",
    ) -> None:
        """`ways` are the kubeconfig that `command` names and how to word the command for another one; who wants no
        trouble on the way need not say it.

        `services` is the address of its debug and services port. `{port}` there and in `command` is a free port,
        another one at every start.
        """
        self.name = name
        self.version = "this checkout" if name == OURS else Path(command[0]).name
        self._command, self._ways = list(command), ways
        self._services, self._port = services, 0
        self._log_file = log_file
        self._cleanup = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._begin = 0  # bytes of the file that are from before: it may be in the folder of an earlier run
        self._said_before = 0  # how much of the log is from before the last start
        self._killed = False  # by `kill`, and not started again
        self._was_up = False  # at the end of a case; a program that never was has wrong flags
        self._faults = 0  # in its log, told by `check`
        self._crashes = 0  # in cases one after the other

    def __enter__(self) -> Self:
        if self._log_file is None:
            self._log_file = self._cleanup.enter_context(private_folder()) / "log"
        self._begin = self._log_file.stat().st_size if self._log_file.exists() else 0
        try:
            self._start(self._log_file)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self, log_file: Path) -> None:
        for left in reversed(range(TRIES)):
            self._port = free_port()
            self._launch(log_file)
            if self.name != OURS:
                return
            try:
                self._wait_until_ready()
            except SubjectError:
                if not left or PORT_TAKEN not in self.log()[self._said_before :]:
                    raise
                self._said_before = len(self.log())
            else:
                return

    def _launch(self, log_file: Path) -> None:
        with log_file.open("ab") as sink:
            try:
                self._process = start_child(
                    [word.replace(PORT, str(self._port)) for word in self._command], stdout=sink, stderr=sink
                )
            except OSError as error:
                raise SubjectError(f"{self._command[0]}: cannot be started: {error.strerror}") from error

    @property
    def services_url(self) -> str:
        """The address of its debug and services port; empty if it is unknown."""
        return self._services.replace(PORT, str(self._port))

    def ask(self, method: str, path: str, body: bytes = b"") -> Response | None:
        return ask(self.services_url, method, path, body) if self._services else None

    def kill(self) -> None:
        assert self._process is not None
        self._killed = True
        self._process.kill()
        self._process.wait()

    def start_again(self) -> None:
        assert self._log_file is not None
        self._said_before = len(self.log())
        self._start(self._log_file)
        self._killed = False

    def ensure_started(self) -> None:
        if self._killed:
            self.start_again()
        elif not self.crash():
            self._was_up, self._crashes = True, 0
        elif self._crashes < MAX_CRASHES:
            if self._was_up:
                self.start_again()
            elif not self._stays_up_alone():
                return
            self._crashes += 1

    def _stays_up_alone(self) -> bool:
        """Start it again, and find out whether objects of the case made it panic or its own configuration does."""
        if not self._panic():
            return False
        self.start_again()
        assert self._process is not None
        try:
            self._process.wait(timeout=ALONE)
        except subprocess.TimeoutExpired:
            self._was_up = True
        return self._was_up

    def _panic(self) -> str:
        """The line that begins the report of a crashed Go program; empty without one."""
        lines = self.log()[self._said_before :].splitlines()
        return next((line for line in reversed(lines) if line.startswith(_GO_CRASH)), "")

    def crash(self) -> str:
        assert self._process is not None
        code = self._process.poll()
        if code is None or self._killed:
            return ""
        lines = self.log()[self._said_before :].splitlines()
        why = f": {self._panic()}" if self._panic() else ""
        last = "\n".join(lines[-LAST_LINES:])
        return f"subject {self.name!r} ended with status {code}{why}; its last log lines:\n{last}"

    @contextmanager
    def troubled(self) -> Iterator[Link]:
        kubeconfig, worded = self._known_ways()
        with TroubledWay(kubeconfig) as way, self._meanwhile(worded(way.offered)):
            yield way

    @contextmanager
    def configured(self, config: Path) -> Iterator[None]:
        kubeconfig, worded = self._known_ways()
        with self._meanwhile(worded(kubeconfig, config)):
            yield

    def _known_ways(self) -> tuple[Path, Worded]:
        if self._ways is None:
            raise SubjectError(f"subject {self.name!r}: no kubeconfig is known for it")
        return self._ways

    @contextmanager
    def _meanwhile(self, command: list[str]) -> Iterator[None]:
        """Started anew with another command, and in the end with its own."""
        kubeconfig, worded = self._known_ways()
        self._command = command
        try:
            self.kill()
            self.start_again()
            yield
        finally:
            self._command = worded(kubeconfig)
            self.kill()
            self.start_again()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            stop(self._process)
        self._cleanup.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def memory_mib(self) -> float:
        resident = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(resident) * resource.getpagesize() / (1 << 20)

    def log(self) -> str:
        if self._log_file is None or not self._log_file.exists():
            return ""
        with self._log_file.open("rb") as file:
            file.seek(self._begin)
            return file.read().decode(errors="replace")

    def check(self) -> None:
        self._check_runs()
        self.check_companions()
        faults = fault_lines(self.log())
        message, self._faults = self._faults, len(faults)
        if faults[message:]:
            raise SubjectError(
                f"subject {self.name!r} had faults, which its log explains:\n" + "\n".join(faults[message:])
            )

    def _check_runs(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise SubjectError(self.crash() or f"subject {self.name!r} was killed and not started again")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_WITHIN  # a real process: real time is the only one it has
        while READY_LINE not in self.log()[self._said_before :]:
            self._check_runs()
            if time.monotonic() > deadline:
                self.kill()  # so that the next case starts it again
                log = self.log()[self._said_before :]
                raise SubjectError(f"subject {self.name!r} was not ready within {START_WITHIN:.0f} s; its log:\n{log}")
            time.sleep(0.02)
