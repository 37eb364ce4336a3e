"""VolumeBinding: volumes of a pod's claims, bound or to be chosen (kubernetes plugins/volumebinding).

A claim that waits for its first consumer gets the smallest volume that serves it on the pod's node, or an annotation
that names the node to the provisioner. Both are assumed at the decision and written before the pod is bound, which
waits until the controller has bound the claims.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote

from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.storage import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from seatrial.scheduler.api.wire import ObjectMeta, Wire, decoder
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.cache.volumes import ClaimKey, claim_keys, ephemeral_claim_keys, is_made_for
from seatrial.scheduler.framework.extension_points import (
    NO_LABELS,
    NO_METADATA_CHANGES,
    Args,
    Filter,
    MetadataChanges,
    PreBind,
    PreFilter,
    Reserve,
    Scope,
)
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.preparation import Awaited, ObjectPatch, Preparation
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.framework.status import SUCCESS, Code, Status
from seatrial.scheduler.plugins.volumes.choices import Choice, Choices
from seatrial.scheduler.plugins.volumes.matching import (
    Candidates,
    belongs_to,
    can_provision,
    candidates,
    is_fully_bound,
    reaches,
    size_of,
)

UNBOUND_IMMEDIATE = Status.unresolvable("pod has unbound immediate PersistentVolumeClaims")
ELSEWHERE = Status.unresolvable("node(s) didn't match PersistentVolume's node affinity")
NONE_TO_BIND = Status.unresolvable("node(s) didn't find available persistent volumes to bind")
NO_VOLUME = Status.unresolvable("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)")
NOT_YET = Status(Code.WAIT)

LOST = "Lost"
TO_PROVISION = ""  # in place of a volume's name


class VolumeBindingArgs(Args, frozen=True):
    """Upstream's arguments."""

    bind_timeout_seconds: int = 600

    def check(self) -> None:
        if self.bind_timeout_seconds < 0:
            raise ValueError(f"bindTimeoutSeconds: expected 0 or more, found {self.bind_timeout_seconds}")


@dataclass(frozen=True, slots=True)
class _Unbound:
    """A claim that waits for its first consumer."""

    claim: PersistentVolumeClaim
    of_class: StorageClass
    selected_node: str  # written to the claim, or chosen for it; "" if none is
    candidates: Candidates


@dataclass(frozen=True, slots=True)
class _Needs:
    """A pod's claims: volumes of bound claims (None: unknown volume), and claims still to be bound, smallest first."""

    volumes: tuple[PersistentVolume | None, ...]
    waiting: tuple[_Unbound, ...]


NEEDS: StateKey[_Needs] = StateKey("VolumeBinding/needs")


class _Answer(Wire, frozen=True):
    """What is read of an object that was patched."""

    metadata: ObjectMeta = ObjectMeta()


_decode_answer = decoder(_Answer)


