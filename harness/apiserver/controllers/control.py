"""Functions shared by the workload controllers: owned objects, status, conditions and events."""

from collections.abc import Mapping
from typing import Any

import orjson

from seatrial.harness.apiserver.attempts import Pending
from seatrial.harness.apiserver.controllers.event_recorder import NORMAL, WARNING, Recorder
from seatrial.harness.apiserver.controllers.owners import Dependents, reference_to
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.discovery.resources import Registry, Resource
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.request.options import CONTROLLER_MANAGER, DeleteOptions, Options
from seatrial.harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object
from seatrial.harness.apiserver.verbs.objects import Objects

PODS: CollectionKey = ("", "pods")
BATCH_PERIOD = 0.1  # seconds in which pod changes are batched: 1000 starting pods do not cause 1000 reconciliations


class Control:
    """The store access, recorder and pod index that all controllers of one server share."""

    def __init__(self, objects: Objects, registry: Registry) -> None:
        self.objects, self.clock = objects, objects.clock
        self._registry = registry
        self.pods = self.resource(PODS)
        self.owned_pods = Dependents(objects, PODS)
        self.recorder = Recorder(objects, self.resource(("", "events")))

    def resource(self, key: CollectionKey) -> Resource:
        """The Resource of a built-in collection, which must exist."""
        storage = self._registry.storage(key)
        assert storage is not None
        return storage

    def get(self, resource: Resource, key: Key) -> Item | None:
        """The stored object; None if there is none."""
        return self.objects.collection(resource).get(key)

    def follow_workload(self, resource: Resource, queue: WorkQueue[Key]) -> None:
        """Queue an object of `resource` when its spec changes or a pod of it is removed or (batched) changes."""

        def changed(change: Change) -> None:
            if change.new is not None and is_new_spec(change):
                queue.add(change.key)

        def pod_changed(key: Key, change: Change) -> None:
            if change.new is None:
                queue.add(key)
            else:
                queue.add_after(BATCH_PERIOD, key)

        self.objects.collection(resource).listen(changed)
        self.owned_pods.follow(resource, pod_changed)

    # -- creating and deleting -----------------------------------------------------------------------------------------

    def pod_from(self, resource: Resource, owner: Item, template: Object) -> Object:
        """A pod body made from `template` and controlled by `owner`; the caller sets its name."""
        copied = self.copied(template)
        entry = copied.get("metadata") or {}
        metadata: Object = {"ownerReferences": [reference_to(resource, owner.obj)]}
        for field in ("labels", "annotations", "finalizers"):
            if entry.get(field):
                metadata[field] = entry[field]
        return {"metadata": metadata, "spec": copied.get("spec") or {}}

    @staticmethod
    def copied(obj: Object) -> Object:
        """A deep copy. Stored objects are shared and must not change, and admission modifies new objects in place."""
        body: Object = orjson.loads(orjson.dumps(obj))
        return body

    def create_pod(self, component: str, resource: Resource, owner: Item, pod: Object) -> Item:
        """Create a pod and record an event on its owner.

        Raises:
            ApiStatusError: the pod was rejected; the reason is recorded in an event on the owner.
        """
        try:
            made = self.objects.create(self.pods, owner.key[0], pod, Options(manager=CONTROLLER_MANAGER))
        except Pending:
            raise  # a webhook is being called; the request continues by itself
        except ApiStatusError as refused:
            name = pod["metadata"].get("name", "")
            if refused.reason != "AlreadyExists" and not _namespace_terminates(refused):
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
        """Delete a pod and record an event on its owner; nothing is done if it is terminating or absent."""
        if "deletionTimestamp" in pod.obj["metadata"] or not self.delete(self.pods, pod):
            return
        self.recorder.record(component, resource, owner, NORMAL, "SuccessfulDelete", f"Deleted pod: {pod.key[1]}")

    def delete(self, resource: Resource, item: Item, *, propagation: str = "Background") -> bool:
        """Delete the object with this UID; return whether it was still stored."""
        options = DeleteOptions(propagation=propagation, uid=item.obj["metadata"]["uid"])
        try:
            self.objects.delete(resource, item.key, options)
        except ApiStatusError:
            return False
        return True

    def drop_finalizer(self, resource: Resource, item: Item, finalizer: str) -> Item:
        """Remove a finalizer. A terminating object is removed with its last finalizer."""
        metadata = dict(item.obj["metadata"])
        kept = [name for name in metadata.get("finalizers") or () if name != finalizer]
        metadata.pop("finalizers", None)
        if kept:
            metadata["finalizers"] = kept
        collection = self.objects.collection(resource)
        written = self.objects.store_change(resource.key, item, {**item.obj, "metadata": metadata})
        if "deletionTimestamp" in metadata and not kept and not metadata.get("deletionGracePeriodSeconds"):
            collection.remove(item.key)
        return written

    # -- writing -------------------------------------------------------------------------------------------------------

    def put_status(self, resource: Resource, item: Item, status: Object) -> Item:
        """Store the status if it differs from the stored one."""
        if status == item.obj.get("status"):
            return item
        body = {**item.obj, "metadata": dict(item.obj["metadata"]), "status": status}
        return self.objects.store_change(resource.key, item, body, subresource="status")

    def change(
        self,
        resource: Resource,
        item: Item,
        *,
        spec: Mapping[str, Any] | None = None,
        annotations: Mapping[str, str | None] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Item:
        """Store spec fields, annotations (None removes one) and labels; a changed spec increments the generation."""
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
        return self.objects.store_change(resource.key, item, body)

    def condition(self, kind: str, status: str, reason: str, message: str) -> Object:
        return {
            "type": kind,
            "status": status,
            "lastTransitionTime": self.clock.timestamp(),
            "reason": reason,
            "message": message,
        }


def with_condition(conditions: list[Object], new: Object) -> list[Object]:
    """`conditions` with `new` in place of the condition of its type.

    With the same status and reason, nothing changes; with the same status, lastTransitionTime is kept.
    """
    kept = [condition for condition in conditions if condition["type"] != new["type"]]
    old = next((condition for condition in conditions if condition["type"] == new["type"]), None)
    if old is not None and old["status"] == new["status"]:
        if old.get("reason") == new.get("reason"):
            return list(conditions)
        new = {**new, "lastTransitionTime": old.get("lastTransitionTime", new["lastTransitionTime"])}
    return [*kept, new]


def without_condition(conditions: list[Object], kind: str) -> list[Object]:
    """All but the condition of that type."""
    return [condition for condition in conditions if condition["type"] != kind]


def is_new_spec(change: Change) -> bool:
    """Whether spec, labels, annotations or deletionTimestamp changed: status writes alone need no reconciliation."""
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return (
        old.obj.get("spec") is not new.obj.get("spec")
        or "deletionTimestamp" in new.obj["metadata"]
        or old.obj["metadata"].get("annotations") != new.obj["metadata"].get("annotations")
        or old.obj["metadata"].get("labels") != new.obj["metadata"].get("labels")
    )


def _namespace_terminates(refused: ApiStatusError) -> bool:
    return any(cause.get("reason") == "NamespaceTerminating" for cause in refused.details.get("causes") or ())
