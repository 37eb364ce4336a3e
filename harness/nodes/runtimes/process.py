"""Pods as processes of this machine: no image, no container engine, no root needed.

A container's command is a program of this machine (`busybox:stable` with `sh` is this machine's `sh`). Each run has its
own folder, which is its working directory and contains its log, and a supervisor (supervisor.py) that ends it when this
agent ends. Everything else is shared with the machine: files, network, process numbers, devices. The vendors' variables
(`CUDA_VISIBLE_DEVICES` and others) restrict a process to the cards that it was granted. Limits are enforced where
control groups can be created; `limits` is whether they can.
"""

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from seatrial.harness.apiserver.conversation import Conversation, StreamSelection
from seatrial.harness.devices.provider import Device
from seatrial.harness.nodes.container_error import ContainerError
from seatrial.harness.nodes.pods import ContainerPlan
from seatrial.harness.nodes.runtimes import cgroups
from seatrial.harness.nodes.runtimes.command_streams import Attached, Command, Ends
from seatrial.harness.nodes.runtimes.commands import Limits, environment, found_here, limits_of, visible_cards, words
from seatrial.harness.nodes.runtimes.lifecycle import (
    NO_IMAGE,
    NOT_CREATED,
    Blocked,
    LifecycleRuntime,
    RealContainer,
    RealPod,
    Run,
)
from seatrial.harness.nodes.runtimes.protocol import NO_CONFIG, ContainerState, Report, Work
from seatrial.harness.nodes.runtimes.simulated import Stages
from seatrial.harness.nodes.runtimes.supervised_process import Plan, SupervisedProcess
from seatrial.harness.nodes.runtimes.volumes import CannotMount, Mounted, mounts, prepare
from seatrial.harness.nodes.variables import Unresolved
from seatrial.scheduler.api.clock import Clock

log = logging.getLogger(__name__)

SANDBOX = "CONTAINER_SANDBOX_MOUNT_POINT"  # the name that Windows' host-process containers use
MOUNTS, VOLUMES = ".mounts", ".volumes"  # in a pod's folder; no container has such a name
TERMINAL = "xterm"  # the variable TERM of a container with a terminal
MAX_LOG = 64 << 20  # bytes at the end of a log that are read back


