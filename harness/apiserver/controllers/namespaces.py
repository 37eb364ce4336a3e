"""The namespace controller: creates default objects, and empties a terminating namespace before removing it."""

from seatrial.harness.apiserver.attempts import Pending
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.discovery.resources import Registry
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.request.options import CONTROLLER_MANAGER, DeleteOptions, Options
from seatrial.harness.apiserver.storage.store import Change, CollectionKey
from seatrial.harness.apiserver.verbs.deletion import PROTECTED_NAMESPACES
from seatrial.harness.apiserver.verbs.objects import Objects

NAMESPACES: CollectionKey = ("", "namespaces")
RETRY = 0.5  # seconds after which objects that a webhook kept are deleted again
_DEFAULT_OBJECTS: dict[CollectionKey, tuple[str, ...]] = {
    ("", "serviceaccounts"): ("default",),
    ("", "configmaps"): ("kube-root-ca.crt",),
}


class Namespaces:
    """Reconciles namespaces, and follows removals of objects in terminating ones."""

    def __init__(self, objects: Objects, registry: Registry, root_ca: str = "") -> None:
        self._objects, self._registry, self._root_ca = objects, registry, root_ca
        self._going: set[str] = set()
        self._emptied: WorkQueue[str] = WorkQueue(objects.clock, self._empty)
        self._new: WorkQueue[str] = WorkQueue(objects.clock, self._create_default_objects)
        objects.store.listeners.append(self._changed)

    def create_first(self) -> None:
        """Create the namespaces that every cluster has."""
        resource = self._registry.storage(NAMESPACES)
        assert resource is not None
        for name in PROTECTED_NAMESPACES:
            self._objects.create(resource, "", {"metadata": {"name": name}}, Options())
            self._create_default_objects(name)

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
            elif change.key[1] in _DEFAULT_OBJECTS.get(collection, ()):
                self._new.add(change.key[0])  # deleted default objects are recreated

    def _create_default_objects(self, name: str) -> None:
        """Create the `default` service account and the root CA config map, which pods mount."""
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
                    self._objects.create(resource, name, body, Options(manager=CONTROLLER_MANAGER))
                except ApiStatusError:
                    return  # the namespace has been removed meanwhile

    def _empty(self, name: str) -> None:
        namespaces = self._objects.store.collection(NAMESPACES)
        item = namespaces.get(("", name))
        if item is None:
            return
        left, refused = 0, False
        for key, collection in self._objects.store:
            resource = self._registry.storage(key)
            if resource is None or not resource.namespaced:
                continue
            for each in list(collection.each(name)):
                left += 1
                if "deletionTimestamp" not in each.obj["metadata"]:
                    try:
                        _, gone = self._objects.delete(resource, each.key, DeleteOptions())
                        left -= gone
                    except (ApiStatusError, Pending):
                        refused = True
        if refused:
            self._emptied.add_after(RETRY, name)  # a webhook has to be called, or refused because of other objects
        if left:
            return  # the removal of the last object queues the namespace again
        spec = {**item.obj.get("spec", {}), "finalizers": []}
        metadata = dict(item.obj["metadata"])
        namespaces.put(item.key, {**item.obj, "metadata": metadata, "spec": spec})
        if not metadata.get("finalizers"):
            namespaces.remove(item.key)
