"""From a changed object to the controller that owns it, or would adopt it, without looking at the others.

An object of which nobody is the controller costs one look at its references, and one at the selectors of its namespace
where there are any.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from harness.apiserver.objects import Objects
from harness.apiserver.resources import Resource
from harness.apiserver.store import Change, CollectionKey, Item, Key, Object
from harness.label_selectors import LabelSelector

Wake = Callable[[Key, Change], None]
_Kind = tuple[str, str]  # apiVersion, kind


def controller_of(obj: Object) -> Object | None:
    """The reference to the one owner that is the controller."""
    for one in obj["metadata"].get("ownerReferences") or ():
        if one.get("controller"):
            found: Object = one
            return found
    return None


def reference_to(resource: Resource, owner: Object) -> Object:
    """The reference by which `owner` controls what it makes."""
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
    """`spec.selector` as a test; a ReplicationController has plain labels there."""
    selector: dict[str, Any] | None = (owner.get("spec") or {}).get("selector")
    if not selector:
        return None
    if owner.get("kind") == "ReplicationController":
        return LabelSelector(match_labels=selector)
    return msgspec.convert(selector, LabelSelector)


def _may_match(test: LabelSelector, labels: dict[str, str]) -> bool:
    """A quick no for nearly everything that a selector does not mean."""
    for key, value in test.match_labels.items():  # noqa: SIM110 each orphan passes here, and a generator costs more
        if labels.get(key) != value:
            return False
    return True


class _Followed:
    """The owners of one kind."""

    __slots__ = ("fresh", "resource", "waiting", "wakes")

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.wakes: list[Wake] = []
        self.fresh: set[Key] = set()  # owners that have not yet looked for orphans
        self.waiting: dict[Key, dict[Key, None]] = {}  # owner → orphans that have turned up since


class Dependents:
    """All objects of one collection by the uid of their controller."""

    def __init__(self, objects: Objects, collection: CollectionKey) -> None:
        self._objects = objects
        self._collection = objects.store.collection(collection)
        self._by_owner: dict[str, dict[Key, None]] = {}
        self._kinds: dict[_Kind, _Followed] = {}
        self._selectors: dict[
            str, dict[tuple[str, str], tuple[_Followed, LabelSelector]]
        ] = {}  # namespace → kind, name
        self._collection.listen(self._changed)

    def follow(self, resource: Resource, wake: Wake | None = None) -> None:
        """Call `wake` with the key of an object of `resource` when one of its dependents, or a likely one, changes.

        It is called from within the write and must not write itself.
        """
        kind = (resource.api_version, resource.kind)
        followed = self._kinds.get(kind)
        if followed is None:
            followed = self._kinds[kind] = _Followed(resource)
            owners = followed
            self._objects.collection(resource).listen(lambda change: self._owner_changed(owners, change))
        if wake is not None:
            followed.wakes.append(wake)

    def of(self, uid: str) -> list[Item]:
        """What the owner with this uid controls, oldest first."""
        found = []
        for key in self._by_owner.get(uid, ()):
            item = self._collection.get(key)
            if item is not None:
                found.append(item)
        return found

    def claim(self, resource: Resource, owner: Item) -> list[Item]:
        """What `owner` controls, once it has adopted the orphans that it selects and let go what it selects no more."""
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
        followed = self._kinds[resource.api_version, resource.kind]
        waiting = followed.waiting.pop(owner.key, {})
        if owner.key in followed.fresh:
            followed.fresh.discard(owner.key)
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
            adopted.append(self._collection.put(item.key, body))
        return adopted

    def _release(self, item: Item, uid: str) -> None:
        metadata = dict(item.obj["metadata"])
        kept = [one for one in metadata.get("ownerReferences") or () if one.get("uid") != uid]
        if kept:
            metadata["ownerReferences"] = kept
        else:
            metadata.pop("ownerReferences", None)
        self._collection.put(item.key, {**item.obj, "metadata": metadata})

    # -- changes ------------------------------------------------------------------------------------------------------

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
            self._wake(old, change)
        if new is not None:
            self._by_owner.setdefault(new["uid"], {})[change.key] = None
            self._wake(new, change)
        elif change.new is not None and change.key[0] in self._selectors:
            self._orphan(change, change.new)

    def _wake(self, reference: Object, change: Change) -> None:
        followed = self._kinds.get((reference.get("apiVersion", ""), reference.get("kind", "")))
        if followed is not None:
            for wake in followed.wakes:
                wake((change.key[0], reference.get("name", "")), change)

    def _orphan(self, change: Change, item: Item) -> None:
        metadata = item.obj["metadata"]
        labels = metadata.get("labels")
        if not labels or "deletionTimestamp" in metadata:
            return
        old = change.old
        if old is not None and old.obj["metadata"].get("labels") == labels and controller_of(old.obj) is None:
            return  # whoever selects it knows it already
        for (_, name), (followed, test) in self._selectors[change.key[0]].items():
            if _may_match(test, labels) and test.matches(labels):
                key = (change.key[0], name)
                followed.waiting.setdefault(key, {})[change.key] = None
                for wake in followed.wakes:
                    wake(key, change)

    def _owner_changed(self, followed: _Followed, change: Change) -> None:
        namespace, name = change.key
        place = (followed.resource.kind, name)
        if change.new is None:
            followed.fresh.discard(change.key)
            followed.waiting.pop(change.key, None)
            names = self._selectors.get(namespace, {})
            names.pop(place, None)
            if not names:
                self._selectors.pop(namespace, None)
            return
        if change.old is None:
            followed.fresh.add(change.key)
        elif change.old.obj.get("spec") is change.new.obj.get("spec"):
            return
        test = selector_of(change.new.obj)
        if test is not None:
            self._selectors.setdefault(namespace, {})[place] = (followed, test)
