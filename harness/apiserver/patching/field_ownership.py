"""Field ownership: reads and writes `metadata.managedFields`, and updates it for a write.

All functions are pure. A write that changes nothing returns the identical list, so that callers can compare with `is`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from seatrial.harness.apiserver.patching.fieldsets import FieldSet, compare, difference, in_order, is_field_set, union
from seatrial.harness.apiserver.schemas.schema_nodes import JsonObject, SchemaNode

# Fields without owners: those that the server sets and those that identify the object.
_UNOWNED: Final[FieldSet] = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        ".": {},
        "f:name": {},
        "f:namespace": {},
        "f:creationTimestamp": {},
        "f:selfLink": {},
        "f:uid": {},
        "f:clusterName": {},
        "f:generation": {},
        "f:managedFields": {},
        "f:resourceVersion": {},
    },
}
_MAX_UPDATERS = 10
_ANCIENT = "ancient-changes"


@dataclass(frozen=True, slots=True, order=True)
class Manager:
    """A field manager with its operation. `api_version` is empty for Apply: the manager is the same in all versions."""

    name: str
    operation: str
    api_version: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == "Update" else text


@dataclass(frozen=True, slots=True)
class Owned:
    """The fields that a manager owns, the time of its last write (RFC 3339) and the version of its field set."""

    fields: FieldSet
    time: str
    api_version: str


Owners = dict[Manager, Owned]


def owned(fields: FieldSet) -> FieldSet:
    """The set without fields that cannot be owned."""
    return difference(fields, _UNOWNED)


def read_owners(entries: Any) -> Owners | None:
    """The owners that `managedFields` lists; None if there are none or an entry is malformed."""
    if not isinstance(entries, list) or not entries:
        return None
    owners: Owners = {}
    for entry in entries:
        if not isinstance(entry, dict):
            return None
        fields, operation = entry.get("fieldsV1"), entry.get("operation")
        if (
            operation not in {"Apply", "Update"}
            or entry.get("fieldsType") != "FieldsV1"
            or not isinstance(fields, dict)
        ):
            return None
        version = entry.get("apiVersion", "")
        manager = Manager(
            entry.get("manager", ""), operation, version if operation == "Update" else "", entry.get("subresource", "")
        )
        before = owners.get(manager)
        merged = union(before.fields, fields) if before is not None else fields
        owners[manager] = Owned(merged, entry.get("time", ""), version)
    return owners


def is_well_formed(entries: Any) -> bool:
    """Whether the field sets of `managedFields` that a client sent can be read."""
    return isinstance(entries, list) and all(
        isinstance(entry, dict) and is_field_set(entry.get("fieldsV1")) for entry in entries
    )


def write_owners(owners: Mapping[Manager, Owned]) -> list[JsonObject]:
    """`managedFields` in upstream's order: Apply first, then by time and name. Managers without fields are omitted."""
    entries = []
    by_time = sorted(
        ((manager, own) for manager, own in owners.items() if own.fields),
        key=lambda pair: (pair[0].operation, pair[1].time, pair[0].name, pair[1].api_version, pair[0].subresource),
    )
    for manager, own in by_time:
        entry: JsonObject = {"manager": manager.name, "operation": manager.operation, "apiVersion": own.api_version}
        if own.time:
            entry["time"] = own.time
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": in_order(own.fields)}
        if manager.subresource:
            entry["subresource"] = manager.subresource
        entries.append(entry)
    return entries


def entries_of(obj: JsonObject | None) -> Any:
    """The object's `managedFields`, of whatever type."""
    metadata = obj.get("metadata") if obj is not None else None
    return metadata.get("managedFields") if isinstance(metadata, dict) else None


def bare(obj: JsonObject) -> JsonObject:
    """The object without `managedFields`."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}


def record_write(
    owners: Owners, manager: Manager, changed: FieldSet, removed: FieldSet, *, now: str, version: str
) -> Owners:
    """The owners after `manager` has set the fields `changed` and removed the fields `removed`."""
    gone = union(changed, removed)
    left = {each: replace(own, fields=difference(own.fields, gone)) for each, own in owners.items()}
    if changed:
        mine = left.get(manager)
        fields = union(mine.fields, changed) if mine is not None else changed
        left[manager] = Owned(fields, now, version)
    return _capped({each: own for each, own in left.items() if own.fields})


def _capped(owners: Owners) -> Owners:
    """Merge the oldest updaters into one manager if there are more than ten, as upstream, to bound the entries."""
    updaters = sorted(
        (each for each in owners if each.operation == "Update" and not each.subresource),
        key=lambda each: (owners[each].time, each.name, each.api_version),
    )
    excess = len([each for each in updaters if each.name != _ANCIENT]) - _MAX_UPDATERS
    if excess <= 0:
        return owners
    out = dict(owners)
    for each in [each for each in updaters if each.name != _ANCIENT][: excess + 1]:
        old = out.pop(each)
        bucket = replace(each, name=_ANCIENT)
        before = out.get(bucket)
        fields = union(before.fields, old.fields) if before is not None else old.fields
        out[bucket] = Owned(fields, max(old.time, before.time if before is not None else ""), old.api_version)
    return out


def update_managed(
    before: JsonObject | None,
    after: JsonObject,
    *,
    manager: str,
    operation: str = "Update",
    schema: SchemaNode | None,
    now: str,
    api_version: str,
    subresource: str = "",
) -> list[JsonObject]:
    """`managedFields` after a create (`before` is None), update or patch.

    The writer becomes the only owner of the fields that it changed. `managedFields` in the body replace the stored
    ones; if they are missing or malformed, the stored ones stay; `[{}]` clears them.
    """
    brought, stored = entries_of(after), entries_of(before)
    if brought == [{}]:
        entries: list[JsonObject] = []
        owners: Owners = {}
    else:
        read = read_owners(brought) if is_well_formed(brought) else None
        entries = brought if read is not None else stored if isinstance(stored, list) else []
        owners = read if read is not None else read_owners(stored) or {}
    changed, removed = changes(before, after, schema)
    if not changed and not removed:
        return entries
    writer = Manager(manager, operation, api_version if operation == "Update" else "", subresource)
    return write_owners(record_write(owners, writer, changed, removed, now=now, version=api_version))


def changes(before: JsonObject | None, after: JsonObject, schema: SchemaNode | None) -> tuple[FieldSet, FieldSet]:
    """The fields that were set and the fields that were removed between two states; `before` is None for a create."""
    changed, removed = compare(before or {}, after, schema, creating=before is None)
    return owned(changed), owned(removed)
