"""Garbage collection by owner references: background, foreground, orphan; follows `pkg/controller/garbagecollector`.

A dependent is deleted when its last owner is gone. An owner deleted in the foreground stays until the dependents
that block it are gone. An owner with the `orphan` finalizer is first removed from its dependents' references.
"""

from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.discovery.resources import Registry
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.request.options import DeleteOptions
from seatrial.harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object
from seatrial.harness.apiserver.verbs.objects import Objects

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
Place = tuple[CollectionKey, Key]


class GarbageCollector:
    """Indexes objects by UID and dependents by owner UID, and deletes or orphans dependents."""

    def __init__(self, objects: Objects, registry: Registry) -> None:
        self._objects, self._registry = objects, registry
        self._places: dict[str, Place] = {}  # UID → collection and key
        self._dependents: dict[str, dict[Place, None]] = {}  # owner's UID → objects that reference it
        self._queue: WorkQueue[Place] = WorkQueue(objects.clock, self._collect)
        self._orphaned: WorkQueue[str] = WorkQueue(objects.clock, self._owner_gone)
        objects.store.listeners.append(self._changed)

    def _changed(self, collection: CollectionKey, change: Change) -> None:
        old, new = change.old, change.new
        place = (collection, change.key)
        before = old.obj["metadata"].get("ownerReferences") if old is not None else None
        after = new.obj["metadata"].get("ownerReferences") if new is not None else None
        if before is not after and before != after:
            for reference in before or ():
                known = self._dependents.get(reference.get("uid", ""), {})
                known.pop(place, None)
                if not known:
                    self._dependents.pop(reference.get("uid", ""), None)
            for reference in after or ():
                self._dependents.setdefault(reference.get("uid", ""), {})[place] = None
            if after:
                self._queue.add(place)
        if new is None:
            assert old is not None
            uid = old.obj["metadata"]["uid"]
            self._places.pop(uid, None)
            if self._dependents.get(uid):
                self._orphaned.add(uid)
            for reference in before or ():  # an owner in foreground deletion may have waited for this object
                owner = self._places.get(reference.get("uid", ""))
                if owner is not None and not self._is_blocked(reference["uid"]):
                    self._queue.add(owner)
            return
        metadata = new.obj["metadata"]
        if old is None:
            self._places[metadata["uid"]] = place
        if "deletionTimestamp" in metadata and metadata.get("finalizers"):
            self._queue.add(place)

    def _item(self, place: Place) -> Item | None:
        return self._objects.store.collection(place[0]).get(place[1])

    def _is_blocked(self, uid: str) -> bool:
        """Whether the oldest dependent left is in deletion and blocks the owner, so that the owner stays in any case.

        To look at all dependents at each removal would take quadratic time.
        """
        place = next(iter(self._dependents.get(uid, ())), None)
        item = self._item(place) if place is not None and place != self._places.get(uid) else None
        if item is None or "deletionTimestamp" not in item.obj["metadata"]:
            return False
        owners = item.obj["metadata"].get("ownerReferences") or ()
        return any(owner.get("uid") == uid and owner.get("blockOwnerDeletion") for owner in owners)

    def _owner_gone(self, uid: str) -> None:
        for place in list(self._dependents.pop(uid, {})):
            self._queue.add(place)

    def _collect(self, place: Place) -> None:
        item = self._item(place)
        if item is None:
            return
        metadata = item.obj["metadata"]
        finalizers = metadata.get("finalizers") or ()
        if "deletionTimestamp" in metadata:
            if ORPHAN in finalizers:
                self._orphan(place, item)
            elif FOREGROUND in finalizers:
                self._foreground(place, item)
            return
        owners = metadata.get("ownerReferences") or ()
        if owners and not any(owner.get("uid") in self._places for owner in owners):
            self._delete(place, item, "Background")
        elif any(owner.get("uid") not in self._places for owner in owners):
            kept = [owner for owner in owners if owner.get("uid") in self._places]
            self._write(place, item, {**metadata, "ownerReferences": kept})

    def _foreground(self, place: Place, item: Item) -> None:
        uid = item.obj["metadata"]["uid"]
        blocking = False
        for dependent in list(self._dependents.get(uid, {})):
            dependent_item = self._item(dependent)
            if dependent_item is None or dependent == place:
                continue
            dependents = self._dependents.get(dependent_item.obj["metadata"]["uid"])
            if "deletionTimestamp" not in dependent_item.obj["metadata"]:
                if dependents and any(self._in_foreground(each) for each in dependents):
                    dependent_item = self._unblocked(dependent, dependent_item)
                self._delete(dependent, dependent_item, "Foreground" if dependents else "Background")
            owners = dependent_item.obj["metadata"].get("ownerReferences") or ()
            if any(owner.get("uid") == uid and owner.get("blockOwnerDeletion") for owner in owners):
                blocking = True
        if not blocking:
            self._release(place, item, FOREGROUND)

    def _in_foreground(self, place: Place) -> bool:
        """Whether the object waits for its dependents in order to be removed."""
        item = self._item(place)
        if item is None or "deletionTimestamp" not in item.obj["metadata"]:
            return False
        return FOREGROUND in (item.obj["metadata"].get("finalizers") or ())

    def _unblocked(self, place: Place, item: Item) -> Item:
        """The object, stored so that it blocks no owner. Its dependents are in deletion: the owners form a cycle."""
        metadata = item.obj["metadata"]
        references = [{**reference, "blockOwnerDeletion": False} for reference in metadata["ownerReferences"]]
        return self._write(place, item, {**metadata, "ownerReferences": references})

    def _orphan(self, place: Place, item: Item) -> None:
        uid = item.obj["metadata"]["uid"]
        for dependent in list(self._dependents.get(uid, {})):
            dependent_item = self._item(dependent)
            if dependent_item is not None:
                metadata = dependent_item.obj["metadata"]
                kept = [reference for reference in metadata.get("ownerReferences") or () if reference.get("uid") != uid]
                self._write(dependent, dependent_item, {**metadata, "ownerReferences": kept})
        self._release(place, item, ORPHAN)

    def _release(self, place: Place, item: Item, finalizer: str) -> None:
        current = self._item(place) or item
        metadata = current.obj["metadata"]
        kept = [name for name in metadata.get("finalizers") or () if name != finalizer]
        written = self._write(place, current, {**metadata, "finalizers": kept})
        if not kept and not metadata.get("deletionGracePeriodSeconds"):
            self._objects.store.collection(place[0]).remove(written.key)

    def _write(self, place: Place, item: Item, metadata: Object) -> Item:
        for empty in ("ownerReferences", "finalizers"):
            if empty in metadata and not metadata[empty]:
                del metadata[empty]
        return self._objects.store_change(place[0], item, {**item.obj, "metadata": metadata})

    def _delete(self, place: Place, item: Item, propagation: str) -> None:
        resource = self._registry.storage(place[0])
        if resource is None:
            return
        options = DeleteOptions(propagation=propagation, uid=item.obj["metadata"]["uid"])
        try:
            self._objects.delete(resource, item.key, options)
        except ApiStatusError:
            return  # already removed or replaced
