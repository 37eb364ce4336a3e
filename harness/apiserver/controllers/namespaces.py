"""Namespaces: what every one has from the start, and how one goes: first all that is in it, then itself."""

from harness.apiserver.controllers.work_queue import Turns
from harness.apiserver.discovery.resources import Registry
from harness.apiserver.errors import ApiStatusError
from harness.apiserver.request.options import DeleteOptions, Options
from harness.apiserver.storage.store import Change, CollectionKey
from harness.apiserver.verbs.objects import Objects

NAMESPACES: CollectionKey = ("", "namespaces")
FROM_THE_START = ("default", "kube-system", "kube-public", "kube-node-lease")
_FURNITURE: dict[CollectionKey, tuple[str, ...]] = {
    ("", "serviceaccounts"): ("default",),
    ("", "configmaps"): ("kube-root-ca.crt",),
}


class Namespaces:
    """Follows namespaces, and removals in those that are going."""

    def __init__(self, objects: Objects, registry: Registry, root_ca: str = "") -> None:
        self._objects, self._registry, self._root_ca = objects, registry, root_ca
        self._going: set[str] = set()
        self._emptied: Turns[str] = Turns(objects.clock, self._empty)
        self._new: Turns[str] = Turns(objects.clock, self._furnish)
        objects.store.listeners.append(self._changed)

    def create_first(self) -> None:
        """The namespaces that every cluster has."""
        resource = self._registry.storage(NAMESPACES)
        assert resource is not None  # noqa: S101
        for name in FROM_THE_START:
            self._objects.create(resource, "", {"metadata": {"name": name}}, Options())
            self._furnish(name)

    def _changed(self, collection: CollectionKey, change: Change) -> None:
        if collection == NAMESPACES:
            name = change.key[1]
            if change.new is None:
                self._going.discard(name)
            elif "deletionTimestamp" in change.new.obj["metadata"]:
                if name not in self._going:
                    self._going.add(name)
                    self._emptied.add(name)
            elif change.old is None:
                self._new.add(name)
        elif change.new is None:
            if change.key[0] in self._going:
                self._emptied.add(change.key[0])
            elif change.key[1] in _FURNITURE.get(collection, ()):
                self._new.add(change.key[0])  # what everybody relies on comes back

    def _furnish(self, name: str) -> None:
        """The service account and the config map that pods expect to find."""
        for kind, body in (
            (("", "serviceaccounts"), {"metadata": {"name": "default"}}),
            (("", "configmaps"), {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": self._root_ca}}),
        ):
            resource = self._registry.storage(kind)
            if (
                resource is not None
                and self._objects.collection(resource).get((name, body["metadata"]["name"])) is None
            ):
                try:
                    self._objects.create(resource, name, body, Options())
                except ApiStatusError:
                    return  # the namespace went as fast as it came

    def _empty(self, name: str) -> None:
        namespaces = self._objects.store.collection(NAMESPACES)
        item = namespaces.get(("", name))
        if item is None:
            return
        left = 0
        for key, collection in self._objects.store:
            resource = self._registry.storage(key)
            if resource is None or not resource.namespaced:
                continue
            for each in list(collection.each(name)):
                left += 1
                if "deletionTimestamp" not in each.obj["metadata"]:
                    _, gone = self._objects.delete(resource, each.key, DeleteOptions())
                    left -= gone
        if left:
            return  # each removal brings us back here
        spec = {**item.obj.get("spec", {}), "finalizers": []}
        metadata = dict(item.obj["metadata"])
        namespaces.put(item.key, {**item.obj, "metadata": metadata, "spec": spec})
        if not metadata.get("finalizers"):
            namespaces.remove(item.key)
