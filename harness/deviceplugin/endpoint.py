"""The gRPC service of one resource, on a socket of its own, as kubelet calls it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import grpc

from seatrial.harness.deviceplugin.kubelet import OPTIONS, KubeletError, socket_name
from seatrial.harness.deviceplugin.messages import (
    DEVICE_PLUGIN,
    AllocateRequest,
    AllocateResponse,
    ContainerAllocateResponse,
    ContainerPreferredAllocationRequest,
    ContainerPreferredAllocationResponse,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    PluginDevice,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
)
from seatrial.harness.errors import HarnessError
from seatrial.scheduler.api.protobuf import decode, encode

Context = Any  # grpc.aio.ServicerContext; grpcio has no types


class Allocator(Protocol):
    """Decides what containers get. Its errors are sent to kubelet as text."""

    def inventory(self, resource: str) -> tuple[PluginDevice, ...]:
        """All IDs of the resource with their health."""

    async def prefer(self, resource: str, request: ContainerPreferredAllocationRequest) -> tuple[str, ...]:
        """The IDs that kubelet should take."""

    async def allocate(self, resource: str, ids: tuple[str, ...]) -> ContainerAllocateResponse:
        """What the container gets."""


async def listen(socket: Path, *services: Any) -> Any:
    """A server of gRPC services on a Unix socket; a socket that is in the way is replaced.

    Raises:
        KubeletError: the socket cannot be made.
    """
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(services)
    try:
        _remove(socket)
        server.add_insecure_port(f"unix:{socket}")
    except (OSError, RuntimeError) as error:
        raise KubeletError(f"socket {socket}: cannot listen: {error}") from error
    await server.start()
    return server


def _remove(socket: Path) -> None:
    socket.unlink(missing_ok=True)


class Endpoint:
    """Serves one resource."""

    def __init__(self, resource: str, allocator: Allocator, folder: Path) -> None:
        self.resource, self._allocator = resource, allocator
        self.socket = folder / socket_name(resource)
        self._server: Any = None
        self._changed = asyncio.Event()

    async def start(self) -> None:
        """Listen; a socket that is in the way is replaced.

        Raises:
            KubeletError: the socket cannot be made.
        """
        self._server = await listen(self.socket, self._service())

    async def stop(self) -> None:
        """Stop listening. A second call has no effect."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace=None)
            with contextlib.suppress(FileNotFoundError):
                self.socket.unlink()

    def is_reachable(self) -> bool:
        """Whether the socket is there: kubelet removes all of them when it starts."""
        return self._server is not None and self.socket.exists()

    def changed(self) -> None:
        """Send the inventory to kubelet again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _service(self) -> Any:
        def unary(method: Callable[[Any, Context], Awaitable[object]], kind: type) -> Any:
            async def answer(request: Any, context: Context) -> object:
                try:
                    return await method(request, context)
                except HarnessError as error:
                    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
                    raise  # abort never returns

            return grpc.unary_unary_rpc_method_handler(answer, lambda data: decode(data, kind), encode)

        return grpc.method_handlers_generic_handler(
            DEVICE_PLUGIN,
            {
                "GetDevicePluginOptions": unary(self._options, Empty),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                    self._watch, lambda data: decode(data, Empty), encode
                ),
                "GetPreferredAllocation": unary(self._prefer, PreferredAllocationRequest),
                "Allocate": unary(self._allocate, AllocateRequest),
                "PreStartContainer": unary(self._pre_start, PreStartContainerRequest),
            },
        )

    async def _options(self, _request: Empty, _context: Context) -> DevicePluginOptions:
        return OPTIONS

    async def _watch(self, _request: Empty, _context: Context) -> AsyncIterator[ListAndWatchResponse]:
        while True:
            changed = self._changed
            yield ListAndWatchResponse(self._allocator.inventory(self.resource))
            await changed.wait()

    async def _prefer(self, request: PreferredAllocationRequest, _context: Context) -> PreferredAllocationResponse:
        results = [await self._allocator.prefer(self.resource, container) for container in request.containers]
        return PreferredAllocationResponse(tuple(map(ContainerPreferredAllocationResponse, results)))

    async def _allocate(self, request: AllocateRequest, _context: Context) -> AllocateResponse:
        responses = [await self._allocator.allocate(self.resource, container.ids) for container in request.containers]
        return AllocateResponse(tuple(responses))

    async def _pre_start(self, _request: PreStartContainerRequest, _context: Context) -> Empty:
        return Empty()
