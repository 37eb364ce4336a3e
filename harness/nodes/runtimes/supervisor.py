"""A container's supervisor: a small process between the node agent and the container's program.

A bare interpreter runs it as a script (standard library only, because it has to start fast). Its standard input is a
FIFO to which the agent writes orders and which the agent holds open: when the agent has ended, for whatever reason, the
FIFO reports end of file, and the supervisor ends the container. Its standard output is a FIFO that gets one byte
whenever `status.json` has changed; it closes when the supervisor has ended. The supervisor is the subreaper of all
processes that the container starts, so it also finds those that left the process group. For a container with a terminal
it holds the other end of the terminal: output goes to the log, and data from the FIFO `input` is written to the
terminal.

    supervisor.py FOLDER        FOLDER/plan.json describes the program; see `Plan` in supervised_process.py
"""
# `os` and `try` instead of pathlib and contextlib, whose import takes longer than everything else here.
# ruff: noqa: PTH105, PTH106, PTH108, PTH119, PTH120, PTH123, PTH208, SIM105

import ctypes
import json
import os
import select
import signal
import sys
import time
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
CANNOT_START = 128  # the exit code that Kubernetes shows for it
ROUND = 0.05  # seconds between two kills of the remaining processes
END_OF_FILE = b"\x04"  # what a terminal sends for the end of the input

_libc = ctypes.CDLL(None, use_errno=True)


