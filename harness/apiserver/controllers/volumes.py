"""Binds PersistentVolumes to claims, and protects both while they are in use.

Follows `pkg/controller/volume/persistentvolume` and the controllers pvc-protection and pv-protection. Claims of a class
with `WaitForFirstConsumer` wait until the scheduler has chosen a volume (its `claimRef`). There are no provisioners.
"""

from typing import Any, Final

from seatrial.harness.apiserver.controllers.control import Control
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object
from seatrial.harness.apiserver.validation.resources import milli
from seatrial.harness.apiserver.validation.workloads import matches

VOLUMES: Final[CollectionKey] = ("", "persistentvolumes")
CLAIMS: Final[CollectionKey] = ("", "persistentvolumeclaims")
_CLASSES: Final[CollectionKey] = ("storage.k8s.io", "storageclasses")
_PODS: Final[CollectionKey] = ("", "pods")
_FINALIZERS: Final = {VOLUMES: "kubernetes.io/pv-protection", CLAIMS: "kubernetes.io/pvc-protection"}
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_BOUND_BY, _COMPLETED = "pv.kubernetes.io/bound-by-controller", "pv.kubernetes.io/bind-completed"
_FINISHED = frozenset({"Succeeded", "Failed"})


class Volumes:
    """Reconciles volumes and claims, in one queue. Pods are followed only while a claim waits for its removal."""

    def __init__(self, control: Control) -> None:
        self._control = control
        store = control.objects.store
        self._pods, self._classes = store.collection(_PODS), store.collection(_CLASSES)
        self._volumes, self._claims = store.collection(VOLUMES), store.collection(CLAIMS)
        self._volume_kind, self._claim_kind = control.resource(VOLUMES), control.resource(CLAIMS)
        self._queue: WorkQueue[tuple[CollectionKey, Key]] = WorkQueue(control.clock, self._reconcile)
        self._held: dict[Key, None] = {}  # terminating claims that pods use
        self._volumes.listen(self._volume_changed)
        self._claims.listen(self._claim_changed)
        self._classes.listen(self._class_changed)

    # -- admission -----------------------------------------------------------------------------------------------------

    def admit(self, resource: Resource, body: Object, old: Object | None, _subresource: str) -> None:
        """StorageObjectInUseProtection and DefaultStorageClass: set the finalizer and the class of a new object."""
        if old is not None:
            return
        finalizer, metadata = _FINALIZERS[resource.key], body["metadata"]
        if finalizer not in (metadata.get("finalizers") or ()):
            metadata["finalizers"] = [*(metadata.get("finalizers") or ()), finalizer]
        spec = body.get("spec")
        if resource.key == CLAIMS and isinstance(spec, dict) and spec.get("storageClassName") is None:
            name = self._default_class()
            if name:
                spec["storageClassName"] = name

    def _default_class(self) -> str:
        """The newest default class, by name among classes of one second."""
        creation_timestamps = [
            (item.obj["metadata"]["creationTimestamp"], item.key[1])
            for item in self._classes.each()
            if (item.obj["metadata"].get("annotations") or {}).get(_DEFAULT_CLASS) == "true"
        ]
        newest = max((created for created, _ in creation_timestamps), default="")
        return min((name for created, name in creation_timestamps if created == newest), default="")

    # -- events --------------------------------------------------------------------------------------------------------

    def _volume_changed(self, change: Change) -> None:
        self._queue.add((VOLUMES, change.key))
        reference = (change.old.obj["spec"].get("claimRef") if change.old is not None else None) or {}
        if reference.get("uid") and (change.new is None or change.new.obj["spec"].get("claimRef") != reference):
            self._queue.add((CLAIMS, (reference.get("namespace", ""), reference.get("name", ""))))

    def _claim_changed(self, change: Change) -> None:
        self._queue.add((CLAIMS, change.key))
        if change.new is None:
            self._hold(change.key, held=False)
            name = (change.old.obj.get("spec") or {}).get("volumeName") if change.old is not None else ""
            if name:
                self._queue.add((VOLUMES, ("", name)))

    def _class_changed(self, _change: Change) -> None:
        for item in self._claims.each():
            if not _is_bound(item):
                self._queue.add((CLAIMS, item.key))

    def _pod_changed(self, change: Change) -> None:
        if change.new is None or change.new.obj.get("status", {}).get("phase") in _FINISHED:
            for key in self._held:
                if key[0] == change.key[0]:
                    self._queue.add((CLAIMS, key))

    def _hold(self, key: Key, *, held: bool) -> None:
        before = bool(self._held)
        if held:
            self._held[key] = None
        else:
            self._held.pop(key, None)
        if bool(self._held) != before:
            (self._pods.unlisten if before else self._pods.listen)(self._pod_changed)

    # -- reconciliation ------------------------------------------------------------------------------------------------

    def _reconcile(self, place: tuple[CollectionKey, Key]) -> None:
        collection, key = place
        if collection == CLAIMS:
            item = self._claims.get(key)
            if item is not None:
                self._claim(item)
            return
        item = self._volumes.get(key)
        if item is not None:
            self._volume(item)

    def _claim(self, claim: Item) -> None:
        metadata = claim.obj["metadata"]
        if "deletionTimestamp" in metadata:
            if _FINALIZERS[CLAIMS] in (metadata.get("finalizers") or ()):
                used = self._is_used(claim.key)
                self._hold(claim.key, held=used)
                if not used:
                    self._control.drop_finalizer(self._claim_kind, claim, _FINALIZERS[CLAIMS])
            return
        if _is_bound(claim):
            self._keep(claim)
            return
        name = claim.obj["spec"].get("volumeName")
        volume = self._volumes.get(("", name)) if name else self._choice(claim)
        if volume is not None and _may_be_claimed(volume, claim):
            self._bind(volume, claim, by_controller=not name)
        elif not (claim.obj.get("status") or {}).get("phase"):
            self._control.put_status(self._claim_kind, claim, {"phase": "Pending"})

    def _keep(self, claim: Item) -> None:
        """A bound claim is Lost when its volume is gone or another claim's; one that came unbound is bound again."""
        volume = self._volumes.get(("", claim.obj["spec"].get("volumeName") or ""))
        reference = (volume.obj["spec"].get("claimRef") if volume is not None else None) or {}
        if volume is None or (reference and not _may_be_claimed(volume, claim)):
            self._control.put_status(self._claim_kind, claim, {"phase": "Lost"})
        elif not reference.get("uid"):
            self._bind(volume, claim, by_controller=False)

    def _is_used(self, key: Key) -> bool:
        """Whether a pod that has a node and has not ended uses the claim."""
        for pod in self._pods.each(key[0]):
            spec = pod.obj["spec"]
            if spec.get("nodeName") and pod.obj.get("status", {}).get("phase") not in _FINISHED:
                for volume in spec.get("volumes") or ():
                    made = f"{pod.key[1]}-{volume['name']}" if volume.get("ephemeral") else ""
                    if key[1] in {made, (volume.get("persistentVolumeClaim") or {}).get("claimName")}:
                        return True
        return False

    def _choice(self, claim: Item) -> Item | None:
        """The smallest volume that satisfies the claim; one that is reserved for the claim takes precedence."""
        spec = claim.obj["spec"]
        fitting = [item for item in self._volumes.each() if _fits(item, claim)]
        reserved = [item for item in fitting if item.obj["spec"].get("claimRef")]
        if reserved:
            return reserved[0]
        storage_class = self._classes.get(("", spec.get("storageClassName") or ""))
        if storage_class is not None and storage_class.obj.get("volumeBindingMode") == "WaitForFirstConsumer":
            return None
        return min(fitting, key=lambda item: (_capacity(item.obj), item.key), default=None)

    def _bind(self, volume: Item, claim: Item, *, by_controller: bool) -> None:
        spec, metadata = volume.obj["spec"], claim.obj["metadata"]
        reference = {
            "kind": "PersistentVolumeClaim",
            "namespace": claim.key[0],
            "name": claim.key[1],
            "uid": metadata["uid"],
            "apiVersion": "v1",
            "resourceVersion": metadata["resourceVersion"],
        }
        marks = {} if spec.get("claimRef") else {_BOUND_BY: "yes"}
        claim_marks = {_COMPLETED: "yes", **({_BOUND_BY: "yes"} if by_controller else {})}
        if (spec.get("claimRef") or {}).get("uid") != metadata["uid"]:
            volume = self._control.change(self._volume_kind, volume, spec={"claimRef": reference}, annotations=marks)
        self._control.put_status(self._volume_kind, volume, {**(volume.obj.get("status") or {}), "phase": "Bound"})
        claim = self._control.change(
            self._claim_kind, claim, spec={"volumeName": volume.key[1]}, annotations=claim_marks
        )
        status = {"phase": "Bound", "accessModes": spec.get("accessModes"), "capacity": spec.get("capacity")}
        self._control.put_status(self._claim_kind, claim, status)

    def _volume(self, volume: Item) -> None:
        metadata, reference = volume.obj["metadata"], volume.obj["spec"].get("claimRef")
        phase = (volume.obj.get("status") or {}).get("phase")
        if reference is None:
            if "deletionTimestamp" in metadata:
                self._release(volume)
                return
            if phase != "Available":
                self._control.put_status(self._volume_kind, volume, {"phase": "Available"})
            self._offer(volume)
            return
        claim = self._claims.get((reference.get("namespace", ""), reference.get("name", "")))
        uid = reference.get("uid")
        if claim is not None and (not uid or uid == claim.obj["metadata"]["uid"]):
            if not _is_bound(claim):
                self._queue.add((CLAIMS, claim.key))
            return
        if uid and phase != "Released":
            volume = self._control.put_status(self._volume_kind, volume, {"phase": "Released"})
            if volume.obj["spec"].get("persistentVolumeReclaimPolicy") == "Delete":
                self._control.delete(self._volume_kind, volume)
        elif "deletionTimestamp" in metadata:
            self._release(volume)
        elif not uid and phase != "Available":
            self._control.put_status(self._volume_kind, volume, {"phase": "Available"})

    def _release(self, volume: Item) -> None:
        if _FINALIZERS[VOLUMES] in (volume.obj["metadata"].get("finalizers") or ()):
            self._control.drop_finalizer(self._volume_kind, volume, _FINALIZERS[VOLUMES])

    def _offer(self, volume: Item) -> None:
        """Queue the claims that the free volume could satisfy."""
        for claim in self._claims.each():
            if not _is_bound(claim) and (_fits(volume, claim) or claim.obj["spec"].get("volumeName") == volume.key[1]):
                self._queue.add((CLAIMS, claim.key))


