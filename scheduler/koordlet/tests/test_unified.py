"""Files that control groups of version 2 have without a controller, on this machine's own hierarchy."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.scheduler.koordlet.cgroups import CPU_USAGE, PROCESSES, Cgroups, Layout
from seatrial.scheduler.koordlet.objects import LocalPod
from seatrial.scheduler.koordlet.pressure import Pressures
from seatrial.scheduler.koordlet.tests.test_cpi import BUSY, UNIFIED
from seatrial.scheduler.koordlet.tests.test_real_cgroups import pod


class Unified:
    """A pod with processes that spin, more than there are CPUs, and one whose group is empty."""

    def __init__(self, root: Path) -> None:
        self.parent = f"seatrial-test-{os.getpid()}"
        self.cgroups = Cgroups(root, v2=True, layout=Layout(parent=self.parent))
        self.pods = {name: LocalPod(pod(name, "LS"), self.cgroups.layout) for name in ("busy", "idle")}
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        for each in self.pods.values():
            (self.cgroups.root / each.containers["c"]).mkdir(parents=True)
        for _ in range(2 * len(os.sched_getaffinity(0))):
            self.processes.append(subprocess.Popen([sys.executable, "-c", BUSY]))
            self.cgroups.path(self.pods["busy"].containers["c"], PROCESSES).write_text(str(self.processes[-1].pid))

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for path, _, _ in os.walk(self.cgroups.root / self.parent, topdown=False):
            Path(path).rmdir()


@pytest.fixture
def unified() -> Iterator[Unified]:
    root = next((each for each in UNIFIED if (each / "cgroup.procs").exists()), None)
    if root is None:
        pytest.skip("needs control groups of version 2: no such hierarchy is mounted")
    unified = Unified(root)
    try:
        try:
            unified.start()
        except OSError as error:
            pytest.skip(f"needs control groups that this user may make: {error.strerror}: {error.filename}")
        yield unified
    finally:
        unified.close()


def test_processes_and_time_of_containers(unified: Unified) -> None:
    """`cgroup.procs`, and `cpu.stat` whose microseconds become the nanoseconds of version 1, of a pod and below."""
    busy, idle = (each.containers["c"] for each in unified.pods.values())
    pids = {int(line) for line in unified.cgroups.read(busy, PROCESSES).split()}
    assert pids == {process.pid for process in unified.processes}
    assert unified.cgroups.read(idle, PROCESSES) == ""
    before, begin = unified.cgroups.number(unified.pods["busy"].folder, CPU_USAGE), time.monotonic()
    time.sleep(1.0)
    used = unified.cgroups.number(unified.pods["busy"].folder, CPU_USAGE) - before
    elapsed = (time.monotonic() - begin) * 1e9
    assert 0.05 * elapsed < used < 1.2 * elapsed * (os.cpu_count() or 1)
    assert unified.cgroups.number(idle, CPU_USAGE) == 0


def test_pressure_of_containers(unified: Unified) -> None:
    """Processes that share CPUs wait for them: the pressure of their pod and container rises, that of others is 0."""
    folder = unified.cgroups.root / unified.pods["busy"].folder
    if not (folder / "cpu.pressure").exists():
        pytest.skip("needs pressure stall information, which this kernel does not count (psi=1)")
    pressures, deadline = Pressures(unified.cgroups), time.monotonic() + 60
    while time.monotonic() < deadline:
        pressures.look(unified.pods.values())
        values = {
            (name, labels.get("container_name", "")): value
            for name in unified.pods
            for labels, value in pressures._last[name]
            if labels["psi_resource_type"] == "cpu" and labels["psi_degree"] == "some"
        }
        if min(values["busy", ""], values["busy", "c"]) > 5:
            break
        time.sleep(0.2)
    assert min(values["busy", ""], values["busy", "c"]) > 5
    assert values["idle", ""] == values["idle", "c"] == 0
