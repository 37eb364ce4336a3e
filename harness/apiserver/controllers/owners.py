"""Index from objects to their controlling owners, with adoption and release of orphans.

A change of an object without a controller costs one scan of its references, and one of the selectors in its namespace.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.label_selectors import LabelSelector
from seatrial.harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object
from seatrial.harness.apiserver.verbs.objects import Objects

Notify = Callable[[Key, Change], None]
_Kind = tuple[str, str]  # apiVersion, kind


def controller_of(obj: Object) -> Object | None:
    """The owner reference with `controller: true`; None if there is none."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            controller: Object = reference
            return controller
    return None


def reference_to(resource: Resource, owner: Object) -> Object:
    """A controller reference to `owner`."""
    metadata = owner["metadata"]
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def selector_of(owner: Object) -> LabelSelector | None:
    """`spec.selector` as a LabelSelector; a ReplicationController has plain labels there."""
    selector: dict[str, Any] | None = (owner.get("spec") or {}).get("selector")
    if not selector:
        return None
    if owner.get("kind") == "ReplicationController":
        return LabelSelector(match_labels=selector)
    return msgspec.convert(selector, LabelSelector)


def _may_match(test: LabelSelector, labels: dict[str, str]) -> bool:
    """A cheap pre-check that is False for most objects that the selector does not match."""
    for key, value in test.match_labels.items():  # noqa: SIM110 each orphan passes here, and a generator costs more
        if labels.get(key) != value:
            return False
    return True


class _OwnerKind:
    """State for the owners of one kind."""

    __slots__ = ("callbacks", "fresh", "resource", "waiting")

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.callbacks: list[Notify] = []
        self.fresh: set[Key] = set()  # owners that have not yet searched for orphans
        self.waiting: dict[Key, dict[Key, None]] = {}  # owner → matching orphans found since


