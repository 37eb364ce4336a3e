"""Where control groups are looked for, what is written into them, and that the kernel then means it."""

import sys
import uuid
from pathlib import Path

import pytest

from seatrial.harness.nodes.runtimes import cgroups
from seatrial.harness.nodes.runtimes.cgroups import Cgroups
from seatrial.harness.nodes.runtimes.commands import Limits
from seatrial.harness.nodes.runtimes.process import ProcessRuntime
from seatrial.harness.nodes.runtimes.tests.rig import Reports, stopped, work
from seatrial.harness.nodes.runtimes.tests.speaking import executed
from seatrial.harness.nodes.runtimes.tests.test_process import on_loop

LIMITED = {"limits": {"cpu": "250m", "memory": "32Mi"}}


@pytest.mark.parametrize(
    ("version", "limits", "files"),
    [
        pytest.param(
            2,
            Limits(250, 1 << 25),
            {"cpu.weight": "1", "cpu.max": "25000 100000", "memory.max": "33554432", "memory.oom.group": "1"},
            id="version-2",
        ),
        pytest.param(
            1,
            Limits(1500, 4096, 500),
            {
                "cpu.shares": "512",
                "cpu.cfs_period_us": "100000",
                "cpu.cfs_quota_us": "150000",
                "memory.limit_in_bytes": "4096",
            },
            id="version-1",
        ),
        pytest.param(
            2, Limits(1, None), {"cpu.weight": "1", "cpu.max": "1000 100000"}, id="the-least-quota-that-kernels-take"
        ),
        pytest.param(1, Limits(), {"cpu.shares": "2"}, id="no-limits-no-settings"),
    ],
)
def test_limits_become_settings(tmp_path: Path, version: int, limits: Limits, files: dict[str, str]) -> None:
    groups = Cgroups(version, {"cpu": tmp_path, "memory": tmp_path})
    (folder,) = groups.make("one", limits)
    assert {each.name: each.read_text() for each in folder.iterdir()} == files


@pytest.mark.parametrize(
    ("systemd", "qos", "path"),
    [
        pytest.param(False, "Guaranteed", "kubepods/poda-b/c0", id="guaranteed"),
        pytest.param(False, "BestEffort", "kubepods/besteffort/poda-b/c0", id="best-effort"),
        pytest.param(
            True, "Guaranteed", "kubepods.slice/kubepods-poda_b.slice/cri-containerd-c0.scope", id="systemd-guaranteed"
        ),
        pytest.param(
            True,
            "Burstable",
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice/cri-containerd-c0.scope",
            id="systemd-burstable",
        ),
    ],
)
def test_groups_have_the_names_of_kubelet(systemd: bool, qos: str, path: str) -> None:
    groups = Cgroups(2, {}, systemd=systemd)
    assert groups.container(groups.pod(qos, "a-b"), "c0") == path


def test_classes_and_pods_get_what_is_in_them(tmp_path: Path) -> None:
    """As by kubelet: a pod has a limit if all its containers have one, the burstable class weighs what is requested."""
    groups = Cgroups(1, {"cpu": tmp_path / "cpu", "memory": tmp_path / "memory"})
    for folder in groups.parents.values():
        folder.mkdir()
    one, two = Limits(500, 4096, 250), Limits(None, 4096, 750)
    first, second = groups.open_pod("Burstable", "a", [one, two]), groups.open_pod("Burstable", "b", [one])
    groups.open_pod("BestEffort", "c", [Limits()])

    def number(folder: str, name: str, controller: str = "cpu") -> int:
        return int((groups.parents[controller] / folder / name).read_text())

    assert not (groups.parents["cpu"] / first / "cpu.cfs_quota_us").exists()
    assert [number(first, "cpu.shares"), number(second, "cpu.cfs_quota_us")] == [1024, 50_000]
    assert number(first, "memory.limit_in_bytes", "memory") == 8192
    assert [number(f"kubepods/{kind}", "cpu.shares") for kind in ("burstable", "besteffort")] == [1280, 2]
    groups.close_pod("Burstable", "a")
    assert number("kubepods/burstable", "cpu.shares") == 256


def test_a_group_is_under_one_path_in_all_hierarchies(tmp_path: Path) -> None:
    """Version 1, a process in /box of one hierarchy and /box/deep of another."""
    rows, own = [], []
    for number, (name, at) in enumerate((("cpu,cpuacct", "/box"), ("memory", "/box/deep"), ("cpuset", "/box"))):
        (tmp_path / name / at.lstrip("/")).mkdir(parents=True)
        rows.append(f"cgroup {tmp_path / name} cgroup rw,{name} 0 0")
        own.append(f"{number}:{name}:{at}")
    for name, value in (("cpus", "0-3"), ("mems", "0")):
        (tmp_path / f"cpuset/box/cpuset.{name}").write_text(value)
    (tmp_path / "mounts").write_text("\n".join(rows))
    (tmp_path / "own").write_text("\n".join(own))
    groups = cgroups.find("seatrial-test", mounts=tmp_path / "mounts", own=tmp_path / "own")
    assert (groups.version, groups.path) == (1, "box/seatrial-test")
    assert {str(path.relative_to(tmp_path)) for path in groups.parents.values()} == {
        f"{name}/box/seatrial-test" for name in ("cpu,cpuacct", "memory", "cpuset")
    }


