"""Pods as processes of this machine: no image, no container engine, no root needed.

A container's command is a program of this machine (`busybox:stable` with `sh` is this machine's `sh`). Each run has a
folder of its own, which is its working directory and holds its log, and a keeper (keeper.py) that ends it when this
agent is gone. What a process shares with the machine is everything else: files, network, process numbers, devices; the
vendors' own variables (`CUDA_VISIBLE_DEVICES` and its kin) keep it to the cards that it was granted. Limits hold where
control groups can be made; `limits` says whether they can.
"""

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from seatrial.harness.conversation import Conversation, Wanted
from seatrial.harness.devices.provider import Device
from seatrial.harness.errors import ClusterError
from seatrial.harness.nodes.pods import ContainerPlan
from seatrial.harness.nodes.runtimes import cgroups
from seatrial.harness.nodes.runtimes.commands import Limits, environment, found_here, limits_of, visible_cards, words
from seatrial.harness.nodes.runtimes.kept import Kept, Plan
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
from seatrial.harness.nodes.runtimes.speaking import Attached, Command, Ends
from seatrial.harness.nodes.runtimes.volumes import CannotMount, Mounted, mounts, prepare
from seatrial.harness.nodes.variables import Unresolved
from seatrial.scheduler.api.clock import Clock

log = logging.getLogger(__name__)

SANDBOX = "CONTAINER_SANDBOX_MOUNT_POINT"  # the name that Windows' host-process containers have for it
MOUNTS, VOLUMES = ".mounts", ".volumes"  # in a pod's folder; no container has such a name
TERMINAL = "xterm"  # what a container with a terminal is told that it is
MOST_LOG = 64 << 20  # bytes of a log that are read back, the last ones


