"""Pods as processes: what reaches them, how they end, and that nothing of them stays."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from seatrial.harness.devices.provider import ContainerGrant, Device
from seatrial.harness.errors import ClusterError
from seatrial.harness.nodes.runtimes.cgroups import Cgroups, find
from seatrial.harness.nodes.runtimes.process import ProcessRuntime
from seatrial.harness.nodes.runtimes.simulated import Stages
from seatrial.harness.nodes.runtimes.tests.rig import (
    WITHIN,
    Reports,
    closing,
    eventually,
    folder_of,
    read,
    stopped,
    with_mark,
    work,
)
from seatrial.harness.nodes.runtimes.tests.speaking import executed
from seatrial.scheduler.api.clock import WallClock

Body = Callable[[ProcessRuntime], Awaitable[None]]
NO_GROUPS = Cgroups(0, {}, "not asked for in this test")
QUICK = Stages(restart=(0.05, 0.1))


def on_loop(root: Path, body: Body, **options: Any) -> None:
    """Run `body` with a runtime that is closed afterwards."""
    closing(lambda: ProcessRuntime(WallClock(), root, **{"groups": NO_GROUPS, "stages": QUICK, **options}), body)


@pytest.mark.parametrize(
    ("command", "code", "reason", "printed"),
    [
        pytest.param("echo hello; echo again >&2", 0, "Completed", b"hello\nagain\n", id="both-outputs-are-the-log"),
        pytest.param("exit 3", 3, "Error", b"", id="an-exit-code-is-told"),
        pytest.param("kill -TERM $$$$", 143, "Error", b"", id="a-signal-is-128-and-its-number"),
        pytest.param(["printf", "%s", "$(NODE)/$$(NODE)"], 0, "Completed", b"here/$(NODE)", id="names-are-put-in"),
        pytest.param(["/etc/passwd"], 128, "StartError", b"", id="what-cannot-be-executed-says-so"),
    ],
)
def test_a_command_runs_to_its_end(
    tmp_path: Path, command: list[str] | str, code: int, reason: str, printed: bytes
) -> None:
    env = [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    if command == ["/etc/passwd"]:
        program = tmp_path / "not-a-program"
        program.write_bytes(b"\x7fELF and nothing after it")
        program.chmod(0o700)
        command = [str(program)]

    async def body(runtime: ProcessRuntime) -> None:
        pod, reports = work(command, pod={"restartPolicy": "Never"}, env=env), Reports()
        runtime.start(pod, reports)
        ended = await reports.state("terminated")
        assert (ended.exit_code, ended.reason) == (code, reason)
        assert ended.started <= ended.finished
        assert bool(ended.message) == (reason == "StartError")
        assert runtime.logs(pod, "main") == printed
        assert runtime.logs(pod, "other") is None

    on_loop(tmp_path / "root", body)


def test_environment_and_grant_arrive(tmp_path: Path) -> None:
    name = f"granted-{uuid.uuid4().hex}"
    grant = ContainerGrant({"NVIDIA_VISIBLE_DEVICES": "1"}, ("/dev/nvidia1", "/dev/nvidiactl"))
    cards = [
        Device(
            "nvidia",
            "gpu",
            "H100",
            "H100",
            index,
            index,
            f"GPU-{index}",
            "",
            None,
            "",
            1,
            nodes=(f"/dev/nvidia{index}",),
        )
        for index in range(2)
    ]
    env = [
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "URL", "value": "http://$(IP)/$(NOBODY)"},
    ]

    async def body(runtime: ProcessRuntime) -> None:
        pod, reports = work(["sleep", "60"], name=name, grant=grant, env=env), Reports()
        runtime.start(pod, reports)
        await reports.state("running")
        (child,) = with_mark(f"HOSTNAME={name}\0")
        parts = dict(line.split("=", 1) for line in read(f"/proc/{child}/environ").split("\0") if line)
        assert parts["NVIDIA_VISIBLE_DEVICES"] == "1"
        assert parts["CUDA_VISIBLE_DEVICES"] == "GPU-1"
        assert parts["URL"] == "http://10.0.0.7/$(NOBODY)"
        assert "PYTHONPATH" not in parts  # nothing of the agent's own
        assert folder_of(child).is_relative_to(tmp_path)
        await stopped(runtime, pod)
        bare, reports = work(["sleep", "60"], name=f"bare-{name}"), Reports()
        runtime.start(bare, reports)
        await reports.state("running")
        (child,) = with_mark(f"HOSTNAME=bare-{name}\0")
        assert "CUDA_VISIBLE_DEVICES=\0" in read(f"/proc/{child}/environ")

    on_loop(tmp_path, body, cards=lambda: cards)


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param({"command": ["no-such-program-here"]}, "no program 'no-such-program-here'", id="unknown-program"),
        pytest.param({"command": []}, "needs a `command`", id="only-an-image"),
        pytest.param({"command": ["sh"], "workingDir": "/no/such/folder"}, "/no/such/folder", id="unknown-folder"),
    ],
)
def test_what_is_not_here_is_no_image(tmp_path: Path, container: dict[str, Any], expected: str) -> None:
    async def body(runtime: ProcessRuntime) -> None:
        pod, reports = work(**{"command": None, "image": "registry.example/tool:1", **container}), Reports()
        runtime.start(pod, reports)
        state = await reports.until(lambda container: container.reason == "ErrImagePull")
        assert state.state == "waiting"
        assert expected in state.message
        assert "registry.example/tool:1" in state.message
        await stopped(runtime, pod)

    on_loop(tmp_path, body)


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [
        pytest.param("Always", 0, True, id="always-after-success"),
        pytest.param("OnFailure", 1, True, id="on-failure-after-failure"),
        pytest.param("OnFailure", 0, False, id="on-failure-after-success"),
        pytest.param("Never", 1, False, id="never"),
    ],
)
def test_restart_policy(tmp_path: Path, policy: str, code: int, again: bool) -> None:
    async def body(runtime: ProcessRuntime) -> None:
        pod, reports = work(f"echo run; exit {code}", pod={"restartPolicy": policy}), Reports()
        runtime.start(pod, reports)
        if again:
            await reports.until(
                lambda container: container.reason == "CrashLoopBackOff"
            )  # the second end has a pause after it
            state = await reports.until(lambda container: container.restarts >= 2)
            assert state.id.endswith("-2") or state.state != "running"
        else:
            await reports.state("terminated")
            await asyncio.sleep(0.3)
            assert (reports.last.state, reports.last.restarts) == ("terminated", 0)
        assert runtime.logs(pod, "main") in {b"run\n", b""}  # of the latest run alone

    on_loop(tmp_path, body)


def test_init_containers_come_first(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    inits = [
        {"name": "first", "command": ["sh", "-c", f"echo 1 >> {mark}"]},
        {"name": "beside", "command": ["sleep", "60"], "restartPolicy": "Always"},
        {"name": "second", "command": ["sh", "-c", f"echo 2 >> {mark}"]},
    ]

    async def body(runtime: ProcessRuntime) -> None:
        pod, reports = work(f"cat {mark}", pod={"initContainers": inits, "restartPolicy": "Never"}), Reports()
        runtime.start(pod, reports)
        assert (await reports.state("terminated")).exit_code == 0
        assert runtime.logs(pod, "main") == b"1\n2\n"
        await stopped(runtime, pod)

    on_loop(tmp_path / "root", body)


def test_a_failed_init_container_fails_the_pod(tmp_path: Path) -> None:
    inits = [{"name": "check", "command": ["sh", "-c", "exit 7"]}]

    async def body(runtime: ProcessRuntime) -> None:
        pod, reports = work("echo never", pod={"initContainers": inits, "restartPolicy": "Never"}), Reports()
        runtime.start(pod, reports)
        ended = await reports.state("terminated")
        assert (ended.exit_code, ended.message) == (7, "init container check ended with exit code 7")
        assert runtime.logs(pod, "main") is None

    on_loop(tmp_path, body)


STUBBORN = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 61 & wait' &) ; sleep 62 & while :; do sleep 0.05; done"


@pytest.mark.parametrize(
    ("script", "grace"),
    [
        pytest.param(
            "trap 'echo bye; exit 0' TERM; while :; do sleep 0.02; done", 600.0, id="a-polite-one-before-its-grace-ends"
        ),
        pytest.param(STUBBORN, 0.3, id="a-stubborn-one-with-all-it-started"),
        pytest.param(STUBBORN, 0.0, id="no-grace-at-all"),
    ],
)
def test_a_deleted_pod_leaves_no_process(tmp_path: Path, script: str, grace: float) -> None:
    """`stopped` waits for less than the grace of the polite one; the stubborn one gets all of its grace."""
    name = f"gone-{uuid.uuid4().hex}"

    async def body(runtime: ProcessRuntime) -> None:
        pod, reports = work(script, name=name), Reports()
        runtime.start(pod, reports)
        await reports.state("running")
        if script == STUBBORN:  # sh, the sleep of its loop, sleep 62, the other session's sh and its sleep
            await eventually(lambda: len(with_mark(name)) >= 4)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await stopped(runtime, pod, grace)
        assert not with_mark(name)
        if script == STUBBORN:
            assert loop.time() - begun >= grace

    on_loop(tmp_path, body)
    assert not list(tmp_path.iterdir())


def test_a_longer_grace_can_be_cut_short(tmp_path: Path) -> None:
    async def body(runtime: ProcessRuntime) -> None:
        pod, reports = work("trap '' TERM; echo deaf; while :; do sleep 0.05; done"), Reports()
        runtime.start(pod, reports)
        await eventually(lambda: runtime.logs(pod, "main") == b"deaf\n")
        ends: list[str] = []
        runtime.stop(pod, 600.0, lambda: ends.append("first"))
        await asyncio.sleep(0.1)
        assert not ends
        await stopped(runtime, pod)
        assert ends == ["first"]

    on_loop(tmp_path, body)


def test_a_run_is_ended_by_an_agent_with_many_open_files(tmp_path: Path) -> None:
    name = f"many-{uuid.uuid4().hex}"

    async def body(runtime: ProcessRuntime) -> None:
        reports = Reports()
        runtime.start(work("sleep 61", name=name), reports)
        await reports.state("running")

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip(f"needs 2048 open files, the limit is {hard}")
    with ExitStack() as stack:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(1024):
            stack.enter_context(Path(os.devnull).open("rb"))
        on_loop(tmp_path, body)
        assert not with_mark(name)


def test_the_children_of_a_container_that_ends_end_with_it(tmp_path: Path) -> None:
    name = f"left-{uuid.uuid4().hex}"

    async def body(runtime: ProcessRuntime) -> None:
        pod, reports = work("setsid sleep 61 & sleep 62 & exit 0", name=name, pod={"restartPolicy": "Never"}), Reports()
        runtime.start(pod, reports)
        assert (await reports.state("terminated")).exit_code == 0
        assert not with_mark(name)

    on_loop(tmp_path, body)


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        pytest.param(["sh", "-c", "echo $MARK; pwd; exit 4"], 4, b"inside", id="output-and-code"),
        pytest.param(["no-such-program-here"], 128, b"No such file", id="an-unknown-program"),
    ],
)
def test_exec_runs_inside_the_container(tmp_path: Path, command: list[str], code: int, message: bytes) -> None:
    async def body(runtime: ProcessRuntime) -> None:
        pod, reports = work(["sleep", "60"], env=[{"name": "MARK", "value": "inside"}]), Reports()
        runtime.start(pod, reports)
        await reports.state("running")
        outcome, output = await executed(runtime, pod, "main", command)
        assert outcome.code == code
        assert message in output + outcome.error.encode()
        with pytest.raises(ClusterError, match="'other' of pod default/one is not running"):
            await executed(runtime, pod, "other", command)

    on_loop(tmp_path, body)


def test_exec_never_kills_the_group_that_it_shares(tmp_path: Path) -> None:
    groups = tmp_path / "groups"  # stands for the kernel's folder: what is written there can be read back
    groups.mkdir()

    async def body(runtime: ProcessRuntime) -> None:
        pod, reports = work(["sleep", "60"]), Reports()
        runtime.start(pod, reports)
        await reports.state("running")
        own = groups / "kubepods/besteffort/poduid-one/uid-one-main-0"
        first = (own / "cgroup.procs").read_text()
        assert (await executed(runtime, pod, "main", ["sh", "-c", "sleep 61 & exit 0"]))[0].code == 0
        assert (own / "cgroup.procs").read_text() != first
        assert not (own / "cgroup.kill").exists()
        assert reports.last.state == "running"
        await stopped(runtime, pod)
        assert (own / "cgroup.kill").read_text() == "1"

    on_loop(tmp_path / "root", body, groups=Cgroups(2, {"cpu": groups, "memory": groups}))


def test_exec_ends_with_its_pod(tmp_path: Path) -> None:
    name = f"exec-{uuid.uuid4().hex}"

    async def body(runtime: ProcessRuntime) -> None:
        pod, reports = work(["sleep", "60"], name=name), Reports()
        runtime.start(pod, reports)
        await reports.state("running")
        running = asyncio.create_task(executed(runtime, pod, "main", ["sleep", "61"]))
        await eventually(lambda: len(with_mark(name)) == 2)
        await stopped(runtime, pod)
        assert not with_mark(name)
        assert (await running)[0].code == 137

    on_loop(tmp_path, body)


AGENT = """
import asyncio, sys
from pathlib import Path
from seatrial.harness.nodes.runtimes.cgroups import Cgroups, find
from seatrial.harness.nodes.runtimes.process import ProcessRuntime
from seatrial.harness.nodes.runtimes.tests.rig import Reports, work
from seatrial.scheduler.api.clock import WallClock

