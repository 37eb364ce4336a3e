"""The agent's side of a keeper (keeper.py): one run of a program that ends when the agent does.

Everything about a run is in one folder: `plan.json` on the way in, `status.json` on the way out, the FIFOs `control`
and `events` (and `input`, where the program listens), and `log`. So an agent that comes back finds runs whose keepers
were told to wait for it.
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

KEEPER = Path(__file__).with_name("keeper.py")
STATUS = "status.json"
_SOON = 0.01  # seconds until a keeper that closed its end is looked at again
_CLOSE_WITHIN = 5.0


class Plan(msgspec.Struct, frozen=True):
    """What to run."""

    argv: list[str]
    env: dict[str, str]
    folder: str  # working directory
    log: str
    cgroups: list[str] = []
    owner: bool = True  # the groups hold this run and nothing else
    memory: int = 0  # bytes that each process may have of its own, where no group counts them together; 0: any
    cores: int = 0  # processors that the run may use, likewise
    linger: float = 0.0  # seconds that the run outlives its agent, so that another can take it up
    ends: list[int] = []  # descriptors to be the program's input and outputs, handed to the keeper; else the log is it
    stdin: bool = False  # the program's input is the FIFO `input` in the folder
    tty: bool = False  # the ends are a terminal; without `ends`, one that the keeper holds


class Status(msgspec.Struct, frozen=True):
    """What a keeper says of its run. Processes as pid and start time; moments in seconds since 1970."""

    keeper: tuple[int, int] = (0, 0)
    main: tuple[int, int] = (0, 0)
    started: float = 0.0
    running: bool = False  # the program itself has begun
    finished: float | None = None
    code: int | None = None
    error: str = ""  # why it could not begin
    oom: bool = False


class Kept:
    """A run that has begun. `changed` is called on the loop whenever `status` has changed, at last with `gone` set."""

    def __init__(self, folder: Path, clock: Clock, changed: Callable[[], object]) -> None:
        self.folder = folder
        self.gone = False  # nothing of it runs any more
        self.blocked = None  # whatever could stop it from beginning was looked at before
        self._clock, self._changed = clock, changed
        self._process: subprocess.Popen[bytes] | None = None
        self._control = self._events = -1
        self._loop = asyncio.get_running_loop()

    @classmethod
    def launch(cls, folder: Path, plan: Plan, clock: Clock, changed: Callable[[], object]) -> "Kept":
        """Start a keeper with `plan` in a new folder.

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
        # The reading ends are open before the writing ones: a writer that goes is then always noticed.
        listening = os.open(folder / "control", os.O_RDONLY | os.O_NONBLOCK)
        self._events = os.open(folder / "events", os.O_RDONLY | os.O_NONBLOCK)
        self._control = os.open(folder / "control", os.O_WRONLY | os.O_NONBLOCK)
        telling = os.open(folder / "events", os.O_WRONLY | os.O_NONBLOCK)
        words = os.open(folder / "keeper.log", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            self._process = subprocess.Popen(  # noqa: S603 our own interpreter and script
                [sys.executable, "-I", "-S", str(KEEPER), str(folder)],
                stdin=listening, stdout=telling, stderr=words, pass_fds=sorted(set(plan.ends)),
            )  # fmt: skip
        except BaseException:
            self._let_go()
            raise
        finally:
            for descriptor in (listening, telling, words):
                os.close(descriptor)
        self._loop.add_reader(self._events, self._readable)
        return self

    @classmethod
    def take_up(cls, folder: Path, clock: Clock, changed: Callable[[], object]) -> "Kept":
        """Take up a run that an earlier agent had started; `gone` if there is nothing left of it."""
        self = cls(folder, clock, changed)
        status = self.status
        alive = status.keeper[1] and started_at(status.keeper[0]) == status.keeper[1]
        try:
            if not alive or status.finished is not None:
                raise FileNotFoundError
            self._control = os.open(folder / "control", os.O_WRONLY | os.O_NONBLOCK)
            self._events = os.open(folder / "events", os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            self._let_go()
            self.gone = True
            end_leftovers(status)
            return self
        self._loop.add_reader(self._events, self._readable)
        return self

    @property
    def status(self) -> Status:
        """What the keeper said last; nothing yet right after the launch."""
        found = read_status(self.folder / STATUS)
        if self.gone and found.finished is None and not found.error:
            return msgspec.structs.replace(found, error=f"its keeper is gone {self._last_words()}".rstrip())
        return found

    def _last_words(self) -> str:
        try:
            return (self.folder / "keeper.log").read_text(encoding="utf-8", errors="replace")[-500:]
        except OSError:
            return ""

    def stop(self, grace: float) -> None:
        """Ask the program to end, and kill all of it after `grace` seconds; at once if that is 0."""
        self._order(f"stop {grace}")

    def resize(self, columns: int, rows: int) -> None:
        """The terminal that the keeper holds has another size."""
        self._order(f"size {columns} {rows}")

    def end_input(self) -> None:
        """Nobody will write to the program's input any more."""
        self._order("eof")

    def _order(self, line: str) -> None:
        if self._control >= 0:
            with contextlib.suppress(OSError):  # the keeper has just ended by itself
                os.write(self._control, f"{line}\n".encode())

    def close(self) -> None:
        """End it at once and wait for that; `changed` is not called any more."""
        self.stop(0.0)
        if self._events >= 0:
            self._loop.remove_reader(self._events)
            while select.select([self._events], [], [], _CLOSE_WITHIN)[0]:
                if not os.read(self._events, 4096):
                    break
        if self._process is not None:
            try:
                self._process.wait(_CLOSE_WITHIN)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._let_go()
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
        self._let_go()
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

    def _let_go(self) -> None:
        for descriptor in (self._control, self._events):
            if descriptor >= 0:
                os.close(descriptor)
        self._control = self._events = -1


def read_status(path: Path) -> Status:
    """What a keeper wrote; nothing yet if there is no such file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Status)
    except (OSError, msgspec.DecodeError):
        return Status()


def end_leftovers(status: Status) -> None:
    """Kill what a keeper that was itself killed could not: the session of its program."""
    if status.finished is not None or not status.main[0]:
        return
    leader, start = status.main
    if started_at(leader) not in {0, start}:
        return  # the number belongs to somebody else by now, so that session is long over
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == leader and int(fields[19]) >= start:
                os.kill(int(folder.name), signal.SIGKILL)
