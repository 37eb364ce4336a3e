"""Slices of cards for containers: vNPUs and sMLU instances.

They are created in the vendor's library when kubelet asks for the devices of a pod, and removed when the pod has ended.
A file names those that are in use, so that a restarted plugin neither creates them again nor leaves them behind.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import msgspec

from seatrial.harness.devices.provider import FailureKind, ProviderError, Share, Slice
from seatrial.harness.errors import DeviceError
from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY
from seatrial.scheduler.api.private_files import write_private

log = logging.getLogger(__name__)

_LATER = frozenset({FailureKind.BUSY, FailureKind.TIMEOUT, FailureKind.LOST})  # others: it is gone, as after a reboot

FOLDER, FILE = "seatrial", "slices.json"  # in kubelet's folder of sockets, of which kubelet empties no subfolder


class Cutter(Protocol):
    """Creates and removes slices. It blocks while a driver works."""

    def slice(self, uuid: str, template: str) -> Slice:
        """
        Raises:
            ProviderError: it does not fit.
        """

    def unslice(self, uuid: str, slice_id: str) -> None:
        """
        Raises:
            ProviderError: it is in use or does not exist.
        """


Run = Callable[[Callable[[], object]], Awaitable[object]]  # runs a blocking call beside the event loop


class _Cut(msgspec.Struct, frozen=True):
    """A slice of a pod: the card, and the position of its share in the pod's allocation."""

    pod: str  # uid
    card: str  # uuid
    place: int
    id: str
    kind: str
    template: str
    memory: int
    cores: int | None = None
    nodes: tuple[str, ...] = ()

    def as_slice(self) -> Slice:
        return Slice(self.id, self.kind, self.template, self.memory, self.cores, self.nodes)


_decode = msgspec.json.Decoder(list[_Cut]).decode


class PodSlices:
    """The slices of the node's pods."""

    def __init__(self, folder: Path, cutter: Cutter, run: Run) -> None:
        """`folder`: where the file is kept.

        Raises:
            DeviceError: the file cannot be read.
        """
        self._file, self._cutter, self._run = folder / FILE, cutter, run
        self._lock = asyncio.Lock()
        try:
            self._cuts = _decode(self._file.read_bytes()) if self._file.exists() else []
        except (OSError, msgspec.DecodeError) as error:
            raise DeviceError(f"{self._file}: expected the slices of pods, found: {error}") from error

    @property
    def pods(self) -> frozenset[str]:
        """The uids of the pods that have slices."""
        return frozenset(cut.pod for cut in self._cuts)

    async def of(self, pod: str, shares: Sequence[Share]) -> tuple[Share, ...]:
        """The shares with slices that exist; what is missing is created.

        Raises:
            DeviceError: the card has no room for it.
        """
        async with self._lock:
            return tuple([await self._cut(pod, place, share) for place, share in enumerate(shares)])

    async def remove_unused(self, living: Collection[str]) -> None:
        """Remove the slices of pods that are not among the uids. One that is still in use stays until the next call."""
        async with self._lock:
            for cut in [cut for cut in self._cuts if cut.pod not in living]:
                await self._remove(cut)

    async def _cut(self, pod: str, place: int, share: Share) -> Share:
        if not share.slices or share.slices[0].kind == "mig":  # which only administrators make
            return share
        known = next((cut for cut in self._cuts if (cut.pod, cut.place) == (pod, place)), None)
        if known is None:
            (part,) = share.slices
            try:
                made = await self._run(lambda: self._cutter.slice(share.device.uuid, template_of(share, part)))
            except ProviderError as error:
                raise DeviceError(
                    f"gpu {share.device.minor}: a slice {part.template or template_of(share, part)} cannot be made:"
                    f" {error}"
                ) from error
            assert isinstance(made, Slice)
            known = _Cut(
                pod,
                share.device.uuid,
                place,
                made.id,
                made.kind,
                made.template or part.template,
                made.memory,
                made.cores,
                made.nodes,
            )
            self._cuts.append(known)
            self._save()
            log.info("slice created pod=%s device=%s slice=%s kind=%s", pod, share.device.minor, made.id, made.kind)
        return replace(share, slices=(known.as_slice(),))

    async def _remove(self, cut: _Cut) -> None:
        try:
            await self._run(lambda: self._cutter.unslice(cut.card, cut.id))
        except ProviderError as error:
            log.warning("slice not removed pod=%s slice=%s why=%s", cut.pod, cut.id, error)
            if error.kind in _LATER:
                return
        log.info("slice removed pod=%s slice=%s", cut.pod, cut.id)
        self._cuts.remove(cut)
        self._save()

    def _save(self) -> None:
        self._file.parent.mkdir(exist_ok=True)
        write_private(self._file, msgspec.json.encode(self._cuts))


def template_of(share: Share, target: Slice) -> str:
    """How a provider names the slice of a share: a vNPU's template, an sMLU's percent and bytes as `10:1073741824`."""
    if target.kind == "smlu":
        return f"{share.resources.get(GPU_CORE, 0)}:{share.resources.get(GPU_MEMORY, 0)}"
    return target.template
