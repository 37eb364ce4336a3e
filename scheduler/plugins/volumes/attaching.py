"""VolumeRestrictions, VolumeZone and NodeVolumeLimits: claims of one pod only, zones of volumes, limits of nodes.

Follows kubernetes pkg/scheduler/framework/plugins/<name>.
"""

from dataclasses import dataclass

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.storage import READ_WRITE_ONCE_POD
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.cache.volumes import ClaimKey, Volumes, claim_keys
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
        found = state.get(EXCLUSIVE)
        if found is not None and _uses(victim.pod, found.claims):
            state[EXCLUSIVE] = _Exclusive(found.claims, found.users + change)


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


ATTACHED: StateKey[frozenset[tuple[str, str]]] = StateKey("NodeVolumeLimits/attached")  # CSI driver, handle


class NodeVolumeLimits(_OfClaims):
    """Limits the volumes of a CSI driver on a node; a volume that several pods of the node use counts once."""

    name = "NodeVolumeLimits"

    def __init__(self, handle: Handle) -> None:
        self._volumes = handle.cache.volumes

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        wanted = attached(self._volumes, pod)
        if not wanted:
            return Status.skip()
        state[ATTACHED] = wanted
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        limits = self._volumes.limits(node.name)
        if not limits:
            return SUCCESS
        there = frozenset[tuple[str, str]]().union(
            *(attached(self._volumes, info.pod) for info in node.pods.values() if info.pod.spec.volumes)
        )
        new = state[ATTACHED] - there
        for driver in {driver for driver, _ in new} & limits.keys():
            if sum(name == driver for name, _ in there | new) > limits[driver]:
                return TOO_MANY
        return SUCCESS


def attached(volumes: Volumes, pod: Pod) -> frozenset[tuple[str, str]]:
    """The CSI volumes that a pod has attached or will have: those of its bound claims."""
    found = set()
    for key in claim_keys(pod):
        claim = volumes.claims.get(key)
        volume = volumes.bound(claim) if claim is not None else None
        if volume is not None and volume.spec.csi is not None:
            found.add((volume.spec.csi.driver, volume.spec.csi.volume_handle))
    return frozenset(found)
