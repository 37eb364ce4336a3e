"""Storage objects of the API server: claims, volumes, classes and CSI nodes."""

from collections.abc import Iterator, Mapping

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.storage import CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass

ClaimKey = tuple[str, str]  # namespace, name


class Volumes:
    """All known storage objects."""

    def __init__(self) -> None:
        self.claims: dict[ClaimKey, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self._limits: dict[str, dict[str, int]] = {}  # node → CSI driver → maximum of attached volumes

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

    def set_class(self, found: StorageClass, *, gone: bool = False) -> None:
        if gone:
            self.classes.pop(found.metadata.name, None)
        else:
            self.classes[found.metadata.name] = found

    def set_csi_node(self, node: CsiNode, *, gone: bool = False) -> None:
        drivers = () if gone else node.spec.drivers
        self._limits[node.metadata.name] = {
            driver.name: driver.allocatable.count
            for driver in drivers
            if driver.allocatable is not None and driver.allocatable.count is not None
        }

    def limits(self, node: str) -> Mapping[str, int]:
        """The maximum of attached volumes for each CSI driver with a limit on the node."""
        return self._limits.get(node, {})

    def bound(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """The volume that a claim is bound to; None if it is not bound or the volume is unknown."""
        return self.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None


def claim_keys(pod: Pod) -> Iterator[ClaimKey]:
    """The claims that a pod uses."""
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield pod.metadata.namespace, volume.persistent_volume_claim.claim_name
