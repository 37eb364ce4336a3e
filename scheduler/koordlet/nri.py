"""The agent as an NRI plugin: the runtime calls it before it makes a container, and makes what it answers.

Containers have what they get from their first instruction on; the ten-second rounds of the agent stay, for what changes
later and for runtimes without NRI. As Koordinator's pkg/koordlet/runtimehooks/nri.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from seatrial.scheduler.api.clock import Clock, Timer
from seatrial.scheduler.api.protobuf import decode, encode
from seatrial.scheduler.api.protobuf_wire import Malformed
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.koordlet.cgroups import Layout
from seatrial.scheduler.koordlet.hooks import Changes
from seatrial.scheduler.koordlet.nri_messages import (
    CREATE_CONTAINER,
    CREATED,
    PLUGIN_SERVICE,
    RUN_POD,
    RUNNING,
    RUNTIME_SERVICE,
    UPDATE_CONTAINER,
    ConfigureRequest,
    ConfigureResponse,
    Container,
    ContainerAdjustment,
    ContainerRequest,
    ContainerUpdate,
    CreateContainerResponse,
    LinuxAdjustment,
    LinuxCpu,
    LinuxMemory,
    LinuxResources,
    LinuxUpdate,
    Number,
    PodSandbox,
    RegisterPluginRequest,
    Request,
    Response,
    Status,
    SynchronizeRequest,
    Text,
    UpdatesResponse,
)
from seatrial.scheduler.koordlet.objects import AgentPod, AgentPodStatus, LocalPod
from seatrial.scheduler.koordlet.ttrpc import (
    REQUEST,
    RESPONSE,
    TO_PLUGIN,
    TO_RUNTIME,
    Message,
    Reader,
    TtrpcError,
    written,
)
from seatrial.scheduler.pods.qos import BEST_EFFORT, BURSTABLE, GUARANTEED
from seatrial.scheduler.serving.once import Once

log = logging.getLogger(__name__)

EVENTS = sum(1 << event - 1 for event in (RUN_POD, CREATE_CONTAINER, UPDATE_CONTAINER))
_UNKNOWN, _UNIMPLEMENTED = 2, 12  # codes of gRPC


@dataclass(frozen=True, slots=True)
class NriConfig:
    """Where the runtime is, and how to connect to it; times are in seconds.

    `connect_timeout`: for registration. `backoff`: before the second attempt to connect; doubled up to `backoff_cap`.
    `fail`: a container of which a hook cannot read an annotation is not made; otherwise it is made without that hook.
    """

    socket: Path
    name: str = "koordlet_nri"
    index: str = "00"
    connect_timeout: float = 6.0
    backoff: float = 1.0
    backoff_cap: float = 60.0
    fail: bool = False


class Hooks(Protocol):
    """The agent, as the plugin sees it."""

    @property
    def ready(self) -> bool:
        """Whether it has seen its node's settings."""

    @property
    def layout(self) -> Layout:
        """How control groups are named."""

    def prepare_pod(self, pod: LocalPod) -> None:
        """Write what the group of a pod gets."""

    def container_changes(
        self, pod: LocalPod, container: str, quota: int, created: bool
    ) -> Iterator[Changes | Exception]:
        """What a container gets, hook by hook; `created`: False for one that is there."""


class HookError(Exception):
    """A hook failed, and the container must not be made without it."""


