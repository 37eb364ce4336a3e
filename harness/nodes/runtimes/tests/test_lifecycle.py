"""A pod's way with everything that happens around its containers: probes, hooks, sidecars, volumes. Real processes."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from seatrial.harness.nodes.runtimes.cgroups import Cgroups
from seatrial.harness.nodes.runtimes.process import ProcessRuntime
from seatrial.harness.nodes.runtimes.protocol import ContainerState, Work
from seatrial.harness.nodes.runtimes.simulated import Stages
from seatrial.harness.nodes.runtimes.tests.rig import WITHIN, Reports, closing, eventually, stopped, work
from seatrial.scheduler.api.clock import WallClock

Body = Callable[[ProcessRuntime], Awaitable[None]]
STAY = "while :; do sleep 0.05; done"
SERVE = (
    "import http.server as h\n"
    "class H(h.BaseHTTPRequestHandler):\n"
    "  def do_GET(s): s.send_response(int(s.path.strip('/'))); s.end_headers()\n"
    "  def log_message(s, *a): pass\n"
    "h.HTTPServer(('{ip}', {port}), H).serve_forever()\n"
)


def on_loop(root: Path, body: Body) -> None:
    groups = Cgroups(0, {}, "not asked for in this test")
    stages = Stages(restart=(0.05, 0.1))
    closing(lambda: ProcessRuntime(WallClock(), root, groups=groups, stages=stages), body)


def seen(reports: Reports, holds: Callable[[ContainerState], bool]) -> bool:
    return any(holds(states[0]) for states in reports.seen)


def command(text: str) -> dict[str, Any]:
    return {"exec": {"command": ["sh", "-c", text]}}


def probing(text: str, *, failures: int = 1) -> dict[str, Any]:
    """A probe each second; its timeout is more than a busy machine takes for a command."""
    return {**command(text), "periodSeconds": 1, "timeoutSeconds": int(WITHIN), "failureThreshold": failures}


def test_ready_by_a_command_and_no_more_without_it(tmp_path: Path) -> None:
    flag = tmp_path / "flag"

    async def body(runtime: ProcessRuntime) -> None:
        reports = Reports()
        runtime.start(work(STAY, readinessProbe=probing(f"test -e {flag}")), reports)
        assert not (await reports.until(lambda container: container.state == "running")).ready
        flag.touch()
        await reports.until(lambda container: container.ready and container.state == "running")
        flag.unlink()
        await reports.until(lambda container: not container.ready and container.state == "running")
        assert reports.last.restarts == 0

    on_loop(tmp_path / "pods", body)


def test_liveness_ends_what_no_longer_answers_and_it_is_started_again(tmp_path: Path) -> None:
    async def body(runtime: ProcessRuntime) -> None:
        reports = Reports()
        probe = {**probing("test ! -e stop"), "initialDelaySeconds": 0}
        runtime.start(work(f"sleep 0.2; touch stop; {STAY}", livenessProbe=probe), reports)
        again = await reports.until(lambda container: container.restarts >= 1 and container.state == "running")
        assert again.restarts == 1
        ends = [states[0] for states in reports.seen if states[0].state == "terminated"]
        assert ends[0].exit_code == 143
        assert ends[0].message.startswith("liveness probe failed: command ended with 1")

    on_loop(tmp_path, body)


def test_the_other_probes_wait_for_startup(tmp_path: Path) -> None:
    """A liveness probe that would fail at once does no harm before startup has succeeded."""
    flag, path = tmp_path / "flag", tmp_path / "asked"

    async def body(runtime: ProcessRuntime) -> None:
        reports = Reports()
        startup = probing(f"test -e {flag}", failures=300)
        runtime.start(work(STAY, startupProbe=startup, livenessProbe=probing(f"touch {path}")), reports)
        first = await reports.until(lambda container: container.state == "running")
        assert (first.up, first.ready) == (False, False)
        await asyncio.sleep(0.3)
        assert not path.exists()
        flag.touch()
        await reports.until(lambda container: container.up and container.ready)
        await eventually(path.exists)

    on_loop(tmp_path / "pods", body)


@pytest.mark.parametrize(
    ("probe", "ready"),
    [
        pytest.param({"httpGet": {"path": "/204", "port": "web"}}, True, id="an-answer-of-204-at-a-named-port"),
        pytest.param({"httpGet": {"path": "/302", "port": "web"}}, True, id="a-redirect"),
        pytest.param({"httpGet": {"path": "/500", "port": "web"}}, False, id="an-answer-of-500"),
        pytest.param({"httpGet": {"path": "/200", "port": "none"}}, False, id="a-port-that-has-no-name"),
        pytest.param({"tcpSocket": {"port": "web"}}, True, id="a-connection"),
        pytest.param({"tcpSocket": {"port": 1}}, False, id="no-server"),
        pytest.param({"grpc": {"port": 1}}, False, id="what-is-not-spoken-here"),
    ],
)
def test_ready_by_request(tmp_path: Path, probe: dict[str, Any], ready: bool) -> None:
    """On the pod's own address: another pod can use the same port on its address."""

    async def body(runtime: ProcessRuntime) -> None:
        ip, reports = "127.64.0.9", Reports()
        with socket.create_server((ip, 0)) as free:
            port = int(free.getsockname()[1])
        one = work(
            [sys.executable, "-c", SERVE.format(ip=ip, port=port)],
            ports=[{"name": "web", "containerPort": port}],
            readinessProbe={**probe, "periodSeconds": 1, "failureThreshold": 1},
            startupProbe={"tcpSocket": {"port": "web"}, "periodSeconds": 1, "failureThreshold": 300},
        )
        one.ip = ip
        runtime.start(one, reports)
        await reports.until(lambda state: state.up and state.state == "running")
        if ready:
            await reports.until(lambda state: state.ready)
        else:
            await asyncio.sleep(0.3)
            assert not reports.last.ready

    on_loop(tmp_path, body)


