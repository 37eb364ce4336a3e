"""Pods as data: simulated containers start after a delay, run, end and print the expected output.

A container runs until it is stopped, unless the end of its command is known (`sleep 30`, `true`, `exit 3`) or the pod
has the annotations `seatrial.dev/runs-for` (seconds) and `seatrial.dev/exit-code`.
"""

import functools
import hashlib
import re
import shlex
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
import yaml

from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.errors import UsageError
from seatrial.harness.nodes.pods import ContainerPlan
from seatrial.harness.nodes.runtimes import restarts
from seatrial.harness.nodes.runtimes.protocol import ContainerState, Report, Runtime, Work
from seatrial.harness.nodes.variables import resolve_env
from seatrial.scheduler.api.builders import PROBE_COMMAND
from seatrial.scheduler.api.clock import Clock, Timer
from seatrial.scheduler.api.integers import finite, integer
from seatrial.scheduler.api.yaml_files import load_yaml

STAGES = Path(__file__).parent.parent / "stages"
RUNS_FOR, EXIT_CODE = "seatrial.dev/runs-for", "seatrial.dev/exit-code"
KILLED = 137

PROBE_GLOBS = tuple(glob for vendor in VENDORS.values() for glob in vendor.probe_globs)
BASE_MOUNTS = ("/", "/proc", "/dev", "/sys", "/etc/hosts", "/etc/resolv.conf", "/dev/shm")  # noqa: S108 a container's own

_SLEEP = re.compile(r"(?:exec )?sleep (\d+(?:\.\d+)?|infinity)", re.ASCII)
_EXIT = re.compile(r"exit (\d+)", re.ASCII)


class Stages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ranges of delays in seconds: (minimum, maximum); `restart`: (first pause, longest pause)."""

    start: tuple[float, float] = (0.0, 0.0)
    stop: tuple[float, float] = (0.0, 0.0)
    restart: tuple[float, float] = (10.0, 300.0)


@functools.cache
def load_stages(path: Path = STAGES / "default.yaml") -> Stages:
    """
    Raises:
        UsageError: the file cannot be read or has a mistake.
    """
    try:
        return msgspec.convert(load_yaml(path.read_bytes()), Stages)
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise UsageError(f"stages {path}: {error}") from error


@dataclass(frozen=True, slots=True)
class Ending:
    """The known end of a command."""

    after: float  # seconds
    code: int


def ending_of(work: Work, container: ContainerPlan) -> Ending | None:
    """When and how a container's command ends; None if it runs until it is stopped."""
    annotations = work.pod.metadata.annotations
    if RUNS_FOR in annotations:
        after, code = finite(annotations[RUNS_FOR]), integer(annotations.get(EXIT_CODE, "0"))
        return None if after is None or code is None else Ending(after, code)
    words = (*container.command, *container.args)
    if tuple(container.command) == PROBE_COMMAND or not words:
        return None
    script = words[2] if len(words) == 3 and words[0].endswith("sh") and words[1] == "-c" else shlex.join(words)
    return _script_ending(script)


def _script_ending(script: str) -> Ending | None:
    """The end of a script of known steps; None if one step is unknown."""
    after, code = 0.0, 0
    for step in (command.strip() for command in re.split(r"[;\n]|&&", script)):
        if match := _SLEEP.fullmatch(step):
            if match[1] == "infinity" or float(match[1]) >= 1e6:
                return None
            after += float(match[1])
        elif match := _EXIT.fullmatch(step):
            number = integer(match[1])
            return None if number is None else Ending(after, number)
        elif step == "false":
            code = 1
        elif step == "true" or step.split(" ")[0] in {"echo", "date", "hostname", ""}:
            code = 0
        else:
            return None
    return Ending(after, code)


class _Running:
    """One started pod."""

    __slots__ = ("report", "states", "timers", "work")

    def __init__(self, work: Work, report: Report) -> None:
        self.work = work
        self.report = report
        names = [container.name for container in work.pod.spec.containers]
        self.states = {name: ContainerState(name, reason="ContainerCreating") for name in names}
        self.timers: list[Timer] = []

    def tell(self) -> None:
        self.report(tuple(self.states.values()))


