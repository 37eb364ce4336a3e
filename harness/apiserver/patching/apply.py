"""Server-side apply: merges the configuration of a field manager and updates field ownership.

A manager owns the fields of its configuration; fields that it no longer lists, and no other manager owns, are removed.
The caller decodes the body, removes fields that the endpoint does not let a client set (status on the main resource),
fills in defaults and stores the result. If the result is the live object itself, there is nothing to write. Follows
structured-merge-diff's `merge.Updater` and apimachinery's `managedfields`, including messages. One deviation: null in a
configuration means that the field is not set.
"""

from dataclasses import replace
from typing import Any, Final

import orjson

from seatrial.harness.apiserver.patching.field_ownership import (
    Manager,
    Owned,
    Owners,
    bare,
    changes,
    entries_of,
    owned,
    read_owners,
    record_write,
    update_managed,
    write_owners,
)
from seatrial.harness.apiserver.patching.fieldsets import (
    FieldSet,
    difference,
    fields_of,
    intersection,
    is_granular,
    item_elements,
    paths,
    union,
    with_named_parents,
    without,
)
from seatrial.harness.apiserver.patching.patch import PatchError, same_json
from seatrial.harness.apiserver.schemas.schema_nodes import JsonObject, SchemaNode
from seatrial.scheduler.api.wire import without_null_fields

__all__ = ["ApplyConflict", "apply", "first_undeclared", "update_managed"]

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_BEFORE_FIRST_APPLY = "before-first-apply"
_KUBECTL = "kubectl"
_PRESERVE = "x-kubernetes-preserve-unknown-fields"


