"""Converts events between core/v1, in which they are stored, and events.k8s.io/v1, in which controllers write them."""

import re

from seatrial.harness.apiserver.errors import bad_request
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


def fields_to_core(selector: str) -> str:
    """A field selector of events.k8s.io/v1 as one of core/v1.

    Raises:
        ApiStatusError: 400, a field has the name that it has in core/v1.
    """
    wrong = re.search(r"(?:^|,)\s*(involvedObject\.\w+|reportingComponent|source)\s*[=!]", selector)
    if wrong is not None:
        raise bad_request(f"field label not supported: {wrong[1]}")
    return re.sub(r"(^|,)(\s*)regarding\.", r"\1\2involvedObject.", selector)
