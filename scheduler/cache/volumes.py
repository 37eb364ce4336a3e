"""Storage objects of the API server: claims, volumes, classes and CSI nodes."""

from collections.abc import Iterable, Iterator, Mapping

from seatrial.scheduler.api.core import Pod, Volume
from seatrial.scheduler.api.storage import (
    CsiNode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

ClaimKey = tuple[str, str]  # namespace, name


class Volumes:
    """All known storage objects."""

    def __init__(self) -> None:
        self.claims: dict[ClaimKey, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self._limits: dict[str, dict[str, int]] = {}  # node → CSI driver → maximum of attached volumes
        self._attachments: dict[str, dict[str, VolumeAttachment]] = {}  # node → name

    def set_claim(self, claim: PersistentVolumeClaim, *, gone: bool = False) -> None:
        key = (claim.metadata.namespace, claim.metadata.name)
        if gone:
            self.claims.pop(key, None)
        else:
            self.claims[key] = claim

    def set_volume(self, volume: PersistentVolume, *, gone: bool = False) -> None:
        if gone:
            self.volumes.pop(volume.metadata.name, None)
        else:
            self.volumes[volume.metadata.name] = volume

    def set_class(self, storage_class: StorageClass, *, gone: bool = False) -> None:
        if gone:
            self.classes.pop(storage_class.metadata.name, None)
        else:
            self.classes[storage_class.metadata.name] = storage_class

    def set_csi_node(self, node: CsiNode, *, gone: bool = False) -> None:
        if gone:
            self._limits.pop(node.metadata.name, None)
            return
        self._limits[node.metadata.name] = {
            driver.name: driver.allocatable.count
            for driver in node.spec.drivers
            if driver.allocatable is not None and driver.allocatable.count is not None
        }

    def set_attachment(self, volume_attachment: VolumeAttachment, *, gone: bool = False) -> None:
        here = self._attachments.setdefault(
            volume_attachment.spec.node_name, {}
        )  # the spec of an attachment never changes
        if not gone:
            here[volume_attachment.metadata.name] = volume_attachment
            return
        here.pop(volume_attachment.metadata.name, None)
        if not here:
            del self._attachments[volume_attachment.spec.node_name]

    def attachments(self, node: str) -> Iterable[VolumeAttachment]:
        """The volumes that are attached to the node, or are to be, by any pod."""
        return self._attachments.get(node, {}).values()

    def limits(self, node: str) -> Mapping[str, int]:
        """The maximum of attached volumes for each CSI driver with a limit on the node."""
        return self._limits.get(node, {})

    def bound(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """The volume that a claim is bound to; None if it is not bound or the volume is unknown."""
        return self.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None


def claim_keys(pod: Pod) -> Iterator[ClaimKey]:
    """The claims that a pod uses, those of its generic ephemeral volumes included."""
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield pod.metadata.namespace, volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            yield _made_for(pod, volume)


def ephemeral_claim_keys(pod: Pod) -> Iterator[ClaimKey]:
    """The claims that are made for a pod's generic ephemeral volumes (component-helpers `storage/ephemeral`)."""
    return (_made_for(pod, volume) for volume in pod.spec.volumes if volume.ephemeral is not None)


def _made_for(pod: Pod, volume: Volume) -> ClaimKey:
    return pod.metadata.namespace, f"{pod.metadata.name}-{volume.name}"


def is_made_for(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    """Whether the pod controls the claim, as that of its generic ephemeral volume must be."""
    return any(owner.controller and owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references)
