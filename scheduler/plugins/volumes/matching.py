"""Which volume a claim can have on a node, and whether one can be provisioned there.

Follows `FindMatchingVolume` of k8s.io/component-helpers `storage/volume`, and kubernetes plugins/volumebinding.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from seatrial.scheduler.api.core import Node, NodeSelector
from seatrial.scheduler.api.quantity import Quantity, QuantityError, units
from seatrial.scheduler.api.storage import (
    AVAILABLE,
    BIND_COMPLETED,
    NO_PROVISIONER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from seatrial.scheduler.plugins.node_selection import term_holds
from seatrial.scheduler.pods.selectors import selector_matches

STORAGE = "storage"
_HOST = "kubernetes.io/hostname"


def is_fully_bound(claim: PersistentVolumeClaim) -> bool:
    """Whether the controller has bound the claim: the name of a volume alone may be a user's wish."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def size_of(resources: dict[str, Quantity]) -> int:
    """Bytes; 0 if the amount cannot be read: one volume does not stop the pods that others suit."""
    try:
        return units(resources.get(STORAGE, 0))
    except QuantityError:
        return 0


def belongs_to(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume's claimRef names the claim, as a user's reservation (without uid) or as a binding."""
    reference = volume.spec.claim_ref
    if reference is None:
        return False
    metadata = claim.metadata
    return (reference.namespace, reference.name) == (metadata.namespace, metadata.name) and (
        not reference.uid or reference.uid == metadata.uid
    )


def reaches(volume: PersistentVolume, node: Node) -> bool:
    """Whether the volume can be used on the node."""
    required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    return required is None or _holds(required, node)


def _holds(selector: NodeSelector, node: Node) -> bool:
    return any(term_holds(term, node.name, node.metadata.labels) for term in selector.node_selector_terms)


def can_provision(storage_class: StorageClass, node: Node) -> bool:
    """Whether the class has a provisioner that may make a volume for the node."""
    if storage_class.provisioner in {"", NO_PROVISIONER}:
        return False
    return not storage_class.allowed_topologies or any(
        all(
            node.metadata.labels.get(topology_requirement.key) in topology_requirement.values
            for topology_requirement in term.match_label_expressions
        )
        for term in storage_class.allowed_topologies
    )


@dataclass(frozen=True, slots=True)
class Candidates:
    """The volumes that a claim could have, whatever the node: one that is reserved for it, or the others by size.

    Volumes of one host are apart from the rest: a cluster of local disks has thousands, of which a node reaches a few.
    """

    own: PersistentVolume | None
    of_host: dict[str, list[tuple[int, PersistentVolume]]]  # by hostname, with their places in the order
    others: list[tuple[int, PersistentVolume]]

    def best(self, node: Node, is_taken: Callable[[str], bool]) -> PersistentVolume | None:
        """The volume to choose on a node; `is_taken` tells names of volumes that are chosen for other claims."""
        if self.own is not None:
            return self.own if reaches(self.own, node) and not is_taken(self.own.metadata.name) else None
        results: tuple[int, PersistentVolume] | None = None
        for listed in (self.of_host.get(node.metadata.labels.get(_HOST, ""), ()), self.others):
            for place, volume in listed:
                if results is not None and results[0] < place:
                    break
                if not is_taken(volume.metadata.name) and reaches(volume, node):
                    results = place, volume
                    break
        return None if results is None else results[1]


def candidates(claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume]) -> Candidates:
    """The volumes for a claim that waits for its pod, smallest first, then by name."""
    size = size_of(claim.spec.resources.requests)
    fitting = [volume for volume in volumes if _may_serve(volume, claim, size)]
    own = [volume for volume in fitting if volume.spec.claim_ref is not None]
    if own:
        return Candidates(min(own, key=lambda volume: volume.metadata.name), {}, [])
    fitting.sort(key=lambda volume: (size_of(volume.spec.capacity), volume.metadata.name))
    of_host: dict[str, list[tuple[int, PersistentVolume]]] = {}
    others: list[tuple[int, PersistentVolume]] = []
    for place, volume in enumerate(fitting):
        hosts = _hosts_of(volume)
        for host in hosts:
            of_host.setdefault(host, []).append((place, volume))
        if not hosts:
            others.append((place, volume))
    return Candidates(None, of_host, others)


def _may_serve(volume: PersistentVolume, claim: PersistentVolumeClaim, amount: int) -> bool:
    """Whether class, mode and size are right and, unless it is reserved for the claim, it is free and selected."""
    spec = volume.spec
    if (
        spec.storage_class_name != claim.spec.storage_class_name
        or spec.volume_mode != claim.spec.volume_mode
        or volume.metadata.deletion_timestamp is not None
        or size_of(spec.capacity) < amount
    ):
        return False
    if spec.claim_ref is not None:
        return belongs_to(volume, claim)
    return (
        volume.status.phase == AVAILABLE
        and set(claim.spec.access_modes) <= set(spec.access_modes)
        and (claim.spec.selector is None or selector_matches(claim.spec.selector, volume.metadata.labels))
    )


def _hosts_of(volume: PersistentVolume) -> tuple[str, ...]:
    """The hostnames to which the volume's node affinity is limited; none if it is written in another way."""
    required = volume.spec.node_affinity.required if volume.spec.node_affinity else None
    if required is None or len(required.node_selector_terms) != 1:
        return ()
    for expression in required.node_selector_terms[0].match_expressions:
        if expression.key == _HOST and expression.operator == "In":
            return expression.values
    return ()