class Dependents:
    """The objects of one collection, indexed by the UID of their controller."""

    def __init__(self, objects: Objects, collection: CollectionKey) -> None:
        self._objects = objects
        self._collection = objects.store.collection(collection)
        self._by_owner: dict[str, dict[Key, None]] = {}
        self._kinds: dict[_Kind, _OwnerKind] = {}
        self._selectors: dict[
            str, dict[tuple[str, str], tuple[_OwnerKind, LabelSelector]]
        ] = {}  # namespace → kind, name
        self._collection.listen(self._changed)

    def follow(self, resource: Resource, notify: Notify | None = None) -> None:
        """Call `notify` with the key of an object of `resource` when a dependent or a possible orphan of it changes.

        The callback runs during the write and must not write.
        """
        kind = (resource.api_version, resource.kind)
        state = self._kinds.get(kind)
        if state is None:
            state = self._kinds[kind] = _OwnerKind(resource)
            owners = state
            self._objects.collection(resource).listen(lambda change: self._owner_changed(owners, change))
        if notify is not None:
            state.callbacks.append(notify)

    def of(self, uid: str) -> list[Item]:
        """The objects controlled by the owner with this UID, oldest first."""
        items = []
        for key in self._by_owner.get(uid, ()):
            item = self._collection.get(key)
            if item is not None:
                items.append(item)
        return items

    def claim(self, resource: Resource, owner: Item) -> list[Item]:
        """The objects that `owner` controls, after adopting matching orphans and releasing others."""
        test = selector_of(owner.obj)
        metadata = owner.obj["metadata"]
        mine = self.of(metadata["uid"])
        if test is None or "deletionTimestamp" in metadata:
            return mine
        kept = []
        for item in mine:
            if test.matches(item.obj["metadata"].get("labels") or {}):
                kept.append(item)
            elif "deletionTimestamp" not in item.obj["metadata"]:
                self._release(item, metadata["uid"])
        return kept + self._adopt(resource, owner, test)

    def _adopt(self, resource: Resource, owner: Item, test: LabelSelector) -> list[Item]:
        state = self._kinds[resource.api_version, resource.kind]
        waiting = state.waiting.pop(owner.key, {})
        if owner.key in state.fresh:
            state.fresh.discard(owner.key)
            candidates = list(self._collection.each(owner.key[0]))
        else:
            candidates = [item for key in waiting if (item := self._collection.get(key)) is not None]
        adopted = []
        for item in candidates:
            metadata = item.obj["metadata"]
            if controller_of(item.obj) is not None or "deletionTimestamp" in metadata:
                continue
            if not test.matches(metadata.get("labels") or {}):
                continue
            references = [*(metadata.get("ownerReferences") or ()), reference_to(resource, owner.obj)]
            body = {**item.obj, "metadata": {**metadata, "ownerReferences": references}}
            adopted.append(self._objects.store_change(self._collection.key, item, body))
        return adopted

    def _release(self, item: Item, uid: str) -> None:
        metadata = dict(item.obj["metadata"])
        kept = [reference for reference in metadata.get("ownerReferences") or () if reference.get("uid") != uid]
        if kept:
            metadata["ownerReferences"] = kept
        else:
            metadata.pop("ownerReferences", None)
        self._objects.store_change(self._collection.key, item, {**item.obj, "metadata": metadata})

    # -- changes -------------------------------------------------------------------------------------------------------

    def _changed(self, change: Change) -> None:
        old, new = change.old, change.new
        before = old.obj["metadata"].get("ownerReferences") if old is not None else None
        after = new.obj["metadata"].get("ownerReferences") if new is not None else None
        if before or after:
            self._owned(change)
        elif change.key[0] in self._selectors and new is not None:
            self._orphan(change, new)

    def _owned(self, change: Change) -> None:
        old = controller_of(change.old.obj) if change.old is not None else None
        new = controller_of(change.new.obj) if change.new is not None else None
        if old is not None and (new is None or new["uid"] != old["uid"]):
            mine = self._by_owner.get(old["uid"], {})
            mine.pop(change.key, None)
            if not mine:
                self._by_owner.pop(old["uid"], None)
            self._notify(old, change)
        if new is not None:
            self._by_owner.setdefault(new["uid"], {})[change.key] = None
            self._notify(new, change)
        elif change.new is not None and change.key[0] in self._selectors:
            self._orphan(change, change.new)

    def _notify(self, reference: Object, change: Change) -> None:
        state = self._kinds.get((reference.get("apiVersion", ""), reference.get("kind", "")))
        if state is not None:
            for notify in state.callbacks:
                notify((change.key[0], reference.get("name", "")), change)

    def _orphan(self, change: Change, item: Item) -> None:
        metadata = item.obj["metadata"]
        labels = metadata.get("labels")
        if not labels or "deletionTimestamp" in metadata:
            return
        old = change.old
        if old is not None and old.obj["metadata"].get("labels") == labels and controller_of(old.obj) is None:
            return  # labels are unchanged, so its possible owners were notified before
        for (_, name), (state, test) in self._selectors[change.key[0]].items():
            if _may_match(test, labels) and test.matches(labels):
                key = (change.key[0], name)
                state.waiting.setdefault(key, {})[change.key] = None
                for notify in state.callbacks:
                    notify(key, change)

    def _owner_changed(self, state: _OwnerKind, change: Change) -> None:
        namespace, name = change.key
        place = (state.resource.kind, name)
        if change.new is None:
            state.fresh.discard(change.key)
            state.waiting.pop(change.key, None)
            names = self._selectors.get(namespace, {})
            names.pop(place, None)
            if not names:
                self._selectors.pop(namespace, None)
            return
        if change.old is None:
            state.fresh.add(change.key)
        elif change.old.obj.get("spec") is change.new.obj.get("spec"):
            return
        test = selector_of(change.new.obj)
        if test is not None:
            self._selectors.setdefault(namespace, {})[place] = (state, test)
