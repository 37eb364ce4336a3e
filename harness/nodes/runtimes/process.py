"""Pods as processes of this machine: no image, no container engine, no root needed.

A container's command is a program of this machine (`busybox:stable` with `sh` is this machine's `sh`). Each run has a
folder of its own, which is its working directory and holds its log, and a keeper (keeper.py) that ends it when this
agent is gone. What a process shares with the machine is everything else: files, network, process numbers, devices; the
vendors' own variables (`CUDA_VISIBLE_DEVICES` and its kin) keep it to the cards that it was granted. Limits hold where
control groups can be made; `limits` says whether they can.
"""

import asyncio
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from harness.devices.provider import Device
from harness.errors import ClusterError
from harness.nodes.pods import ContainerPlan
from harness.nodes.runtimes import cgroups, restarts
from harness.nodes.runtimes.commands import environment, found_here, limits_of, visible_cards, words
from harness.nodes.runtimes.kept import Kept, Plan
from harness.nodes.runtimes.protocol import ContainerState, Report, Runtime, Work
from harness.nodes.runtimes.simulated import Stages, load_stages
from scheduler.api.clock import Clock, Timer

log = logging.getLogger(__name__)

KILLED = 137
NO_IMAGE = "ErrImagePull"
MOST_LOG = 64 << 20  # bytes of a log that are read back, the last ones
_ON_FAILURE = "OnFailure"


class _Container:
    """One container of a pod, over all its runs."""

    __slots__ = ("groups", "init", "kept", "plan", "side", "state", "timer")

    def __init__(self, plan: ContainerPlan, *, init: bool = False) -> None:
        self.plan = plan
        self.init = init
        self.state = ContainerState(plan.name, reason="ContainerCreating")
        self.kept: Kept | None = None
        self.side: list[Kept] = []  # commands that were run inside it
        self.timer: Timer | None = None
        self.groups: tuple[Path, ...] = ()

    @property
    def lives(self) -> bool:
        return self.kept is not None and not self.kept.gone


class _Pod:
    """A pod that was started. Init containers are run first, one after the other."""

    def __init__(self, work: Work, report: Report, folder: Path) -> None:
        self.work, self.report, self.folder = work, report, folder
        self.containers = [_Container(one) for one in work.pod.spec.containers]
        self.inits = [_Container(one, init=True) for one in work.pod.spec.init_containers]
        self.timer: Timer | None = None
        self.done: list[Callable[[], None]] = []
        self.stopping = False

    @property
    def every(self) -> list[_Container]:
        return [*self.inits, *self.containers]

    @property
    def lives(self) -> bool:
        return any(one.lives or any(not side.gone for side in one.side) for one in self.every)

    def tell(self) -> None:
        if not self.stopping:
            self.report(tuple(one.state for one in self.containers))

    def cancel(self) -> None:
        for timer in (self.timer, *(one.timer for one in self.every)):
            if timer is not None:
                timer.cancel()


