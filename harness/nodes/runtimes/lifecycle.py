"""The life of a pod from its first init container to its end, for runtimes that run programs.

A runtime implements how one run of one container is started. This module decides when the next run starts, what is
reported, how long a restart waits and when a pod has ended, by kubelet's rules.
"""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from seatrial.harness.apiserver.conversation import OUTPUTS, STDERR, STDOUT, Pipe, everything
from seatrial.harness.nodes.container_error import ContainerError
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
_AFTER_HOOK = 2.0  # minimum number of seconds that a program has to end after its preStop hook
CANNOT_START = 128  # the exit code of a program that could not be started
NO_IMAGE, NOT_CREATED = "ErrImagePull", "CreateContainerError"


class RunStatus(Protocol):
    """The state of a run. Times are seconds since 1970."""

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
    """One run of one container. The callback of `_begin` is called when `status` has changed, last with `gone` set."""

    @property
    def gone(self) -> bool: ...
    @property
    def status(self) -> RunStatus: ...
    @property
    def blocked(self) -> "Blocked | None": ...
    def stop(self, grace: float) -> None: ...
    def close(self) -> None: ...


class Blocked(Exception):
    """A run cannot be started; reason and message are those of the container's waiting state."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason, self.message = reason, message
        super().__init__(f"{reason}: {message}")


class RealContainer:
    """One container of a pod with its runs."""

    __slots__ = ("groups", "hook", "init", "plan", "probing", "pulls", "run", "side", "state", "timer", "why")

    def __init__(self, plan: ContainerPlan, *, init: bool = False) -> None:
        self.plan = plan
        self.init = init
        self.state = ContainerState(plan.name, reason="ContainerCreating", init=init)
        self.run: Run | None = None
        self.side: list[Run] = []  # commands run inside it (exec)
        self.timer: Timer | None = None
        self.groups: tuple[Path, ...] = ()  # control groups of the run
        self.pulls = 0  # consecutive attempts that could not start
        self.probing: Probing | None = None
        self.hook: asyncio.Task[None] | None = None  # postStart or preStop
        self.why = ""  # why the runtime ended the run; empty if it did not

    @property
    def lives(self) -> bool:
        return self.run is not None and not self.run.gone


class RealPod:
    """A started pod. Init containers run first, one after the other."""

    def __init__(self, work: Work, report: Report) -> None:
        self.work, self.report = work, report
        self.containers = [RealContainer(container) for container in work.pod.spec.containers]
        self.inits = [RealContainer(container, init=True) for container in work.pod.spec.init_containers]
        self.timer: Timer | None = None
        self.done: list[Callable[[], None]] = []
        self.stopping = False

    @property
    def qos(self) -> str:
        """The class as the API server has computed it."""
        return self.work.pod.status.qos_class or "BestEffort"

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
    """A runtime on an event loop: the clock is a WallClock, and all methods are called from the loop."""

    real = True

    def __init__(self, clock: Clock, stages: Stages | None = None) -> None:
        self._clock = clock
        self._stages = stages or load_stages()
        self._pods: dict[str, RealPod] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # -- what a runtime adds ------------------------------------------------------------------------------------------

    @abstractmethod
    def _begin(self, pod: RealPod, container: RealContainer, changed: Callable[[], object]) -> Run:
        """Start a run; `changed` is to be called on the loop whenever its status has changed.

        Raises:
            Blocked: it cannot be started.
        """

    def _over(self, pod: RealPod, container: RealContainer) -> None:
        """A run has ended."""

    def _cleared(self, pod: RealPod) -> None:
        """All runs of a pod have ended, and no further one starts."""

    def _id(self, pod: RealPod, container: RealContainer) -> str:
        return f"{self.name}://{pod.work.uid}-{container.plan.name}-{container.state.restarts}"

    # -- Runtime ------------------------------------------------------------------------------------------------------

    def start(self, work: Work, report: Report) -> None:
        pod = self._pods[work.uid] = RealPod(work, report)
        self._cleared(pod)  # removes what an earlier pod with this UID left
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
            raise ContainerError(f"pod {work.pod.key} is not running")
        # Pods share the machine's network: their own address first, then `localhost`, as kubelet does.
        return await dial(dict.fromkeys((work.ip, *LOOPBACKS)), port)

    def _pod_and_container(self, work: Work, container: str) -> tuple[RealPod, RealContainer] | None:
        pod = self._pods.get(work.uid)
        real = next((each for each in pod.every if each.plan.name == container), None) if pod else None
        return (pod, real) if pod is not None and real is not None else None

    # -- start and restart --------------------------------------------------------------------------------------------

    def _next(self, pod: RealPod) -> None:
        """Start the next init container; the containers once all init containers have succeeded."""
        pod.timer = None
        for init in pod.inits:
            if init.state.state == "terminated" and init.state.exit_code == 0:
                continue
            if init.plan.restart_policy == "Always":  # a sidecar: the next one starts once it is up
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

    def _launch(self, pod: RealPod, container: RealContainer) -> None:
        container.timer = None
        try:
            container.run = self._begin(pod, container, partial(self._changed, pod, container))
        except Blocked as why:
            self._blocked(pod, container, why)

    def _blocked(self, pod: RealPod, container: RealContainer, why: Blocked) -> None:
        """A run could not be started: retry later. All containers show the reason of an init container."""
        container.pulls += 1
        pause = restarts.pause(container.pulls, *self._stages.restart)
        for each in pod.containers if container.init else [container]:
            each.state = replace(each.state, state="waiting", reason=why.reason, message=why.message)
        pod.tell()
        container.run = None
        container.timer = self._clock.call_later(pause, lambda: self._launch(pod, container))

    def _changed(self, pod: RealPod, container: RealContainer) -> None:
        """Handle a change of a run's status."""
        run = container.run
        if run is None:
            return
        status = run.status
        if run.gone:
            self._over(pod, container)
            if container.probing is not None:
                container.probing.close()
            if container.hook is not None:
                container.hook.cancel()
                container.hook = None
            for side in container.side:
                side.stop(0.0)
            if pod.stopping:
                self._stopped(pod)
            elif run.blocked is not None:
                self._blocked(pod, container, run.blocked)
            else:
                self._ended(pod, container)
        elif status.running and container.state.state != "running" and container.hook is None:
            container.pulls = 0
            hooks = container.plan.lifecycle
            if hooks is not None and hooks.post_start is not None:
                container.hook = self._do(self._post_start(pod, container, hooks.post_start, status.started))
            else:
                self._begun(pod, container, status.started)

    def _begun(self, pod: RealPod, container: RealContainer, started: float) -> None:
        """The container runs and its postStart hook has ended: start its probes."""

        def changed(ready: bool, up: bool) -> None:
            container.state = replace(container.state, ready=ready, up=up)
            self._report(pod, container)

        def kill(probe: Probe, why: str) -> None:
            log.info("container killed pod=%s container=%s why=%s", pod.work.pod.key, container.plan.name, why)
            container.why = why
            grace = probe.termination_grace_period_seconds
            self._end(pod, container, float(grace if grace is not None else self._grace(pod)))

        container.probing = Probing(self._place(pod, container), self._clock, changed=changed, kill=kill)
        container.state = replace(
            self._running(pod, container, started), ready=container.probing.ready, up=container.probing.up
        )
        container.probing.start()
        self._report(pod, container)

    def _report(self, pod: RealPod, container: RealContainer) -> None:
        pod.tell()
        if container.init and container.state.up and not pod.stopping:
            self._next(pod)

    async def _post_start(self, pod: RealPod, container: RealContainer, hook: Handler, started: float) -> None:
        try:
            await perform(hook, self._place(pod, container), within=_HOOK_WITHIN)
        except Unwell as error:
            container.hook = None
            log.info("hook failed hook=postStart pod=%s why=%s", pod.work.pod.key, error)
            container.why = f"PostStartHookError: {error}"
            self._end(pod, container, float(self._grace(pod)))
            return
        container.hook = None
        if container.lives and not pod.stopping:
            self._begun(pod, container, started)

    def _end(self, pod: RealPod, container: RealContainer, grace: float) -> None:
        """End a run: preStop hook, SIGTERM, SIGKILL. The grace period covers all three."""
        assert container.run is not None
        hooks = container.plan.lifecycle
        if container.hook is not None:
            container.hook.cancel()
            container.hook = None
        elif hooks is not None and hooks.pre_stop is not None and grace > 0 and container.state.state == "running":
            container.hook = self._do(self._pre_stop(pod, container, hooks.pre_stop, grace))
            return
        container.run.stop(grace)

    async def _pre_stop(self, pod: RealPod, container: RealContainer, hook: Handler, grace: float) -> None:
        begun = self._clock.monotonic()
        try:
            await perform(hook, self._place(pod, container), within=grace)
        except Unwell as error:
            log.info("hook failed hook=preStop pod=%s why=%s", pod.work.pod.key, error)
        if container.lives and container.run is not None:
            container.run.stop(max(_AFTER_HOOK, grace - (self._clock.monotonic() - begun)))

    def _place(self, pod: RealPod, container: RealContainer) -> Place:
        async def execute(command: Sequence[str]) -> tuple[int, bytes]:
            conversation = await self.exec(pod.work, container.plan.name, list(command), OUTPUTS)
            try:
                text = b"".join(await asyncio.gather(*(everything(conversation, each) for each in (STDOUT, STDERR))))
                ended = await conversation.outcome()
            finally:
                conversation.close()
            return (KILLED if ended.code is None else ended.code), text or ended.error.encode()

        return Place(pod.work.ip, container.plan, execute)

    @staticmethod
    def _grace(pod: RealPod) -> int:
        return pod.work.pod.spec.termination_grace_period_seconds

    def _do(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)  # the loop keeps only a weak reference
        task.add_done_callback(self._tasks.discard)
        return task

    def _running(self, pod: RealPod, container: RealContainer, started: float) -> ContainerState:
        count = container.state.restarts
        return ContainerState(
            container.plan.name,
            "running",
            started=started,
            restarts=count,
            id=self._id(pod, container),
            init=container.init,
        )

    def _ended(self, pod: RealPod, container: RealContainer) -> None:
        assert container.run is not None
        status = container.run.status
        code = KILLED if status.code is None else status.code
        reason = (
            "OOMKilled"
            if status.oom and code
            else "StartError"
            if status.error and code == CANNOT_START
            else "Completed"
            if code == 0
            else "Error"
        )
        before = container.state.restarts
        container.state = ContainerState(
            container.plan.name,
            "terminated",
            reason,
            status.error or container.why,
            started=status.started,
            finished=status.finished or self._clock.now(),
            exit_code=code,
            restarts=before,
            id=self._id(pod, container),
            init=container.init,
        )
        container.why = ""
        policy = pod.work.pod.spec.restart_policy
        if container.init and container.plan.restart_policy != "Always":
            policy = "OnFailure" if policy != "Never" else policy  # not started again after success
        elif container.init:
            policy = "Always"
        pod.tell()
        over = (
            container.init
            and container.plan.restart_policy == "Always"
            and all(each.state.state == "terminated" and each.timer is None for each in pod.containers)
        )
        if over:
            return  # a sidecar does not restart when all containers have ended
        if restarts.again(policy, code):
            self._plan_restart(pod, container)
        elif container.init and code == 0:
            self._next(pod)
        elif container.init:
            self._failed_init(pod, container, code)
        else:
            self._end_sidecars(pod)

    def _end_sidecars(self, pod: RealPod) -> None:
        """End the sidecars once no container runs or will run again."""
        if all(container.state.state == "terminated" and container.timer is None for container in pod.containers):
            for init in pod.inits:
                if init.timer is not None:
                    init.timer.cancel()
                if init.lives:
                    init.why = "the pod's containers have ended"
                    self._end(pod, init, float(self._grace(pod)))

    def _plan_restart(self, pod: RealPod, container: RealContainer) -> None:
        pause = restarts.pause(container.state.restarts, *self._stages.restart)
        if pause:
            last = container.state
            why = f"back-off {pause:.0f}s restarting failed container={container.plan.name} pod={pod.work.pod.key}"
            container.state = replace(last, state="waiting", reason="CrashLoopBackOff", message=why)
            pod.tell()
        container.timer = self._clock.call_later(pause, lambda: self._restart(pod, container))

    def _restart(self, pod: RealPod, container: RealContainer) -> None:
        container.state = replace(container.state, restarts=container.state.restarts + 1)
        self._launch(pod, container)

    def _failed_init(self, pod: RealPod, container: RealContainer, code: int) -> None:
        """The pod fails with its init container; containers that never ran report it."""
        why = f"init container {container.plan.name} ended with exit code {code}"
        now = self._clock.now()
        for other in pod.containers:
            other.state = ContainerState(
                other.plan.name, "terminated", "Error", why, started=now, finished=now, exit_code=code
            )
        pod.tell()

    def _stopped(self, pod: RealPod) -> None:
        """When all processes of a stopping pod have ended, remove its folder and call `done`."""
        if not pod.stopping or pod.lives or self._pods.get(pod.work.uid) is not pod:
            return
        del self._pods[pod.work.uid]
        for container in pod.every:
            self._over(pod, container)
        self._cleared(pod)
        for done in pod.done:
            done()