class Plugin:
    """Keeps a connection to the runtime, and answers its calls."""

    def __init__(self, config: NriConfig, agent: Hooks, clock: Clock) -> None:
        self._config, self._agent, self._clock = config, agent, clock
        self._connection: _Connection | None = None
        self._pause, self._planned, self._stopped = config.backoff, cast("Timer | None", None), False
        self._opening: asyncio.Task[None] | None = None
        self._parts: list[SynchronizeRequest] = []
        self._say = Once(log)

    def start(self) -> None:
        """Connect, and again whenever the connection is lost."""
        self._planned = self._clock.call_soon(self._connect)

    def stop(self) -> None:
        self._stopped = True
        if self._planned is not None:
            self._planned.cancel()
        if self._opening is not None:
            self._opening.cancel()
        if self._connection is not None:
            self._connection.abort()

    # -- connection ---------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        if not self._agent.ready:  # it would answer without the settings of its node
            self._planned = self._clock.call_later(self._config.backoff, self._connect)
            return
        self._opening = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        self._parts.clear()
        connection = _Connection(self)
        try:
            await asyncio.get_running_loop().create_unix_connection(lambda: connection, str(self._config.socket))
        except OSError as error:
            self.lost(error.strerror or str(error))
            return
        self._connection = connection
        self._planned = self._clock.call_later(self._config.connect_timeout, self._check)
        connection.call("RegisterPlugin", RegisterPluginRequest(self._config.name, self._config.index))

    def _check(self) -> None:
        if self._connection is not None and not self._connection.registered:
            self._connection.abort(f"no registration within {self._config.connect_timeout:g} s")

    def lost(self, why: str) -> None:
        """The connection is lost, or cannot be made."""
        self._connection = None
        if self._stopped:
            return
        if self._planned is not None:
            self._planned.cancel()
        self._say("connection", f"NRI {self._config.socket}: {why}; trying again until it is there")
        self._planned = self._clock.call_later(self._pause, self._connect)
        self._pause = min(2 * self._pause, self._config.backoff_cap)

    # -- calls --------------------------------------------------------------------------------------------------------

    def answer(self, call: Request) -> Response:
        """The answer to a call of the runtime."""
        method = getattr(self, f"_on_{_snake(call.method)}", None) if call.service == PLUGIN_SERVICE else None
        if method is None:
            return Response(Status(_UNIMPLEMENTED, f"{call.service}.{call.method}: no such method"))
        try:
            result = method(call.payload)
        except (HookError, Malformed) as error:
            return Response(Status(_UNKNOWN, str(error)))
        except Exception as error:  # noqa: BLE001 the runtime would wait for an answer, and end the plugin
            fault = self._clock.faults.not_repeated(error, f"Plugin.{call.method}")
            return Response(Status(_UNKNOWN, f"fault {fault}") if self._config.fail else None)
        return Response(None, b"" if result is None else encode(result))

    def _on_configure(self, payload: bytes) -> ConfigureResponse:
        runtime = decode(payload, ConfigureRequest)
        log.info("NRI: plugin of %s %s", runtime.runtime_name, runtime.runtime_version)
        self._say("connection", "")
        self._pause = self._config.backoff
        if self._connection is not None:
            self._connection.registered = True
        return ConfigureResponse(EVENTS)

    def _on_synchronize(self, payload: bytes) -> UpdatesResponse:
        """What runs already. Changes of it that the runtime cannot make fail nothing else."""
        request = decode(payload, SynchronizeRequest)
        self._parts.append(request)
        if request.more:
            return UpdatesResponse(more=True)
        pods = {pod.id: pod for part in self._parts for pod in part.pods}
        containers = [each for part in self._parts for each in part.containers if each.state in {CREATED, RUNNING}]
        self._parts.clear()
        known = [(pods[each.pod_sandbox_id], each) for each in containers if each.pod_sandbox_id in pods]
        return UpdatesResponse(tuple(update for pod, each in known for update in self._updates(pod, each, 0, True)))

    def _on_run_pod_sandbox(self, payload: bytes) -> None:
        self._agent.prepare_pod(local_pod(decode(payload, ContainerRequest).pod, self._agent.layout))

    def _on_create_container(self, payload: bytes) -> CreateContainerResponse:
        request = decode(payload, ContainerRequest)
        linux = request.container.linux
        quota = 0 if linux is None else _quota(linux.resources)
        changes = self._changes(request.pod, request.container, quota, created=True)
        if changes == Changes():
            return CreateContainerResponse()
        score = None if changes.oom_score is None else Number(changes.oom_score)
        linux_changes = LinuxAdjustment(changes.devices, _resources(changes), score)
        return CreateContainerResponse(ContainerAdjustment(changes.mounts, changes.env, linux_changes))

    def _on_update_container(self, payload: bytes) -> UpdatesResponse:
        request = decode(payload, ContainerRequest)
        return UpdatesResponse(tuple(self._updates(request.pod, request.container, _quota(request.resources), False)))

    def _on_shutdown(self, _: bytes) -> None:
        """The runtime ends, and closes the connection."""

    def _updates(self, pod: PodSandbox, container: Container, quota: int, may_fail: bool) -> Iterator[ContainerUpdate]:
        resources = _resources(self._changes(pod, container, quota, may_fail=may_fail))
        if resources is not None:
            yield ContainerUpdate(container.id, LinuxUpdate(resources), may_fail)

    def _changes(
        self, pod: PodSandbox, container: Container, quota: int, *, may_fail: bool = False, created: bool = False
    ) -> Changes:
        """
        Raises:
            HookError: a hook failed, and that is not to be passed over.
        """
        result, wrong = Changes(), ""
        local = local_pod(pod, self._agent.layout)
        for change in self._agent.container_changes(local, container.name, quota, created):
            if isinstance(change, Changes):
                result = change
                continue
            wrong = f"pod {pod.namespace}/{pod.name}: {change}"
            if self._config.fail and not may_fail:
                raise HookError(wrong)
        self._say(pod.uid, wrong)
        return result