class Supervisor:
    """One run of one container."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(f"{folder}/plan.json", encoding="utf-8") as file:
            self.plan: dict[str, Any] = json.load(file)
        os.unlink(f"{folder}/plan.json")  # an environment may hold secrets
        self.status: dict[str, Any] = {"supervisor": [os.getpid(), started_at(os.getpid())]}
        self.main = 0
        self.kill_at: float | None = None  # moment of time.monotonic()
        self.alone_since: float | None = None
        self.orders = b""
        self.input = -1  # the writing end of the program's input, which keeps it open between two clients
        self.terminal: Terminal | None = None

    def run(self) -> None:
        """Start the program, wait for its end, and end all its processes."""
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waker)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self._start()
        poller = select.poll()
        poller.register(wake, select.POLLIN)
        poller.register(0, select.POLLIN)
        while self.main:
            if self.terminal is not None:
                self.terminal.watch(poller)
            seen = dict(poller.poll(self._patience()))
            if wake in seen:
                os.read(wake, 4096)
            orders = seen.get(0, 0)
            if self.terminal is not None and self.terminal.take(seen):
                orders = pending(0)  # what the agent ordered before it wrote that input is carried out first
            self._listen(poller, orders)
            if self.terminal is not None:
                self.terminal.move(poller, seen)
            self._reap()
            if self.main and self.kill_at is not None and time.monotonic() >= self.kill_at:
                self._kill()
                self.kill_at = time.monotonic() + ROUND
        self._end_the_rest()
        if self.terminal is not None:
            self.terminal.drain()
        self.status["oom"] = self._out_of_memory()
        if self.alone_since is not None and self.plan["owner"]:
            self._remove_groups()
        self.status["finished"] = time.time()
        self._tell()

    def _signalled(self, number: int, _frame: object) -> None:
        if number != signal.SIGCHLD:
            self.kill_at = time.monotonic()

    def _patience(self) -> float | None:
        """Milliseconds until the next action that no event announces; None if there is none."""
        if self.alone_since is not None:
            return ROUND * 1000
        return None if self.kill_at is None else max(0.0, self.kill_at - time.monotonic()) * 1000

    # -- start --------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        ends, opened = self._ends()
        message, say = os.pipe2(os.O_CLOEXEC)
        own = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become(own, ends, say)  # does not come back
        for descriptor in (say, *opened):
            os.close(descriptor)
        self.main = pid
        self.status["main"] = [pid, started_at(pid)]
        self.status["started"] = time.time()
        self._tell()
        error = os.read(message, 4096)  # empty once the program has taken over
        os.close(message)
        if error:
            self.status["error"] = error.decode(errors="replace")
            self.status["code"] = CANNOT_START
        else:
            self.status["running"] = True
        self._tell()

    def _ends(self) -> tuple[list[int], list[int]]:
        """The descriptors of the program's input and outputs, and those to close here once the program has them."""
        value = self.plan["ends"]
        if value:  # the agent's descriptors, for a command whose input and output it handles itself
            for descriptor in set(value):
                os.set_inheritable(descriptor, False)
            return value, list(set(value))
        out = os.open(self.plan["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        source = f"{self.folder}/input" if self.plan["stdin"] else os.devnull
        if self.plan["tty"]:
            # Opened for writing too, so that the pipe does not report end of file between two clients.
            incoming = os.open(source, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self.terminal = Terminal(out, incoming, listens=self.plan["stdin"])
            return [self.terminal.other] * 3, [self.terminal.other]
        incoming = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(incoming, True)
        if self.plan["stdin"]:
            self.input = os.open(source, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        return [incoming, out, out], [incoming, out]

    def _become(self, supervisor: int, ends: list[int], say: int) -> NoReturn:
        try:
            os.setsid()
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != supervisor:
                os._exit(CANNOT_START)  # the supervisor ended before PR_SET_PDEATHSIG was set
            for path in self.plan["cgroups"]:
                with open(f"{path}/cgroup.procs", "w", encoding="ascii") as file:
                    file.write(str(os.getpid()))
            self._limit()
            for number, descriptor in enumerate(ends):
                os.dup2(descriptor, number)
            if self.plan["tty"]:
                import fcntl
                import termios

                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            os.chdir(self.plan["folder"])
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            os.umask(0o022)
            os.execvpe(self.plan["argv"][0], self.plan["argv"], self.plan["env"])  # noqa: S606 the program of the plan
        except OSError as error:
            name = self.plan["argv"][0]  # for a program that was searched, the last path tried is not useful
            where = os.fsdecode(error.filename) if error.filename and "/" in name else name
            os.write(say, f"{where}: {error.strerror}".encode())
        finally:
            os._exit(CANNOT_START)

    def _limit(self) -> None:
        """Limits without control groups: the memory of each process, and the number of processors."""
        if self.plan["memory"]:
            import resource  # imported here, because most runs do not need it

            resource.setrlimit(resource.RLIMIT_DATA, (self.plan["memory"], self.plan["memory"]))
        allowed = sorted(os.sched_getaffinity(0))
        if 0 < self.plan["cores"] < len(allowed):
            first = os.getpid() % len(allowed)  # spreads containers over the processors
            os.sched_setaffinity(0, (allowed * 2)[first : first + self.plan["cores"]])

    # -- orders -------------------------------------------------------------------------------------------------------

    def _listen(self, poller: select.poll, event: int) -> None:
        if self.alone_since is not None:
            event = pending(0)
            if not event or event & select.POLLIN:
                self.alone_since = None  # a new agent has opened the FIFO
                poller.register(0, select.POLLIN)
            elif time.monotonic() - self.alone_since >= self.plan["linger"] and self.kill_at is None:
                self.kill_at = time.monotonic()
        if not event:
            return
        data = os.read(0, 4096) if event & select.POLLIN else b""
        if not data:  # end of file: the agent has ended
            if self.alone_since is None:
                poller.unregister(0)
                self.alone_since = time.monotonic()
            return
        *lines, self.orders = (self.orders + data).split(b"\n")
        for line in lines:
            verb, *numbers = line.decode().split(" ")
            if verb == "stop":
                self._stop(float(numbers[0]))
            elif verb == "size" and self.terminal is not None:
                self.terminal.resize(int(numbers[0]), int(numbers[1]))
            elif verb == "eof":
                self._end_input()

    def _stop(self, grace: float) -> None:
        if grace > 0 and self.kill_at is None:
            self._signal_main(signal.SIGTERM)
        until = time.monotonic() + max(0.0, grace)
        self.kill_at = until if self.kill_at is None else min(self.kill_at, until)

    def _end_input(self) -> None:
        if self.terminal is not None:
            self.terminal.take_rest()
            self.terminal.typed += END_OF_FILE
        elif self.input >= 0:
            os.close(self.input)
            self.input = -1

    def _signal_main(self, number: int) -> None:
        try:
            os.kill(self.main, number)
        except ProcessLookupError:
            pass  # it has just ended; the next `_reap` finds it

    # -- end ----------------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.main = 0
                return
            if pid == 0:
                return
            if pid == self.main:
                self.main = 0
                code = os.waitstatus_to_exitcode(status)
                self.status.setdefault("code", code if code >= 0 else 128 - code)

    def _kill(self) -> None:
        for path in self.plan["cgroups"] if self.plan["owner"] else ():
            try:
                with open(f"{path}/cgroup.kill", "w", encoding="ascii") as file:
                    file.write("1")
            except OSError:
                continue  # version 1, or a kernel before 5.14: the processes are killed one by one
        group = self.status["main"][0]
        for pid in (-group, *children(os.getpid())):
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue

    def _end_the_rest(self) -> None:
        """End the processes that the container's first process left; orphans become children of this process."""
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                self._kill()
                time.sleep(0.002)

    def _out_of_memory(self) -> bool:
        for path in self.plan["cgroups"]:
            for name in ("memory.events", "memory.oom_control"):
                try:
                    with open(f"{path}/{name}", encoding="ascii") as file:
                        rows = dict(line.split() for line in file)
                except OSError:
                    continue
                if int(rows.get("oom_kill", "0")):
                    return True
        return False

    def _remove_groups(self) -> None:
        """Remove the groups that the agent would have removed, up to its own: nobody else does until the next one."""
        for group in self.plan["cgroups"]:
            path = group
            try:
                os.rmdir(path)
                while not os.path.basename(path).startswith("seatrial-"):
                    path = os.path.dirname(path)
                    os.rmdir(path)
            except OSError:
                continue  # another pod is in it

    def _tell(self) -> None:
        path = f"{self.folder}/status.json"
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(self.status, file)
        os.replace(f"{path}.new", path)
        try:
            os.write(1, b"\n")
        except (BrokenPipeError, BlockingIOError):
            pass  # no reader, or a reader that has not read the previous byte yet


class Terminal:
    """A container's terminal: copies output to the log and data from `incoming` to the program's input."""

    def __init__(self, log: int, incoming: int, *, listens: bool) -> None:
        self.log, self.incoming, self.listens = log, incoming, listens
        self.own, self.other = os.openpty()
        os.set_blocking(self.own, False)
        self.typed = b""  # input that the program has not taken yet
        self.shows = True

    def watch(self, poller: select.poll) -> None:
        """Register what to wait for; no further input while some is left to write."""
        if self.shows:
            poller.register(self.own, select.POLLIN | (select.POLLOUT if self.typed else 0))
        if self.listens:
            poller.register(self.incoming, 0 if self.typed else select.POLLIN)

    def take(self, seen: "dict[int, int]") -> bool:
        """Read one piece of the input if there is some; returns whether there was."""
        if not seen.get(self.incoming, 0) & select.POLLIN:
            return False
        self.typed += os.read(self.incoming, 1 << 12)
        return True

    def take_rest(self) -> None:
        """Read all input that clients have written until now."""
        while self.listens and pending(self.incoming) & select.POLLIN:
            self.typed += os.read(self.incoming, 1 << 16)

    def move(self, poller: select.poll, seen: "dict[int, int]") -> None:
        """Write what was read of the input to the program, and copy one piece of its output."""
        if self.typed and self.shows:
            try:
                self.typed = self.typed[os.write(self.own, self.typed) :]
            except BlockingIOError:
                pass  # the program does not read; its output is still copied
            except OSError:
                self.typed = b""
        if self.own in seen and self.shows and self._show() is None:
            poller.unregister(self.own)
            self.shows = False

    def drain(self) -> None:
        """Copy the rest of the output."""
        while self.shows and self._show():
            pass

    def resize(self, columns: int, rows: int) -> None:
        """Set the size; the program gets SIGWINCH."""
        import fcntl
        import struct
        import termios

        fcntl.ioctl(self.own, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _show(self) -> int | None:
        """Copy output to the log. Returns the number of bytes; None if no process has the terminal open."""
        try:
            data = os.read(self.own, 1 << 16)
        except BlockingIOError:
            return 0
        except OSError:
            return None
        os.write(self.log, data)
        return len(data)


def pending(descriptor: int) -> int:
    """The events of `poll` that a descriptor has now."""
    probe = select.poll()
    probe.register(descriptor, select.POLLIN)
    return dict(probe.poll(0)).get(descriptor, 0)


def children(parent: int) -> list[int]:
    """The processes whose parent is `parent`."""
    try:
        with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        pass  # a kernel without CONFIG_PROC_CHILDREN
    results = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent:
                results.append(int(name))
    return results


def started_at(pid: int) -> int:
    """When a process began, in clock ticks since boot; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except OSError:
        return 0


if __name__ == "__main__":
    os.setsid()
    Supervisor(sys.argv[1]).run()
