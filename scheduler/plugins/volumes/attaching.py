"""VolumeRestrictions, VolumeZone and NodeVolumeLimits: claims of one pod only, zones of volumes, limits of nodes.

Follows kubernetes pkg/scheduler/framework/plugins/<name>.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.storage import READ_WRITE_ONCE_POD, Disk, PersistentVolume, PersistentVolumeClaim
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.cache.volumes import ClaimKey, Volumes, claim_keys, ephemeral_claim_keys, is_made_for
from seatrial.scheduler.framework.extension_points import NO_LABELS, Filter, PreFilter, Scope, VictimAware
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.framework.status import SUCCESS, Status

IN_USE = Status.unschedulable(
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
WRONG_ZONE = Status.unresolvable("node(s) had no available volume zone")
TOO_MANY = Status.unschedulable("node(s) exceed max volume count")

ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
_NOW_CALLED = dict(zip(ZONE_LABELS[2:], ZONE_LABELS[:2], strict=True))  # deprecated labels → current names
_BETWEEN_ZONES = "__"  # separates several zones in one label value


class _OfClaims(PreFilter, Filter):
    """A filter that concerns pods with claims only, whatever their labels are."""

    scope = Scope.CLUSTER
    only_volumes = True

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.spec.volumes) and any(True for _ in claim_keys(pod))

    def label_keys(self, pod: Pod) -> frozenset[str]:
        return NO_LABELS


@dataclass(frozen=True, slots=True)
class _Exclusive:
    claims: frozenset[ClaimKey]
    users: int  # number of pods on nodes that use one of them


EXCLUSIVE: StateKey[_Exclusive] = StateKey("VolumeRestrictions/exclusive")


class VolumeRestrictions(_OfClaims, VictimAware):
    """A ReadWriteOncePod claim in use by another pod rejects every node."""

    name = "VolumeRestrictions"

    def __init__(self, handle: Handle) -> None:
        self._cache = handle.cache

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        claims = self._cache.volumes.claims
        exclusive = frozenset(
            key for key in claim_keys(pod) if key in claims and READ_WRITE_ONCE_POD in claims[key].spec.access_modes
        )
        if not exclusive:
            return Status.skip()
        placed = (info.pod for node in self._cache for info in node.pods.values() if info.pod.spec.volumes)
        state[EXCLUSIVE] = _Exclusive(exclusive, sum(_uses(placed_pod, exclusive) for placed_pod in placed))
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        return IN_USE if state[EXCLUSIVE].users else SUCCESS

    def victim_removed(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        self._move_in_dry_run(state, victim, -1)

    def victim_returned(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        self._move_in_dry_run(state, victim, 1)

    def _move_in_dry_run(self, state: CycleState, victim: PodInfo, change: int) -> None:
        entry = state.get(EXCLUSIVE)
        if entry is not None and _uses(victim.pod, entry.claims):
            state[EXCLUSIVE] = _Exclusive(entry.claims, entry.users + change)


def _uses(pod: Pod, claims: frozenset[ClaimKey]) -> bool:
    return not claims.isdisjoint(claim_keys(pod))


ZONES: StateKey[tuple[tuple[str, frozenset[str]], ...]] = StateKey("VolumeZone/zones")


class VolumeZone(_OfClaims):
    """A volume with zone labels can be used in these zones only; nodes without zone labels pass."""

    name = "VolumeZone"

    def __init__(self, handle: Handle) -> None:
        self._volumes = handle.cache.volumes

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        zones: list[tuple[str, frozenset[str]]] = []
        for key in claim_keys(pod):
            claim = self._volumes.claims.get(key)
            volume = self._volumes.bound(claim) if claim is not None else None
            if volume is not None:
                labels = volume.metadata.labels
                zones += [
                    (label, frozenset(labels[label].split(_BETWEEN_ZONES))) for label in ZONE_LABELS if label in labels
                ]
        if not zones:
            return Status.skip()
        state[ZONES] = tuple(zones)
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        labels = node.known.metadata.labels
        if not any(label in labels for label in ZONE_LABELS):
            return SUCCESS
        here = {label: labels.get(label) or labels.get(_NOW_CALLED.get(label, "")) for label in ZONE_LABELS}
        return SUCCESS if all(here[label] in values for label, values in state[ZONES]) else WRONG_ZONE


Attached = tuple[str, str]  # CSI driver, handle
ATTACHED: StateKey[frozenset[Attached]] = StateKey("NodeVolumeLimits/attached")
_MIGRATED = {  # in-tree plugin → source in a spec, CSI driver (k8s.io/csi-translation-lib)
    "kubernetes.io/aws-ebs": ("aws_elastic_block_store", "ebs.csi.aws.com"),
    "kubernetes.io/gce-pd": ("gce_persistent_disk", "pd.csi.storage.gke.io"),
    "kubernetes.io/azure-disk": ("azure_disk", "disk.csi.azure.com"),
    "kubernetes.io/cinder": ("cinder", "cinder.csi.openstack.org"),
    "kubernetes.io/portworx-volume": ("portworx_volume", "pxd.portworx.com"),
}


class NodeVolumeLimits(_OfClaims):
    """Limits the volumes of a CSI driver on a node; a volume that several pods of the node use counts once.

    A limit is in a CSINode, so in-tree plugins always count as migrated.
    """

    name = "NodeVolumeLimits"

    def __init__(self, handle: Handle) -> None:
        self._volumes = handle.cache.volumes

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        targets = attached(self._volumes, pod)
        if not targets:
            return Status.skip()
        state[ATTACHED] = targets
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        limits = self._volumes.limits(node.name)
        if not limits:
            return SUCCESS
        there = frozenset(self._attached_to(node.name)).union(
            *(attached(self._volumes, info.pod) for info in node.pods.values() if info.pod.spec.volumes)
        )
        new = state[ATTACHED] - there
        for driver in {driver for driver, _ in new} & limits.keys():
            if sum(name == driver for name, _ in there | new) > limits[driver]:
                return TOO_MANY
        return SUCCESS

    def _attached_to(self, node: str) -> Iterator[Attached]:
        """What VolumeAttachments say: a volume stays attached for a while when its pod is gone."""
        for attachment in self._volumes.attachments(node):
            volume = self._volumes.volumes.get(attachment.spec.source.persistent_volume_name)
            if volume is not None and volume.spec.csi is not None:
                yield attachment.spec.attacher, volume.spec.csi.volume_handle


def attached(volumes: Volumes, pod: Pod) -> frozenset[Attached]:
    """The CSI volumes that a pod has attached or will have, those that are to be provisioned included."""
    result = set()
    made_for_pod = set(ephemeral_claim_keys(pod))
    for key in claim_keys(pod):
        claim = volumes.claims.get(key)
        if claim is not None and (key not in made_for_pod or is_made_for(claim, pod)):
            result.add(_of_claim(volumes, claim))
    return frozenset(pair for pair in result if pair is not None)


def _of_claim(volumes: Volumes, claim: PersistentVolumeClaim) -> Attached | None:
    volume = volumes.bound(claim)
    if volume is not None:
        return _of_volume(volume)
    of_class = volumes.classes.get(claim.spec.storage_class_name)
    if of_class is None:
        return None
    _, driver = _MIGRATED.get(of_class.provisioner, ("", of_class.provisioner))
    return driver, f"{claim.metadata.key} (not provisioned)"


def _of_volume(volume: PersistentVolume) -> Attached | None:
    spec = volume.spec
    if spec.csi is not None:
        return spec.csi.driver, spec.csi.volume_handle
    for source, driver in _MIGRATED.values():
        disk: Disk | None = getattr(spec, source)
        if disk is not None:
            return driver, disk.volume_id or disk.pd_name or disk.disk_uri
    return None
