"""Converts events between core/v1, in which they are stored, and events.k8s.io/v1, in which controllers write them."""

from seatrial.harness.apiserver.storage.store import Object

_NEW_TO_CORE = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_CORE_TO_NEW = {core: new for new, core in _NEW_TO_CORE.items()}


def to_core(event: Object) -> Object:
    """events.k8s.io/v1 → core/v1."""
    core = {_NEW_TO_CORE.get(name, name): value for name, value in event.items()}
    core["apiVersion"] = "v1"
    core.setdefault("involvedObject", {})
    core.setdefault("source", {})
    core.setdefault("firstTimestamp", None)
    core.setdefault("lastTimestamp", None)
    return core


def to_new(event: Object) -> Object:
    """core/v1 → events.k8s.io/v1."""
    new = {_CORE_TO_NEW.get(name, name): value for name, value in event.items()}
    new["apiVersion"] = "events.k8s.io/v1"
    return new


def patch_to_core(patch: Object) -> Object:
    """A merge patch of an events.k8s.io/v1 event as one of a core/v1 event."""
    return {_NEW_TO_CORE.get(name, name): value for name, value in patch.items() if name != "apiVersion"}
