"""Pods as containers of a real Docker engine: one that answers here, or one that is started for these tests."""

import asyncio
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from seatrial.harness.apiserver.conversation import STDERR, STDOUT, StreamSelection, everything
from seatrial.harness.devices.provider import ContainerGrant, Mount
from seatrial.harness.errors import ClusterError
from seatrial.harness.nodes.runtimes.cgroups import find
from seatrial.harness.nodes.runtimes.docker import OWNER, UID, DockerRuntime, unreachable
from seatrial.harness.nodes.runtimes.simulated import Stages
from seatrial.harness.nodes.runtimes.tests.engine import IMAGE, containers, engine_at
from seatrial.harness.nodes.runtimes.tests.rig import Reports, closing, eventually, read, stopped, with_mark, work
from seatrial.harness.nodes.runtimes.tests.speaking import executed
from seatrial.scheduler.api.clock import WallClock

TINY = {"memory": "16Mi"}
Body = Callable[[DockerRuntime], Awaitable[None]]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with engine_at(tmp_path_factory.mktemp("engine")) as url:
        yield url


def on_loop(url: str, body: Body, **options: Any) -> None:
    closing(lambda: DockerRuntime(WallClock(), url=url, stages=Stages(restart=(0.05, 0.1)), **options), body)


@pytest.mark.parametrize(
    ("script", "limits", "code", "reason", "printed"),
    [
        pytest.param("echo hello; echo again >&2", {}, 0, "Completed", b"hello\nagain\n", id="both-outputs"),
        pytest.param("exit 3", {}, 3, "Error", b"", id="an-exit-code"),
        pytest.param("head -c 99999999 /dev/zero | tail", TINY, 137, "OOMKilled", None, id="out-of-memory"),
        pytest.param("echo $GRANTED $NODE; cat /given", {}, 0, "Completed", b"yes here\nmounted\n", id="grant-arrives"),
    ],
)
def test_a_container_runs_to_its_end(  # noqa: PLR0917
    engine: str, tmp_path: Path, script: str, limits: dict[str, str], code: int, reason: str, printed: bytes | None
) -> None:
    path = tmp_path / "given"
    path.write_text("mounted\n")
    mounts = (Mount(str(path), "/given"), Mount("/no/such/file", "/else"))
    grant = ContainerGrant({"GRANTED": "yes"}, ("/dev/null", "/dev/no-such-card"), mounts)
    env = [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]

    async def body(runtime: DockerRuntime) -> None:
        pod = work(
            script,
            name=f"ends-{uuid.uuid4().hex[:8]}",
            grant=grant,
            pod={"restartPolicy": "Never"},
            resources={"limits": limits},
            image=IMAGE,
            env=env,
        )
        reports = Reports()
        runtime.start(pod, reports)
        ended = await reports.state("terminated")
        assert (ended.exit_code, ended.reason) == (code, reason)
        assert ended.id.startswith("docker://")
        if printed is not None:  # the kernel may end the shell too, before it prints "Killed"
            assert sorted(runtime.logs(pod, "main") or b"") == sorted(printed)
        await stopped(runtime, pod)

    on_loop(engine, body)
    assert not containers(engine)


def test_a_container_is_in_the_group_of_its_pod(engine: str) -> None:
    groups = find(f"seatrial-test-{uuid.uuid4().hex[:8]}")
    if not groups or groups.version == 2:
        pytest.skip(f"needs control groups of version 1, as the engine of these tests has: {groups}")

    async def body(runtime: DockerRuntime) -> None:
        assert runtime.cgroup_parent == groups.path
        limits = {"limits": {"cpu": "500m"}, "requests": {"cpu": "500m"}}
        pod = work("sleep 600", name=f"group-{uuid.uuid4().hex[:8]}", image=IMAGE, resources=limits)
        reports = Reports()
        runtime.start(pod, reports)
        container = (await reports.state("running")).id.removeprefix("docker://")
        own = groups.parents["cpu"] / groups.pod("BestEffort", pod.uid)
        assert (own / "cpu.cfs_quota_us").read_text() == "50000\n"
        assert (own / container / "cgroup.procs").read_text().split() == [str(pid) for pid in runtime.processes(pod)]
        await stopped(runtime, pod)

    on_loop(engine, body, groups=groups)
    assert not list(Path("/sys/fs/cgroup").glob(f"*/{groups.path}"))