class VolumeBinding(PreFilter, Filter, Reserve, PreBind):
    """The extension points of VolumeBinding."""

    name = "VolumeBinding"
    scope = Scope.CLUSTER
    only_volumes = True
    acts_on = NEEDS

    def __init__(self, handle: Handle, args: VolumeBindingArgs | None = None) -> None:
        self._cache = handle.cache
        self._volumes = handle.cache.volumes
        self._seconds = (args or VolumeBindingArgs()).bind_timeout_seconds
        self.choices = handle.shared(Choices, partial(_new_choices, handle))

    def concerns(self, pod: Pod) -> bool:
        return bool(pod.spec.volumes) and any(True for _ in claim_keys(pod))

    def label_keys(self, pod: Pod) -> frozenset[str]:
        return NO_LABELS

    # -- filter -------------------------------------------------------------------------------------------------------

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        volumes: list[PersistentVolume | None] = []
        waiting: list[_Unbound] = []
        made_for_pod = set(ephemeral_claim_keys(pod))
        for key in dict.fromkeys(claim_keys(pod)):
            claim = self._volumes.claims.get(key)
            if claim is None and key in made_for_pod:
                return Status.unresolvable(
                    f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{key[1]}"'
                )
            if claim is None:
                return Status.unresolvable(f'persistentvolumeclaim "{key[1]}" not found')
            if claim.metadata.deletion_timestamp is not None:
                return Status.unresolvable(f'persistentvolumeclaim "{key[1]}" is being deleted')
            if claim.status.phase == LOST:
                return Status.unresolvable(
                    f'persistentvolumeclaim "{key[1]}" bound to non-existent persistentvolume'
                    f' "{claim.spec.volume_name}"'
                )
            if key in made_for_pod and not is_made_for(claim, pod):
                return Status.unresolvable(
                    f"PVC {'/'.join(key)} was not created for pod {pod.metadata.key} (pod is not owner)"
                )
            if is_fully_bound(claim):
                volumes.append(self._volumes.bound(claim))
                continue
            entry = self._volumes.classes.get(claim.spec.storage_class_name)
            if claim.spec.volume_name or entry is None or entry.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
                return UNBOUND_IMMEDIATE
            waiting.append(self._unbound(key, claim, entry))
        if not volumes and not waiting:
            return Status.skip()
        waiting.sort(key=lambda unbound: size_of(unbound.claim.spec.resources.requests))
        state[NEEDS] = _Needs(tuple(volumes), tuple(waiting))
        return SUCCESS

    def _unbound(self, key: ClaimKey, claim: PersistentVolumeClaim, storage_class: StorageClass) -> _Unbound:
        selected, choice = claim.metadata.annotations.get(SELECTED_NODE, ""), self.choices.find(key)
        if choice is not None and choice.volume:
            volume = self._volumes.volumes.get(choice.volume)
            return _Unbound(claim, storage_class, "", candidates(claim, [] if volume is None else [volume]))
        if choice is not None:
            selected = choice.node
        return _Unbound(
            claim, storage_class, selected, candidates(claim, () if selected else self._volumes.volumes.values())
        )

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        needs = state[NEEDS]
        for volume in needs.volumes:
            if volume is None:
                return NO_VOLUME
            if not reaches(volume, node.known):
                return ELSEWHERE
        return NONE_TO_BIND if needs.waiting and self._choose(needs, node.known) is None else SUCCESS

    def _choose(self, needs: _Needs, node: Node) -> dict[ClaimKey, str] | None:
        """For each unbound claim the volume to bind on the node, or TO_PROVISION; None if a claim can have neither."""
        chosen: dict[ClaimKey, str] = {}
        for unbound in needs.waiting:
            key = (unbound.claim.metadata.namespace, unbound.claim.metadata.name)
            if unbound.selected_node and unbound.selected_node != node.name:
                return None
            volume = unbound.candidates.best(node, partial(self._is_taken, key, chosen))
            if volume is not None:
                chosen[key] = volume.metadata.name
            elif self._is_chosen(key) or not can_provision(unbound.of_class, node):
                return None
            else:
                chosen[key] = TO_PROVISION
        return chosen

    def _is_taken(self, claim: ClaimKey, chosen: dict[ClaimKey, str], volume: str) -> bool:
        return self.choices.has(volume, other_than=claim) or volume in chosen.values()

    def _is_chosen(self, claim: ClaimKey) -> bool:
        """Whether a volume has been chosen for the claim already, so that none is to be provisioned."""
        choice = self.choices.find(claim)
        return choice is not None and bool(choice.volume)

    # -- reserve ------------------------------------------------------------------------------------------------------

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        needs = state[NEEDS]
        if not needs.waiting:
            return SUCCESS
        node = self._cache.find(node_name)
        chosen = None if node is None else self._choose(needs, node.known)
        if chosen is None:
            return NONE_TO_BIND
        self.choices.add(pod.metadata.uid, self._new_choices(needs, node_name, chosen))
        return SUCCESS

    def _new_choices(self, needs: _Needs, node_name: str, chosen: dict[ClaimKey, str]) -> Iterator[Choice]:
        for unbound in needs.waiting:
            metadata = unbound.claim.metadata
            key = (metadata.namespace, metadata.name)
            if chosen[key] == TO_PROVISION:
                is_written = metadata.annotations.get(SELECTED_NODE) == node_name
            else:
                reference = self._volumes.volumes[chosen[key]].spec.claim_ref
                is_written = reference is not None and reference.uid == metadata.uid
            yield Choice(key, node_name, chosen[key], is_written)

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        self.choices.release(pod.metadata.uid)

    # -- write and wait -----------------------------------------------------------------------------------------------

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> MetadataChanges:
        uid = pod.metadata.uid
        choices = self.choices.of(uid)
        if not choices:
            return NO_METADATA_CHANGES
        patches: list[ObjectPatch] = []
        for choice in choices:
            if not choice.is_written and not choice.writer:
                choice.writer = uid
                patches.append(self._patch(choice))
        names = ", ".join("/".join(choice.claim) for choice in choices)
        late = f"binding volumes: claims are not bound after {self._seconds} s: {names}"
        awaited = Awaited(partial(self._check, uid, tuple(choices), node_name), self._seconds, late)
        return MetadataChanges({}, {}, {}, Preparation(tuple(patches), (awaited,)))

    def _patch(self, choice: Choice) -> ObjectPatch:
        """The write that tells the controller, or the provisioner, what was chosen; refused if the object changed."""
        namespace, name = choice.claim
        claim = self._volumes.claims.get(choice.claim)
        of_claim = ObjectMeta() if claim is None else claim.metadata
        if choice.volume == TO_PROVISION:
            path = f"/api/v1/namespaces/{quote(namespace)}/persistentvolumeclaims/{quote(name)}"
            metadata = _precondition(of_claim, {SELECTED_NODE: choice.node})
            return ObjectPatch(f'persistentvolumeclaim "{name}"', path, {"metadata": metadata}, _taker(choice))
        volume = self._volumes.volumes.get(choice.volume)
        reserved = volume is not None and volume.spec.claim_ref is not None
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": namespace,
            "name": name,
            "uid": of_claim.uid,
            "resourceVersion": of_claim.resource_version,
        }
        marks = {} if reserved else {BOUND_BY_CONTROLLER: "yes"}
        metadata = _precondition(ObjectMeta() if volume is None else volume.metadata, marks)
        body = {"metadata": metadata, "spec": {"claimRef": reference}}
        path = f"/api/v1/persistentvolumes/{quote(choice.volume)}"
        return ObjectPatch(f'persistentvolume "{choice.volume}"', path, body, _taker(choice))

    def _check(self, pod: str, choices: tuple[Choice, ...], node_name: str) -> Status:
        """Whether all claims are bound as chosen; then the choices are no longer needed."""
        statuses = [self._standing(choice, node_name) for choice in choices]
        failed = next((status for status in statuses if not status.ok and status is not NOT_YET), None)
        if failed is not None:
            return failed
        if NOT_YET in statuses:
            return NOT_YET
        self.choices.release(pod)
        return SUCCESS

    def _standing(self, choice: Choice, node_name: str) -> Status:
        claim, node = self._volumes.claims.get(choice.claim), self._cache.find(node_name)
        if node is None:
            return _failure(f'node "{node_name}" not found')
        if claim is None:
            return _failure(f'persistentvolumeclaim "{choice.claim[1]}" not found')
        if not choice.is_written:
            return NOT_YET if choice.writer else _failure(f'persistentvolumeclaim "{choice.claim[1]}" was given up')
        if choice.volume == TO_PROVISION:
            status = self._provisioned(choice, claim, node.known)
        else:
            status = self._volume_stands(choice, claim, node.known)
        if not status.ok:
            return status
        return SUCCESS if is_fully_bound(claim) else NOT_YET

    def _volume_stands(self, choice: Choice, claim: PersistentVolumeClaim, node: Node) -> Status:
        """Whether the chosen volume is still the claim's."""
        volume = self._volumes.volumes.get(choice.volume)
        if volume is None:
            return _failure(f'persistentvolume "{choice.volume}" not found')
        if _version(volume.metadata) < choice.version:
            return NOT_YET
        if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
            return _failure(f'ClaimRef got reset for pv "{choice.volume}"')
        if not belongs_to(volume, claim):
            return _failure(f'pv "{choice.volume}" was given to another claim')
        if claim.spec.volume_name not in {"", choice.volume}:
            return _failure(f'PVC "{claim.metadata.name}" got another volume, "{claim.spec.volume_name}"')
        return SUCCESS if reaches(volume, node) else _not_reached(volume, node)

    def _provisioned(self, choice: Choice, claim: PersistentVolumeClaim, node: Node) -> Status:
        """Whether the provisioner still has the node, and what it has made is for that node."""
        if _version(claim.metadata) < choice.version:
            return NOT_YET
        if claim.metadata.annotations.get(SELECTED_NODE) != choice.node:
            return _failure(f'provisioning failed for PVC "{claim.metadata.name}"')
        volume = self._volumes.bound(claim)
        return SUCCESS if volume is None or reaches(volume, node) else _not_reached(volume, node)


def _new_choices(handle: Handle) -> Choices:
    choices = Choices()
    handle.on_pod_left(choices.release)
    return choices


def _precondition(of: ObjectMeta, annotations: dict[str, str]) -> dict[str, Any]:
    """Metadata of a patch that only this state of the object takes."""
    results: dict[str, Any] = {"annotations": annotations} if annotations else {}
    return {**results, "uid": of.uid, "resourceVersion": of.resource_version}


def _taker(choice: Choice) -> Callable[[bytes], None]:
    def take(answer: bytes) -> None:
        choice.is_written = True
        choice.version = _version(_decode_answer(answer).metadata)

    return take


def _version(metadata: ObjectMeta) -> int:
    """The resource version as a number, as upstream's assume cache compares them; 0 if it is none."""
    return integer(metadata.resource_version) or 0


def _failure(why: str) -> Status:
    return Status.error(f"binding volumes: {why}")


def _not_reached(volume: PersistentVolume, node: Node) -> Status:
    return _failure(f'pv "{volume.metadata.name}" node affinity doesn\'t match node "{node.name}"')