class ProcessRuntime(Runtime):
    """Runs on an event loop: the clock is a WallClock, and `start` and its kin are called from the loop."""

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
    ) -> None:
        """
        Args:
            clock: Real time, over the loop that everything here runs on.
            root: The folder of all pods. One runtime at a time may use it.
            stages: The pauses between restarts.
            linger: Seconds that containers outlive an agent that died, so that its successor can take them up.
            groups: Where to make control groups; looked for if not given.
            cards: The cards of this machine.
        """
        self._clock, self._root, self._linger, self._cards = clock, root, linger, cards
        self._stages = stages or load_stages()
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._groups = cgroups.find(cgroups.name_for(root)) if groups is None else groups
        self._pods: dict[str, _Pod] = {}
        self._said_unlimited = False

    @property
    def limits(self) -> str:
        """How limits are enforced, or why they are not."""
        return str(self._groups)

    # -- Runtime ------------------------------------------------------------------------------------------------------

    def start(self, work: Work, report: Report) -> None:
        pod = self._pods[work.uid] = _Pod(work, report, self._root / work.uid)
        shutil.rmtree(pod.folder, ignore_errors=True)
        pod.timer = self._clock.call_later(work.delay, lambda: self._next(pod))

    def resume(self, work: Work, states: tuple[ContainerState, ...], report: Report) -> bool:
        pod = _Pod(work, report, self._root / work.uid)
        if not pod.folder.is_dir():
            return False
        self._pods[work.uid] = pod
        known = {one.name: one for one in states}
        for one in pod.every:
            runs = self._runs(pod, one)
            if runs:
                one.state = replace(known.get(one.plan.name, one.state), restarts=runs[-1])
                self._take_up(pod, one, self._run_folder(pod, one, runs[-1]))
        if all(one.state.state == "terminated" or one.plan.restart_policy == "Always" for one in pod.inits):
            self._clock.call_soon(lambda: self._next(pod))
        return True

    def stop(self, work: Work, grace: float, done: Callable[[], None]) -> None:
        pod = self._pods.get(work.uid)
        if pod is None:
            self._clock.call_soon(done)
            return
        pod.stopping = True
        pod.cancel()
        pod.done.append(done)
        for one in pod.every:
            if one.kept is not None and not one.kept.gone:
                one.kept.stop(grace)
            for side in one.side:
                side.stop(0.0)
        self._clock.call_soon(lambda: self._stopped(pod))

    def logs(self, work: Work, container: str) -> bytes | None:
        pod = self._pods.get(work.uid)
        one = next((each for each in pod.every if each.plan.name == container), None) if pod else None
        if pod is None or one is None:
            return None
        runs = self._runs(pod, one)
        try:
            with (self._run_folder(pod, one, runs[-1]) / "log").open("rb") as file:
                file.seek(max(0, file.seek(0, 2) - MOST_LOG))
                return file.read()
        except (IndexError, OSError):
            return None

    async def exec(self, work: Work, container: str, command: Sequence[str]) -> tuple[int, bytes]:
        pod = self._pods.get(work.uid)
        one = next((each for each in pod.every if each.plan.name == container), None) if pod else None
        if pod is None or one is None or not one.lives or not command:
            raise ClusterError(f"container {container!r} of pod {work.pod.key} is not running")
        env = self._environment(pod, one.plan)
        run = self._run_folder(pod, one, one.state.restarts)
        folder = run / f"exec-{len(one.side)}"
        plan = Plan(
            list(command), env, self._working_folder(one.plan, run), str(folder / "log"), [str(g) for g in one.groups]
        )
        over = asyncio.Event()
        kept = Kept.launch(folder, plan, self._clock, lambda: over.set() if kept.gone else None)
        one.side.append(kept)
        try:
            await over.wait()
        finally:
            kept.stop(0.0)
            self._stopped(pod)
        status = kept.status
        said = (folder / "log").read_bytes() if (folder / "log").exists() else b""
        code = status.code if status.code is not None else KILLED
        return (code, said + status.error.encode()) if not pod.stopping else (KILLED, said)

    def close(self) -> None:
        for pod in self._pods.values():
            pod.stopping = True
            pod.cancel()
            for one in pod.every:
                for kept in (one.kept, *one.side):
                    if kept is not None:
                        kept.close()
                cgroups.remove(one.groups)
            shutil.rmtree(pod.folder, ignore_errors=True)
        self._pods.clear()
        self._groups.clear()

    # -- a pod's way --------------------------------------------------------------------------------------------------

    def _next(self, pod: _Pod) -> None:
        """Start the init container whose turn it is; the containers themselves once all have ended well."""
        pod.timer = None
        for one in pod.inits:
            if one.state.state == "terminated" and one.state.exit_code == 0:
                continue
            if one.plan.restart_policy == "Always":  # a sidecar runs beside what follows
                if one.kept is None:
                    self._launch(pod, one)
                continue
            if not one.lives:
                self._launch(pod, one)
            return
        for one in pod.containers:
            if one.kept is None:
                self._launch(pod, one)

    def _launch(self, pod: _Pod, one: _Container) -> None:
        one.timer = None
        env = self._environment(pod, one.plan)
        command, args = words(one.plan, env)
        count = one.state.restarts
        folder = self._run_folder(pod, one, count)
        working = self._working_folder(one.plan, folder)
        why = self._cannot_run(one.plan, command, env, working)
        if why:
            one.state = ContainerState(one.plan.name, reason=NO_IMAGE, message=why, restarts=count)
            self._blocked(pod, one)
            return
        limits = limits_of(one.plan)
        one.groups = self._groups.make(f"{pod.work.uid}-{one.plan.name}-{count}", limits)
        if limits and not self._groups and not self._said_unlimited:
            self._said_unlimited = True
            log.warning("limits not-enforced pod=%s why=%s", pod.work.pod.key, self._groups.why)
        plan = Plan([*command, *args], env, working, str(folder / "log"), [str(g) for g in one.groups], self._linger)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(self._run_folder(pod, one, count - 2), ignore_errors=True)  # the last two are kept
        try:
            one.kept = Kept.launch(folder, plan, self._clock, lambda: self._changed(pod, one))
        except OSError as error:
            one.state = ContainerState(
                one.plan.name, reason="CreateContainerError", message=f"{error.filename}: {error.strerror}"
            )
            self._blocked(pod, one)

    def _take_up(self, pod: _Pod, one: _Container, run: Path) -> None:
        """What an earlier agent's run is doing, or how it has ended meanwhile."""
        changed = partial(self._changed, pod, one)
        one.kept = Kept.take_up(run, self._clock, changed)
        status = one.kept.status
        if one.init and one.kept.gone and status.code == 0:
            one.state = replace(one.state, state="terminated", reason="Completed", exit_code=0)
        elif one.kept.gone:
            self._clock.call_soon(changed)
        elif status.running:
            one.state = self._running(pod, one, status.started)

    def _cannot_run(self, plan: ContainerPlan, command: list[str], env: dict[str, str], working: str) -> str:
        if not command:
            return (
                f"image {plan.image!r}: the process runtime pulls no images, so a container needs a `command`;"
                " found none"
            )
        if plan.working_dir and not Path(working).is_dir():
            return f"image {plan.image!r}: workingDir {working!r} is not on this machine"
        if not found_here(command[0], env, working):
            return (
                f"image {plan.image!r}: the process runtime pulls no images and runs what is on this machine;"
                f" there is no program {command[0]!r} here"
            )
        return ""

    def _blocked(self, pod: _Pod, one: _Container) -> None:
        """It cannot even begin. An init container keeps the others waiting, so they show its reason."""
        if one.init:
            for other in pod.containers:
                other.state = replace(other.state, reason=one.state.reason, message=one.state.message)
        pod.tell()

    def _changed(self, pod: _Pod, one: _Container) -> None:
        """The keeper of a container's run has something to say."""
        kept = one.kept
        if kept is None:
            return
        status = kept.status
        if kept.gone:
            if one.groups and not cgroups.remove(one.groups):
                log.info("group busy pod=%s container=%s", pod.work.pod.key, one.plan.name)
            for side in one.side:
                side.stop(0.0)
            if pod.stopping:
                self._stopped(pod)
                return
            self._ended(pod, one)
        elif status.running and one.state.state != "running":
            one.state = self._running(pod, one, status.started)
            pod.tell()

    def _running(self, pod: _Pod, one: _Container, started: float) -> ContainerState:
        count = one.state.restarts
        return ContainerState(
            one.plan.name, "running", started=started, restarts=count, id=self._id(pod, one.plan.name, count)
        )

    def _ended(self, pod: _Pod, one: _Container) -> None:
        assert one.kept is not None  # noqa: S101
        status = one.kept.status
        code = KILLED if status.code is None else status.code
        reason = (
            "OOMKilled" if status.oom and code else
            "StartError" if status.error else
            "Completed" if code == 0 else "Error"
        )  # fmt: skip
        before = one.state.restarts
        one.state = ContainerState(
            one.plan.name, "terminated", reason, status.error,
            started=status.started, finished=status.finished or self._clock.now(), exit_code=code, restarts=before,
            id=self._id(pod, one.plan.name, before),
        )  # fmt: skip
        policy = pod.work.pod.spec.restart_policy
        if one.init and one.plan.restart_policy != "Always":
            policy = _ON_FAILURE if policy != "Never" else policy  # one that has ended well is not started again
        elif one.init:
            policy = "Always"
        pod.tell()
        if restarts.again(policy, code):
            self._plan_restart(pod, one)
        elif one.init and code == 0:
            self._next(pod)
        elif one.init:
            self._failed_init(pod, one, code)

    def _plan_restart(self, pod: _Pod, one: _Container) -> None:
        pause = restarts.pause(one.state.restarts, *self._stages.restart)
        if pause:
            last = one.state
            why = f"back-off {pause:.0f}s restarting failed container={one.plan.name} pod={pod.work.pod.key}"
            one.state = replace(last, state="waiting", reason="CrashLoopBackOff", message=why)
            pod.tell()
        one.timer = self._clock.call_later(pause, lambda: self._restart(pod, one))

    def _restart(self, pod: _Pod, one: _Container) -> None:
        one.state = replace(one.state, restarts=one.state.restarts + 1)
        self._launch(pod, one)

    def _failed_init(self, pod: _Pod, one: _Container, code: int) -> None:
        """The pod fails with its init container; statuses of init containers are not written, so the others say it."""
        why = f"init container {one.plan.name} ended with exit code {code}"
        now = self._clock.now()
        for other in pod.containers:
            other.state = ContainerState(
                other.plan.name, "terminated", "Error", why, started=now, finished=now, exit_code=code
            )
        pod.tell()

    def _stopped(self, pod: _Pod) -> None:
        """Once nothing of a pod that is to end runs any more, its folder goes, and whoever asked hears of it."""
        if not pod.stopping or pod.lives or self._pods.get(pod.work.uid) is not pod:
            return
        del self._pods[pod.work.uid]
        for one in pod.every:
            cgroups.remove(one.groups)
        shutil.rmtree(pod.folder, ignore_errors=True)
        for done in pod.done:
            done()

    # -- names --------------------------------------------------------------------------------------------------------

    def _environment(self, pod: _Pod, plan: ContainerPlan) -> dict[str, str]:
        grant = pod.work.grants.get(plan.name)
        return {**environment(pod.work, plan), **visible_cards(grant.nodes if grant else (), self._cards())}

    def _run_folder(self, pod: _Pod, one: _Container, count: int) -> Path:
        return pod.folder / one.plan.name / str(count)

    def _working_folder(self, plan: ContainerPlan, run: Path) -> str:
        return plan.working_dir or str(run / "work")

    def _runs(self, pod: _Pod, one: _Container) -> list[int]:
        folder = pod.folder / one.plan.name
        return sorted(int(each.name) for each in folder.iterdir()) if folder.is_dir() else []

    def _id(self, pod: _Pod, container: str, count: int) -> str:
        return f"process://{pod.work.uid}/{container}/{count}"