def test_speaking_with_a_command(engine: str) -> None:
    async def body(runtime: DockerRuntime) -> None:
        pod, reports = work("sleep 600", name=f"speaks-{uuid.uuid4().hex[:8]}", image=IMAGE), Reports()
        runtime.start(pod, reports)
        await reports.state("running")
        both = StreamSelection(stdin=True, stdout=True, stderr=True)
        spoken = await runtime.exec(pod, "main", ["sh", "-c", "cat; echo apart >&2; exit 3"], both)
        await spoken.write(b"there and back" * 10_000)
        spoken.end_input()
        assert await everything(spoken) == b"there and back" * 10_000
        assert await everything(spoken, STDERR) == b"apart\n"
        assert (await spoken.outcome()).code == 3
        spoken.close()
        terminal = await runtime.exec(
            pod,
            "main",
            ["sh", "-c", "read x; test -t 1 && echo got $x"],
            StreamSelection(stdin=True, stdout=True, tty=True),
        )
        terminal.resize(100, 30)
        await terminal.write(b"word\n")
        assert b"got word\r\n" in await everything(terminal)
        assert (await terminal.outcome()).code == 0
        terminal.close()
        mark = uuid.uuid4().hex
        lasting = await runtime.exec(pod, "main", ["sh", "-c", f"MARK={mark} exec sleep 601"], both)
        await eventually(lambda: with_mark(mark))
        lasting.close()
        await eventually(lambda: not with_mark(mark))
        await stopped(runtime, pod)

    on_loop(engine, body)


def test_attaching_to_a_container(engine: str) -> None:
    async def body(runtime: DockerRuntime) -> None:
        script = "echo early; while read x; do echo [$x]; test $x = quit && exit 5; done"
        pod = work(
            script, name=f"attach-{uuid.uuid4().hex[:8]}", image=IMAGE, stdin=True, pod={"restartPolicy": "Never"}
        )
        reports = Reports()
        runtime.start(pod, reports)
        await reports.state("running")
        await eventually(lambda: runtime.logs(pod, "main"))
        for word in (b"once", b"quit"):  # the first client's going does not end the input
            spoken = await runtime.attach(pod, "main", StreamSelection(stdin=True, stdout=True, stderr=True))
            await spoken.write(word + b"\n")
            assert await spoken.read(STDOUT) == b"[" + word + b"]\n"
            spoken.close()
        assert (await reports.state("terminated")).exit_code == 5
        await stopped(runtime, pod)

    on_loop(engine, body)


def test_exec_and_stop(engine: str) -> None:
    name = f"stops-{uuid.uuid4().hex[:8]}"

    async def body(runtime: DockerRuntime) -> None:
        pod, reports = work("trap '' TERM; while :; do sleep 0.1; done", name=name, image=IMAGE), Reports()
        runtime.start(pod, reports)
        await reports.state("running")
        outcome, output = await executed(runtime, pod, "main", ["sh", "-c", "echo inside; exit 4"])
        assert (outcome.code, output) == (4, b"inside\n")
        with pytest.raises(ClusterError, match=r"'other' of pod .* is not running"):
            await executed(runtime, pod, "other", ["sh"])
        await stopped(runtime, pod, grace=0.5)
        await eventually(lambda: not containers(engine, f"{UID}={pod.uid}"))

    on_loop(engine, body)


def test_the_restart_policy_is_ours(engine: str) -> None:
    async def body(runtime: DockerRuntime) -> None:
        pod, reports = work("exit 1", name=f"again-{uuid.uuid4().hex[:8]}", image=IMAGE), Reports()
        runtime.start(pod, reports)
        await reports.until(lambda container: container.restarts >= 2)
        assert "CrashLoopBackOff" in {states[0].reason for states in reports.seen}

    on_loop(engine, body)
    assert not containers(engine)


