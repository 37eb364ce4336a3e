"""Cycles and instructions of containers (KM-17). Where the CPU's counters are missing, the kernel counts its clocks."""

import errno
import logging
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from seatrial.scheduler.koordlet.cpi import CpiCollector, PerfEvents, scaled
from seatrial.scheduler.koordlet.tests.setting import Setting
from seatrial.scheduler.serving.exposition import exposed

UNIFIED = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
SOFTWARE, CLOCKS = 1, (0, 1)  # of linux/perf_event.h: PERF_TYPE_SOFTWARE, _CPU_CLOCK and _TASK_CLOCK
BUSY = "while True: pass"


def counts(enabled: int, running: int, first: int, second: int) -> bytes:
    """What the kernel writes for a group of two events."""
    return struct.pack("=5Q", 2, enabled, running, first, second)


class StandIn(PerfEvents):
    """Answers of the kernel by group and CPU; those that are missing are refused."""

    def __init__(self, answers: dict[tuple[str, int], bytes], why: str = "") -> None:
        self._answers, self._why = answers, why
        self.counting: list[tuple[str, int]] = []
        self.tries = 0

    def why_not(self) -> str:
        self.tries += 1
        return self._why

    def count(self, group: Path, cpu: int, until: ExitStack) -> int:
        key = group.name, cpu
        if key not in self._answers:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.counting.append(key)
        until.callback(self.counting.remove, key)
        return list(self._answers).index(key)

    def read(self, descriptor: int) -> bytes:
        key = list(self._answers)[descriptor]
        assert key in self.counting
        return self._answers[key]


def setting_with(folder: Path, events: PerfEvents, *, v2: bool = True, cpus: int = 2) -> Setting:
    setting = Setting(folder, v2=v2, gates={"CPICollector": True})
    cgroups = setting.agent._cgroups
    setting.agent._cpi = CpiCollector(cgroups, setting.clock, range(cpus), events)
    return setting


def rows(setting: Setting) -> list[str]:
    lines = exposed(setting.agent.families()).decode().splitlines()
    return [line for line in lines if line.startswith("koordlet_container_cpi{")]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(counts(100, 100, 40, 20), (40.0, 20.0), id="counted-all-the-time"),
        pytest.param(counts(100, 25, 40, 20), (160.0, 80.0), id="counted-a-quarter-of-the-time"),
        pytest.param(counts(100, 0, 0, 0), None, id="never-ran"),
    ],
)
def test_scaled(answer: bytes, expected: tuple[float, float] | None) -> None:
    assert scaled(answer) == expected


def test_a_round(tmp_path: Path) -> None:
    """The sums over all CPUs, each scaled; a container that never ran has no rows. Nothing stays open."""
    ran = {("a-c", 0): counts(100, 50, 400, 200), ("a-c", 1): counts(100, 100, 100, 50)}
    events = StandIn({**ran, ("b-c", 0): counts(9, 0, 0, 0), ("b-c", 1): counts(9, 0, 0, 0)})
    setting = setting_with(tmp_path, events)
    setting.pod("a")
    setting.pod("b")
    setting.run(65)
    assert len(events.counting) == 4
    assert not rows(setting)
    setting.run(6)
    assert not events.counting
    assert [line.rpartition(" ")[2] for line in rows(setting)] == ["900", "450"]
    labels = 'container_id="containerd://a-c",container_name="c",pod_uid="a",pod_name="a",pod_namespace="d"'
    assert rows(setting)[0].startswith(f'koordlet_container_cpi{{node="n1",{labels},cpi_field="cycles"}}')
    assert 'cpi_field="instructions"' in rows(setting)[1]