def test_hooks_before_it_counts_as_running_and_before_it_is_told_to_end(tmp_path: Path) -> None:
    story = tmp_path / "story"

    async def body(runtime: ProcessRuntime) -> None:
        reports = Reports()
        hooks = {"postStart": command(f"echo begun >> {story}"), "preStop": command(f"echo ending >> {story}")}
        one = work(f"trap 'echo term >> {story}; exit 0' TERM; echo trapped; {STAY}", lifecycle=hooks)
        runtime.start(one, reports)
        await reports.state("running")
        assert story.read_text() == "begun\n"
        await eventually(lambda: runtime.logs(one, "main") == b"trapped\n")
        await stopped(runtime, one, grace=600.0)
        assert story.read_text() == "begun\nending\nterm\n"

    on_loop(tmp_path / "pods", body)


def test_a_hook_that_fails_ends_the_container(tmp_path: Path) -> None:
    async def body(runtime: ProcessRuntime) -> None:
        reports = Reports()
        runtime.start(work(STAY, lifecycle={"postStart": command("exit 7")}, pod={"restartPolicy": "Never"}), reports)
        ended = await reports.until(lambda container: container.state == "terminated")
        assert ended.message == "PostStartHookError: command ended with 7"
        assert not seen(reports, lambda container: container.state == "running")

    on_loop(tmp_path, body)


def test_a_hook_takes_no_longer_than_the_grace(tmp_path: Path) -> None:
    async def body(runtime: ProcessRuntime) -> None:
        reports = Reports()
        one = work(STAY, lifecycle={"preStop": {"sleep": {"seconds": 600}}})
        runtime.start(one, reports)
        await reports.state("running")
        await stopped(runtime, one, grace=0.3)

    on_loop(tmp_path, body)


def with_sidecar(main: str, sidecar: str, **more: Any) -> Work:
    inits = [{"name": "side", "image": "x", "command": ["sh", "-c", sidecar], "restartPolicy": "Always", **more}]
    return work(main, pod={"initContainers": inits, "restartPolicy": "Never"})


def test_a_sidecar_is_up_before_the_others_and_ends_after_them(tmp_path: Path) -> None:
    flag, go_on = tmp_path / "flag", tmp_path / "go-on"

    async def body(runtime: ProcessRuntime) -> None:
        reports = Reports()
        probe = probing(f"test -e {flag}", failures=300)
        main = f"while [ ! -e {go_on} ]; do sleep 0.02; done"
        runtime.start(with_sidecar(main, f"sleep 0.3; touch {flag}; {STAY}", startupProbe=probe), reports)
        await reports.state("running")
        assert flag.exists(), "the container waited for its sidecar"
        go_on.touch()
        await reports.state("terminated")
        await eventually(lambda: reports.seen[-1][1].state == "terminated")
        assert reports.seen[-1][1].restarts == 0
        begun = next(states for states in reports.seen if states[0].state == "running")
        assert (begun[1].name, begun[1].state, begun[1].up, begun[1].init) == ("side", "running", True, True)

    on_loop(tmp_path / "pods", body)


def test_volumes_are_shared_by_containers_and_runs_and_go_with_the_pod(tmp_path: Path) -> None:
    async def body(runtime: ProcessRuntime) -> None:
        reports = Reports()
        at = "$CONTAINER_SANDBOX_MOUNT_POINT"
        mount = [{"name": "v", "mountPath": "/data/in"}]
        init = {
            "name": "first",
            "image": "x",
            "command": ["sh", "-c", f"echo of the first > {at}/data/in/note"],
            "volumeMounts": mount,
        }
        pod = {"initContainers": [init], "volumes": [{"name": "v", "emptyDir": {}}], "restartPolicy": "Never"}
        one = work(f"cat {at}/data/in/note note; pwd", pod=pod, volumeMounts=mount, workingDir="/data/in")
        runtime.start(one, reports)
        await reports.state("terminated")
        lines = (runtime.logs(one, "main") or b"").decode().splitlines()
        assert lines[:2] == ["of the first", "of the first"]
        await stopped(runtime, one)
        assert not (tmp_path / one.uid).exists()

    on_loop(tmp_path, body)


@pytest.mark.parametrize(
    ("spec", "container", "saying"),
    [
        pytest.param(
            {"volumes": [{"name": "v", "nfs": {}}]}, {}, "volume 'v': expected emptyDir", id="a-volume-of-a-driver"
        ),
        pytest.param(
            {},
            {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]},
            "couldn't find key k in configmap c",
            id="a-key-that-is-not-there",
        ),
    ],
)
def test_what_cannot_be_put_around_it_keeps_it_waiting(
    tmp_path: Path, spec: dict[str, Any], container: dict[str, Any], saying: str
) -> None:
    async def body(runtime: ProcessRuntime) -> None:
        reports = Reports()
        runtime.start(work(STAY, pod=spec, **container), reports)
        waiting = await reports.until(lambda container: container.reason == "CreateContainerConfigError")
        assert waiting.message.startswith(saying)

    on_loop(tmp_path, body)
