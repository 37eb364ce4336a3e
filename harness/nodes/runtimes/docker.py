"""Pods as Docker containers, through the engine's API.

Docker's restart policies are not used: restarts follow kubelet's rules (lifecycle.py). Containers share the machine's
network, so a pod's address is the node's. Labels mark our containers. Docker does not end containers with their agent,
so a small process waits for the agent's end and removes them; if that process is killed too, the next agent removes
them.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound

from seatrial.harness.apiserver.conversation import Conversation, StreamSelection
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.errors import ClusterError
from seatrial.harness.nodes.container_error import ContainerError
from seatrial.harness.nodes.pods import ContainerPlan
from seatrial.harness.nodes.runtimes.cgroups import Cgroups
from seatrial.harness.nodes.runtimes.commands import environment, limits_of, words
from seatrial.harness.nodes.runtimes.docker_run import DockerRun
from seatrial.harness.nodes.runtimes.docker_streams import Engine, HostedCommand, HostedProgram
from seatrial.harness.nodes.runtimes.lifecycle import (
    NO_IMAGE,
    NOT_CREATED,
    Blocked,
    LifecycleRuntime,
    RealContainer,
    RealPod,
)
from seatrial.harness.nodes.runtimes.protocol import NO_CONFIG, ContainerState, Report, Work
from seatrial.harness.nodes.runtimes.simulated import Stages
from seatrial.harness.nodes.runtimes.volumes import CannotMount, Mounted, mounts, prepare
from seatrial.harness.nodes.variables import Unresolved
from seatrial.harness.processes import has_ended, own_identity
from seatrial.scheduler.api.clock import Clock, Timer

log = logging.getLogger(__name__)

OWNER, UID, CONTAINER, COUNT = (f"seatrial.dev/{label}" for label in ("owner", "pod-uid", "container", "restarts"))
DEFAULT_URL = "unix:///var/run/docker.sock"
POLL = 0.2  # seconds between two inspections of running containers
ANSWER_WITHIN = 60  # seconds until a request to the engine times out
_RUNTIMES = {vendor.names.variable: vendor.oci_runtime for vendor in VENDORS.values() if vendor.oci_runtime}
_GONE = {404, 409}  # 409: its removal is in progress
_SET_BY_IMAGE = ("PATH", "HOSTNAME")
_LIBRARIES = "/usr/local/seatrial/lib"
LIBRARY_PATH = "LD_LIBRARY_PATH"


class DockerRuntime(LifecycleRuntime):
    """Requests to the engine run in a pool of threads, except for `logs` and `resume`, which block."""

    name = "docker"

    def __init__(
        self,
        clock: Clock,
        *,
        url: str = "",
        owner: str = "",
        devices: bool = True,
        libraries: Path | None = None,
        folder: Path | None = None,
        stages: Stages | None = None,
        groups: Cgroups | None = None,
    ) -> None:
        """
        Args:
            clock: Real time, on the event loop of the caller.
            url: The engine's address; empty: as `docker` finds it.
            owner: The owner's label. Containers with an owner outlive the agent, for a successor with the same name;
                empty means this process, and they are removed when it ends.
            devices: Whether granted device nodes exist on this machine; simulated ones do not.
            libraries: A folder with stand-ins of the vendors' libraries, mounted into every container.
            folder: The folder for pods' volumes; without one, pods with volumes do not start.
            stages: The pauses between restarts.
            groups: Where the control groups of pods are; without them, or if the engine leaves groups to systemd, where
                the engine makes those of containers.

        Raises:
            ClusterError: no engine answers.
        """
        super().__init__(clock, stages)
        self.clock = clock
        self._owner = owner or own_identity()
        self._devices, self._libraries, self._folder = devices, libraries, folder
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(8, "docker")
        self._runs: dict[str, DockerRun] = {}  # by container id
        self._timer: Timer | None = None
        try:
            self._client = _client(url)
            self.version = str(self._client.version()["Version"])
            info = self._client.info()
            self._known_runtimes = set(info.get("Runtimes") or ())
            by_path = info.get("CgroupDriver") == "cgroupfs"  # systemd has another tree of names
            self._groups = groups if groups is not None and by_path else Cgroups(0, {}, "the engine makes them")
            self._clear_leftovers()
            self._engine = Engine(self._client, self._in_pool, clock)
            self._sweeper = _sweeper(url, self._owner) if not owner else None
        except DockerException as error:
            raise ClusterError(f"no Docker engine answers: {error}") from error

    @property
    def cgroup_parent(self) -> str:
        """The control group in which those of pods are, for a node agent; "" if there is none."""
        return self._groups.path

    # -- Runtime ------------------------------------------------------------------------------------------------------

    def resume(self, work: Work, states: tuple[ContainerState, ...], report: Report) -> bool:
        try:
            containers = self._client.api.containers(
                all=True, filters={"label": [f"{OWNER}={self._owner}", f"{UID}={work.uid}"]}
            )
        except DockerException as error:
            log.warning("resume failed pod=%s why=%s", work.pod.key, error)
            return False
        if not containers:
            return False
        pod = self._pods[work.uid] = RealPod(work, report)
        known = {state.name: state for state in states}
        for row in sorted(containers, key=lambda each: int(each["Labels"][COUNT])):
            container = next((each for each in pod.every if each.plan.name == row["Labels"][CONTAINER]), None)
            if container is not None:
                container.state = replace(
                    known.get(container.plan.name, container.state), restarts=int(row["Labels"][COUNT])
                )
                container.run = DockerRun(self, partial(self._changed, pod, container), row["Id"])
        self._runs.update(
            {container.run.id: container.run for container in pod.every if isinstance(container.run, DockerRun)}
        )
        self._clock.call_soon(self._look)
        return True

    def logs(self, work: Work, container: str) -> bytes | None:
        pod = self._pod_and_container(work, container)
        run = pod[1].run if pod else None
        if not isinstance(run, DockerRun) or not run.id:
            return None
        try:
            return bytes(self._client.api.logs(run.id, stdout=True, stderr=True))
        except DockerException:
            return None

    def processes(self, work: Work) -> tuple[int, ...]:
        pod = self._pods.get(work.uid)
        runs = [container.run for container in pod.every] if pod is not None else []
        return tuple(run.status.pid for run in runs if isinstance(run, DockerRun) and run.status.running)

    async def exec(
        self, work: Work, container: str, command: Sequence[str], selection: StreamSelection
    ) -> Conversation:
        _, run = self._living(work, container)
        with _in_words(work, container):
            return await HostedCommand.begin(self._engine, run.id, command, selection)

    async def attach(self, work: Work, container: str, target: StreamSelection) -> Conversation:
        plan, run = self._living(work, container)
        with _in_words(work, container):
            selection = replace(target, stdin=target.stdin and plan.stdin)
            return await HostedProgram.begin(self._engine, run.id, selection, tty=plan.tty)

    def _living(self, work: Work, container: str) -> tuple[ContainerPlan, DockerRun]:
        """
        Raises:
            ContainerError: it does not run.
        """
        pod = self._pod_and_container(work, container)
        run = pod[1].run if pod else None
        if pod is None or not isinstance(run, DockerRun) or not run.status.running:
            raise ContainerError(f"container {container!r} of pod {work.pod.key} is not running")
        return pod[1].plan, run

    async def _in_pool(self, ask: Callable[[], Any]) -> Any:
        return await self._loop.run_in_executor(self._pool, ask)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().close()
        self._runs.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)
        remove_all(self._client, self._owner)
        self._client.close()
        self._groups.clear()
        if self._sweeper is not None:
            self._sweeper.communicate()  # it ends when its input closes and no container is left

    # -- for runs -----------------------------------------------------------------------------------------------------

    def send(self, id_: str, number: signal.Signals) -> None:
        """Send a signal to a container's first process; no effect if it has ended."""

        def ask() -> None:
            with contextlib.suppress(APIError):
                self._client.api.kill(id_, number.value)

        self._loop.run_in_executor(self._pool, ask)

    def watch(self, run: DockerRun) -> None:
        """Inspect a container from now on."""
        self._runs[run.id] = run
        self._look_soon(0.0)

    # -- a run --------------------------------------------------------------------------------------------------------

    def _begin(self, pod: RealPod, container: RealContainer, changed: Callable[[], object]) -> DockerRun:
        run = DockerRun(self, changed)
        old = container.run.id if isinstance(container.run, DockerRun) else ""
        try:
            arguments = self._create_arguments(pod, container)
        except (CannotMount, Unresolved, OSError) as error:
            raise Blocked(NO_CONFIG, str(error)) from error

        def ask() -> str | Blocked:
            if old:
                _remove(self._client, old)
            return self._create(container.plan.image, arguments)

        def answered(done: "asyncio.Future[str | Blocked]") -> None:
            if not done.cancelled():
                error = done.exception()
                run.created(Blocked(NOT_CREATED, str(error)) if error is not None else done.result())

        self._loop.run_in_executor(self._pool, ask).add_done_callback(answered)
        return run

    def _create(self, image: str, amounts: dict[str, Any]) -> str | Blocked:
        """Pull the image if it is missing, create the container and start it. Runs in the pool."""
        try:
            try:
                self._client.images.get(image)
            except ImageNotFound:
                self._client.images.pull(image)
        except DockerException as error:
            return Blocked(NO_IMAGE, f"image {image!r}: {_message(error)}")
        try:
            _remove(self._client, amounts["name"])
            made = self._client.containers.create(image, **amounts)
        except DockerException as error:
            return Blocked(NOT_CREATED, _message(error))
        try:
            made.start()
        except DockerException as error:
            _remove(self._client, str(made.id))
            return Blocked("RunContainerError", _message(error))
        return str(made.id)

    def _create_arguments(self, pod: RealPod, container: RealContainer) -> dict[str, Any]:
        """The arguments of the engine's create request."""
        plan = container.plan
        env = environment(pod.work, plan)
        own = {variable.name for variable in plan.env}
        command, args = words(plan, env)
        grant = pod.work.grants.get(plan.name)
        limits = limits_of(plan)
        commands: dict[str, Any] = {
            "name": f"seatrial-{pod.work.uid}-{plan.name}-{container.state.restarts}",
            "labels": {
                OWNER: self._owner,
                UID: pod.work.uid,
                CONTAINER: plan.name,
                COUNT: str(container.state.restarts),
            },
            "environment": {key: value for key, value in env.items() if key in own or key not in _SET_BY_IMAGE},
            "network_mode": "host",
            "tty": plan.tty,
        }
        if self._groups:
            above = self._groups.open_pod(pod.qos, pod.work.uid, [limits_of(each.plan) for each in pod.containers])
            commands["cgroup_parent"] = f"/{self._groups.path}/{above}"
        if plan.stdin:
            commands["stdin_open"] = True
            commands["detach"] = not plan.stdin_once  # the input stays open after its first client
        if command:
            commands["entrypoint"] = command
        if args:
            commands["command"] = args
        if plan.working_dir:
            commands["working_dir"] = plan.working_dir
        if limits.memory is not None:
            commands["mem_limit"] = commands["memswap_limit"] = limits.memory
        if limits.cpu is not None:
            commands["nano_cpus"] = limits.cpu * 1_000_000
        if grant is not None and self._devices:
            commands["devices"] = [f"{node}:{node}:rwm" for node in grant.nodes if Path(node).exists()]
            commands["runtime"] = next(
                (name for key, name in _RUNTIMES.items() if key in grant.env and name in self._known_runtimes), None
            )
        if grant is not None:
            commands["volumes"] = {
                mount.host: {"bind": mount.container, "mode": "ro" if mount.read_only else "rw"}
                for mount in grant.mounts
                if Path(mount.host).exists()
            }
        for mounted in self._mounts(pod, container):
            mode = "ro" if mounted.read_only else "rw"
            commands.setdefault("volumes", {})[str(mounted.source)] = {"bind": mounted.target, "mode": mode}
        if self._libraries is not None:
            commands.setdefault("volumes", {})[str(self._libraries)] = {"bind": _LIBRARIES, "mode": "ro"}
            commands["environment"].setdefault(LIBRARY_PATH, _LIBRARIES)
        return commands

    def _mounts(self, pod: RealPod, container: RealContainer) -> list[Mounted]:
        """
        Raises:
            CannotMount: a volume is not available.
        """
        if not container.plan.volume_mounts:
            return []
        if self._folder is None:
            raise CannotMount(
                f"container {container.plan.name!r}: this runtime was started without a folder for volumes"
            )
        prepare(pod.work, self._folder / pod.work.uid)
        return mounts(pod.work, container.plan, self._folder / pod.work.uid)

    def _cleared(self, pod: RealPod) -> None:
        self._groups.close_pod(pod.qos, pod.work.uid)
        if self._folder is not None:
            shutil.rmtree(self._folder / pod.work.uid, ignore_errors=True)

    def _id(self, pod: RealPod, container: RealContainer) -> str:  # noqa: ARG002 the engine's ID is unique
        return f"docker://{container.run.id}" if isinstance(container.run, DockerRun) else ""

    def _over(self, pod: RealPod, container: RealContainer) -> None:
        run = container.run
        if isinstance(run, DockerRun) and pod.stopping and run.id:
            self._runs.pop(run.id, None)
            self._loop.run_in_executor(self._pool, _remove, self._client, run.id)

    # -- inspection ---------------------------------------------------------------------------------------------------

    def _look_soon(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(delay, self._look)

    def _look(self) -> None:
        self._timer = None
        ids = [run.id for run in self._runs.values() if not run.gone]
        if ids:
            self._loop.run_in_executor(self._pool, self._states, ids).add_done_callback(self._looked)

    def _states(self, device: list[str]) -> dict[str, dict[str, Any] | None]:
        """The engine's state of these containers; None for an unknown one. Runs in the pool."""
        listed = self._client.api.containers(all=True, filters={"label": f"{OWNER}={self._owner}"})
        states: dict[str, dict[str, Any] | None] = {}
        there = {row["Id"]: row["State"] for row in listed}
        for id_ in device:
            run = self._runs.get(id_)
            if run is not None and run.status.running and there.get(id_) == "running":
                continue  # as before
            try:
                states[id_] = self._client.api.inspect_container(id_)["State"]
            except NotFound:
                states[id_] = None
        return states

    def _looked(self, done: "asyncio.Future[dict[str, dict[str, Any] | None]]") -> None:
        if done.cancelled() or self._loop.is_closed():
            return
        if self._runs:
            self._look_soon(POLL)
        error = done.exception()
        if error is not None:
            log.warning("engine silent why=%s", error)
            return
        for id_, state in done.result().items():
            run = self._runs.get(id_)
            if run is not None:
                with self._clock.faults.guard("DockerRuntime.seen", id_):
                    run.seen(state)
                if run.gone:
                    self._runs.pop(id_, None)

    # -- clearing -----------------------------------------------------------------------------------------------------

    def _clear_leftovers(self) -> None:
        """Remove the containers of processes that are gone."""
        for row in self._client.api.containers(all=True, filters={"label": OWNER}):
            if has_ended(row["Labels"][OWNER]):
                log.info("leftover removed container=%s", row["Id"])
                _remove(self._client, row["Id"])


def remove_all(client: docker.DockerClient, owner: str) -> None:
    """Remove every container of an owner, whatever it does."""
    try:
        for row in client.api.containers(all=True, filters={"label": f"{OWNER}={owner}"}):
            _remove(client, row["Id"])
    except DockerException as error:
        log.warning("containers left owner=%s why=%s", owner, error)


def sweep(url: str, owner: str) -> None:
    """Wait until the parent is gone, and remove its containers."""
    sys.stdin.buffer.read()  # nothing is ever written: it ends when the other end is closed, by whatever death
    client = _client(url)
    try:
        remove_all(client, owner)
    finally:
        client.close()


def _sweeper(url: str, owner: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", __name__, url, owner],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def unreachable(url: str = "") -> str | None:
    """Why no Docker engine can be used, in a sentence; None if one can."""
    try:
        client = _client(url)
        try:
            client.ping()
        finally:
            client.close()
    except DockerException as error:
        return f"no Docker engine answers ({_message(error)}); start one, or set DOCKER_HOST"
    return None


def _client(url: str) -> docker.DockerClient:
    """
    Raises:
        DockerException: no engine answers.
    """
    url = url or os.environ.get("DOCKER_HOST", DEFAULT_URL)
    if url.startswith("unix://"):
        # docker-py leaks its socket if the connection is refused, so it is only used where a server accepts one.
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(url.removeprefix("unix://"))
            except OSError as error:
                raise DockerException(f"{url}: {error.strerror}") from error
        return docker.DockerClient(base_url=url, timeout=ANSWER_WITHIN)
    return docker.from_env(timeout=ANSWER_WITHIN, environment={**os.environ, "DOCKER_HOST": url})


@contextlib.contextmanager
def _in_words(work: Work, container: str) -> Iterator[None]:
    try:
        yield
    except DockerException as error:
        raise ContainerError(f"container {container!r} of pod {work.pod.key}: {_message(error)}") from error


def _remove(client: docker.DockerClient, id_: str) -> None:
    """Remove a container in any state; no error if it is removed already or being removed."""
    try:
        client.api.remove_container(id_, force=True, v=True)
    except APIError as error:
        if error.status_code not in _GONE:
            log.warning("container left id=%s why=%s", id_, error)


def _message(error: DockerException) -> str:
    return str(getattr(error, "explanation", "") or error)


if __name__ == "__main__":
    sweep(sys.argv[1], sys.argv[2])
