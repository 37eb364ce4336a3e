"""Calls of kubelet's gRPC interfaces: registration of a resource, and which pods have which devices."""

from pathlib import Path
from typing import TypeVar

import grpc

from seatrial.harness.deviceplugin.messages import (
    POD_RESOURCES,
    REGISTRATION,
    VERSION,
    DevicePluginOptions,
    Empty,
    ListPodResourcesResponse,
    PodResources,
    RegisterRequest,
)
from seatrial.harness.errors import DeviceError
from seatrial.scheduler.api.protobuf import decode, encode

ANSWER_WITHIN = 10.0  # seconds
MAX_SOCKET_PATH = 107  # bytes, a limit of Linux
OPTIONS = DevicePluginOptions(get_preferred_allocation_available=True)

Answer = TypeVar("Answer")


class KubeletError(DeviceError):
    """kubelet did not answer, or refused."""


class KubeletFolder:
    """The folder in which kubelet listens, usually /var/lib/kubelet."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            KubeletError: the path is too long for sockets.
        """
        self.plugins = path / "device-plugins"
        self.registration = self.plugins / "kubelet.sock"
        self.drivers, self.registry = path / "plugins", path / "plugins_registry"  # of drivers of claims
        self.pod_resources = path / "pod-resources" / "kubelet.sock"
        longest = self.plugins / socket_name("x" * 40)
        if len(str(longest)) > MAX_SOCKET_PATH:
            raise KubeletError(
                f"folder {path}: expected at most {MAX_SOCKET_PATH - len(str(longest)) + len(str(path))} characters,"
                f" found {len(str(path))}: a socket's path ends at {MAX_SOCKET_PATH}"
            )

    async def register(self, resource: str) -> None:
        """Announce the socket of a resource.

        Raises:
            KubeletError: kubelet refuses it or does not answer.
        """
        request = RegisterRequest(VERSION, socket_name(resource), resource, OPTIONS)
        await _call(self.registration, f"/{REGISTRATION}/Register", request, Empty)

    async def pods(self) -> tuple[PodResources, ...]:
        """The pods that kubelet has begun to start, with the devices of their containers.

        Raises:
            KubeletError: kubelet refuses or does not answer.
        """
        answer = await _call(self.pod_resources, f"/{POD_RESOURCES}/List", Empty(), ListPodResourcesResponse)
        return answer.pods

    def incarnation(self) -> tuple[int, int] | None:
        """Differs between two starts of kubelet, which makes its socket anew; None while there is no socket."""
        try:
            status = self.registration.stat()
        except OSError:
            return None
        return status.st_ino, status.st_ctime_ns


def socket_name(resource: str) -> str:
    """The name of a resource's socket: `seatrial-nvidia.com-gpu.sock`."""
    return f"seatrial-{resource.replace('/', '-')}.sock"


async def _call(socket: Path, method: str, request: object, kind: type[Answer]) -> Answer:
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        call = channel.unary_unary(
            method, request_serializer=encode, response_deserializer=lambda data: decode(data, kind)
        )
        try:
            answer: Answer = await call(request, timeout=ANSWER_WITHIN)
        except grpc.aio.AioRpcError as error:
            raise KubeletError(f"kubelet at {socket}: {method} failed: {error.details()}") from error
    return answer
