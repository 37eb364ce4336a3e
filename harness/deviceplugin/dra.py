"""The drivers of a machine for ResourceClaims: one for each vendor that has devices here, as kubelet calls them.

A claim's devices are those of its allocation. What is prepared is in a file, so that a driver that starts anew still
knows which device belongs to which claim (DRA-R154, DRA-R160).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from seatrial.harness.apiserver.quantities import units
from seatrial.harness.deviceplugin.allocation import response_of
from seatrial.harness.deviceplugin.cdi import CdiFolder
from seatrial.harness.deviceplugin.claim_endpoint import ClaimEndpoint
from seatrial.harness.deviceplugin.claim_messages import (
    HEALTHY,
    UNHEALTHY,
    ClaimRef,
    DeviceHealth,
    DeviceIdentifier,
    PreparedClaim,
    PreparedDevice,
    ReleasedClaim,
)
from seatrial.harness.deviceplugin.kubelet import KubeletFolder
from seatrial.harness.deviceplugin.messages import ContainerAllocateResponse
from seatrial.harness.deviceplugin.plugin import for_static_slices
from seatrial.harness.deviceplugin.slices import Cutter, PodSlices, Run
from seatrial.harness.devices.provider import Assignment, Device, Share, Slice
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.devices.vendors.descriptor import Vendor
from seatrial.harness.errors import DeviceError, HarnessError
from seatrial.harness.nodes.slices import CORES, MEMORY, Offer, Way, offers
from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from seatrial.scheduler.api.private_files import write_private
from seatrial.scheduler.api.resourceclaims import ResourceClaim

log = logging.getLogger(__name__)

CHECKPOINT = "prepared.json"  # in the driver's folder, beside its socket
Devices = Callable[[], Sequence[Device]]


@dataclass(frozen=True, slots=True)
class Claims:
    """Reads claims from the API server. Errors are HarnessError."""

    read: Callable[[str, str], Awaitable[ResourceClaim | None]]  # namespace, name
    every: Callable[[], Awaitable[Sequence[ResourceClaim]]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a driver works. `root`: has the machine's /dev. `simulated`: see `response_of`. `way`: how cards are
    offered. `cutter` makes slices of cards, and `run` calls it beside the loop.
    """

    node: str
    kubelet: KubeletFolder
    cdi: Path
    cutter: Cutter
    run: Run
    root: Path = Path("/")
    simulated: bool = False
    way: Way = "whole"


class _Item(msgspec.Struct, frozen=True, omit_defaults=True):
    """A device of a prepared claim. `shared`: other claims may have it, too."""

    request: str
    device: str
    share: str = ""
    shared: bool = False
    consumed: dict[str, str] = {}


class _Prepared(msgspec.Struct, frozen=True):
    """A prepared claim."""

    uid: str
    claim: str  # namespace/name
    devices: tuple[_Item, ...]

    def name_of(self, item: _Item) -> str:
        """The name of a device in the claim's CDI file."""
        return "-".join(part for part in (self.uid, item.device, item.share) if part)


_decode = msgspec.json.Decoder(list[_Prepared]).decode