class ApplyConflict(Exception):
    """Other managers own fields that the configuration changes (409, reason Conflict).

    `conflicts` pairs a manager's name with a path; `causes` are the entries of the Status's `details.causes`.
    """

    def __init__(self, conflicts: list[tuple[Manager, str]]) -> None:
        conflicts = sorted(conflicts)
        self.conflicts = [(manager.name, path) for manager, path in conflicts]
        self.causes = [
            {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": path}
            for manager, path in conflicts
        ]
        if len(conflicts) == 1:
            manager, path = conflicts[0]
            self.message = f"Apply failed with 1 conflict: conflict with {manager}: {path}"
        else:
            lines = []
            for manager in dict.fromkeys(manager for manager, _ in conflicts):
                lines.append(f"conflicts with {manager}:")
                lines += [f"- {path}" for each, path in conflicts if each == manager]
            self.message = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
        super().__init__(self.message)


def apply(
    live: JsonObject | None,
    config: JsonObject,
    *,
    manager: str,
    force: bool,
    schema: SchemaNode | None,
    now: str,
    api_version: str,
    subresource: str = "",
) -> JsonObject:
    """The object after `manager` has applied `config`, with `metadata.managedFields` updated.

    `live` is None if the object does not exist. `now` is RFC 3339. Without a `schema` all lists are atomic. Returns
    `live` itself if nothing changes.

    Raises:
        ApplyConflict: other managers own changed fields, and `force` is false.
        PatchError: BadRequest, `config` has `managedFields`, or a list item whose key is missing or not unique.
    """
    if entries_of(config):
        raise PatchError("metadata.managedFields must be nil", "BadRequest")
    config = without_null_fields(bare(config))
    _check_keys(config, schema, "")
    owners = _owners_before(live, schema, now)
    before = bare(live) if live is not None else None
    applier = Manager(manager, "Apply", "", subresource)
    last = owners.get(applier)
    config_fields = fields_of(config, schema)
    mine = owned(config_fields)

    merged = _merge(before or {}, config, schema)
    if last is not None and last.fields:
        everyone = config_fields  # including fields without owners: the name keeps the metadata
        for each, own in owners.items():
            if each != applier:
                everyone = union(everyone, own.fields)
        merged = _pruned(merged, last.fields, everyone, schema)

    changed, removed = changes(before, merged, schema)
    conflicts = [
        (each, path)
        for each, own in owners.items()
        if each != applier
        for path in paths(intersection(own.fields, changed))
    ]
    if conflicts and not force:
        conflicts = _remaining_conflicts(manager, conflicts, before, schema)
        if conflicts:
            raise ApplyConflict(conflicts)

    others = {each: own for each, own in owners.items() if each != applier}
    after = {each: replace(own, fields=difference(own.fields, union(changed, removed))) for each, own in others.items()}
    if last is not None and last.fields == mine and last.api_version == api_version and before is not None:
        same = same_json(before, merged)
        time = last.time if same else now
    else:
        same, time = False, now
    after[applier] = Owned(mine, time, api_version)
    if manager == _KUBECTL and before is not None and _last_applied(before) is not None:
        merged = _with_last_applied(merged, config)
        same = same and same_json(before, merged)
    if same and live is not None:
        return live
    metadata = {**merged.get("metadata", {}), "managedFields": write_owners(after)}
    return {**merged, "metadata": metadata}


def _owners_before(live: JsonObject | None, schema: SchemaNode | None, now: str) -> Owners:
    """The owners before the apply. An object without managedFields is owned by one manager, `before-first-apply`."""
    if live is None:
        return {}
    owners = read_owners(entries_of(live))
    if owners:
        return owners
    version = live.get("apiVersion", "")
    everything, _ = changes(None, bare(live), schema)
    return record_write({}, Manager(_BEFORE_FIRST_APPLY, "Update", version), everything, {}, now=now, version=version)


def first_undeclared(value: Any, schema: SchemaNode, path: str = "") -> str:
    """The path of the first field that the schema does not have; empty if all are known or may be unknown."""
    if isinstance(value, list):
        items = schema.items
        elements = item_elements(value, schema) if schema.list_type == "map" else []
        for place, item in enumerate(value):
            printed = next(paths({elements[place]: {}})) if elements else f"[{place}]"
            if items is not None and (text := first_undeclared(item, items, path + printed)):
                return text
    if not isinstance(value, dict) or schema.type != "object" or schema.raw.get(_PRESERVE):
        return ""
    for name, field in value.items():
        child = schema.child(name)
        if child is None:
            if schema.has_fields:
                return f"{path}.{name}"
        elif text := first_undeclared(field, child, f"{path}.{name}"):
            return text
    return ""


def _check_keys(value: Any, schema: SchemaNode | None, path: str) -> None:
    """Check that all items of keyed lists have unique keys."""
    if schema is None or not is_granular(value, schema):
        return
    if isinstance(value, dict):
        for name, field in value.items():
            _check_keys(field, schema.child(name), f"{path}.{name}")
        return
    seen = set()
    for place, (element, item) in enumerate(zip(item_elements(value, schema), value, strict=True)):
        if element.startswith("i:"):
            keys = ", ".join(schema.list_map_keys)
            raise PatchError(
                f"failed to create typed patch object: {path}: element {place}: associative list with keys has an "
                f"element that omits key field {keys!r} (and doesn't have default value)",
                "BadRequest",
            )
        if element in seen:
            printed = next(paths({element: {}}))
            raise PatchError(
                f"failed to create typed patch object: {path}: duplicate entries for key {printed}", "BadRequest"
            )
        seen.add(element)
        _check_keys(item, schema.items, f"{path}[{place}]")


def _merge(live: Any, config: Any, schema: SchemaNode | None) -> Any:
    """The live value merged with the configuration's; atomic values are replaced as a whole."""
    if type(live) is not type(config) or not is_granular(config, schema):
        return config
    if isinstance(config, dict):
        out = dict(live)
        for key, value in config.items():
            child = schema.child(key) if schema is not None else None
            out[key] = _merge(out[key], value, child) if key in out else value
        return out
    return _merge_list(live, config, schema) if schema is not None else config


def _merge_list(live: list[Any], config: list[Any], schema: SchemaNode) -> list[Any]:
    """Merges lists by key in the order of the configuration; other live items keep the item that follows them."""
    left = list(zip(item_elements(live, schema), live, strict=True))
    right = list(zip(item_elements(config, schema), config, strict=True))
    on_left: dict[str, Any] = {}
    for element, item in left:
        on_left.setdefault(element, item)
    on_right = {element for element, _ in right}
    shared = [element for element, _ in right if element in on_left]
    out: list[Any] = []
    done: set[str] = set()
    i = j = at = 0
    while i < len(left) or j < len(right):
        if i < len(left):
            element, item = left[i]
            if element not in on_right:
                out.append(item)
                i += 1
                continue
            if element in done:
                i += 1
                continue
            if j < len(right) and element != right[j][0] and at < len(shared) and shared[at] != element:
                i += 1  # added at its place in the configuration
                continue
        element, item = right[j]
        out.append(_merge(on_left[element], item, schema.items) if element in on_left else item)
        done.add(element)
        if at < len(shared) and shared[at] == element:
            at += 1
        j += 1
    return out


def _pruned(merged: JsonObject, last: FieldSet, everyone: FieldSet, schema: SchemaNode | None) -> JsonObject:
    """The merged object without fields that only the applier owned and no longer lists.

    Fields without an owner are removed with their list item or map entry; all others stay.
    """
    last = with_named_parents(last, schema)
    rest = without(merged, last, schema)

    def members(value: Any) -> FieldSet:
        return with_named_parents(fields_of(value, schema), schema)

    present = members(merged)
    kept = union(members(rest), with_named_parents(everyone, schema))
    rest = without(merged, difference(present, kept), schema)
    gone = intersection(difference(present, members(rest)), last)
    pruned: JsonObject = without(merged, gone, schema)
    return pruned


def _remaining_conflicts(
    manager: str, conflicts: list[tuple[Manager, str]], before: JsonObject | None, schema: SchemaNode | None
) -> list[tuple[Manager, str]]:
    """The conflicts without those on fields that kubectl's client-side apply wrote and that are unchanged since."""
    last = _last_applied(before) if manager == _KUBECTL and before is not None else None
    if last is None or before is None:
        return conflicts
    try:
        written = orjson.loads(last)
    except orjson.JSONDecodeError:
        return conflicts
    if not isinstance(written, dict):
        return conflicts
    changed, removed = changes(written, before, schema)
    own = difference(fields_of(written, schema), union(changed, removed))
    allowed = set(paths(own))
    return [(each, path) for each, path in conflicts if path not in allowed]


def _last_applied(obj: JsonObject) -> str | None:
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations.get(LAST_APPLIED) if isinstance(annotations, dict) else None


def _with_last_applied(merged: JsonObject, config: JsonObject) -> JsonObject:
    """The object with an updated last-applied annotation, which `kubectl apply` without `--server-side` reads."""
    metadata = dict(config.get("metadata", {}))
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != LAST_APPLIED}
    metadata.pop("annotations", None)
    if annotations:
        metadata["annotations"] = annotations
    text = orjson.dumps({**config, "metadata": metadata}, option=orjson.OPT_SORT_KEYS).decode() + "\n"
    live = merged.get("metadata", {})
    return {**merged, "metadata": {**live, "annotations": {**(live.get("annotations") or {}), LAST_APPLIED: text}}}
