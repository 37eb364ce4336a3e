"""The plugin of one machine: its inventory, and answers to kubelet that follow the scheduler's allocation."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from seatrial.harness.deviceplugin.allocation import Target, find_target, response_of
from seatrial.harness.deviceplugin.endpoint import Endpoint
from seatrial.harness.deviceplugin.kubelet import KubeletError, KubeletFolder
from seatrial.harness.deviceplugin.messages import (
    HEALTHY,
    UNHEALTHY,
    ContainerAllocateResponse,
    ContainerPreferredAllocationRequest,
    PluginDevice,
)
from seatrial.harness.deviceplugin.resources import ids_of, kind_of, preferred, registered
from seatrial.harness.deviceplugin.slices import PodSlices
from seatrial.harness.devices.hami_release import HamiHost
from seatrial.harness.devices.provider import ContainerGrant, Device, Share
from seatrial.harness.devices.vendors.huawei import CREATES_VNPU
from seatrial.harness.errors import DeviceError, HarnessError
from seatrial.harness.nodes.admission import AdmissionError
from seatrial.harness.nodes.pods import BoundPod

log = logging.getLogger(__name__)

Pods = Callable[[], Awaitable[Sequence[BoundPod]]]
Answer = Callable[[BoundPod, Mapping[str, str]], object]
SLICES_EVERY = 10  # calls of `tick` between two searches for slices of pods that have ended
_WRAPPED = ("Allocate failed due to ", ", which is unexpected")  # kubelet puts these around the text itself


class DevicePlugin:
    """Serves all resources of the machine, and registers them anew after each start of kubelet."""

    def __init__(
        self,
        devices: Callable[[], Sequence[Device]],
        kubelet: KubeletFolder,
        pods: Pods,
        *,
        root: Path = Path("/"),
        simulated: bool = False,
        hami: Callable[[], HamiHost] = HamiHost,
        slices: PodSlices | None = None,
        answer: Answer = lambda _pod, _annotations: None,
    ) -> None:
        """`devices`: as last read. `pods`: the node's pods, read from the API server now. `root`: has /dev.
        `simulated`: see `response_of`. Without `slices` pods with slices are refused. `answer` writes annotations to a
        pod and unlocks the node, as plugins of slices do.
        """
        self._devices, self._kubelet, self._pods, self._hami = devices, kubelet, pods, hami
        self._root, self._simulated, self._slices, self._answer = root, simulated, slices, answer
        self._ticks = 0
        self._endpoints: dict[str, Endpoint] = {}
        self._kubelet_devices: Sequence[Device] = ()  # the devices that kubelet has received
        self._incarnation: tuple[int, int] | None = None

    async def tick(self) -> None:
        """Do what is due: send changed devices to kubelet; serve and register resources that are not yet registered.

        Call it twice a second. An error of kubelet is logged; the next call tries again.
        """
        await self._remove_slices()
        devices = self._devices()
        for resource in registered(devices):
            if resource not in self._endpoints:
                self._endpoints[resource] = Endpoint(resource, self, self._kubelet.plugins)
                self._incarnation = None
        if devices != self._kubelet_devices:
            self._kubelet_devices = devices
            for endpoint in self._endpoints.values():
                endpoint.changed()
        incarnation = self._kubelet.incarnation()
        if incarnation is None:  # kubelet is down
            return
        if incarnation == self._incarnation and all(one.is_reachable() for one in self._endpoints.values()):
            return
        try:
            for endpoint in self._endpoints.values():
                await endpoint.stop()
                await endpoint.start()
                await self._kubelet.register(endpoint.resource)
        except KubeletError as error:
            log.warning("registration failed why=%s", error)
            return
        self._incarnation = incarnation
        log.info("registered resources=%s", ",".join(self._endpoints))

    async def stop(self) -> None:
        """Stop serving; kubelet then counts the devices as sick."""
        for endpoint in self._endpoints.values():
            await endpoint.stop()
        self._endpoints.clear()

    # -- kubelet's calls ----------------------------------------------------------------------------------------------

    def inventory(self, resource: str) -> tuple[PluginDevice, ...]:
        return tuple(
            PluginDevice(identifier, HEALTHY if device.health.ok else UNHEALTHY)
            for device in self._devices()
            for identifier in ids_of(device, resource)
        )

    async def prefer(self, resource: str, request: ContainerPreferredAllocationRequest) -> tuple[str, ...]:
        target = await self._target(resource, request.size)
        promised = target.devices(kind_of(resource, self._devices()))
        return preferred(promised, resource, request.available, request.must_include, request.size)

    async def allocate(self, resource: str, ids: tuple[str, ...]) -> ContainerAllocateResponse:
        target = await self._target(resource, len(ids))
        kind = kind_of(resource, self._devices())
        promised = target.devices(kind)
        if not promised:
            raise DeviceError(f"pod {target.pod.key}: asks for {resource} and was allocated no {kind}")
        try:
            grant = target.grant(kind, await self._with_slices(target))
        except AdmissionError as error:
            raise DeviceError(f"pod {target.pod.key}: {error.message}") from error
        log.info(
            "allocated pod=%s container=%s resource=%s count=%d devices=%s",
            target.pod.key,
            target.container.name,
            resource,
            len(ids),
            ",".join(str(device.minor) for device in promised),
        )
        if grant.annotations:
            self._answer(target.pod, grant.annotations)
        return response_of(for_static_slices(grant), self._root, simulated=self._simulated)

    async def _with_slices(self, target: Target) -> Sequence[Share]:
        """
        Raises:
            DeviceError: a slice cannot be created.
        """
        if not any(share.slices for share in target.shares):
            return target.shares
        if self._slices is None:
            raise DeviceError(f"pod {target.pod.key}: a slice of a card was allocated, and none can be created here")
        await self._slices.remove_unused(await self._living())
        return await self._slices.of(target.pod.metadata.uid, target.shares)

    async def _remove_slices(self) -> None:
        """Remove the slices of pods that have ended, now and then."""
        self._ticks += 1
        if self._slices is None or not self._slices.pods or self._ticks % SLICES_EVERY:
            return
        try:
            await self._slices.remove_unused(await self._living())
        except HarnessError as error:
            log.warning("pods unread, slices are kept why=%s", error)

    async def _living(self) -> set[str]:
        return {pod.metadata.uid for pod in await self._pods() if not pod.terminated}

    async def _target(self, resource: str, count: int) -> Target:
        """
        Raises:
            DeviceError: see `find_target`; the request is refused, and kubelet rejects the pod.
        """
        listed = await self._kubelet.pods()
        pods = await self._pods()
        try:
            return find_target(pods, listed, self._devices(), resource, count, hami=self._hami())
        except AdmissionError as error:
            raise DeviceError(error.message.removeprefix(_WRAPPED[0]).removesuffix(_WRAPPED[1])) from error


def for_static_slices(grant: ContainerGrant) -> ContainerGrant:
    """Without the variable that makes ascend-docker-runtime create a vNPU: the one that is named exists already."""
    if CREATES_VNPU not in grant.env:
        return grant
    return replace(grant, env={name: value for name, value in grant.env.items() if name != CREATES_VNPU})
