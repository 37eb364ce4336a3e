"""The CRD controller: serves stored CustomResourceDefinitions; removes the objects of deleted ones.

Follows `apiextensions-apiserver/pkg/controller` (establish, finalizer).
"""

from collections.abc import Iterable
from typing import Any

from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.discovery.resources import Registry, Resource
from seatrial.harness.apiserver.discovery.versions import preferred, rank
from seatrial.harness.apiserver.storage.store import Change, Item, Key, Object
from seatrial.harness.apiserver.verbs.objects import Objects

DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")


class Definitions:
    """Listens to the collection of CRDs and keeps the registry up to date."""

    def __init__(self, objects: Objects, registry: Registry) -> None:
        self._objects, self._registry = objects, registry
        self._collection = objects.store.collection(DEFINITIONS)
        self._queue: WorkQueue[Key] = WorkQueue(objects.clock, self._establish)
        self._collection.listen(self._changed)

    def _changed(self, change: Change) -> None:
        if change.new is None:
            self._gone(change.old)
            return
        spec = change.new.obj["spec"]
        self._registry.set_custom(spec["group"], spec["names"]["plural"], tuple(_rows(spec)))
        if not _established(change.new.obj):
            self._queue.add(change.key)

    def _establish(self, key: Key) -> None:
        item = self._collection.get(key)
        if item is None or _established(item.obj):
            return
        spec = item.obj["spec"]
        now = self._objects.clock.timestamp()
        status = {
            "conditions": [
                {
                    "type": "NamesAccepted",
                    "status": "True",
                    "reason": "NoConflicts",
                    "message": "no conflicts found",
                    "lastTransitionTime": now,
                },
                {
                    "type": "Established",
                    "status": "True",
                    "reason": "InitialNamesAccepted",
                    "message": "the initial names have been accepted",
                    "lastTransitionTime": now,
                },
            ],
            "acceptedNames": spec["names"],
            "storedVersions": [version["name"] for version in spec["versions"] if version.get("storage")],
        }
        self._collection.put(key, {**item.obj, "metadata": dict(item.obj["metadata"]), "status": status})

    def _gone(self, item: Item | None) -> None:
        if item is None:
            return
        spec = item.obj["spec"]
        group, plural = spec["group"], spec["names"]["plural"]
        collection = self._objects.store.collection((group, plural))
        for each in list(collection.each()):
            collection.remove(each.key)
        self._registry.set_custom(group, plural, ())


def _established(obj: Object) -> bool:
    conditions: list[dict[str, Any]] = obj.get("status", {}).get("conditions") or []
    return any(condition.get("type") == "Established" and condition.get("status") == "True" for condition in conditions)


def _rows(spec: Object) -> Iterable[Resource]:
    names, conversion = spec["names"], spec.get("conversion") or {}
    stored = next((f"{spec['group']}/{version['name']}" for version in spec["versions"] if version.get("storage")), "")
    by_webhook = conversion.get("strategy") == "Webhook"
    for version in spec["versions"]:
        if not version.get("served", True):
            continue
        subresources = version.get("subresources") or {}
        yield Resource(
            spec["group"],
            version["name"],
            names["plural"],
            names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            singular=names.get("singular") or names["kind"].lower(),
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            subresources=frozenset(name for name in ("status", "scale") if name in subresources),
            custom=version,
            stored_as=stored if by_webhook else "",
            conversion=conversion if by_webhook else None,
            deprecation=_deprecation(spec, version) if version.get("deprecated") else "",
        )


def _deprecation(spec: Object, version: Object) -> str:
    """The warning for clients of a deprecated version. Follows `customresource_handler.go`."""
    if version.get("deprecationWarning") is not None:
        return str(version["deprecationWarning"])
    group, kind = spec["group"], spec["names"]["kind"]
    newer = preferred(
        other["name"]
        for other in spec["versions"]
        if other.get("served", True) and not other.get("deprecated") and rank(other["name"]) > rank(version["name"])
    )
    instead = f"; use {group}/{newer[0]} {kind}" if newer else ""
    return f"{group}/{version['name']} {kind} is deprecated{instead}"