class DraDriver:
    """The driver of one vendor's devices."""

    def __init__(self, vendor: Vendor, devices: Devices, place: Place, claims: Claims) -> None:
        """`devices`: of this vendor, as last read."""
        self._vendor, self._devices, self._place, self._claims = vendor, devices, place, claims
        self.name = vendor.claim_driver.name
        self._cdi = CdiFolder(place.cdi, self.name)
        self._file = place.kubelet.drivers / self.name / CHECKPOINT
        self._slices = PodSlices(self._file.parent, place.cutter, place.run)  # of claims, by their uids
        self._prepared: dict[str, _Prepared] = {}  # by uid
        self._lock = asyncio.Lock()

    async def restore(self) -> None:
        """Read which claims are prepared. A damaged file is set aside, and the claims are those that the API server has
        for this node's devices.

        Raises:
            HarnessError: the API server does not answer, or the file cannot be set aside.
        """
        try:
            claims = _decode(self._file.read_bytes()) if self._file.exists() else []
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            log.warning(
                "%s: expected the prepared claims, found: %s; they are read from the API server", self._file, error
            )
            every = await self._claims.every()
            claims = [self._record(claim) for claim in every if claim.status.reserved_for and self._results(claim)]
            try:
                self._file.replace(self._file.with_suffix(".damaged"))
            except OSError as problem:
                raise DeviceError(f"{self._file}: cannot be set aside: {problem}") from problem
        self._keep({claim.uid: claim for claim in claims})

    # -- kubelet's calls ----------------------------------------------------------------------------------------------

    async def prepare(self, ref: ClaimRef) -> PreparedClaim:
        async with self._lock:
            try:
                prepared = self._prepared.get(ref.uid) or self._record(await self._read(ref))
                self._check(prepared)
                await self._slices.remove_unused({*self._prepared, ref.uid})
                shares = await self._slices.of(ref.uid, [self._share(each) for each in prepared.devices])
                pairs = zip(prepared.devices, shares, strict=True)
                self._cdi.write(ref.uid, {prepared.name_of(each): self._edits(share, ref) for each, share in pairs})
                if ref.uid not in self._prepared:
                    self._keep({**self._prepared, ref.uid: prepared})
            except HarnessError as error:
                log.warning("not prepared driver=%s claim=%s/%s why=%s", self.name, ref.namespace, ref.name, error)
                return PreparedClaim(error=str(error))
        log.info(
            "prepared driver=%s claim=%s devices=%s",
            self.name,
            prepared.claim,
            ",".join(each.device for each in prepared.devices),
        )
        return PreparedClaim(
            tuple(
                PreparedDevice(
                    (each.request,),
                    self._place.node,
                    each.device,
                    (self._cdi.qualified(prepared.name_of(each)),),
                    each.share,
                )
                for each in prepared.devices
            )
        )

    async def unprepare(self, ref: ClaimRef) -> ReleasedClaim:
        async with self._lock:
            try:
                self._cdi.remove(ref.uid)
                if ref.uid in self._prepared:
                    self._keep({uid: claim for uid, claim in self._prepared.items() if uid != ref.uid})
                await self._slices.remove_unused(self._prepared)
            except HarnessError as error:
                log.warning("not released driver=%s claim=%s/%s why=%s", self.name, ref.namespace, ref.name, error)
                return ReleasedClaim(str(error))
        log.info("released driver=%s claim=%s/%s", self.name, ref.namespace, ref.name)
        return ReleasedClaim()

    def health(self) -> tuple[DeviceHealth, ...]:
        return tuple(
            DeviceHealth(
                DeviceIdentifier(self._place.node, name),
                HEALTHY if offer.device.health.ok else UNHEALTHY,
                offer.device.health.message or offer.device.health.code,
            )
            for name, offer in self._by_name().items()
        )

    # -- one claim ----------------------------------------------------------------------------------------------------

    async def _read(self, ref: ClaimRef) -> ResourceClaim:
        """
        Raises:
            HarnessError: there is no such claim, or the API server does not answer.
        """
        claim = await self._claims.read(ref.namespace, ref.name)
        if claim is None:
            raise DeviceError(f"ResourceClaim {ref.namespace}/{ref.name} not found")
        if claim.metadata.uid != ref.uid:
            raise DeviceError(
                f"ResourceClaim {ref.namespace}/{ref.name}: expected UID {ref.uid}, found {claim.metadata.uid}"
            )
        if not self._results(claim):
            raise DeviceError(f"ResourceClaim {ref.namespace}/{ref.name} has no device of {self.name} on this node")
        return claim

    def _results(self, claim: ResourceClaim) -> list[_Item]:
        """The devices of the claim that are of this driver and this node."""
        results = claim.status.allocation.devices.results if claim.status.allocation else ()
        return [
            _Item(
                result.request,
                result.device,
                result.share_id,
                bool(result.admin_access or result.share_id),
                {name: str(value) for name, value in result.consumed_capacity.items()},
            )
            for result in results
            if (result.driver, result.pool) == (self.name, self._place.node)
        ]

    def _record(self, claim: ResourceClaim) -> _Prepared:
        return _Prepared(claim.metadata.uid, claim.metadata.key, tuple(self._results(claim)))

    def _check(self, prepared: _Prepared) -> None:
        """
        Raises:
            DeviceError: a device is not here, or belongs to another claim.
        """
        here = self._by_name()
        own = {each.device for each in prepared.devices if not each.shared}
        for each in prepared.devices:
            if each.device not in here:
                raise DeviceError(f"device {each.device} of driver {self.name} is not on this node")
        for other in self._prepared.values():
            both = own & {each.device for each in other.devices if not each.shared}
            if both and other.uid != prepared.uid:
                raise DeviceError(
                    f"device {min(both)} of driver {self.name} is prepared for ResourceClaim {other.claim}"
                )

    def _share(self, item: _Item) -> Share:
        """The part of a card that a claim has; a slice is still to be made."""
        offer = self._by_name()[item.device]
        if offer.part is not None and offer.part.made is not None:
            return Share(offer.device, {}, slices=(offer.part.made,))
        if offer.part is not None:
            kind = self._vendor.claim_driver.part_kind
            cut = Slice("", kind, offer.part.template, offer.part.capacity[MEMORY])
            return Share(offer.device, {}, slices=(cut,))
        if not item.consumed:
            return Share(offer.device, {})
        cores, memory = units(item.consumed.get(CORES, 0)), units(item.consumed.get(MEMORY, 0))
        resources = {GPU_CORE: cores, GPU_MEMORY: memory, GPU_MEMORY_RATIO: memory * 100 // offer.device.memory}
        kind = self._vendor.claim_driver.part_kind
        return Share(offer.device, resources, slices=(Slice("", kind, "", memory),) if kind == "smlu" else ())

    def _edits(self, share: Share, ref: ClaimRef) -> ContainerAllocateResponse:
        """What a device adds to a container. The vendor's variable that lists all cards of a container is left out: a
        container may have devices of several claims, and none knows the others."""
        grant = for_static_slices(self._vendor.grant(Assignment((share,), pod_uid=ref.uid)))
        env = {name: value for name, value in grant.env.items() if name != self._vendor.names.variable}
        return response_of(
            replace(grant, env={**env, **self._vendor.claim_driver.env}),
            self._place.root,
            simulated=self._place.simulated,
        )

    def _by_name(self) -> dict[str, Offer]:
        return {offer.name: offer for offer in offers(self._vendor.claim_driver, self._devices(), self._place.way)}

    def _keep(self, prepared: dict[str, _Prepared]) -> None:
        """Note which claims are prepared, in the file first: kubelet calls again after an error.

        Raises:
            DeviceError: the file cannot be written; nothing has changed.
        """
        if prepared == self._prepared:
            return
        try:
            write_private(self._file, msgspec.json.encode(list(prepared.values())))
        except OSError as error:
            raise DeviceError(f"{self._file}: cannot be written: {error}") from error
        self._prepared = prepared


class DraPlugin:
    """All drivers of the machine."""

    def __init__(self, devices: Devices, place: Place, claims: Claims, registered: Callable[[], object]) -> None:
        """`devices`: those that are offered, as last read. `registered`: see `ClaimEndpoint`."""
        self._devices, self._place, self._claims, self._registered = devices, place, claims, registered
        self._endpoints: dict[str, ClaimEndpoint] = {}  # by vendor
        self._reported: Sequence[Device] = ()

    async def tick(self) -> None:
        """Do what is due: serve drivers that do not serve yet, report changed devices. Call it twice a second. An error
        is logged; the next call tries again.
        """
        devices = self._devices()
        for vendor in dict.fromkeys(device.vendor for device in devices):
            endpoint = self._endpoints.get(vendor)
            if endpoint is not None and endpoint.is_reachable():
                continue
            driver = DraDriver(VENDORS[vendor], lambda vendor=vendor: self._of(vendor), self._place, self._claims)  # type: ignore[misc]
            if endpoint is not None:
                await endpoint.stop()
            try:
                await driver.restore()
                endpoint = self._endpoints[vendor] = ClaimEndpoint(driver, self._place.kubelet, self._registered)
                await endpoint.start()
            except (HarnessError, OSError) as error:
                log.warning("driver not started driver=%s why=%s", driver.name, error)
        if devices != self._reported:
            self._reported = devices
            for endpoint in self._endpoints.values():
                endpoint.changed()

    async def stop(self) -> None:
        """Stop serving. What is prepared stays so."""
        for endpoint in self._endpoints.values():
            await endpoint.stop()
        self._endpoints.clear()

    def _of(self, vendor: str) -> list[Device]:
        return [device for device in self._devices() if device.vendor == vendor]