class SimulatedRuntime(Runtime):
    """Containers in memory, a function of clock and seed."""

    name = "simulated"
    version = "1"

    def __init__(self, clock: Clock, *, seed: int = 0, stages: Stages | None = None) -> None:
        self._clock = clock
        self._seed = seed
        self._stages = stages or load_stages()
        self._pods: dict[str, _Running] = {}

    def start(self, work: Work, report: Report) -> None:
        running = self._pods[work.uid] = _Running(work, report)
        delay = self._draw(work, "start", self._stages.start) + work.delay
        running.timers.append(self._clock.call_later(delay, lambda: self._started(running)))

    def resume(self, work: Work, states: tuple[ContainerState, ...], report: Report) -> bool:
        running = self._pods[work.uid] = _Running(work, report)
        for state in states:
            running.states[state.name] = state
            container = work.container(state.name)
            ending = ending_of(work, container) if container else None
            if state.state == "running" and ending is not None:
                left = max(0.0, state.started + ending.after - self._clock.now())
                self._plan_end(running, state.name, Ending(left, ending.code))
        return True

    def stop(self, work: Work, grace: float, done: Callable[[], None]) -> None:
        running = self._pods.get(work.uid)
        if running is None:
            self._clock.call_soon(done)
            return
        self._cancel(running)
        delay = min(max(grace, 0.0), self._draw(work, "stop", self._stages.stop))

        def stopped() -> None:
            self._pods.pop(work.uid, None)
            done()

        running.timers.append(self._clock.call_later(delay, stopped))

    def logs(self, work: Work, container: str) -> bytes | None:
        plan = work.container(container)
        running = self._pods.get(work.uid)
        if plan is None or running is None:
            return None
        state = running.states.get(container)
        if state is None or (state.state == "waiting" and not state.restarts):
            return None
        return printed(work, plan)

    def fail(self, work: Work, *, reason: str, code: int) -> None:
        """End all containers of a pod at once, as after an out-of-memory kill or a device failure."""
        running = self._pods.get(work.uid)
        if running is not None:
            for name, state in running.states.items():
                if state.state == "running":
                    self._ended(running, name, code, reason)

    def close(self) -> None:
        for running in self._pods.values():
            self._cancel(running)
        self._pods.clear()

    def _started(self, running: _Running) -> None:
        running.timers.clear()
        now = self._clock.now()
        for name, state in running.states.items():
            container_id = _container_id(running.work.uid, name, state.restarts)
            running.states[name] = ContainerState(
                name, "running", started=now, restarts=state.restarts, id=container_id
            )
        running.tell()
        for container in running.work.pod.spec.containers:
            ending = ending_of(running.work, container)
            if ending is not None:
                self._plan_end(running, container.name, ending)

    def _plan_end(self, running: _Running, name: str, ending: Ending) -> None:
        running.timers.append(self._clock.call_later(ending.after, lambda: self._ended(running, name, ending.code, "")))

    def _ended(self, running: _Running, name: str, code: int, reason: str) -> None:
        state = running.states[name]
        running.states[name] = replace(
            state,
            state="terminated",
            reason=reason or ("Completed" if code == 0 else "Error"),
            exit_code=code,
            finished=self._clock.now(),
        )
        policy = running.work.pod.spec.restart_policy
        running.tell()
        if restarts.again(policy, code):
            pause = restarts.pause(state.restarts, *self._stages.restart)
            running.timers.append(self._clock.call_later(pause, lambda: self._restarted(running, name)))
            if pause:
                running.states[name] = replace(running.states[name], reason="CrashLoopBackOff", state="waiting")
                running.tell()

    def _restarted(self, running: _Running, name: str) -> None:
        count = running.states[name].restarts + 1
        container_id = _container_id(running.work.uid, name, count)
        now = self._clock.now()
        running.states[name] = ContainerState(name, "running", started=now, restarts=count, id=container_id)
        running.tell()
        container = running.work.container(name)
        ending = ending_of(running.work, container) if container else None
        if ending is not None:
            self._plan_end(running, name, ending)

    def _cancel(self, running: _Running) -> None:
        for timer in running.timers:
            timer.cancel()
        running.timers.clear()

    def _draw(self, work: Work, what: str, bounds: tuple[float, float]) -> float:
        low, high = bounds
        if low == high:
            return low
        # From the pod's name, not from the order of events: another pod does not change these delays.
        return low + (high - low) * zlib.crc32(f"{self._seed}/{work.pod.key}/{what}".encode()) / (1 << 32)


def printed(work: Work, container: ContainerPlan) -> bytes:
    """The container's output: the probe's lines for the probe's command, the arguments of `echo`, else nothing."""
    if tuple(container.command) == PROBE_COMMAND:
        return probe_output(work, container)
    words = (*container.command, *container.args)
    if len(words) == 3 and words[0].endswith("sh") and words[1] == "-c":
        steps = [shlex.split(step, comments=True) for step in re.split(r"[;\n]|&&", words[2]) if _balanced(step)]
    else:
        steps = [list(words)]
    lines = [" ".join(step[1:]) for step in steps if step and step[0] == "echo"]
    return "".join(f"{line}\n" for line in lines).encode()


def _balanced(text: str) -> bool:
    return text.count("'") % 2 == 0 and text.count('"') % 2 == 0


def probe_output(work: Work, container: ContainerPlan) -> bytes:
    """The output of `seatrial.scheduler.api.builders.PROBE_COMMAND` in the container: environment, matching device
    nodes, mounts."""
    grant = work.grants.get(container.name)
    extra = grant.env if grant else {}
    env = resolve_env(work.pod, container, extra, ip=work.ip)
    nodes = grant.nodes if grant else ()
    lines = [f"{name}={value}" for name, value in env.items()]
    lines += [f"device={node}" for node in sorted(nodes) if any(_matches(node, glob) for glob in PROBE_GLOBS)]
    mounts = [*BASE_MOUNTS, *(mount.container for mount in grant.mounts)] if grant else list(BASE_MOUNTS)
    lines += [f"mount={path}" for path in mounts]
    return "".join(f"{line}\n" for line in lines).encode()


def _matches(path: str, pattern: str) -> bool:
    """Match as a shell does: a star does not match a slash."""
    return path.count("/") == pattern.count("/") and fnmatchcase(path, pattern)


def _container_id(uid: str, name: str, restarts: int) -> str:
    """As containerd makes it: agents of other projects find the container's group by its form."""
    return f"containerd://{hashlib.sha256(f'{uid}/{name}/{restarts}'.encode()).hexdigest()}"
