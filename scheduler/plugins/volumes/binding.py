"""VolumeBinding: whether a node can have the volumes of a pod's claims (kubernetes plugins/volumebinding)."""

from dataclasses import dataclass

from seatrial.scheduler.api.core import Node, NodeSelector, Pod
from seatrial.scheduler.api.storage import (
    NO_PROVISIONER,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.cache.volumes import claim_keys
from seatrial.scheduler.framework.extension_points import NO_LABELS, Args, Filter, PreFilter, Scope
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.plugins.selection import term_holds

UNBOUND_IMMEDIATE = Status.unresolvable("pod has unbound immediate PersistentVolumeClaims")
ELSEWHERE = Status.unresolvable("node(s) didn't match PersistentVolume's node affinity")
NONE_TO_BIND = Status.unresolvable("node(s) didn't find available persistent volumes to bind")
NO_VOLUME = Status.unresolvable("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")

LOST = "Lost"


class VolumeBindingArgs(Args, frozen=True):
    """Upstream's arguments."""

    bind_timeout_seconds: int = 600

    def check(self) -> None:
        if self.bind_timeout_seconds < 0:
            raise ValueError(f"bindTimeoutSeconds: expected 0 or more, found {self.bind_timeout_seconds}")


@dataclass(frozen=True, slots=True)
class _Needs:
    """A pod's claims: volumes of bound claims (None: unknown volume), and claims still to be bound."""

    volumes: tuple[PersistentVolume | None, ...]
    waiting: tuple[tuple[PersistentVolumeClaim, StorageClass], ...]


NEEDS: StateKey[_Needs] = StateKey("VolumeBinding/needs")


class VolumeBinding(PreFilter, Filter):
    """The extension points of VolumeBinding."""

    name = "VolumeBinding"
    scope = Scope.CLUSTER
    only_volumes = True

    def __init__(self, handle: Handle, args: VolumeBindingArgs | None = None) -> None:
        """The time-out is upstream's for the provisioner; this plugin does not wait for it."""
        self._volumes = handle.cache.volumes

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.spec.volumes) and any(True for _ in claim_keys(pod))

    def label_keys(self, pod: Pod) -> frozenset[str]:
        return NO_LABELS

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        volumes: list[PersistentVolume | None] = []
        waiting: list[tuple[PersistentVolumeClaim, StorageClass]] = []
        for key in claim_keys(pod):
            claim = self._volumes.claims.get(key)
            if claim is None:
                return Status.unresolvable(f'persistentvolumeclaim "{key[1]}" not found')
            if claim.metadata.deletion_timestamp is not None:
                return Status.unresolvable(f'persistentvolumeclaim "{key[1]}" is being deleted')
            if claim.status.phase == LOST:
                return Status.unresolvable(
                    f'persistentvolumeclaim "{key[1]}" bound to non-existent persistentvolume'
                    f' "{claim.spec.volume_name}"'
                )
            if claim.spec.volume_name:
                volumes.append(self._volumes.bound(claim))
                continue
            found = self._volumes.classes.get(claim.spec.storage_class_name)
            if found is None or found.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
                return UNBOUND_IMMEDIATE
            waiting.append((claim, found))
        if not volumes and not waiting:
            return Status.skip()
        state[NEEDS] = _Needs(tuple(volumes), tuple(waiting))
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        needs = state[NEEDS]
        for volume in needs.volumes:
            if volume is None:
                return NO_VOLUME
            if not _reaches(volume, node.known):
                return ELSEWHERE
        return SUCCESS if all(self._can_bind(*claim, node.known) for claim in needs.waiting) else NONE_TO_BIND

    def _can_bind(self, claim: PersistentVolumeClaim, found: StorageClass, node: Node) -> bool:
        """Whether a free volume of the class is reachable, or the class can provision one there."""
        for volume in self._volumes.volumes.values():
            spec = volume.spec
            mine = spec.claim_ref is None or (spec.claim_ref.namespace, spec.claim_ref.name) == (
                claim.metadata.namespace,
                claim.metadata.name,
            )
            fits = spec.storage_class_name == found.metadata.name and set(claim.spec.access_modes) <= set(
                spec.access_modes
            )
            if mine and fits and _reaches(volume, node):
                return True
        if found.provisioner == NO_PROVISIONER:
            return False
        return not found.allowed_topologies or any(
            all(node.metadata.labels.get(wanted.key) in wanted.values for wanted in term.match_label_expressions)
            for term in found.allowed_topologies
        )


def _reaches(volume: PersistentVolume, node: Node) -> bool:
    """Whether the volume can be used on the node."""
    required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    return required is None or _holds(required, node)


def _holds(selector: NodeSelector, node: Node) -> bool:
    return any(term_holds(term, node.name, node.metadata.labels) for term in selector.node_selector_terms)