@pytest.mark.parametrize(
    ("image", "command", "reason"),
    [
        pytest.param("localhost:9/no/such:image", ["sh"], "ErrImagePull", id="no-such-image"),
        pytest.param(IMAGE, ["no-such-program"], "RunContainerError", id="no-such-program"),
    ],
)
def test_what_cannot_begin_says_why(engine: str, image: str, command: list[str], reason: str) -> None:
    async def body(runtime: DockerRuntime) -> None:
        pod, reports = work(command, name=f"blocked-{uuid.uuid4().hex[:8]}", image=image), Reports()
        runtime.start(pod, reports)
        state = await reports.until(lambda container: container.reason == reason)
        assert (image if reason == "ErrImagePull" else command[0]) in state.message
        await stopped(runtime, pod)

    on_loop(engine, body)
    assert not containers(engine)


def test_a_successor_of_the_same_name_takes_containers_up(engine: str) -> None:
    name = f"kept-{uuid.uuid4().hex[:8]}"

    async def body(runtime: DockerRuntime) -> None:
        pod, reports = work(["sleep", "60"], name=name, image=IMAGE, pod={"restartPolicy": "Never"}), Reports()
        runtime.start(pod, reports)
        first = await reports.state("running")
        successor = DockerRuntime(WallClock(), url=engine, owner=f"agent-{name}")
        try:
            again = Reports()
            assert successor.resume(pod, (), again)
            assert (await again.state("running")).id == first.id
            assert not successor.resume(work("", name="unknown"), (), again)
            await stopped(successor, pod)
        finally:
            successor.close()

    on_loop(engine, body, owner=f"agent-{name}")


