"""What a deletion does to an object: preconditions, the grace period, finalizers, and when it can be removed."""

from dataclasses import dataclass

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.field_errors import details, invalid, message
from seatrial.harness.apiserver.request.options import DeleteOptions, grace_of
from seatrial.harness.apiserver.storage.store import Item, Object
from seatrial.scheduler.api.clock import rfc3339

_LAST_SECOND = 253_402_300_799.0  # of the year 9999; later times cannot be written
PROTECTED_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")  # the cluster needs them


def check_preconditions(resource: Resource, item: Item, options: DeleteOptions) -> None:
    """Compare UID and resource version with those that a deletion names.

    Raises:
        ApiStatusError: 409, the object is another one, or it has changed.
    """
    metadata = item.obj["metadata"]
    if options.uid and options.uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']})."
            " The object might have been deleted and then recreated"
        )
        raise errors.conflict(resource.kind, resource.group, item.key[1], why)
    if options.version and options.version != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.version}) does not match the ResourceVersion in"
            f" record ({metadata['resourceVersion']}). The object might have been modified"
        )
        raise errors.conflict(resource.kind, resource.group, item.key[1], why)


def check_deletion_fields(resource: Resource, old: Item, metadata: Object) -> None:
    """
    Raises:
        ApiStatusError: 422, the writer sets what only a deletion sets.
    """
    before = old.obj["metadata"]
    wrong = [
        field
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds")
        if metadata.get(field) is not None
        and metadata[field] != before.get(field)
        and (field not in before or field != "deletionTimestamp")
    ]
    if wrong:
        causes = [invalid(f"metadata.{field}", metadata[field], "field is immutable") for field in wrong]
        kind = errors.qualified(resource.kind, resource.group)
        text = message(kind, old.key[1], causes)
        raise errors.invalid(resource.kind, resource.group, old.key[1], text, details(causes))


@dataclass(frozen=True, slots=True)
class Deletion:
    """The metadata of an object that is being deleted. `gone`: nothing holds it back."""

    metadata: Object
    gone: bool

    def applied_to(self, resource: Resource, old: Item) -> Object:
        """The object as it is stored until it can be removed."""
        body = {**old.obj, "metadata": self.metadata}
        if resource.kind == "Namespace":
            body["status"] = {**old.obj.get("status", {}), "phase": "Terminating"}
        return body


def deletion_of(resource: Resource, old: Item, options: DeleteOptions, now: float) -> Deletion | None:
    """What a deletion changes; None if the object is being deleted already, and no later."""
    metadata = old.obj["metadata"]
    grace = grace_of(resource, old.obj, options.grace)
    finalizers = list(metadata.get("finalizers") or ())
    if options.propagation == "Foreground" and "foregroundDeletion" not in finalizers:
        finalizers.append("foregroundDeletion")
    if options.propagation == "Orphan" and "orphan" not in finalizers:
        finalizers.append("orphan")
    held = bool(finalizers) or (resource.kind == "Namespace" and bool(old.obj.get("spec", {}).get("finalizers")))
    gone = not grace and not held
    if not gone and "deletionTimestamp" in metadata and grace >= metadata.get("deletionGracePeriodSeconds", 0):
        if finalizers == list(metadata.get("finalizers") or ()):
            return None
        grace = metadata.get("deletionGracePeriodSeconds", 0)
    end = rfc3339(min(now + grace, _LAST_SECOND))
    changed = {**metadata, "deletionTimestamp": metadata.get("deletionTimestamp") or end}
    if resource.kind not in {"Namespace", "CustomResourceDefinition"}:
        changed["deletionGracePeriodSeconds"] = grace
    if resource.kind == "Pod" and "deletionTimestamp" in metadata:
        changed["deletionTimestamp"] = end
    if finalizers:
        changed["finalizers"] = finalizers
    if "generation" in metadata and "deletionTimestamp" not in metadata:
        changed["generation"] = metadata["generation"] + 1
    return Deletion(changed, gone)


def can_be_removed(resource: Resource, body: Object) -> bool:
    """Whether nothing holds back an object that is being deleted."""
    metadata = body["metadata"]
    if metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds", 0):
        return False
    return not (resource.kind == "Namespace" and body.get("spec", {}).get("finalizers"))
