"""Garbage collection by owner references: background, foreground, orphan; follows kube-controller-manager's collector.

A dependent goes when the last of its owners is gone. An owner deleted in the foreground stays until the dependents
that block it are gone; one whose dependents are to be orphaned first loses them.
"""

from harness.apiserver.controllers.work_queue import Turns
from harness.apiserver.discovery.resources import Registry
from harness.apiserver.errors import ApiStatusError
from harness.apiserver.request.options import DeleteOptions
from harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object
from harness.apiserver.verbs.objects import Objects

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
Place = tuple[CollectionKey, Key]


class GarbageCollector:
    """Knows where every object is by its uid, and who depends on whom."""

    def __init__(self, objects: Objects, registry: Registry) -> None:
        self._objects, self._registry = objects, registry
        self._places: dict[str, Place] = {}  # uid → where it is
        self._dependents: dict[str, dict[Place, None]] = {}  # owner's uid → who names it
        self._turns: Turns[Place] = Turns(objects.clock, self._look_at)
        self._orphaned: Turns[str] = Turns(objects.clock, self._owner_gone)
        objects.store.listeners.append(self._changed)

    def _changed(self, collection: CollectionKey, change: Change) -> None:
        old, new = change.old, change.new
        place = (collection, change.key)
        before = old.obj["metadata"].get("ownerReferences") if old is not None else None
        after = new.obj["metadata"].get("ownerReferences") if new is not None else None
        if before is not after and before != after:
            for one in before or ():
                self._dependents.get(one.get("uid", ""), {}).pop(place, None)
            for one in after or ():
                self._dependents.setdefault(one.get("uid", ""), {})[place] = None
            if after:
                self._turns.add(place)
        if new is None:
            assert old is not None  # noqa: S101
            uid = old.obj["metadata"]["uid"]
            self._places.pop(uid, None)
            if self._dependents.get(uid):
                self._orphaned.add(uid)
            for one in before or ():  # an owner may have waited for this one
                owner = self._places.get(one.get("uid", ""))
                if owner is not None:
                    self._turns.add(owner)
            return
        metadata = new.obj["metadata"]
        if old is None:
            self._places[metadata["uid"]] = place
        if "deletionTimestamp" in metadata and metadata.get("finalizers"):
            self._turns.add(place)

    def _item(self, place: Place) -> Item | None:
        return self._objects.store.collection(place[0]).get(place[1])

    def _owner_gone(self, uid: str) -> None:
        for place in list(self._dependents.pop(uid, {})):
            self._turns.add(place)

    def _look_at(self, place: Place) -> None:
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
        if owners and not any(one.get("uid") in self._places for one in owners):
            self._delete(place, item, "Background")
        elif any(one.get("uid") not in self._places for one in owners):
            kept = [one for one in owners if one.get("uid") in self._places]
            self._write(place, item, {**metadata, "ownerReferences": kept})

    def _foreground(self, place: Place, item: Item) -> None:
        uid = item.obj["metadata"]["uid"]
        blocking = False
        for dependent in list(self._dependents.get(uid, {})):
            found = self._item(dependent)
            if found is None:
                continue
            owners = found.obj["metadata"].get("ownerReferences") or ()
            if any(one.get("uid") == uid and one.get("blockOwnerDeletion") for one in owners):
                blocking = True
            if "deletionTimestamp" not in found.obj["metadata"]:
                self._delete(
                    dependent,
                    found,
                    "Foreground" if self._dependents.get(found.obj["metadata"]["uid"]) else "Background",
                )
        if not blocking:
            self._release(place, item, FOREGROUND)

    def _orphan(self, place: Place, item: Item) -> None:
        uid = item.obj["metadata"]["uid"]
        for dependent in list(self._dependents.get(uid, {})):
            found = self._item(dependent)
            if found is not None:
                metadata = found.obj["metadata"]
                kept = [one for one in metadata.get("ownerReferences") or () if one.get("uid") != uid]
                self._write(dependent, found, {**metadata, "ownerReferences": kept})
        self._release(place, item, ORPHAN)

    def _release(self, place: Place, item: Item, finalizer: str) -> None:
        current = self._item(place) or item
        metadata = current.obj["metadata"]
        kept = [one for one in metadata.get("finalizers") or () if one != finalizer]
        written = self._write(place, current, {**metadata, "finalizers": kept})
        if not kept and not metadata.get("deletionGracePeriodSeconds"):
            self._objects.store.collection(place[0]).remove(written.key)

    def _write(self, place: Place, item: Item, metadata: Object) -> Item:
        for empty in ("ownerReferences", "finalizers"):
            if empty in metadata and not metadata[empty]:
                del metadata[empty]
        return self._objects.store.collection(place[0]).put(item.key, {**item.obj, "metadata": metadata})

    def _delete(self, place: Place, item: Item, propagation: str) -> None:
        resource = self._registry.storage(place[0])
        if resource is None:
            return
        options = DeleteOptions(propagation=propagation, uid=item.obj["metadata"]["uid"])
        try:
            self._objects.delete(resource, item.key, options)
        except ApiStatusError:
            return  # gone or replaced meanwhile: nothing of ours is left
