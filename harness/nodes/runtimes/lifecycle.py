"""A pod's way from its first init container to its end, for every runtime whose containers really run.

A runtime says how one run of one container is begun; when the next one is begun, what is reported, what a restart
waits for and when a pod is over is decided here, by kubelet's rules.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from seatrial.harness.conversation import OUTPUTS, STDERR, STDOUT, Pipe, everything
from seatrial.harness.errors import ClusterError
from seatrial.harness.nodes.pod_parts import Handler, Probe
from seatrial.harness.nodes.pods import ContainerPlan
from seatrial.harness.nodes.runtimes import restarts
from seatrial.harness.nodes.runtimes.dialling import LOOPBACKS, dial
from seatrial.harness.nodes.runtimes.handlers import Place, Unwell, perform
from seatrial.harness.nodes.runtimes.probing import Probing
from seatrial.harness.nodes.runtimes.protocol import ContainerState, Report, Runtime, Work
from seatrial.harness.nodes.runtimes.simulated import KILLED, Stages, load_stages
from seatrial.scheduler.api.clock import Clock, Timer

log = logging.getLogger(__name__)

_HOOK_WITHIN = 3600.0  # seconds; kubelet waits for a postStart hook as long as it takes
_AFTER_HOOK = 2.0  # seconds that a program has to end, however long its preStop hook took
CANNOT_START = 128  # the exit code of what did not begin
NO_IMAGE, NOT_CREATED = "ErrImagePull", "CreateContainerError"


class RunStatus(Protocol):
    """How far a run is. Moments in seconds since 1970."""

    @property
    def started(self) -> float: ...
    @property
    def running(self) -> bool: ...
    @property
    def finished(self) -> float | None: ...
    @property
    def code(self) -> int | None: ...
    @property
    def error(self) -> str: ...
    @property
    def oom(self) -> bool: ...


class Run(Protocol):
    """One run of one container. Whoever began it is told whenever `status` has changed, at last with `gone` set."""

    @property
    def gone(self) -> bool: ...
    @property
    def status(self) -> RunStatus: ...
    @property
    def blocked(self) -> "Blocked | None": ...
    def stop(self, grace: float) -> None: ...
    def close(self) -> None: ...


class Blocked(Exception):
    """A run cannot even begin; reason and message are what the container's status shows while it waits."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason, self.message = reason, message
        super().__init__(f"{reason}: {message}")


class RealContainer:
    """One container of a pod, over all its runs."""

    __slots__ = ("groups", "hook", "init", "plan", "probing", "pulls", "run", "side", "state", "timer", "why")

    def __init__(self, plan: ContainerPlan, *, init: bool = False) -> None:
        self.plan = plan
        self.init = init
        self.state = ContainerState(plan.name, reason="ContainerCreating", init=init)
        self.run: Run | None = None
        self.side: list[Run] = []  # commands that were run inside it
        self.timer: Timer | None = None
        self.groups: tuple[Path, ...] = ()  # control groups of the run
        self.pulls = 0  # attempts in a row that could not begin
        self.probing: Probing | None = None
        self.hook: asyncio.Task[None] | None = None  # postStart or preStop
        self.why = ""  # we ended the run, and for this reason

    @property
    def lives(self) -> bool:
        return self.run is not None and not self.run.gone


class RealPod:
    """A pod that was started. Init containers are run first, one after the other."""

    def __init__(self, work: Work, report: Report) -> None:
        self.work, self.report = work, report
        self.containers = [RealContainer(container) for container in work.pod.spec.containers]
        self.inits = [RealContainer(container, init=True) for container in work.pod.spec.init_containers]
        self.timer: Timer | None = None
        self.done: list[Callable[[], None]] = []
        self.stopping = False

    @property
    def every(self) -> list[RealContainer]:
        return [*self.inits, *self.containers]

    @property
    def lives(self) -> bool:
        return any(container.lives or any(not side.gone for side in container.side) for container in self.every)

    def tell(self) -> None:
        if not self.stopping:
            self.report(tuple(container.state for container in (*self.containers, *self.inits)))

    def cancel(self) -> None:
        for timer in (self.timer, *(container.timer for container in self.every)):
            if timer is not None:
                timer.cancel()
        for container in self.every:
            if container.probing is not None:
                container.probing.close()