def test_a_container_that_cannot_be_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is said once, what was open for it is closed, and the others are counted."""
    events = StandIn({("a-c", 0): counts(1, 1, 3, 2), ("a-c", 1): counts(1, 1, 3, 2), ("b-c", 0): counts(1, 1, 1, 1)})
    setting = setting_with(tmp_path, events)
    setting.pod("a")
    setting.pod("b")
    setting.run(65)
    assert sorted(events.counting) == [("a-c", 0), ("a-c", 1)]
    setting.run(130)
    assert [line.rpartition(" ")[2] for line in rows(setting)] == ["6", "4"]
    messages = [record.message for record in caplog.records if "CPICollector" in record.message]
    assert len(messages) == 1
    assert "podb/b-c: Too many open files" in messages[0]


@pytest.mark.parametrize(
    ("why", "v2", "words"),
    [
        pytest.param("the kernel has no counters of the CPU (PMU)", True, "no counters of the CPU", id="no-pmu"),
        pytest.param("", False, "perf_event: no hierarchy of control groups is mounted there", id="no-hierarchy"),
    ],
)
def test_a_machine_without(tmp_path: Path, caplog: pytest.LogCaptureFixture, why: str, v2: bool, words: str) -> None:
    """One warning, and nothing else."""
    caplog.set_level(logging.WARNING)
    events = StandIn({}, why)
    setting = setting_with(tmp_path, events, v2=v2)
    setting.pod("a")
    setting.run(200)
    messages = [record.message for record in caplog.records if "CPICollector" in record.message]
    assert len(messages) == 1
    assert words in messages[0]
    assert events.tries == 1
    assert not rows(setting)


def test_the_end_of_the_agent_closes_what_counts(tmp_path: Path) -> None:
    events = StandIn({("a-c", cpu): counts(1, 1, 1, 1) for cpu in (0, 1)})
    setting = setting_with(tmp_path, events)
    setting.pod("a")
    setting.run(61)
    assert events.counting
    setting.agent.stop()
    assert not events.counting


@pytest.fixture
def groups() -> Iterator[tuple[Path, Path]]:
    """A control group of version 2 in which a process spins, and an empty one."""
    above = next((each for each in UNIFIED if (each / "cgroup.procs").exists()), None)
    if above is None:
        pytest.skip("needs control groups of version 2: no such hierarchy is mounted")
    top = above / f"seatrial-test-{os.getpid()}"
    made = top / "busy", top / "empty"
    try:
        for each in (top, *made):
            each.mkdir()
    except OSError as error:
        pytest.skip(f"needs control groups that this user may make: {error.strerror}: {error.filename}")
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        (made[0] / "cgroup.procs").write_text(str(process.pid))
        yield made
    finally:
        process.kill()
        process.wait()
        for each in (*made, top):
            each.rmdir()


def counted(events: PerfEvents, group: Path) -> tuple[float, float]:
    """What the kernel counts in a group on all CPUs until something was, or in half a second."""
    with ExitStack() as opened:
        descriptors = [events.count(group, cpu, opened) for cpu in sorted(os.sched_getaffinity(0))]
        time.sleep(0.5)
        pairs = [scaled(events.read(each)) or (0.0, 0.0) for each in descriptors]
    return sum(first for first, _ in pairs), sum(second for _, second in pairs)


def test_the_kernel_counts_a_group(groups: tuple[Path, Path]) -> None:
    """The system call, its perf group, its limit to a control group and its answer: with clocks, which all have."""
    events = PerfEvents(SOFTWARE, CLOCKS)
    if events.why_not():
        pytest.skip(f"needs the kernel's performance events: {events.why_not()}")
    busy, idle = (counted(events, group) for group in groups)
    assert min(busy) > 0
    assert busy[1] == pytest.approx(busy[0], rel=0.2), "both clocks were counted at the same time"
    assert idle == (0, 0)


def test_the_cpu_counts_a_group(groups: tuple[Path, Path]) -> None:
    events = PerfEvents()
    if events.why_not():
        pytest.skip(f"needs the CPU's counters: {events.why_not()}")
    cycles, instructions = counted(events, groups[0])
    assert 0.05 < cycles / instructions < 20