class ProcessRuntime(LifecycleRuntime):
    """See the module; nothing of what it started outlives it by more than `linger` seconds."""

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
            clock: Real time, over the loop that everything here runs on.
            root: The folder of all pods. One runtime at a time may use it.
            stages: The pauses between restarts.
            linger: Seconds that containers outlive an agent that died, so that its successor can take them up.
            groups: Where to make control groups; looked for if not given.
            cards: The cards of this machine.
            env: Variables for every container that does not set them itself, as where a stand-in's libraries are.
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
        found = self._found(work, container)
        runs = self._runs(*found) if found else []
        if found is None or not runs:
            return None
        try:
            with (self._run_folder(*found, runs[-1]) / "log").open("rb") as file:
                file.seek(max(0, file.seek(0, 2) - MOST_LOG))
                return file.read()
        except OSError:
            return None

    def processes(self, work: Work) -> tuple[int, ...]:
        pod = self._pods.get(work.uid)
        runs = [container.run for container in pod.every] if pod is not None else []
        kept = [run.status for run in runs if isinstance(run, Kept) and run.status.running and not run.gone]
        return (*(process.main[0] for process in kept), *(process.keeper[0] for process in kept))

    async def exec(self, work: Work, container: str, command: Sequence[str], wanted: Wanted) -> Conversation:
        pod, one, _ = self._living(work, container)
        run = self._run_folder(pod, one, one.state.restarts)
        folder = run / f"exec-{next(self._commands)}"
        env = self._environment(pod, one.plan)
        if wanted.tty:
            env.setdefault("TERM", TERMINAL)

        def launch(told: Callable[[], None]) -> Kept:
            def changed() -> None:
                told()
                if kept.gone:
                    one.side.remove(kept)
                    shutil.rmtree(folder, ignore_errors=True)
                    self._stopped(pod)

            groups = [str(group) for group in one.groups]
            plan = Plan(
                list(command), env, self._working_folder(one.plan, run), "", groups, owner=False, ends=ends.program,
                tty=wanted.tty,
            )  # fmt: skip
            kept = Kept.launch(folder, plan, self._clock, changed)
            one.side.append(kept)
            return kept

        try:
            ends = Ends(wanted)
            return Command(ends, wanted, launch)
        except OSError as error:
            raise ClusterError(f"container {container!r} of pod {work.pod.key}: {error.strerror}") from error

    async def attach(self, work: Work, container: str, wanted: Wanted) -> Conversation:
        pod, one, kept = self._living(work, container)
        log_file = self._run_folder(pod, one, one.state.restarts) / "log"
        plan = one.plan
        try:
            return Attached(kept, log_file, wanted, self._clock, stdin=plan.stdin, once=plan.stdin_once)
        except OSError as error:
            raise ClusterError(f"container {container!r} of pod {work.pod.key}: {error.strerror}") from error

    def _living(self, work: Work, container: str) -> tuple[RealPod, RealContainer, Kept]:
        """
        Raises:
            ClusterError: it does not run.
        """
        found = self._found(work, container)
        if found is None or not found[1].lives or not isinstance(found[1].run, Kept):
            raise ClusterError(f"container {container!r} of pod {work.pod.key} is not running")
        return *found, found[1].run

    def close(self) -> None:
        super().close()
        self._groups.clear()

    # -- a run --------------------------------------------------------------------------------------------------------

    def _begin(self, pod: RealPod, one: RealContainer, changed: Callable[[], object]) -> Run:
        env = self._surroundings(pod, one)
        command, args = words(one.plan, env)
        number = one.state.restarts
        folder = self._run_folder(pod, one, number)
        working = self._working_folder(one.plan, folder)
        _check(one.plan, command, env, working)
        limits = limits_of(one.plan)
        if limits and not self._groups and not self._said_unlimited:
            self._said_unlimited = True
            log.warning("limits by-process pod=%s why=%s", pod.work.pod.key, self._groups.why)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(self._run_folder(pod, one, number - 2), ignore_errors=True)  # the last two are kept
        try:
            one.groups = self._groups.make(f"{pod.work.uid}-{one.plan.name}-{number}", limits)
            groups = [str(group) for group in one.groups]
            alone = limits if not self._groups else Limits()
            plan = Plan(
                [*command, *args], env, working, str(folder / "log"), groups,
                memory=alone.memory or 0, cores=-(-(alone.cpu or 0) // 1000), linger=self._linger,
                stdin=one.plan.stdin, tty=one.plan.tty,
            )  # fmt: skip
            _link(self._sandbox(pod, one), mounts(pod.work, one.plan, self._volumes(pod)))
            return Kept.launch(folder, plan, self._clock, changed)
        except OSError as error:
            raise Blocked(NOT_CREATED, f"{error.filename}: {error.strerror}") from error

    def _take_up(self, pod: RealPod, one: RealContainer, run: Path) -> None:
        """What an earlier agent's run is doing, or how it has ended meanwhile."""
        changed = partial(self._changed, pod, one)
        kept = one.run = Kept.take_up(run, self._clock, changed)
        status = kept.status
        if one.init and kept.gone and status.code == 0:
            one.state = replace(one.state, state="terminated", reason="Completed", exit_code=0)
        elif kept.gone:
            self._clock.call_soon(changed)
        elif status.running:
            one.state = self._running(pod, one, status.started)

    def _over(self, pod: RealPod, one: RealContainer) -> None:
        if not cgroups.remove(one.groups):
            log.info("group busy pod=%s container=%s", pod.work.pod.key, one.plan.name)

    def _cleared(self, pod: RealPod) -> None:
        shutil.rmtree(self._folder(pod), ignore_errors=True)

    # -- names --------------------------------------------------------------------------------------------------------

    def _environment(self, pod: RealPod, plan: ContainerPlan) -> dict[str, str]:
        grant = pod.work.grants.get(plan.name)
        cards = visible_cards(grant.nodes if grant else (), self._cards())
        terminal = {"TERM": TERMINAL} if plan.tty else {}
        env = {**terminal, **self._env, **environment(pod.work, plan), **cards}
        return {SANDBOX: str(self._folder(pod) / MOUNTS / plan.name), **env} if plan.volume_mounts else env

    def _surroundings(self, pod: RealPod, one: RealContainer) -> dict[str, str]:
        """Volumes first, then the variables, one of which says where the volumes are.

        Raises:
            Blocked: a volume cannot be had, or a variable's object lacks its key.
        """
        try:
            prepare(pod.work, self._volumes(pod))
            mounts(pod.work, one.plan, self._volumes(pod))
            return self._environment(pod, one.plan)
        except (CannotMount, Unresolved, OSError) as error:
            raise Blocked(NO_CONFIG, str(error)) from error

    def _volumes(self, pod: RealPod) -> Path:
        return self._folder(pod) / VOLUMES

    def _sandbox(self, pod: RealPod, one: RealContainer) -> Path:
        return self._folder(pod) / MOUNTS / one.plan.name

    def _folder(self, pod: RealPod) -> Path:
        return self._root / pod.work.uid

    def _run_folder(self, pod: RealPod, one: RealContainer, number: int) -> Path:
        return self._folder(pod) / one.plan.name / str(number)

    def _working_folder(self, plan: ContainerPlan, run: Path) -> str:
        """`workingDir` where it is one of this machine's, or below a mount."""
        if _below_a_mount(plan):
            return f"{run.parent.parent}/{MOUNTS}/{plan.name}/{plan.working_dir.lstrip('/')}"
        return plan.working_dir or str(run / "work")

    def _runs(self, pod: RealPod, one: RealContainer) -> list[int]:
        folder = self._folder(pod) / one.plan.name
        return sorted(int(each.name) for each in folder.iterdir()) if folder.is_dir() else []


def _link(sandbox: Path, mounted: Sequence[Mounted]) -> None:
    """Every mount as a link at its own path below `sandbox`; a mount below another one is put into it."""
    shutil.rmtree(sandbox, ignore_errors=True)
    for mount in mounted:
        at = sandbox / mount.target.lstrip("/")
        at.parent.mkdir(parents=True, exist_ok=True)
        if at.is_symlink() or at.exists():
            continue  # a folder of that name is in the volume above
        at.symlink_to(mount.source)


def _below_a_mount(plan: ContainerPlan) -> bool:
    return any(Path(plan.working_dir).is_relative_to(mount.mount_path) for mount in plan.volume_mounts)


def _check(plan: ContainerPlan, command: list[str], env: dict[str, str], working: str) -> None:
    """
    Raises:
        Blocked: the container asks for what only an image could bring.
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
