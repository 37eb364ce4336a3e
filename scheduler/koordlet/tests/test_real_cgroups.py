"""Suppression and limits on the control groups of this machine, in a subtree that the test makes and removes."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.slo import NodeSlo
from seatrial.scheduler.koordlet.agent import Agent
from seatrial.scheduler.koordlet.app import build_agent
from seatrial.scheduler.koordlet.objects import AgentPod
from seatrial.scheduler.koordlet.suppress import LEAST_QUOTA
from seatrial.scheduler.koordlet.tests.setting import Api

ROOT = Path("/sys/fs/cgroup")
SUBSYSTEMS = ("cpu", "cpuacct", "cpuset", "memory")
BUSY = "while True: pass"


def groups(parent: str, folder: str) -> None:
    """Make a group in each hierarchy, with the CPUs of the one above."""
    for subsystem in SUBSYSTEMS:
        path = ROOT / subsystem / parent / folder
        path.mkdir(parents=True, exist_ok=True)
        if subsystem == "cpuset":
            for each in (*reversed(path.relative_to(ROOT / subsystem).parents), path.relative_to(ROOT / subsystem)):
                here = ROOT / subsystem / each
                for name in ("cpuset.cpus", "cpuset.mems"):
                    if not (here / name).read_text().strip():
                        (here / name).write_text((here.parent / name).read_text())


class Machine:
    """Processes in groups below a parent of their own."""

    def __init__(self, parent: str) -> None:
        self.parent = parent
        self.processes: list[subprocess.Popen[bytes]] = []

    def pod(self, kind: str, name: str) -> str:
        folder = f"kubepods/{kind}/pod{name}"
        groups(self.parent, folder)
        groups(self.parent, f"{folder}/{name}-c")
        return folder

    def busy(self, folder: str) -> None:
        process = subprocess.Popen([sys.executable, "-c", BUSY])
        self.processes.append(process)
        for subsystem in SUBSYSTEMS:
            (ROOT / subsystem / self.parent / folder / "cgroup.procs").write_text(str(process.pid))

    def read(self, folder: str, name: str, subsystem: str = "cpu") -> str:
        return (ROOT / subsystem / self.parent / folder / name).read_text().strip()

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for subsystem in SUBSYSTEMS:
            top = ROOT / subsystem / self.parent
            for path in sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True):
                path.rmdir()
            if top.is_dir():
                top.rmdir()


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine(f"seatrial-test-{os.getpid()}")
    try:
        groups(machine.parent, "kubepods/burstable")
        groups(machine.parent, "kubepods/besteffort")
    except OSError as error:
        with contextlib.suppress(OSError):
            machine.close()
        pytest.skip(f"needs control groups of version 1 that this user may make: {error.strerror}: {error.filename}")
    try:
        yield machine
    finally:
        machine.close()


def pod(name: str, qos: str, **annotations: str) -> AgentPod:
    plain: dict[str, Any] = {
        "metadata": {"name": name, "uid": name, "labels": {"koordinator.sh/qosClass": qos}, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}} if qos == "LS" else {}}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "c", "containerID": f"containerd://{name}-c"}]},
    }
    return msgspec.convert(plain, AgentPod)


class Watched:
    """The agent, whose clock follows the real time that passes."""

    def __init__(self, machine: Machine) -> None:
        self.clock = SimClock()
        self.agent: Agent = build_agent(
            Api(),  # type: ignore[arg-type]
            self.clock,
            "n1",
            cgroup=ROOT,
            proc=Path("/proc"),
            sys=Path("/sys"),
            parent=machine.parent,
            seed=0,
        )
        for informer in self.agent._informers:
            informer.start = lambda: None  # type: ignore[method-assign]
            informer.synced = True
        self.agent.start()

    def run(self, looks: int) -> None:
        for _ in range(looks):
            before = time.monotonic()
            time.sleep(1.0)
            self.clock.advance(time.monotonic() - before)


def test_a_busy_neighbour_leaves_less(machine: Machine) -> None:
    """CS-2, CS-7: the quota of best-effort pods falls as a prod pod gets busy, and their process is throttled; when the
    agent ends, nothing is left of it."""
    prod, be = machine.pod("burstable", "prod"), machine.pod("besteffort", "be")
    machine.busy(f"{be}/be-c")
    watched = Watched(machine)
    threshold = {"enable": True, "cpuSuppressThresholdPercent": 90, "cpuSuppressPolicy": "cfsQuota"}
    watched.agent._set_slo(NodeSlo(spec={"resourceUsedThresholdWithBE": threshold}))
    watched.agent._set_pod(pod("prod", "LS"))
    watched.agent._set_pod(pod("be", "BE"))
    watched.run(3)
    before = int(machine.read("kubepods/besteffort", "cpu.cfs_quota_us"))
    if before <= LEAST_QUOTA:
        pytest.skip("other programs use this machine: the quota is at its floor before the pod is busy")
    machine.busy(f"{prod}/prod-c")
    watched.run(4)
    after = int(machine.read("kubepods/besteffort", "cpu.cfs_quota_us"))
    assert 0 < after < before, f"expected a smaller quota beside a busy pod, found {after} after {before}"
    rows = dict(line.split() for line in machine.read("kubepods/besteffort", "cpu.stat").splitlines())
    assert int(rows["nr_throttled"]) > 0
    watched.agent.stop()
    assert machine.read("kubepods/besteffort", "cpu.cfs_quota_us") == "-1"
    assert machine.read(be, "cpuset.cpus", "cpuset") == machine.read("kubepods", "cpuset.cpus", "cpuset")


@pytest.mark.parametrize("policy", ["cfsQuota", "cpuset"])
def test_an_agent_that_follows_a_killed_one(machine: Machine, policy: str) -> None:
    """It takes suppression back when it ends, even before it has measured anything, and without settings touches
    nothing."""
    be = machine.pod("besteffort", "be")
    machine.busy(f"{machine.pod('burstable', 'prod')}/prod-c")
    threshold = {"enable": True, "cpuSuppressThresholdPercent": 20, "cpuSuppressPolicy": policy}

    def groups() -> list[str]:
        quota = machine.read("kubepods/besteffort", "cpu.cfs_quota_us")
        return [quota, *(machine.read(each, "cpuset.cpus", "cpuset") for each in (be, f"{be}/be-c"))]

    free = groups()
    assert free[0] == "-1"
    if policy == "cpuset" and free[1] in {"0", "0-1"}:
        pytest.skip("needs three CPUs: best-effort pods keep two")
    killed = Watched(machine)
    killed.agent._set_slo(NodeSlo(spec={"resourceUsedThresholdWithBE": threshold}))
    killed.run(4)
    suppressed = groups()
    assert suppressed != free

    without_settings = Watched(machine)
    without_settings.agent.stop()
    assert groups() == suppressed
    following = Watched(machine)
    following.agent._set_slo(NodeSlo(spec={"resourceUsedThresholdWithBE": threshold}))
    following.agent.stop()
    assert groups() == free


def test_limits_by_the_annotation(machine: Machine) -> None:
    """HK-7: shares, quota and memory of the pod and its container, which had none."""
    be = machine.pod("besteffort", "be")
    amounts = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "64Mi"}
    spec = json.dumps({"containers": {"c": {"requests": amounts, "limits": amounts}}})
    watched = Watched(machine)
    watched.agent._set_pod(pod("be", "BE", **{"node.koordinator.sh/extended-resource-spec": spec}))
    for group in (be, f"{be}/be-c"):
        files = ("cpu.shares", "cpu.cfs_quota_us")
        assert [machine.read(group, name) for name in files] == ["512", "50000"]
        assert machine.read(group, "memory.limit_in_bytes", "memory") == str(64 << 20)
