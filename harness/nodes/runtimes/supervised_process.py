"""The agent's side of a supervisor (supervisor.py): one run of a program that ends when the agent ends.

Everything about a run is in one folder: the input `plan.json`, the output `status.json`, the FIFOs `control` and
`events` (and `input`, if the program has an input), and `log`. An agent that restarts finds the runs there whose
supervisors were started with `Plan.linger`.
"""

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from seatrial.harness.processes import started_at
from seatrial.scheduler.api.clock import Clock

SUPERVISOR = Path(__file__).with_name("supervisor.py")
STATUS = "status.json"
_SOON = 0.01  # seconds until the next check of a supervisor that closed its end
_CLOSE_WITHIN = 5.0


class Plan(msgspec.Struct, frozen=True):
    """What to run."""

    argv: list[str]
    env: dict[str, str]
    folder: str  # working directory
    log: str
    cgroups: list[str] = []
    owner: bool = True  # the groups contain this run only
    memory: int = 0  # limit of each process in bytes, for runs without control groups; 0: no limit
    cores: int = 0  # processors that the run may use, for runs without control groups; 0: all
    linger: float = 0.0  # seconds that the run outlives its agent, so that its successor can take it over
    ends: list[int] = []  # descriptors of the program's input and outputs; without them the outputs go to the log
    stdin: bool = False  # the program's input is the FIFO `input` in the folder
    tty: bool = False  # the ends are a terminal; without `ends`, the supervisor makes one


class Status(msgspec.Struct, frozen=True):
    """What a supervisor wrote about its run. Processes are (pid, start time); times are seconds since 1970."""

    supervisor: tuple[int, int] = (0, 0)
    main: tuple[int, int] = (0, 0)
    started: float = 0.0
    running: bool = False  # the program has been started
    finished: float | None = None
    code: int | None = None
    error: str = ""  # why it could not be started
    oom: bool = False


class SupervisedProcess:
    """A started run. `changed` is called on the loop whenever `status` has changed; the last time `gone` is set."""

    def __init__(self, folder: Path, clock: Clock, changed: Callable[[], object]) -> None:
        self.folder = folder
        self.gone = False  # none of its processes runs any more
        self.blocked = None  # what could prevent the start was checked before
        self._clock, self._changed = clock, changed
        self._process: subprocess.Popen[bytes] | None = None
        self._control = self._events = -1
        self._loop = asyncio.get_running_loop()

    @classmethod
    def launch(cls, folder: Path, plan: Plan, clock: Clock, changed: Callable[[], object]) -> "SupervisedProcess":
        """Start a supervisor with `plan` in a new folder.

        Raises:
            OSError: the folder cannot be written or no process can be made.
        """
        folder.mkdir(parents=True, mode=0o700)
        Path(plan.folder).mkdir(exist_ok=True)
        descriptor = os.open(folder / "plan.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(plan))
        for name in ("control", "events", *(("input",) if plan.stdin else ())):
            os.mkfifo(folder / name, 0o600)
        self = cls(folder, clock, changed)
        # The reading ends are opened first: then the end of a writer is always noticed.
        listening = os.open(folder / "control", os.O_RDONLY | os.O_NONBLOCK)
        self._events = os.open(folder / "events", os.O_RDONLY | os.O_NONBLOCK)
        self._control = os.open(folder / "control", os.O_WRONLY | os.O_NONBLOCK)
        telling = os.open(folder / "events", os.O_WRONLY | os.O_NONBLOCK)
        log_file = os.open(folder / "supervisor.log", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(SUPERVISOR), str(folder)],
                stdin=listening,
                stdout=telling,
                stderr=log_file,
                pass_fds=sorted(set(plan.ends)),
            )
        except BaseException:
            self._close_ends()
            raise
        finally:
            for descriptor in (listening, telling, log_file):
                os.close(descriptor)
        self._loop.add_reader(self._events, self._readable)
        return self

    @classmethod
    def take_up(cls, folder: Path, clock: Clock, changed: Callable[[], object]) -> "SupervisedProcess":
        """Take over a run that an earlier agent started; `gone` is set if it has ended."""
        self = cls(folder, clock, changed)
        status = self.status
        alive = status.supervisor[1] and started_at(status.supervisor[0]) == status.supervisor[1]
        try:
            if not alive or status.finished is not None:
                raise FileNotFoundError
            self._control = os.open(folder / "control", os.O_WRONLY | os.O_NONBLOCK)
            self._events = os.open(folder / "events", os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            self._close_ends()
            self.gone = True
            end_leftovers(status)
            return self
        self._loop.add_reader(self._events, self._readable)
        return self

    @property
    def status(self) -> Status:
        """What the supervisor wrote last; the defaults right after the launch."""
        status = read_status(self.folder / STATUS)
        if self.gone and status.finished is None and not status.error:
            return msgspec.structs.replace(status, error=f"its supervisor has ended {self._log_tail()}".rstrip())
        return status

    def _log_tail(self) -> str:
        try:
            return (self.folder / "supervisor.log").read_text(encoding="utf-8", errors="replace")[-500:]
        except OSError:
            return ""

    def stop(self, grace: float) -> None:
        """Send SIGTERM, and kill all processes after `grace` seconds; at once if that is 0."""
        self._order(f"stop {grace}")

    def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal that the supervisor holds."""
        self._order(f"size {columns} {rows}")

    def end_input(self) -> None:
        """Close the program's input."""
        self._order("eof")

    def _order(self, line: str) -> None:
        if self._control >= 0:
            with contextlib.suppress(OSError):  # the supervisor has just ended
                os.write(self._control, f"{line}\n".encode())

    def close(self) -> None:
        """Kill it and wait for its end; `changed` is not called any more."""
        self.stop(0.0)
        if self._events >= 0:
            self._loop.remove_reader(self._events)
            poller = select.poll()  # `select.select` takes no descriptor above 1023, and each container needs three
            poller.register(self._events, select.POLLIN)
            while poller.poll(_CLOSE_WITHIN * 1000):
                if not os.read(self._events, 4096):
                    break
        if self._process is not None:
            try:
                self._process.wait(_CLOSE_WITHIN)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._close_ends()
        if not self.gone:
            end_leftovers(self.status)
        self.gone = True

    def _readable(self) -> None:
        try:
            data = os.read(self._events, 4096)
        except BlockingIOError:
            return
        if data:
            self._changed()
            return
        self._loop.remove_reader(self._events)
        self._close_ends()
        self._ended()

    def _ended(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._clock.call_later(_SOON, self._ended)
            return
        if self.gone:
            return  # closed meanwhile
        self.gone = True
        end_leftovers(self.status)
        self._changed()

    def _close_ends(self) -> None:
        for descriptor in (self._control, self._events):
            if descriptor >= 0:
                os.close(descriptor)
        self._control = self._events = -1


def read_status(path: Path) -> Status:
    """What a supervisor wrote; the defaults if there is no such file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Status)
    except (OSError, msgspec.DecodeError):
        return Status()


def end_leftovers(status: Status) -> None:
    """Kill the session of a program whose supervisor was killed."""
    if status.finished is not None or not status.main[0]:
        return
    leader, start = status.main
    if started_at(leader) not in {0, start}:
        return  # the pid was reused, so the session has ended
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == leader and int(fields[19]) >= start:
                os.kill(int(folder.name), signal.SIGKILL)
