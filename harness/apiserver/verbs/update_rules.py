"""Which part of an object an update may change, for each subresource. Other parts of the body are ignored."""

from typing import Any

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.storage.store import Item, Object

CREATED_BY_UPDATE = frozenset(
    {  # kinds of which an update creates the object that it names, as upstream's strategies
        ("", "services"),
        ("", "endpoints"),
        ("", "limitranges"),
        ("", "events"),
        ("rbac.authorization.k8s.io", "roles"),
        ("rbac.authorization.k8s.io", "rolebindings"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
        ("coordination.k8s.io", "leases"),
        ("node.k8s.io", "runtimeclasses"),
    }
)
_NEEDS_VERSION = frozenset(
    {  # built-in kinds whose updates have to name the resourceVersion, as upstream's strategies
        ("batch", "jobs"),
        ("policy", "poddisruptionbudgets"),
        ("coordination.k8s.io", "leases"),
        ("node.k8s.io", "runtimeclasses"),
        ("storage.k8s.io", "csidrivers"),
        ("storage.k8s.io", "csinodes"),
        ("storage.k8s.io", "volumeattachments"),
        ("storage.k8s.io", "csistoragecapacities"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
        ("apiregistration.k8s.io", "apiservices"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
    }
)


def check_name(key: tuple[str, str], body: Object) -> Object:
    """The metadata of an update, which names the object of the URL.

    Raises:
        ApiStatusError: 400, it has no name or another one.
    """
    metadata: Object = body.setdefault("metadata", {})
    name = metadata.get("name")
    if not name:
        raise errors.bad_request(
            f"the name of the object ({key[1]} based on URL) was undeterminable: name must be provided"
        )
    if name != key[1]:
        raise errors.bad_request(f"the name of the object ({name}) does not match the name on the URL ({key[1]})")
    return metadata


def check_version_given(resource: Resource, key: tuple[str, str], metadata: Object) -> None:
    """
    Raises:
        ApiStatusError: 422, the kind is not updated without the resourceVersion that the writer has read.
    """
    if metadata.get("resourceVersion") not in {None, "", "0"}:
        return
    if resource.custom is None and resource.key not in _NEEDS_VERSION:
        return
    text, field = "Invalid value: 0: must be specified for an update", "metadata.resourceVersion"
    raise errors.invalid(
        resource.plural,
        resource.group,
        key[1],
        f'{errors.qualified(resource.plural, resource.group)} "{key[1]}" is invalid: {field}: {text}',
        [{"reason": "FieldValueInvalid", "message": text, "field": field}],
    )


def check_identity(resource: Resource, old: Item, metadata: Object, *, by_patch: bool) -> None:
    """
    Raises:
        ApiStatusError: the metadata is that of another object or of an earlier version.
    """
    before = old.obj["metadata"]
    expected = metadata.get("resourceVersion")
    if expected and expected not in {"0", before["resourceVersion"]}:
        raise errors.modified(resource.plural, resource.group, old.key[1])
    uid = metadata.get("uid")
    if uid and uid != before["uid"]:
        if by_patch:
            text = f'Invalid value: "{uid}": field is immutable'
            kind = errors.qualified(resource.kind, resource.group)
            raise errors.invalid(
                resource.kind,
                resource.group,
                old.key[1],
                f'{kind} "{old.key[1]}" is invalid: metadata.uid: {text}',
                [{"reason": "FieldValueInvalid", "message": text, "field": "metadata.uid"}],
            )
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {before['uid']}"
        raise errors.conflict(resource.plural, resource.group, old.key[1], why)
    if metadata.get("name", old.key[1]) != old.key[1] or (metadata.get("namespace") or "") != old.key[0]:
        raise errors.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({old.key[1]})"
            if metadata.get("name", old.key[1]) != old.key[1]
            else "the namespace of the provided object does not match the namespace sent on the request"
        )


def keep_fixed(before: Object, metadata: Object) -> None:
    """Set the fields of the metadata that no update changes to what they were."""
    for fixed in (
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "resourceVersion",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generateName",
    ):
        if fixed in before:
            metadata[fixed] = before[fixed]
        else:
            metadata.pop(fixed, None)


def narrowed(resource: Resource, old: Object, body: Object, metadata: dict[str, Any], subresource: str) -> Object:
    """The stored object with the part of `body` that `subresource` may change. `metadata` is the body's, sanitized."""
    before = old["metadata"]
    match subresource:
        case "status":
            kept = dict(before) if resource.custom is not None else _status_metadata(before, metadata)
            if resource.key == ("apps", "deployments"):  # as upstream's strategy
                kept = {**{name: field for name, field in kept.items() if name != "labels"}, **_labels(before)}
            changed = {**old, "status": body.get("status"), "metadata": kept}
            if changed["status"] is None:
                changed.pop("status")
        case "approval":
            conditions = (body.get("status") or {}).get("conditions") or []
            changed = {
                **old,
                "metadata": dict(before),
                "status": {**(old.get("status") or {}), "conditions": conditions},
            }
        case "ephemeralcontainers":
            added = (body.get("spec") or {}).get("ephemeralContainers")
            spec = {**old["spec"], "ephemeralContainers": added}
            if not added:
                spec.pop("ephemeralContainers")
            changed = {**old, "metadata": dict(before), "spec": spec}
        case "resize":
            changed = {**old, "metadata": dict(before), "spec": _resized(old["spec"], body.get("spec") or {})}
        case _:
            changed = {**body, "metadata": metadata, "apiVersion": resource.api_version, "kind": resource.kind}
            if resource.has_status:
                changed.pop("status", None)
                if "status" in old:
                    changed["status"] = old["status"]
            if resource.key == ("", "namespaces"):  # only `finalize` changes them
                changed["spec"] = {**(body.get("spec") or {}), "finalizers": old.get("spec", {}).get("finalizers", [])}
    return changed


def settable(resource: Resource, config: Object, subresource: str) -> Object:
    """A configuration for an apply without the fields that the endpoint ignores, which its manager does not own."""
    if subresource == "status":
        config = {name: field for name, field in config.items() if name != "spec"}
        if resource.key == ("apps", "deployments"):  # as upstream's strategy
            metadata = {name: field for name, field in config["metadata"].items() if name != "labels"}
            config["metadata"] = metadata
        return config
    return {name: field for name, field in config.items() if name != "status" or not resource.has_status}


def _labels(metadata: dict[str, Any]) -> dict[str, Any]:
    return {"labels": metadata["labels"]} if "labels" in metadata else {}


def _status_metadata(before: dict[str, Any], requested: dict[str, Any]) -> dict[str, Any]:
    """The stored metadata with the requested labels and annotations: a write of the status may change these too."""
    metadata = dict(before)
    for name in ("labels", "annotations"):
        if name in requested:
            metadata[name] = requested[name]
        else:
            metadata.pop(name, None)
    return metadata


def _resized(spec: Object, requested: Object) -> Object:
    """A pod's spec with the resources that `requested` has for containers of the same names."""
    changed = dict(spec)
    for part in ("containers", "initContainers"):
        containers = {container.get("name"): container for container in requested.get(part) or ()}
        if part in spec:
            changed[part] = [
                {**container, "resources": containers[container["name"]].get("resources") or {}}
                if container["name"] in containers
                else container
                for container in spec[part]
            ]
    return changed
