"""Which part of an object an update may change, for each subresource. Other parts of the body are ignored."""

from typing import Any

from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.storage.store import Object


def narrowed(resource: Resource, old: Object, body: Object, metadata: dict[str, Any], subresource: str) -> Object:
    """The stored object with the part of `body` that `subresource` may change. `metadata` is the body's, sanitized."""
    before = old["metadata"]
    match subresource:
        case "status":
            kept = _status_metadata(before, metadata)
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
        wanted = {container.get("name"): container for container in requested.get(part) or ()}
        if part in spec:
            changed[part] = [
                {**container, "resources": wanted[container["name"]].get("resources") or {}}
                if container["name"] in wanted
                else container
                for container in spec[part]
            ]
    return changed
