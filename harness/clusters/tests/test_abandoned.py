"""Runs that were killed together with the supervisors of their pods: what they left is ended, and nothing else."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from seatrial.harness.clusters import abandoned
from seatrial.harness.clusters.abandoned import end_abandoned, new_pods_folder
from seatrial.harness.nodes.runtimes import cgroups
from seatrial.harness.nodes.runtimes.supervised_process import STATUS, Status
from seatrial.harness.nodes.runtimes.tests.rig import WITHIN, with_mark
from seatrial.harness.processes import started_at

# Its pod ignores SIGTERM, has a child in a session of its own, and starts further ones all the time.
RUN = """
import asyncio, os, sys
from pathlib import Path
for group in sys.argv[2:]:
    Path(group, "cgroup.procs").write_text(str(os.getpid()))
from seatrial.harness.clusters.abandoned import new_pods_folder
from seatrial.harness.nodes.runtimes.process import ProcessRuntime
from seatrial.harness.nodes.runtimes.tests.rig import Reports, work
from seatrial.scheduler.api.clock import WallClock

async def main():
    folder = new_pods_folder()
    runtime, reports = ProcessRuntime(WallClock(), folder), Reports()
    script = "trap '' TERM; setsid sleep 61 & while :; do sleep 0.1; done"
    runtime.start(work(script, name=sys.argv[1], pod={"restartPolicy": "Never"}), reports)
    await reports.state("running")
    print(folder, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


class Run:
    """A process with a pod, which can be killed with its supervisor at the same time."""

    def __init__(self, *groups: Path) -> None:
        """`groups`: control groups that it joins first."""
        self.name = f"left-{uuid.uuid4().hex}"
        command = [sys.executable, "-c", RUN, self.name, *map(str, groups)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.folder = Path(self.process.stdout.readline().decode().strip())
        self.groups = list(abandoned.CGROUPS.glob(f"**/{cgroups.name_for(self.folder)}"))

    def wait_for_processes(self) -> None:
        """Until its shell and the child in another session are seen.

        The further children are too short-lived to be waited for: on a slow machine each is gone before a walk through
        all processes comes to it.
        """
        assert soon(lambda: len(with_mark(self.name)) >= 2), with_mark(self.name)

    def kill(self) -> None:
        (status,) = self.folder.glob(f"*/*/*/{STATUS}")
        supervisor, _ = msgspec.json.decode(status.read_bytes(), type=Status).supervisor
        for pid in (self.process.pid, supervisor):
            os.kill(pid, signal.SIGSTOP)  # neither may clear up after the other
        for pid in (self.process.pid, supervisor):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        assert with_mark(self.name), "expected processes of the pod to be left"

    def left(self) -> list[object]:
        groups = [group for group in self.groups if group.exists()]
        return [*with_mark(self.name), *groups, *([self.folder] if self.folder.exists() else [])]


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Pods' folders of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "seatrial" / "pods"


@pytest.fixture
def start_run() -> Iterator[Callable[..., Run]]:
    """Starts runs; their processes are killed in the end."""
    runs: list[Run] = []

    def start(*groups: Path) -> Run:
        runs.append(Run(*groups))
        runs[-1].wait_for_processes()
        return runs[-1]

    yield start
    for run in runs:
        run.process.kill()
        run.process.wait()
        assert run.process.stdout is not None
        run.process.stdout.close()
        for pid in with_mark(run.name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        soon(lambda run=run: cgroups.remove(sorted(_below(run.groups), reverse=True)))  # type: ignore[misc]


def _below(groups: list[Path]) -> list[Path]:
    return [Path(path) for group in groups for path, _, _ in os.walk(group)]


def soon(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WITHIN
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds()


def test_a_killed_run_and_one_that_lives(start_run: Callable[..., Run]) -> None:
    """Processes, control groups and files of the dead one go, those of the other stay until it dies as well."""
    dead, alive = start_run(), start_run()
    dead.kill()
    before = alive.left()
    end_abandoned()
    assert soon(lambda: not dead.left()), dead.left()
    assert len(before) - 1 <= len(alive.left()) <= len(before) + 1, "the live run has its processes and groups"
    alive.kill()
    end_abandoned()
    assert soon(lambda: not alive.left()), alive.left()


@pytest.fixture
def other_groups() -> Iterator[list[Path]]:
    """A group in each hierarchy, where another session runs."""
    groups = [each / f"seatrial-test-{os.getpid()}" for each in abandoned.hierarchies()]
    try:
        for group in groups:
            group.mkdir()
            for name in ("cpuset.cpus", "cpuset.mems"):
                if (group / name).exists():
                    (group / name).write_text((group.parent / name).read_text())
    except OSError as error:
        pytest.skip(f"needs control groups that this user may make: {error.strerror}: {error.filename}")
    yield groups
    for group in groups:
        with contextlib.suppress(OSError):
            group.rmdir()


def test_a_run_that_was_killed_in_other_control_groups(other_groups: list[Path], start_run: Callable[..., Run]) -> None:
    """Its groups are below its own, as in a session of systemd; its successor is in others."""
    run = start_run(*other_groups)
    assert run.groups
    assert all(group.parent in other_groups for group in run.groups)
    run.kill()
    end_abandoned()
    assert soon(lambda: not run.left()), run.left()


def ended_folder(pid: int, start: int, *, boot: str = "", below: str = "uid/main/0") -> Path:
    """The folder of pods of a run that has ended, which says that it had started this process."""
    folder = new_pods_folder()
    if boot:
        (folder / ".place").write_text(boot)
    (folder / below).mkdir(parents=True)
    (folder / below / STATUS).write_bytes(msgspec.json.encode(Status(main=(pid, start), running=True)))
    ended = folder.with_name("4194303-1")
    folder.rename(ended)
    return ended


@pytest.fixture
def stranger() -> Iterator["subprocess.Popen[bytes]"]:
    """The leader of a session of its own."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    ("boot", "below", "removed"),
    [
        pytest.param("another-boot {space}", "uid/main/0", True, id="another-boot"),
        pytest.param("{boot} pid:[1]", "uid/main/0", False, id="another-namespace"),
        pytest.param("", "uid/.volumes/data", True, id="a-file-of-a-container"),
    ],
)
def test_nobody_else_is_ended(stranger: "subprocess.Popen[bytes]", boot: str, below: str, removed: bool) -> None:
    """Numbers of processes from an earlier boot or another namespace, or that a container wrote, end nobody."""
    here, space = abandoned._place().split()
    folder = ended_folder(stranger.pid, started_at(stranger.pid), boot=boot.format(boot=here, space=space), below=below)
    end_abandoned()
    assert stranger.poll() is None
    assert folder.exists() is not removed


def test_a_process_that_a_dead_run_had_started(stranger: "subprocess.Popen[bytes]") -> None:
    folder = ended_folder(stranger.pid, started_at(stranger.pid))
    end_abandoned()
    assert stranger.wait(WITHIN) == -signal.SIGKILL
    assert not folder.exists()


def test_without_a_state_folder_nothing_is_made(own_state: Path) -> None:
    end_abandoned()
    assert not own_state.exists()


def test_processes_of_other_namespaces_have_no_number(tmp_path: Path) -> None:
    """The kernel writes 0 for them, by which `kill` would mean this process group."""
    (tmp_path / "cgroup.procs").write_text("0\n12\n")
    assert cgroups._members(tmp_path) == [12]