async def main():
    groups = find(sys.argv[5]) if sys.argv[5] else Cgroups(0, {})
    runtime = ProcessRuntime(WallClock(), Path(sys.argv[1]), linger=float(sys.argv[3]), groups=groups)
    reports = Reports()
    runtime.start(work(sys.argv[4], name=sys.argv[2], pod={"restartPolicy": "Never"}), reports)
    await reports.state("running")
    print("running", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


class Agent:
    """A process with a runtime that runs one pod, and that is killed like a crashed agent."""

    def __init__(self, root: Path, name: str, script: str, *, linger: float = 0.0, groups: str = "") -> None:
        """`groups`: the name of its control groups."""
        self.process = subprocess.Popen(
            [sys.executable, "-c", AGENT, str(root), name, str(linger), script, groups], stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"running\n"

    def crash(self) -> None:
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def test_nothing_outlives_an_agent_that_was_killed(tmp_path: Path) -> None:
    name = f"orphan-{uuid.uuid4().hex}"
    agent = Agent(tmp_path, name, STUBBORN)
    asyncio.run(eventually(lambda: len(with_mark(name)) >= 4))
    supervisors = _supervisors(tmp_path)
    agent.crash()
    asyncio.run(eventually(lambda: not with_mark(name) and not _supervisors(tmp_path)))
    assert len(supervisors) == 1


def test_the_groups_of_an_agent_that_was_killed_go_with_its_last_pod(tmp_path: Path) -> None:
    groups = find(f"seatrial-{uuid.uuid4().hex}")
    if not groups:
        pytest.skip(f"no control groups can be made here: {groups.why}")
    agent = Agent(tmp_path, f"orphan-{uuid.uuid4().hex}", STUBBORN, groups=groups.path.rpartition("/")[2])
    assert all((parent / "kubepods/besteffort").is_dir() for parent in groups.parents.values())
    agent.crash()
    asyncio.run(eventually(lambda: not any(parent.exists() for parent in groups.parents.values())))


def test_nothing_outlives_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    name = f"unsupervised-{uuid.uuid4().hex}"

    async def body(runtime: ProcessRuntime) -> None:
        pod, reports = work("sleep 61 & wait", name=name, pod={"restartPolicy": "Never"}), Reports()
        runtime.start(pod, reports)
        await reports.state("running")  # only then the supervisor has recorded what it started
        await eventually(lambda: len(with_mark(name)) == 2)
        for supervisor in _supervisors(tmp_path):
            os.kill(supervisor, signal.SIGKILL)
        ended = await reports.state("terminated")
        assert (ended.exit_code, ended.reason, ended.message) == (137, "Error", "its supervisor has ended")
        await eventually(lambda: not with_mark(name))

    on_loop(tmp_path, body)


def test_a_new_agent_takes_up_what_waited_for_it(tmp_path: Path) -> None:
    name = f"resumed-{uuid.uuid4().hex}"
    flag = tmp_path / "flag"
    agent = Agent(
        tmp_path / "root", name, f"echo begun; while [ ! -e {flag} ]; do sleep 0.02; done; exit 5", linger=WITHIN
    )
    before = set(_supervisors(tmp_path))
    agent.crash()

    async def body(runtime: ProcessRuntime) -> None:
        pod, reports = work("unused", name=name, pod={"restartPolicy": "Never"}), Reports()
        assert runtime.resume(pod, (), reports)
        assert set(_supervisors(tmp_path)) == before
        flag.touch()
        ended = await reports.state("terminated")
        assert (ended.exit_code, ended.reason) == (5, "Error")
        assert runtime.logs(pod, "main") == b"begun\n"
        assert not runtime.resume(work("unused", name="unknown"), (), reports)
        await stopped(runtime, pod)

    on_loop(tmp_path / "root", body, linger=WITHIN)


def test_what_ended_with_its_agent_is_not_run_again_under_never(tmp_path: Path) -> None:
    name = f"ended-{uuid.uuid4().hex}"
    Agent(tmp_path, name, "sleep 61").crash()
    asyncio.run(eventually(lambda: not with_mark(name)))

    async def body(runtime: ProcessRuntime) -> None:
        pod, reports = work("echo once more", name=name, pod={"restartPolicy": "Never"}), Reports()
        assert runtime.resume(pod, (), reports)
        assert (await reports.state("terminated")).exit_code == 137
        assert runtime.logs(pod, "main") == b""

    on_loop(tmp_path, body)


def _supervisors(root: Path) -> list[int]:
    supervisors = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if b"supervisor.py" in words and str(root).encode() in words:
                supervisors.append(int(folder.name))
    return supervisors