class LifecycleRuntime(Runtime):
    """Runs on an event loop: the clock is a WallClock, and everything here is called from the loop."""

    real = True

    def __init__(self, clock: Clock, stages: Stages | None = None) -> None:
        self._clock = clock
        self._stages = stages or load_stages()
        self._pods: dict[str, RealPod] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # -- what a runtime adds ------------------------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, pod: RealPod, one: RealContainer, changed: Callable[[], object]) -> Run:
        """Begin a run; `changed` is to be called on the loop whenever its status is another.

        Raises:
            Blocked: it cannot begin.
        """

    def _over(self, pod: RealPod, one: RealContainer) -> None:
        """A run is gone."""

    def _cleared(self, pod: RealPod) -> None:
        """Nothing of a pod runs any more, and nothing of it will."""

    def _id(self, pod: RealPod, one: RealContainer) -> str:
        return f"{self.name}://{pod.work.uid}/{one.plan.name}/{one.state.restarts}"

    # -- Runtime ------------------------------------------------------------------------------------------------------

    def start(self, work: Work, report: Report) -> None:
        pod = self._pods[work.uid] = RealPod(work, report)
        self._cleared(pod)  # whatever an earlier pod of that identity has left
        pod.timer = self._clock.call_later(work.delay, lambda: self._next(pod))

    def stop(self, work: Work, grace: float, done: Callable[[], None]) -> None:
        pod = self._pods.get(work.uid)
        if pod is None:
            self._clock.call_soon(done)
            return
        pod.stopping = True
        pod.cancel()
        pod.done.append(done)
        for container in pod.every:
            if container.lives:
                self._end(pod, container, grace)
            for side in container.side:
                side.stop(0.0)
        self._clock.call_soon(lambda: self._stopped(pod))

    def close(self) -> None:
        for pod in self._pods.values():
            pod.stopping = True
            pod.cancel()
            for container in pod.every:
                if container.hook is not None:
                    container.hook.cancel()
                for run in (container.run, *container.side):
                    if run is not None:
                        run.close()
                self._over(pod, container)
            self._cleared(pod)
        self._pods.clear()

    async def dial(self, work: Work, port: int) -> Pipe:
        pod = self._pods.get(work.uid)
        if pod is None or not pod.lives:
            raise ClusterError(f"pod {work.pod.key} is not running")
        # Pods here share the machine's network: their own address first, then `localhost`, where kubelet would look.
        return await dial(dict.fromkeys((work.ip, *LOOPBACKS)), port)

    def _found(self, work: Work, container: str) -> tuple[RealPod, RealContainer] | None:
        pod = self._pods.get(work.uid)
        one = next((each for each in pod.every if each.plan.name == container), None) if pod else None
        return (pod, one) if pod is not None and one is not None else None

    # -- a pod's way --------------------------------------------------------------------------------------------------

    def _next(self, pod: RealPod) -> None:
        """Start the init container whose turn it is; the containers themselves once all have ended well."""
        pod.timer = None
        for init in pod.inits:
            if init.state.state == "terminated" and init.state.exit_code == 0:
                continue
            if init.plan.restart_policy == "Always":  # a sidecar runs beside what follows, once it is up
                if init.run is None and init.timer is None:
                    self._launch(pod, init)
                if init.state.restarts == 0 and not (init.state.state == "running" and init.state.up):
                    return
                continue
            if not init.lives:
                self._launch(pod, init)
            return
        for container in pod.containers:
            if container.run is None and container.timer is None:
                self._launch(pod, container)

    def _launch(self, pod: RealPod, one: RealContainer) -> None:
        one.timer = None
        try:
            one.run = self._begin(pod, one, partial(self._changed, pod, one))
        except Blocked as why:
            self._blocked(pod, one, why)

    def _blocked(self, pod: RealPod, one: RealContainer, why: Blocked) -> None:
        """It cannot even begin, and is tried again later. What an init container waits for, the others wait for."""
        one.pulls += 1
        pause = restarts.pause(one.pulls, *self._stages.restart)
        for each in pod.containers if one.init else [one]:
            each.state = replace(each.state, state="waiting", reason=why.reason, message=why.message)
        pod.tell()
        one.run = None
        one.timer = self._clock.call_later(pause, lambda: self._launch(pod, one))

    def _changed(self, pod: RealPod, one: RealContainer) -> None:
        """A container's run has something to say."""
        run = one.run
        if run is None:
            return
        status = run.status
        if run.gone:
            self._over(pod, one)
            if one.probing is not None:
                one.probing.close()
            if one.hook is not None:
                one.hook.cancel()
                one.hook = None
            for side in one.side:
                side.stop(0.0)
            if pod.stopping:
                self._stopped(pod)
            elif run.blocked is not None:
                self._blocked(pod, one, run.blocked)
            else:
                self._ended(pod, one)
        elif status.running and one.state.state != "running" and one.hook is None:
            one.pulls = 0
            hooks = one.plan.lifecycle
            if hooks is not None and hooks.post_start is not None:
                one.hook = self._do(self._post_start(pod, one, hooks.post_start, status.started))
            else:
                self._begun(pod, one, status.started)

    def _begun(self, pod: RealPod, one: RealContainer, started: float) -> None:
        """The container runs, its postStart hook is done: from now on it is probed."""

        def changed(ready: bool, up: bool) -> None:
            one.state = replace(one.state, ready=ready, up=up)
            self._told(pod, one)

        def kill(probe: Probe, why: str) -> None:
            log.info("container killed pod=%s container=%s why=%s", pod.work.pod.key, one.plan.name, why)
            one.why = why
            grace = probe.termination_grace_period_seconds
            self._end(pod, one, float(grace if grace is not None else self._grace(pod)))

        one.probing = Probing(self._place(pod, one), self._clock, changed=changed, kill=kill)
        one.state = replace(self._running(pod, one, started), ready=one.probing.ready, up=one.probing.up)
        one.probing.start()
        self._told(pod, one)

    def _told(self, pod: RealPod, one: RealContainer) -> None:
        pod.tell()
        if one.init and one.state.up and not pod.stopping:
            self._next(pod)

    async def _post_start(self, pod: RealPod, one: RealContainer, hook: Handler, started: float) -> None:
        try:
            await perform(hook, self._place(pod, one), within=_HOOK_WITHIN)
        except Unwell as error:
            one.hook = None
            log.info("hook failed hook=postStart pod=%s why=%s", pod.work.pod.key, error)
            one.why = f"PostStartHookError: {error}"
            self._end(pod, one, float(self._grace(pod)))
            return
        one.hook = None
        if one.lives and not pod.stopping:
            self._begun(pod, one, started)

    def _end(self, pod: RealPod, one: RealContainer, grace: float) -> None:
        """End a run: its preStop hook first, then SIGTERM and SIGKILL; the grace is for all of it."""
        assert one.run is not None  # noqa: S101
        hooks = one.plan.lifecycle
        if one.hook is not None:
            one.hook.cancel()
            one.hook = None
        elif hooks is not None and hooks.pre_stop is not None and grace > 0 and one.state.state == "running":
            one.hook = self._do(self._pre_stop(pod, one, hooks.pre_stop, grace))
            return
        one.run.stop(grace)

    async def _pre_stop(self, pod: RealPod, one: RealContainer, hook: Handler, grace: float) -> None:
        begun = self._clock.monotonic()
        try:
            await perform(hook, self._place(pod, one), within=grace)
        except Unwell as error:
            log.info("hook failed hook=preStop pod=%s why=%s", pod.work.pod.key, error)
        if one.lives and one.run is not None:
            one.run.stop(max(_AFTER_HOOK, grace - (self._clock.monotonic() - begun)))

    def _place(self, pod: RealPod, one: RealContainer) -> Place:
        async def execute(command: Sequence[str]) -> tuple[int, bytes]:
            conversation = await self.exec(pod.work, one.plan.name, list(command), OUTPUTS)
            try:
                said = b"".join(await asyncio.gather(*(everything(conversation, each) for each in (STDOUT, STDERR))))
                ended = await conversation.outcome()
            finally:
                conversation.close()
            return (KILLED if ended.code is None else ended.code), said or ended.error.encode()

        return Place(pod.work.ip, one.plan, execute)

    @staticmethod
    def _grace(pod: RealPod) -> int:
        return pod.work.pod.spec.termination_grace_period_seconds

    def _do(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # the loop itself keeps no hold of it
        task.add_done_callback(self._tasks.discard)
        return task

    def _running(self, pod: RealPod, one: RealContainer, started: float) -> ContainerState:
        count = one.state.restarts
        return ContainerState(
            one.plan.name, "running", started=started, restarts=count, id=self._id(pod, one), init=one.init
        )

    def _ended(self, pod: RealPod, one: RealContainer) -> None:
        assert one.run is not None  # noqa: S101
        status = one.run.status
        code = KILLED if status.code is None else status.code
        reason = (
            "OOMKilled" if status.oom and code else
            "StartError" if status.error and code == CANNOT_START else
            "Completed" if code == 0 else "Error"
        )  # fmt: skip
        before = one.state.restarts
        one.state = ContainerState(
            one.plan.name, "terminated", reason, status.error or one.why,
            started=status.started, finished=status.finished or self._clock.now(), exit_code=code, restarts=before,
            id=self._id(pod, one), init=one.init,
        )  # fmt: skip
        one.why = ""
        policy = pod.work.pod.spec.restart_policy
        if one.init and one.plan.restart_policy != "Always":
            policy = "OnFailure" if policy != "Never" else policy  # one that has ended well is not started again
        elif one.init:
            policy = "Always"
        pod.tell()
        over = (
            one.init
            and one.plan.restart_policy == "Always"
            and all(each.state.state == "terminated" and each.timer is None for each in pod.containers)
        )
        if over:
            return  # a sidecar of a pod whose containers have all ended
        if restarts.again(policy, code):
            self._plan_restart(pod, one)
        elif one.init and code == 0:
            self._next(pod)
        elif one.init:
            self._failed_init(pod, one, code)
        else:
            self._last_one(pod)

    def _last_one(self, pod: RealPod) -> None:
        """Sidecars end once no container runs or will run again."""
        if all(container.state.state == "terminated" and container.timer is None for container in pod.containers):
            for init in pod.inits:
                if init.timer is not None:
                    init.timer.cancel()
                if init.lives:
                    init.why = "the pod's containers have ended"
                    self._end(pod, init, float(self._grace(pod)))

    def _plan_restart(self, pod: RealPod, one: RealContainer) -> None:
        pause = restarts.pause(one.state.restarts, *self._stages.restart)
        if pause:
            last = one.state
            why = f"back-off {pause:.0f}s restarting failed container={one.plan.name} pod={pod.work.pod.key}"
            one.state = replace(last, state="waiting", reason="CrashLoopBackOff", message=why)
            pod.tell()
        one.timer = self._clock.call_later(pause, lambda: self._restart(pod, one))

    def _restart(self, pod: RealPod, one: RealContainer) -> None:
        one.state = replace(one.state, restarts=one.state.restarts + 1)
        self._launch(pod, one)

    def _failed_init(self, pod: RealPod, one: RealContainer, code: int) -> None:
        """The pod fails with its init container; what never ran says so."""
        why = f"init container {one.plan.name} ended with exit code {code}"
        now = self._clock.now()
        for other in pod.containers:
            other.state = ContainerState(
                other.plan.name, "terminated", "Error", why, started=now, finished=now, exit_code=code
            )
        pod.tell()

    def _stopped(self, pod: RealPod) -> None:
        """Once nothing of a pod that is to end runs any more, its folder goes, and whoever asked hears of it."""
        if not pod.stopping or pod.lives or self._pods.get(pod.work.uid) is not pod:
            return
        del self._pods[pod.work.uid]
        for container in pod.every:
            self._over(pod, container)
        self._cleared(pod)
        for done in pod.done:
            done()
