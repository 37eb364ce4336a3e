"""Pods as containers of a real Docker engine: one that answers here, or one that is started for these tests."""

import asyncio
import io
import os
import shutil
import subprocess
import tarfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from harness.devices.provider import ContainerGrant, Mount
from harness.errors import ClusterError
from harness.nodes.runtimes.docker import DEFAULT_URL, OWNER, UID, DockerRuntime, unreachable
from harness.nodes.runtimes.simulated import Stages
from harness.nodes.runtimes.tests.rig import Reports, eventually, stopped, work
from harness.processes import stop
from scheduler.api.clock import WallClock

IMAGE = "seatrial-test:busybox"
UP_WITHIN = 30.0
TINY = {"memory": "16Mi"}
Body = Callable[[DockerRuntime], Awaitable[None]]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an engine that has the test's image."""
    busybox = next((each for each in ("/bin/busybox", "/usr/bin/busybox") if _static(each)), "")
    if not busybox:
        pytest.skip("no static busybox to make an image of (Debian: busybox-static)")
    if unreachable() is None:
        url = os.environ.get("DOCKER_HOST", DEFAULT_URL)
        _import(url, busybox)
        yield url
        return
    dockerd = shutil.which("dockerd")
    if os.geteuid() != 0 or dockerd is None:
        pytest.skip(f"{unreachable()}; none can be started here without root and dockerd")
    folder = tmp_path_factory.mktemp("engine")
    url = f"unix://{folder}/docker.sock"
    command = [
        dockerd, "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec", "--pidfile", f"{folder}/pid",
        "-H", url, "--iptables=false", "--ip6tables=false", "--bridge=none", "--storage-driver=vfs",
    ]  # fmt: skip
    with (folder / "log").open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink)  # noqa: S603 the system's own daemon
    try:
        deadline = time.monotonic() + UP_WITHIN
        while unreachable(url) is not None:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.skip(f"dockerd does not start here: {(folder / 'log').read_text()[-300:]}")
            time.sleep(0.1)
        _import(url, busybox)
        yield url
    finally:
        stop(process, within=30)


def _static(path: str) -> bool:
    return Path(path).is_file() and b"/ld-linux" not in Path(path).read_bytes()[:4096]


def _import(url: str, busybox: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(busybox, "bin/busybox")
        for name in ("sh", "sleep", "cat", "env", "ls", "tail", "head"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
    client = docker.DockerClient(base_url=url)
    repository, _, tag = IMAGE.partition(":")
    client.api.import_image_from_data(packed.getvalue(), repository=repository, tag=tag)
    client.close()


def on_loop(url: str, body: Body, **options: Any) -> None:
    async def run() -> None:
        runtime = DockerRuntime(WallClock(), url=url, stages=Stages(restart=(0.05, 0.1)), **options)
        try:
            await body(runtime)
        finally:
            runtime.close()

    asyncio.run(run())


def ours(url: str, label: str = OWNER) -> list[str]:
    """The containers with a label."""
    client = docker.DockerClient(base_url=url)
    try:
        return [str(row["Id"]) for row in client.api.containers(all=True, filters={"label": label})]
    finally:
        client.close()


@pytest.mark.parametrize(
    ("script", "limits", "code", "reason", "printed"),
    [
        pytest.param("echo hello; echo again >&2", {}, 0, "Completed", b"hello\nagain\n", id="both-outputs"),
        pytest.param("exit 3", {}, 3, "Error", b"", id="an-exit-code"),
        pytest.param("head -c 99999999 /dev/zero | tail", TINY, 137, "OOMKilled", b"Killed\n", id="out-of-memory"),
        pytest.param("echo $GRANTED $NODE; cat /given", {}, 0, "Completed", b"yes here\nmounted\n", id="grant-arrives"),
    ],
)
def test_a_container_runs_to_its_end(  # noqa: PLR0917
    engine: str, tmp_path: Path, script: str, limits: dict[str, str], code: int, reason: str, printed: bytes
) -> None:
    given = tmp_path / "given"
    given.write_text("mounted\n")
    mounts = (Mount(str(given), "/given"), Mount("/no/such/file", "/else"))
    grant = ContainerGrant({"GRANTED": "yes"}, ("/dev/null", "/dev/no-such-card"), mounts)
    env = [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]

    async def body(runtime: DockerRuntime) -> None:
        pod = work(
            script, name=f"ends-{uuid.uuid4().hex[:8]}", grant=grant, pod={"restartPolicy": "Never"},
            resources={"limits": limits}, image=IMAGE, env=env,
        )  # fmt: skip
        reports = Reports()
        runtime.start(pod, reports)
        ended = await reports.state("terminated")
        assert (ended.exit_code, ended.reason) == (code, reason)
        assert ended.id.startswith("docker://")
        assert sorted(runtime.logs(pod, "main") or b"") == sorted(printed)
        await stopped(runtime, pod)

    on_loop(engine, body)
    assert not ours(engine)


def test_exec_and_stop(engine: str) -> None:
    name = f"stops-{uuid.uuid4().hex[:8]}"

    async def body(runtime: DockerRuntime) -> None:
        pod, reports = work("trap '' TERM; while :; do sleep 0.1; done", name=name, image=IMAGE), Reports()
        runtime.start(pod, reports)
        await reports.state("running")
        assert await runtime.exec(pod, "main", ["sh", "-c", "echo inside; exit 4"]) == (4, b"inside\n")
        with pytest.raises(ClusterError, match=r"'other' of pod .* is not running"):
            await runtime.exec(pod, "other", ["sh"])
        begun = time.monotonic()
        await stopped(runtime, pod, grace=0.5)
        assert 0.5 <= time.monotonic() - begun < 8
        await eventually(lambda: not ours(engine, f"{UID}={pod.uid}"))

    on_loop(engine, body)


def test_the_restart_policy_is_ours(engine: str) -> None:
    async def body(runtime: DockerRuntime) -> None:
        pod, reports = work("exit 1", name=f"again-{uuid.uuid4().hex[:8]}", image=IMAGE), Reports()
        runtime.start(pod, reports)
        await reports.until(lambda one: one.restarts >= 2)
        assert "CrashLoopBackOff" in {states[0].reason for states in reports.seen}

    on_loop(engine, body)
    assert not ours(engine)


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
        state = await reports.until(lambda one: one.reason == reason)
        assert (image if reason == "ErrImagePull" else command[0]) in state.message
        await stopped(runtime, pod)

    on_loop(engine, body)
    assert not ours(engine)


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
            assert not successor.resume(work("", name="nobody"), (), again)
            await stopped(successor, pod)
        finally:
            successor.close()

    on_loop(engine, body, owner=f"agent-{name}")


def test_containers_of_the_dead_are_removed_at_the_start(engine: str) -> None:
    client = docker.DockerClient(base_url=engine)
    try:
        client.containers.run(IMAGE, ["sleep", "60"], detach=True, network_mode="none", labels={OWNER: "4194303-1"})
    finally:
        client.close()
    assert len(ours(engine)) == 1

    async def body(runtime: DockerRuntime) -> None:
        assert not ours(engine)

    on_loop(engine, body)


def test_an_engine_that_is_not_there_is_said() -> None:
    assert "no Docker engine answers" in (unreachable("unix:///no/such/socket") or "")

    async def body(runtime: DockerRuntime) -> None:
        raise AssertionError("it must not come to this")

    with pytest.raises(ClusterError, match="no Docker engine answers"):
        on_loop("unix:///no/such/socket", body)