class _Connection(asyncio.Protocol):
    """One connection to the runtime."""

    def __init__(self, owner: Plugin) -> None:
        self._owner, self._reader = owner, Reader()
        self._transport: asyncio.Transport | None = None
        self._why = "closed by the runtime"
        self.registered = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._owner.lost(str(error or self._why))

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._reader.read(data):
                if message.type == REQUEST and message.connection == TO_PLUGIN:
                    response = encode(self._owner.answer(decode(message.payload, Request)))
                    self._write(Message(TO_PLUGIN, message.stream, RESPONSE, response))
                elif message.type == RESPONSE and message.connection == TO_RUNTIME:
                    status = decode(message.payload, Response).status
                    if status is not None and status.code:
                        self.abort(f"registration refused: {status.message}")
        except (TtrpcError, Malformed) as error:
            self.abort(str(error))

    def call(self, method: str, request: Any) -> None:
        """Call the runtime; there is one call in the life of a connection."""
        self._write(Message(TO_RUNTIME, 1, REQUEST, encode(Request(RUNTIME_SERVICE, method, encode(request)))))

    def _write(self, message: Message) -> None:
        if self._transport is not None:
            self._transport.write(written(message))

    def abort(self, why: str = "") -> None:
        self._why = why or self._why
        if self._transport is not None:
            self._transport.abort()


def local_pod(sandbox: PodSandbox, layout: Layout) -> LocalPod:
    """A pod as its sandbox has it: the API server's may not be here yet. Its class is in the name of its group."""
    parent = sandbox.linux.cgroup_parent
    kind = next((kind for kind in (BEST_EFFORT, BURSTABLE) if kind.lower() in parent), GUARANTEED)
    labels, annotations = dict(sandbox.labels), dict(sandbox.annotations)
    metadata = ObjectMeta(
        name=sandbox.name, namespace=sandbox.namespace, uid=sandbox.uid, labels=labels, annotations=annotations
    )
    return LocalPod(AgentPod(metadata=metadata, status=AgentPodStatus(phase="Pending", qos_class=kind)), layout)


def _quota(resources: LinuxResources | None) -> int:
    quota = resources.cpu.quota if resources is not None and resources.cpu is not None else None
    return 0 if quota is None else quota.value


def _resources(changes: Changes) -> LinuxResources | None:
    """None: nothing differs."""
    shares, quota, memory = (
        None if value is None else Number(value) for value in (changes.shares, changes.quota, changes.memory)
    )
    cpu = LinuxCpu(shares, quota, changes.cpus or "")
    result = LinuxResources(
        None if memory is None else LinuxMemory(memory),
        None if cpu == LinuxCpu() else cpu,
        None if changes.rdt_class is None else Text(changes.rdt_class),
    )
    return None if result == LinuxResources() else result


def _snake(name: str) -> str:
    """`CreateContainer` as `create_container`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
