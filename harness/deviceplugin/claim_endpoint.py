"""The gRPC services of one driver of claims: registration at kubelet, claims, health of devices."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import grpc

from seatrial.harness.deviceplugin.claim_messages import (
    CLAIMS,
    HEALTH,
    PLUGIN_TYPE,
    REGISTRATION,
    VERSIONS,
    ClaimRef,
    ClaimsRequest,
    DeviceHealth,
    HealthResponse,
    PluginInfo,
    PreparedClaim,
    PrepareResponse,
    RegistrationStatus,
    ReleasedClaim,
    UnprepareResponse,
)
from seatrial.harness.deviceplugin.endpoint import Context, listen
from seatrial.harness.deviceplugin.kubelet import KubeletFolder
from seatrial.harness.deviceplugin.messages import Empty
from seatrial.scheduler.api.protobuf import decode, encode

log = logging.getLogger(__name__)

HEALTH_EVERY = 10.0  # seconds between reports; kubelet takes a device for Unknown after 30 s without one


class Driver(Protocol):
    """What answers kubelet. It raises nothing: errors are in the answers."""

    name: str

    async def prepare(self, ref: ClaimRef) -> PreparedClaim:
        """Prepare the devices of a claim; a second call gives the same answer."""

    async def unprepare(self, ref: ClaimRef) -> ReleasedClaim:
        """Release the devices of a claim, of which nothing need be known."""

    def health(self) -> tuple[DeviceHealth, ...]:
        """The health of all devices."""


class ClaimEndpoint:
    """Serves one driver on two sockets: the one by which kubelet finds it, and the one for claims."""

    def __init__(self, driver: Driver, kubelet: KubeletFolder, registered: Callable[[], object]) -> None:
        """`registered` is called whenever kubelet has taken the driver; it deletes the node's slices when it starts."""
        self._driver, self._registered = driver, registered
        self._registration = kubelet.registry / f"{driver.name}-reg.sock"
        self._socket = kubelet.drivers / driver.name / "dra.sock"
        self._servers: list[Any] = []
        self._changed = asyncio.Event()

    async def start(self) -> None:
        """Listen, first for claims.

        Raises:
            KubeletError: a socket cannot be made.
        """
        for path in (self._socket, self._registration):
            path.parent.mkdir(parents=True, exist_ok=True)
        self._servers.append(await listen(self._socket, self._claims(), self._health()))
        self._servers.append(await listen(self._registration, self._registry()))

    async def stop(self) -> None:
        """Stop listening; kubelet sees that the socket of registration is gone. A second call has no effect."""
        for path in (self._registration, self._socket):
            with contextlib.suppress(OSError):
                path.unlink()
        servers, self._servers = self._servers, []
        for server in servers:
            await server.stop(grace=None)

    def is_reachable(self) -> bool:
        """Whether it listens, and its sockets are there."""
        return bool(self._servers) and self._socket.exists() and self._registration.exists()

    def changed(self) -> None:
        """Report the devices' health at once."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _registry(self) -> Any:
        return grpc.method_handlers_generic_handler(
            REGISTRATION,
            {
                "GetInfo": _unary(self._info, Empty),
                "NotifyRegistrationStatus": _unary(self._status, RegistrationStatus),
            },
        )

    def _claims(self) -> Any:
        methods = {"NodePrepareResources": self._prepare, "NodeUnprepareResources": self._unprepare}
        return grpc.method_handlers_generic_handler(
            CLAIMS, {name: _unary(method, ClaimsRequest) for name, method in methods.items()}
        )

    def _health(self) -> Any:
        watch = grpc.unary_stream_rpc_method_handler(self._watch, lambda data: decode(data, Empty), encode)
        return grpc.method_handlers_generic_handler(HEALTH, {"NodeWatchResources": watch})

    async def _info(self, _request: Empty, _context: Context) -> PluginInfo:
        return PluginInfo(PLUGIN_TYPE, self._driver.name, str(self._socket), VERSIONS)

    async def _status(self, status: RegistrationStatus, _context: Context) -> Empty:
        if status.plugin_registered:
            log.info("registered driver=%s", self._driver.name)
            self._registered()
        else:
            log.warning("registration refused driver=%s why=%s", self._driver.name, status.error)
        return Empty()

    async def _prepare(self, request: ClaimsRequest, _context: Context) -> PrepareResponse:
        return PrepareResponse({ref.uid: await self._driver.prepare(ref) for ref in request.claims})

    async def _unprepare(self, request: ClaimsRequest, _context: Context) -> UnprepareResponse:
        return UnprepareResponse({ref.uid: await self._driver.unprepare(ref) for ref in request.claims})

    async def _watch(self, _request: Empty, _context: Context) -> AsyncIterator[HealthResponse]:
        while True:
            changed = self._changed
            yield HealthResponse(self._driver.health())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), HEALTH_EVERY)


def _unary(method: Callable[[Any, Context], Awaitable[object]], kind: type) -> Any:
    return grpc.unary_unary_rpc_method_handler(method, lambda data: decode(data, kind), encode)