def _is_bound(claim: Item) -> bool:
    return (claim.obj.get("status") or {}).get("phase") == "Bound"


def _may_be_claimed(volume: Item, claim: Item) -> bool:
    """Whether the volume is free, or reserved for this claim."""
    reference: dict[str, Any] | None = volume.obj["spec"].get("claimRef")
    if reference is None:
        return "deletionTimestamp" not in volume.obj["metadata"]
    if (reference.get("namespace"), reference.get("name")) != claim.key:
        return False
    return reference.get("uid") in {None, "", claim.obj["metadata"]["uid"]}


def _fits(volume: Item, claim: Item) -> bool:
    """Whether the volume can be claimed and satisfies mode, access modes, size, class and selector of the claim.

    The last two do not matter of a volume that is reserved for the claim (component-helpers `FindMatchingVolume`).
    """
    offered, spec = volume.obj["spec"], claim.obj["spec"]
    if not _may_be_claimed(volume, claim) or "deletionTimestamp" in volume.obj["metadata"]:
        return False
    if offered.get("volumeMode", "Filesystem") != spec.get("volumeMode", "Filesystem"):
        return False
    if not set(spec.get("accessModes") or ()) <= set(offered.get("accessModes") or ()):
        return False
    requested = ((spec.get("resources") or {}).get("requests") or {}).get("storage", 0)
    if _capacity(volume.obj) < (milli(requested) or 0):
        return False
    if offered.get("claimRef"):
        return True
    if (offered.get("storageClassName") or "") != (spec.get("storageClassName") or ""):
        return False
    return not spec.get("selector") or matches(spec["selector"], volume.obj["metadata"].get("labels") or {})


def _capacity(volume: Object) -> int:
    return milli((volume["spec"].get("capacity") or {}).get("storage", 0)) or 0