AGENT = """
import asyncio, sys
from seatrial.harness.nodes.runtimes.cgroups import find
from seatrial.harness.nodes.runtimes.docker import DockerRuntime
from seatrial.harness.nodes.runtimes.tests.engine import IMAGE
from seatrial.harness.nodes.runtimes.tests.rig import Reports, work
from seatrial.scheduler.api.clock import WallClock

async def main():
    runtime, reports = DockerRuntime(WallClock(), url=sys.argv[1]), Reports()
    runtime.start(work(["sleep", "60"], name=sys.argv[2], image=IMAGE), reports)
    await reports.state("running")
    print("running", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_no_container_outlives_an_agent_that_was_killed(engine: str) -> None:
    name = f"orphan-{uuid.uuid4().hex[:8]}"
    with subprocess.Popen([sys.executable, "-c", AGENT, engine, name], stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"running\n"
        assert len(containers(engine)) == 1
        agent.kill()
    asyncio.run(eventually(lambda: not containers(engine)))


def test_containers_of_the_dead_are_removed_at_the_start(engine: str) -> None:
    client = docker.DockerClient(base_url=engine)
    try:
        client.containers.run(IMAGE, ["sleep", "60"], detach=True, network_mode="none", labels={OWNER: "4194303-1"})
    finally:
        client.close()
    assert len(containers(engine)) == 1

    async def body(runtime: DockerRuntime) -> None:
        assert not containers(engine)

    on_loop(engine, body)


def test_an_engine_that_is_not_there_is_said() -> None:
    text = unreachable("unix:///no/such/socket") or ""
    assert text.startswith("no Docker engine answers")
    assert text.endswith("; start one, or set DOCKER_HOST")

    async def body(runtime: DockerRuntime) -> None:
        raise AssertionError("it must not come to this")

    with pytest.raises(ClusterError, match="no Docker engine answers"):
        on_loop("unix:///no/such/socket", body)


def test_limits_hold_inside(engine: str) -> None:
    """What the kernel counts with is what the pod asked for, in either version of control groups."""
    script = (
        "cat /sys/fs/cgroup/memory.max 2>/dev/null || cat /sys/fs/cgroup/memory/memory.limit_in_bytes;"
        "cat /sys/fs/cgroup/cpu.max 2>/dev/null || cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us"
    )

    async def body(runtime: DockerRuntime) -> None:
        limits = {"memory": "64Mi", "cpu": "250m"}
        pod = work(
            script,
            name=f"limited-{uuid.uuid4().hex[:8]}",
            image=IMAGE,
            resources={"limits": limits},
            pod={"restartPolicy": "Never"},
        )
        reports = Reports()
        runtime.start(pod, reports)
        await reports.state("terminated")
        memory, cpu = (runtime.logs(pod, "main") or b"").decode().splitlines()
        assert memory == str(64 << 20)
        assert cpu.split()[0] == "25000"

    on_loop(engine, body)


def test_volumes_are_mounted_where_the_pod_wants_them(engine: str, tmp_path: Path) -> None:
    """A ConfigMap read-only, an emptyDir between an init container and the others, a folder of this machine."""
    script = "cat /etc/settings/size; echo x > /etc/settings/size || echo refused; cat /data/note; cat /host/own"
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "own").write_text("of the host\n")
    data = [{"name": "data", "mountPath": "/data"}]
    settings = {"name": "set", "mountPath": "/etc/settings", "readOnly": True}
    mounts = [*data, settings, {"name": "h", "mountPath": "/host"}]
    init = {"name": "first", "image": IMAGE, "command": ["sh", "-c", "echo first > /data/note"], "volumeMounts": data}
    volumes = [
        {"name": "data", "emptyDir": {}},
        {"name": "set", "configMap": {"name": "settings"}},
        {"name": "h", "hostPath": {"path": str(tmp_path / "host"), "type": "Directory"}},
    ]

    async def body(runtime: DockerRuntime) -> None:
        pod = work(
            script,
            name=f"mounts-{uuid.uuid4().hex[:8]}",
            image=IMAGE,
            volumeMounts=mounts,
            pod={"restartPolicy": "Never", "volumes": volumes, "initContainers": [init]},
        )
        pod.objects = {("configmap", "settings"): {"size": b"9\n"}}
        reports = Reports()
        runtime.start(pod, reports)
        await reports.state("terminated")
        logs = (runtime.logs(pod, "main") or b"").decode()
        assert {"9", "refused", "first", "of the host"} <= set(logs.splitlines()), logs
        await stopped(runtime, pod)
        assert not (tmp_path / "pods" / pod.uid).exists()

    on_loop(engine, body, folder=tmp_path / "pods")


def test_probes_ask_inside_and_the_first_process_is_known(engine: str) -> None:
    async def body(runtime: DockerRuntime) -> None:
        probe = {"exec": {"command": ["ls", "/ready"]}, "periodSeconds": 1, "failureThreshold": 1}
        name = f"probed-{uuid.uuid4().hex[:8]}"
        pod = work("sleep 0.5; echo > /ready; sleep 600", name=name, image=IMAGE, readinessProbe=probe)
        reports = Reports()
        runtime.start(pod, reports)
        assert not (await reports.state("running")).ready
        await reports.until(lambda container: container.ready and container.state == "running")
        (pid,) = runtime.processes(pod)
        assert "sleep\x00600" in read(f"/proc/{pid}/cmdline")
        await stopped(runtime, pod)

    on_loop(engine, body)


def test_a_stand_in_s_libraries_are_where_the_loader_looks(engine: str, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("a library\n")

    async def body(runtime: DockerRuntime) -> None:
        pod = work(
            "cat $LD_LIBRARY_PATH/libnvidia-ml.so.1; echo x > $LD_LIBRARY_PATH/libnvidia-ml.so.1 || echo refused",
            name=f"stands-{uuid.uuid4().hex[:8]}",
            image=IMAGE,
            pod={"restartPolicy": "Never"},
        )
        reports = Reports()
        runtime.start(pod, reports)
        await reports.state("terminated")
        assert {"a library", "refused"} <= set((runtime.logs(pod, "main") or b"").decode().splitlines())

    on_loop(engine, body, libraries=tmp_path)