@pytest.mark.parametrize(
    ("mounts", "why"),
    [
        pytest.param("", "no control groups are mounted", id="nothing-mounted"),
        pytest.param("cgroup2 {at}/none cgroup2 rw 0 0\n", "is not writable", id="not-writable"),
        pytest.param("cgroup2 {at} cgroup2 rw 0 0\n", "does not hand its controllers cpu and memory", id="no-hand"),
        pytest.param("cgroup {at} cgroup rw,cpu 0 0\n", "no control groups are mounted", id="half-of-version-1"),
    ],
)
def test_a_place_without_groups_says_why(tmp_path: Path, mounts: str, why: str) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tmp_path / "mounts").write_text(mounts.format(at=tree))
    (tmp_path / "own").write_text("0::/somewhere\n")
    groups = cgroups.find("seatrial-test", mounts=tmp_path / "mounts", own=tmp_path / "own")
    assert not groups
    assert why in groups.why
    assert str(groups) == f"by process, cores by affinity (no control groups: {groups.why})"


@pytest.fixture
def real() -> Cgroups:
    groups = cgroups.find(f"seatrial-test-{uuid.uuid4().hex[:8]}")
    if not groups:
        pytest.skip(f"no control groups can be made here: {groups.why}")
    return groups


def test_the_kernel_enforces_memory(tmp_path: Path, real: Cgroups) -> None:
    async def body(runtime: ProcessRuntime) -> None:
        script = "head -c 200000000 /dev/zero | tail"  # tail keeps what has no line end
        pod, reports = work(script, pod={"restartPolicy": "Never"}, resources=LIMITED), Reports()
        runtime.start(pod, reports)
        ended = await reports.state("terminated")
        assert (ended.reason, ended.exit_code) == ("OOMKilled", 137)

    on_loop(tmp_path, body, groups=real)


def test_groups_come_and_go_with_the_container(tmp_path: Path, real: Cgroups) -> None:
    async def body(runtime: ProcessRuntime) -> None:
        pod, reports = work("cat /proc/self/cgroup; exec sleep 60", resources=LIMITED), Reports()
        runtime.start(pod, reports)
        await reports.state("running")
        folder = real.parents["cpu"] / real.pod("BestEffort", pod.uid) / "uid-one-main-0"
        quota = "cpu.max" if real.version == 2 else "cpu.cfs_quota_us"
        assert (folder / quota).read_text().split()[0] == "25000"
        assert (folder / "cgroup.procs").read_text().split()
        assert runtime.limits == f"cgroup v{real.version}"
        outcome, output = await executed(runtime, pod, "main", ["cat", "/proc/self/cgroup"])
        assert outcome.code == 0
        assert output.count(b"uid-one-main-0") == len(set(real.parents.values()))
        await stopped(runtime, pod)
        assert not folder.parent.exists()
        assert folder.parent.parent.is_dir()

    on_loop(tmp_path, body, groups=real)
    assert not any(parent.exists() for parent in real.parents.values())


@pytest.mark.parametrize(
    ("limits", "script", "code"),
    [
        pytest.param({"memory": "64Mi"}, "x = bytearray(200 << 20)", 1, id="more-than-the-memory"),
        pytest.param({"memory": "512Mi"}, "x = bytearray(20 << 20)", 0, id="less-than-the-memory"),
        pytest.param({"cpu": "700m"}, "import os; sys.exit(len(os.sched_getaffinity(0)) != 1)", 0, id="one-processor"),
        pytest.param({}, "import resource as r; sys.exit(r.getrlimit(r.RLIMIT_DATA)[1] != -1)", 0, id="no-limit"),
    ],
)
def test_without_groups_the_kernel_limits_each_process(
    tmp_path: Path, limits: dict[str, str], script: str, code: int
) -> None:
    async def body(runtime: ProcessRuntime) -> None:
        assert runtime.limits == "by process, cores by affinity (no control groups: not asked for in this test)"
        reports = Reports()
        command = [sys.executable, "-I", "-S", "-c", f"import sys; {script}"]
        runtime.start(work(command, resources={"limits": limits}, pod={"restartPolicy": "Never"}), reports)
        assert (await reports.state("terminated")).exit_code == code

    on_loop(tmp_path, body)
