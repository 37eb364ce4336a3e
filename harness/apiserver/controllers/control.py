"""What all controllers of workloads share: making and removing what they own, status, conditions, events."""

from collections.abc import Mapping
from typing import Any

import orjson

from harness.apiserver.controllers.owners import Dependents, reference_to
from harness.apiserver.controllers.recording import NORMAL, WARNING, Recorder
from harness.apiserver.controllers.work_queue import Turns
from harness.apiserver.discovery.resources import Registry, Resource
from harness.apiserver.errors import ApiStatusError
from harness.apiserver.request.options import DeleteOptions, Options
from harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object
from harness.apiserver.verbs.objects import Objects
from harness.apiserver.webhooks.attempts import Pending

PODS: CollectionKey = ("", "pods")
GATHER = 0.1  # seconds in which changes of pods count as one: a thousand starting pods are not a thousand recounts


class Control:
    """One of these serves all controllers of a server."""

    def __init__(self, objects: Objects, registry: Registry) -> None:
        self.objects, self.clock = objects, objects.clock
        self._registry = registry
        self.pods = self.resource(PODS)
        self.owned_pods = Dependents(objects, PODS)
        self.recorder = Recorder(objects, self.resource(("", "events")))

    def resource(self, key: CollectionKey) -> Resource:
        """The row of a built-in kind."""
        found = self._registry.storage(key)
        assert found is not None  # noqa: S101
        return found

    def get(self, resource: Resource, key: Key) -> Item | None:
        """The object as it is now."""
        return self.objects.collection(resource).get(key)

    def follow_workload(self, resource: Resource, turns: Turns[Key]) -> None:
        """A turn for each object of a kind whose spec is new, whose pod has gone, or some of whose pods changed."""

        def changed(change: Change) -> None:
            if change.new is not None and is_new_spec(change):
                turns.add(change.key)

        def pod_changed(key: Key, change: Change) -> None:
            if change.new is None:
                turns.add(key)
            else:
                turns.gather(GATHER, key)

        self.objects.collection(resource).listen(changed)
        self.owned_pods.follow(resource, pod_changed)

    # -- making and removing ------------------------------------------------------------------------------------------

    def pod_from(self, resource: Resource, owner: Item, template: Object) -> Object:
        """A pod that follows a template and belongs to `owner`; whoever makes it gives it a name."""
        copied = self.copied(template)
        given = copied.get("metadata") or {}
        metadata: Object = {"ownerReferences": [reference_to(resource, owner.obj)]}
        for field in ("labels", "annotations", "finalizers"):
            if given.get(field):
                metadata[field] = given[field]
        return {"metadata": metadata, "spec": copied.get("spec") or {}}

    @staticmethod
    def copied(obj: Object) -> Object:
        """A deep copy: what is stored is shared by everybody, and admission completes new objects in place."""
        found: Object = orjson.loads(orjson.dumps(obj))
        return found

    def create_pod(self, component: str, resource: Resource, owner: Item, pod: Object) -> Item:
        """Store a pod and say so on its owner.

        Raises:
            ApiStatusError: it was not accepted; the owner has an event that says why.
        """
        try:
            made = self.objects.create(self.pods, owner.key[0], pod, Options())
        except Pending:
            raise  # it goes on by itself
        except ApiStatusError as refused:
            name = pod["metadata"].get("name", "")
            if refused.reason != "AlreadyExists" and not _namespace_ends(refused):
                subject = f'pod "{name}"' if name and not pod["metadata"].get("generateName") else "pod"
                message = (
                    f"Error creating: {refused.message}"
                    if subject == "pod"
                    else f"create {subject} failed error: {refused.message}"
                )
                self.recorder.record(component, resource, owner, WARNING, "FailedCreate", message)
            raise
        self.recorder.record(component, resource, owner, NORMAL, "SuccessfulCreate", f"Created pod: {made.key[1]}")
        return made

    def delete_pod(self, component: str, resource: Resource, owner: Item, pod: Item) -> None:
        """Begin to remove a pod and say so on its owner; one that is going or gone is left alone."""
        if "deletionTimestamp" in pod.obj["metadata"] or not self.delete(self.pods, pod):
            return
        self.recorder.record(component, resource, owner, NORMAL, "SuccessfulDelete", f"Deleted pod: {pod.key[1]}")

    def delete(self, resource: Resource, item: Item, *, propagation: str = "Background") -> bool:
        """Remove exactly this object; whether it was still there."""
        options = DeleteOptions(propagation=propagation, uid=item.obj["metadata"]["uid"])
        try:
            self.objects.delete(resource, item.key, options)
        except ApiStatusError:
            return False
        return True

    def drop_finalizer(self, resource: Resource, item: Item, finalizer: str) -> Item:
        """Let go of an object, which is gone if nothing else holds it."""
        metadata = dict(item.obj["metadata"])
        kept = [one for one in metadata.get("finalizers") or () if one != finalizer]
        metadata.pop("finalizers", None)
        if kept:
            metadata["finalizers"] = kept
        collection = self.objects.collection(resource)
        written = collection.put(item.key, {**item.obj, "metadata": metadata})
        if "deletionTimestamp" in metadata and not kept and not metadata.get("deletionGracePeriodSeconds"):
            collection.remove(item.key)
        return written

    # -- writing ------------------------------------------------------------------------------------------------------

    def put_status(self, resource: Resource, item: Item, status: Object) -> Item:
        """Store the status if it is another one."""
        if status == item.obj.get("status"):
            return item
        body = {**item.obj, "metadata": dict(item.obj["metadata"]), "status": status}
        return self.objects.collection(resource).put(item.key, body)

    def change(
        self,
        resource: Resource,
        item: Item,
        *,
        spec: Mapping[str, Any] | None = None,
        annotations: Mapping[str, str | None] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Item:
        """Store these fields of the spec, annotations (None: without it) and labels; a new spec is a new generation."""
        metadata = dict(item.obj["metadata"])
        body = {**item.obj, "metadata": metadata}
        if annotations:
            changed = {**(metadata.get("annotations") or {}), **annotations}
            metadata["annotations"] = {name: value for name, value in changed.items() if value is not None}
        if labels:
            metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
        if spec:
            body["spec"] = {**item.obj["spec"], **spec}
            if body["spec"] != item.obj["spec"]:
                metadata["generation"] = metadata.get("generation", 0) + 1
        if body == item.obj:
            return item
        return self.objects.collection(resource).put(item.key, body)

    def condition(self, kind: str, status: str, reason: str, message: str) -> Object:
        return {
            "type": kind, "status": status, "lastTransitionTime": self.clock.timestamp(), "reason": reason,
            "message": message,
        }  # fmt: skip


def with_condition(conditions: list[Object], new: Object) -> list[Object]:
    """`conditions` with the new one; one of the same status and reason stays, one of the same status keeps its time."""
    kept = [one for one in conditions if one["type"] != new["type"]]
    old = next((one for one in conditions if one["type"] == new["type"]), None)
    if old is not None and old["status"] == new["status"]:
        if old.get("reason") == new.get("reason"):
            return list(conditions)
        new = {**new, "lastTransitionTime": old.get("lastTransitionTime", new["lastTransitionTime"])}
    return [*kept, new]


def without_condition(conditions: list[Object], kind: str) -> list[Object]:
    """All but the condition of that type."""
    return [one for one in conditions if one["type"] != kind]


def is_new_spec(change: Change) -> bool:
    """Whether more than the status changed; what a controller itself writes there needs no second look."""
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return (
        old.obj.get("spec") is not new.obj.get("spec")
        or "deletionTimestamp" in new.obj["metadata"]
        or old.obj["metadata"].get("annotations") != new.obj["metadata"].get("annotations")
        or old.obj["metadata"].get("labels") != new.obj["metadata"].get("labels")
    )


def _namespace_ends(refused: ApiStatusError) -> bool:
    return any(one.get("reason") == "NamespaceTerminating" for one in refused.details.get("causes") or ())
