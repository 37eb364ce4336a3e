"""A container's keeper: a small process of its own between a node agent and what the container runs.

Run as a script by a bare interpreter (standard library only, it has to start fast). Its standard input is a FIFO that
the agent writes orders to and holds open: when the agent is gone, however that happened, the FIFO says so, and the
keeper ends the container. Its standard output is a FIFO that gets one byte whenever `status.json` has changed; it
closes when the keeper is gone. The keeper is the reaper of all that the container starts, so that a process which left
the process group is found as well.

    keeper.py FOLDER        FOLDER/plan.json says what to run; see `Plan` in kept.py
"""
# Plain `os` and `try`: pathlib and contextlib would take longer to import than all the rest.
# ruff: noqa: PTH105, PTH108, PTH123, PTH208, SIM105

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
ROUND = 0.05  # seconds between two kills of what is left

_libc = ctypes.CDLL(None, use_errno=True)


class Keeper:
    """One run of one container."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(f"{folder}/plan.json", encoding="utf-8") as file:
            self.plan: dict[str, Any] = json.load(file)
        os.unlink(f"{folder}/plan.json")  # an environment may hold secrets
        self.status: dict[str, Any] = {"keeper": [os.getpid(), started_at(os.getpid())]}
        self.main = 0
        self.kill_at: float | None = None  # moment of time.monotonic()
        self.alone_since: float | None = None
        self.orders = b""

    def run(self) -> None:
        """Start the program, see it to its end, and leave nothing of it."""
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
            seen = dict(poller.poll(self._patience()))
            if wake in seen:
                os.read(wake, 4096)
            self._listen(poller, seen.get(0, 0))
            self._reap()
            if self.main and self.kill_at is not None and time.monotonic() >= self.kill_at:
                self._kill()
                self.kill_at = time.monotonic() + ROUND
        self._end_the_rest()
        self.status["oom"] = self._out_of_memory()
        self.status["finished"] = time.time()
        self._tell()

    def _signalled(self, number: int, _frame: object) -> None:
        if number != signal.SIGCHLD:
            self.kill_at = time.monotonic()

    def _patience(self) -> float | None:
        """Milliseconds until something has to be done in any case."""
        if self.alone_since is not None:
            return ROUND * 1000
        return None if self.kill_at is None else max(0.0, self.kill_at - time.monotonic()) * 1000

    # -- start --------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        out = os.open(self.plan["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        said, say = os.pipe2(os.O_CLOEXEC)
        own = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become(own, out, say)  # does not come back
        os.close(say)
        os.close(out)
        self.main = pid
        self.status["main"] = [pid, started_at(pid)]
        self.status["started"] = time.time()
        self._tell()
        error = os.read(said, 4096)  # empty once the program has taken over
        os.close(said)
        if error:
            self.status["error"] = error.decode(errors="replace")
            self.status["code"] = CANNOT_START
        else:
            self.status["running"] = True
        self._tell()

    def _become(self, keeper: int, out: int, say: int) -> NoReturn:
        try:
            os.setsid()
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != keeper:
                os._exit(CANNOT_START)  # it was gone before we asked to be told
            for path in self.plan["cgroups"]:
                with open(f"{path}/cgroup.procs", "w", encoding="ascii") as file:
                    file.write(str(os.getpid()))
            self._limit()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.chdir(self.plan["folder"])
            for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            os.umask(0o022)
            os.execvpe(self.plan["argv"][0], self.plan["argv"], self.plan["env"])  # noqa: S606 that is the task
        except OSError as error:
            os.write(say, f"{error.filename or self.plan['argv'][0]}: {error.strerror}".encode())
        finally:
            os._exit(CANNOT_START)

    def _limit(self) -> None:
        """The little that holds without control groups: each process's own memory, and a number of processors."""
        if self.plan["memory"]:
            import resource  # only here: most runs do without

            resource.setrlimit(resource.RLIMIT_DATA, (self.plan["memory"], self.plan["memory"]))
        allowed = sorted(os.sched_getaffinity(0))
        if 0 < self.plan["cores"] < len(allowed):
            first = os.getpid() % len(allowed)  # containers need not all sit on the first one
            os.sched_setaffinity(0, (allowed * 2)[first : first + self.plan["cores"]])

    # -- orders -------------------------------------------------------------------------------------------------------

    def _listen(self, poller: select.poll, event: int) -> None:
        if self.alone_since is not None:
            probe = select.poll()
            probe.register(0, select.POLLIN)
            event = dict(probe.poll(0)).get(0, 0)
            if not event or event & select.POLLIN:
                self.alone_since = None  # a new agent has taken us up
                poller.register(0, select.POLLIN)
            elif time.monotonic() - self.alone_since >= self.plan["linger"] and self.kill_at is None:
                self.kill_at = time.monotonic()
        if not event:
            return
        data = os.read(0, 4096) if event & select.POLLIN else b""
        if not data:  # nobody holds the other end any more
            if self.alone_since is None:
                poller.unregister(0)
                self.alone_since = time.monotonic()
            return
        *lines, self.orders = (self.orders + data).split(b"\n")
        for line in lines:
            verb, _, seconds = line.decode().partition(" ")
            if verb == "stop":
                self._stop(float(seconds))

    def _stop(self, grace: float) -> None:
        if grace > 0 and self.kill_at is None:
            self._signal_main(signal.SIGTERM)
        until = time.monotonic() + max(0.0, grace)
        self.kill_at = until if self.kill_at is None else min(self.kill_at, until)

    def _signal_main(self, number: int) -> None:
        try:
            os.kill(self.main, number)
        except ProcessLookupError:
            pass  # it has just ended; the next reaping finds it

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
                continue  # version 1, or a kernel before 5.14: one by one, then
        group = self.status["main"][0]
        for pid in (-group, *children(os.getpid())):
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue

    def _end_the_rest(self) -> None:
        """Whatever the container's first process left behind ends with it; what is orphaned becomes our child."""
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

    def _tell(self) -> None:
        path = f"{self.folder}/status.json"
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(self.status, file)
        os.replace(f"{path}.new", path)
        try:
            os.write(1, b"\n")
        except (BrokenPipeError, BlockingIOError):
            pass  # nobody listens now, or somebody who has not read yet and will


def children(parent: int) -> list[int]:
    """The processes whose parent is `parent`."""
    try:
        with open(f"/proc/{parent}/task/{parent}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        pass  # a kernel without CONFIG_PROC_CHILDREN
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent:
                found.append(int(name))
    return found


def started_at(pid: int) -> int:
    """When a process began, in clock ticks since boot; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except OSError:
        return 0


if __name__ == "__main__":
    os.setsid()
    Keeper(sys.argv[1]).run()
