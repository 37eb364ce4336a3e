"""A kubelet's device manager behind its real gRPC sockets: registers plugins, follows them, allocates for pods.

It chooses devices as kubelet does: the plugin's preferred IDs, else any that are healthy and free.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

import grpc

from seatrial.harness.deviceplugin.messages import (
    DEVICE_PLUGIN,
    HEALTHY,
    POD_RESOURCES,
    REGISTRATION,
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateRequest,
    ContainerAllocateResponse,
    ContainerDevices,
    ContainerPreferredAllocationRequest,
    ContainerResources,
    Empty,
    ListAndWatchResponse,
    ListPodResourcesResponse,
    PodResources,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    RegisterRequest,
)
from seatrial.scheduler.api.protobuf import decode, encode

Answer = TypeVar("Answer")
WITHIN = 60.0  # seconds


class FakeKubelet:
    """Start it in a folder; `restart` removes all sockets of the folder, as kubelet does."""

    def __init__(self, folder: Path) -> None:
        self._plugins, self._resources = folder / "device-plugins", folder / "pod-resources"
        self._servers: list[Any] = []
        self._watches: list[asyncio.Task[None]] = []
        self._changed = asyncio.Condition()
        self.registered: list[RegisterRequest] = []
        self.health: dict[str, dict[str, str]] = {}  # resource → ID → health
        self.devices: dict[tuple[str, str, str], dict[str, tuple[str, ...]]] = {}  # pod and container → resource → IDs

    async def start(self) -> None:
        for folder in (self._plugins, self._resources):
            folder.mkdir(exist_ok=True)
        for path in self._plugins.iterdir():
            path.unlink()
        await self._serve(self._plugins / "kubelet.sock", REGISTRATION, "Register", self._register, RegisterRequest)
        await self._serve(self._resources / "kubelet.sock", POD_RESOURCES, "List", self._list, Empty)

    async def stop(self) -> None:
        for watch in self._watches:
            watch.cancel()
        for server in self._servers:
            await server.stop(grace=None)
        self._watches, self._servers = [], []
        self.registered, self.health = [], {}

    async def until(self, what: str, condition: Any) -> None:
        """Wait until `condition()` holds after a registration or a report of a plugin."""
        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(condition), WITHIN)
            except TimeoutError as error:
                raise AssertionError(f"{what}: did not happen; registered {self.registered}") from error

    def begin(self, namespace: str, pod: str, container: str = "main") -> None:
        """Begin the admission of a pod: it is listed from now on."""
        self.devices.setdefault((namespace, pod, container), {})

    async def admit(self, pod: str, resource: str, count: int, container: str = "main") -> ContainerAllocateResponse:
        """Allocate for a container of a pod in namespace `default`.

        Raises:
            grpc.aio.AioRpcError: the plugin refuses.
        """
        self.begin("default", pod, container)
        taken = {identifier for mine in self.devices.values() for identifier in mine.get(resource, ())}
        free = sorted(
            identifier
            for identifier, health in self.health[resource].items()
            if health == HEALTHY and identifier not in taken
        )
        wish = ContainerPreferredAllocationRequest(tuple(free), (), count)
        preferred = await self._call(
            resource, "GetPreferredAllocation", PreferredAllocationRequest((wish,)), PreferredAllocationResponse
        )
        chosen = preferred.containers[0].ids
        assert set(chosen) <= set(free), "IDs that are not free"
        assert len(set(chosen)) == count
        answer = await self._call(
            resource, "Allocate", AllocateRequest((ContainerAllocateRequest(chosen),)), AllocateResponse
        )
        self.devices["default", pod, container][resource] = chosen
        return answer.containers[0]

    async def _call(self, resource: str, method: str, request: object, kind: type[Answer]) -> Answer:
        endpoint = next(entry.endpoint for entry in self.registered if entry.resource_name == resource)
        async with grpc.aio.insecure_channel(f"unix:{self._plugins / endpoint}") as channel:
            call = channel.unary_unary(f"/{DEVICE_PLUGIN}/{method}", encode, lambda data: decode(data, kind))
            answer: Answer = await call(request, timeout=WITHIN)
            return answer

    async def _serve(self, path: Path, service: str, method: str, answer: Any, kind: type) -> None:
        server = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(answer, lambda data: decode(data, kind), encode)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        self._servers.append(server)

    async def _register(self, request: RegisterRequest, _context: Any) -> Empty:
        async with self._changed:
            self.registered.append(request)
            self._changed.notify_all()
        self._watches.append(asyncio.create_task(self._watch(request)))
        return Empty()

    async def _watch(self, request: RegisterRequest) -> None:
        async with grpc.aio.insecure_channel(f"unix:{self._plugins / request.endpoint}") as channel:
            stream = channel.unary_stream(
                f"/{DEVICE_PLUGIN}/ListAndWatch", encode, lambda data: decode(data, ListAndWatchResponse)
            )
            with contextlib.suppress(grpc.aio.AioRpcError):
                reports: AsyncIterator[ListAndWatchResponse] = stream(Empty())
                async for report in reports:
                    async with self._changed:
                        self.health[request.resource_name] = {device.id: device.health for device in report.devices}
                        self._changed.notify_all()

    async def _list(self, _request: Empty, _context: Any) -> ListPodResourcesResponse:
        pods: dict[tuple[str, str], list[ContainerResources]] = {}
        for (namespace, pod, container), mine in self.devices.items():
            groups = tuple(ContainerDevices(resource, ids) for resource, ids in mine.items())
            pods.setdefault((namespace, pod), []).append(ContainerResources(container, groups))
        return ListPodResourcesResponse(
            tuple(PodResources(pod, namespace, tuple(containers)) for (namespace, pod), containers in pods.items())
        )