class ProcessRuntime(LifecycleRuntime):
    """Runs containers as processes, which outlive this object by at most `linger` seconds."""

    name = "process"
    version = "1"

    def __init__(
        self,
        clock: Clock,
        root: Path,
        *,
        stages: Stages | None = None,
        linger: float = 0.0,
        groups: cgroups.Cgroups | None = None,
        cards: Callable[[], Sequence[Device]] = tuple,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            clock: Real time, on the event loop of the caller.
            root: The folder of all pods. One runtime at a time may use it.
            stages: The pauses between restarts.
            linger: Seconds that containers outlive an agent that died, so that its successor can take them over.
            groups: Where to create control groups; searched if not given.
            cards: The cards of this machine.
            env: Variables for every container that does not set them itself, such as the path of a stand-in's
                libraries.
        """
        super().__init__(clock, stages)
        self._root, self._linger, self._cards, self._env = root, linger, cards, dict(env or {})
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._groups = cgroups.find(cgroups.name_for(root)) if groups is None else groups
        self._said_unlimited = False
        self._commands = count()

    @property
    def limits(self) -> str:
        """How limits are enforced, or why they are not."""
        return str(self._groups)

    def resume(self, work: Work, states: tuple[ContainerState, ...], report: Report) -> bool:
        pod = RealPod(work, report)
        if not self._folder(pod).is_dir():
            return False
        self._pods[work.uid] = pod
        known = {state.name: state for state in states}
        for container in pod.every:
            runs = self._runs(pod, container)
            if runs:
                container.state = replace(known.get(container.plan.name, container.state), restarts=runs[-1])
                self._take_up(pod, container, self._run_folder(pod, container, runs[-1]))
        if all(init.state.state == "terminated" or init.plan.restart_policy == "Always" for init in pod.inits):
            self._clock.call_soon(lambda: self._next(pod))
        return True

    def logs(self, work: Work, container: str) -> bytes | None:
        pod = self._pod_and_container(work, container)
        runs = self._runs(*pod) if pod else []
        if pod is None or not runs:
            return None
        try:
            with (self._run_folder(*pod, runs[-1]) / "log").open("rb") as file:
                file.seek(max(0, file.seek(0, 2) - MAX_LOG))
                return file.read()
        except OSError:
            return None

    def processes(self, work: Work) -> tuple[int, ...]:
        pod = self._pods.get(work.uid)
        runs = [container.run for container in pod.every] if pod is not None else []
        states = [
            run.status for run in runs if isinstance(run, SupervisedProcess) and run.status.running and not run.gone
        ]
        return (*(status.main[0] for status in states), *(status.supervisor[0] for status in states))

    async def exec(
        self, work: Work, container: str, command: Sequence[str], selection: StreamSelection
    ) -> Conversation:
        pod, real, _ = self._living(work, container)
        run = self._run_folder(pod, real, real.state.restarts)
        folder = run / f"exec-{next(self._commands)}"
        env = self._environment(pod, real.plan)
        if selection.tty:
            env.setdefault("TERM", TERMINAL)

        def launch(rounds: Callable[[], None]) -> SupervisedProcess:
            def changed() -> None:
                rounds()
                if process.gone:
                    real.side.remove(process)
                    shutil.rmtree(folder, ignore_errors=True)
                    self._stopped(pod)

            groups = [str(group) for group in real.groups]
            plan = Plan(
                list(command),
                env,
                self._working_folder(real.plan, run),
                "",
                groups,
                owner=False,
                ends=ends.program,
                tty=selection.tty,
            )
            process = SupervisedProcess.launch(folder, plan, self._clock, changed)
            real.side.append(process)
            return process

        try:
            ends = Ends(selection)
            return Command(ends, selection, launch)
        except OSError as error:
            raise ContainerError(f"container {container!r} of pod {work.pod.key}: {error.strerror}") from error

    async def attach(self, work: Work, container: str, selection: StreamSelection) -> Conversation:
        pod, real, process = self._living(work, container)
        log_file = self._run_folder(pod, real, real.state.restarts) / "log"
        plan = real.plan
        try:
            return Attached(process, log_file, selection, self._clock, stdin=plan.stdin, once=plan.stdin_once)
        except OSError as error:
            raise ContainerError(f"container {container!r} of pod {work.pod.key}: {error.strerror}") from error

    def _living(self, work: Work, container: str) -> tuple[RealPod, RealContainer, SupervisedProcess]:
        """
        Raises:
            ContainerError: it does not run.
        """
        pod = self._pod_and_container(work, container)
        if pod is None or not pod[1].lives or not isinstance(pod[1].run, SupervisedProcess):
            raise ContainerError(f"container {container!r} of pod {work.pod.key} is not running")
        return *pod, pod[1].run

    def close(self) -> None:
        super().close()
        self._groups.clear()

    # -- a run --------------------------------------------------------------------------------------------------------

    def _begin(self, pod: RealPod, container: RealContainer, changed: Callable[[], object]) -> Run:
        env = self._surroundings(pod, container)
        command, args = words(container.plan, env)
        number = container.state.restarts
        folder = self._run_folder(pod, container, number)
        working = self._working_folder(container.plan, folder)
        _check(container.plan, command, env, working)
        limits = limits_of(container.plan)
        if limits and not self._groups and not self._said_unlimited:
            self._said_unlimited = True
            log.warning("limits by-process pod=%s why=%s", pod.work.pod.key, self._groups.why)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(self._run_folder(pod, container, number - 2), ignore_errors=True)  # the last two are kept
        try:
            above = self._groups.open_pod(pod.qos, pod.work.uid, [limits_of(each.plan) for each in pod.containers])
            name = self._id(pod, container).rpartition("/")[2]
            container.groups = self._groups.make(self._groups.container(above, name), limits)
            groups = [str(group) for group in container.groups]
            alone = limits if not self._groups else Limits()
            plan = Plan(
                [*command, *args],
                env,
                working,
                str(folder / "log"),
                groups,
                memory=alone.memory or 0,
                cores=-(-(alone.cpu or 0) // 1000),
                linger=self._linger,
                stdin=container.plan.stdin,
                tty=container.plan.tty,
            )
            _link(self._sandbox(pod, container), mounts(pod.work, container.plan, self._volumes(pod)))
            return SupervisedProcess.launch(folder, plan, self._clock, changed)
        except OSError as error:
            raise Blocked(NOT_CREATED, f"{error.filename}: {error.strerror}") from error

    def _take_up(self, pod: RealPod, container: RealContainer, run: Path) -> None:
        """Take over the run of an earlier agent, which may have ended meanwhile."""
        changed = partial(self._changed, pod, container)
        process = container.run = SupervisedProcess.take_up(run, self._clock, changed)
        status = process.status
        if container.init and process.gone and status.code == 0:
            container.state = replace(container.state, state="terminated", reason="Completed", exit_code=0)
        elif process.gone:
            self._clock.call_soon(changed)
        elif status.running:
            container.state = self._running(pod, container, status.started)

    def _over(self, pod: RealPod, container: RealContainer) -> None:
        if not cgroups.remove(container.groups):
            log.info("group busy pod=%s container=%s", pod.work.pod.key, container.plan.name)

    def _cleared(self, pod: RealPod) -> None:
        self._groups.close_pod(pod.qos, pod.work.uid)
        shutil.rmtree(self._folder(pod), ignore_errors=True)

    # -- names --------------------------------------------------------------------------------------------------------

    def _environment(self, pod: RealPod, plan: ContainerPlan) -> dict[str, str]:
        grant = pod.work.grants.get(plan.name)
        cards = visible_cards(grant.nodes if grant else (), self._cards())
        terminal = {"TERM": TERMINAL} if plan.tty else {}
        env = {**terminal, **self._env, **environment(pod.work, plan), **cards}
        return {SANDBOX: str(self._folder(pod) / MOUNTS / plan.name), **env} if plan.volume_mounts else env

    def _surroundings(self, pod: RealPod, container: RealContainer) -> dict[str, str]:
        """Prepare the volumes, then the variables, one of which is the path of the volumes.

        Raises:
            Blocked: a volume is not available, or an object lacks the key that a variable refers to.
        """
        try:
            prepare(pod.work, self._volumes(pod))
            mounts(pod.work, container.plan, self._volumes(pod))
            return self._environment(pod, container.plan)
        except (CannotMount, Unresolved, OSError) as error:
            raise Blocked(NO_CONFIG, str(error)) from error

    def _volumes(self, pod: RealPod) -> Path:
        return self._folder(pod) / VOLUMES

    def _sandbox(self, pod: RealPod, container: RealContainer) -> Path:
        return self._folder(pod) / MOUNTS / container.plan.name

    def _folder(self, pod: RealPod) -> Path:
        return self._root / pod.work.uid

    def _run_folder(self, pod: RealPod, container: RealContainer, number: int) -> Path:
        return self._folder(pod) / container.plan.name / str(number)

    def _working_folder(self, plan: ContainerPlan, run: Path) -> str:
        """`workingDir` on this machine or below a mount; the run's own folder if the container sets none."""
        if _below_a_mount(plan):
            return f"{run.parent.parent}/{MOUNTS}/{plan.name}/{plan.working_dir.lstrip('/')}"
        return plan.working_dir or str(run / "work")

    def _runs(self, pod: RealPod, container: RealContainer) -> list[int]:
        folder = self._folder(pod) / container.plan.name
        return sorted(int(each.name) for each in folder.iterdir()) if folder.is_dir() else []


def _link(sandbox: Path, mounted: Sequence[Mounted]) -> None:
    """Create a symbolic link below `sandbox` for each mount; a mount below another one is created inside it."""
    shutil.rmtree(sandbox, ignore_errors=True)
    for mount in mounted:
        at = sandbox / mount.target.lstrip("/")
        at.parent.mkdir(parents=True, exist_ok=True)
        if at.is_symlink() or at.exists():
            continue  # the outer volume has a folder of that name
        at.symlink_to(mount.source)


def _below_a_mount(plan: ContainerPlan) -> bool:
    return any(Path(plan.working_dir).is_relative_to(mount.mount_path) for mount in plan.volume_mounts)


def _check(plan: ContainerPlan, command: list[str], env: dict[str, str], working: str) -> None:
    """
    Raises:
        Blocked: the container needs what only an image could provide.
    """
    image = f"image {plan.image!r}"
    if not command:
        why = "the process runtime pulls no images, so a container needs a `command`; found none"
    elif plan.working_dir and not _below_a_mount(plan) and not Path(working).is_dir():
        why = f"the process runtime pulls no images, and workingDir {working!r} is not on this machine"
    elif not found_here(command[0], env, working):
        why = f"the process runtime pulls no images, and there is no program {command[0]!r} on this machine"
    else:
        return
    raise Blocked(NO_IMAGE, f"{image}: {why}")
