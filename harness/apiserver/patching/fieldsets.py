"""Sets of fields of an object, in the format of `managedFields` (FieldsV1).

A set maps a path element to the set below it: `f:NAME` a field or map key, `k:{JSON}` an item of a keyed list,
`v:JSON` an item of a set. A path is a member of the set if it maps to an empty set or to one with the entry `"."`.
At the root `{}` is the empty set. Sets are immutable: functions return new sets that share unchanged parts. Follows
structured-merge-diff's `fieldpath` and `typed`.
"""

from collections.abc import Iterator
from typing import Any, Final

import orjson

from seatrial.harness.apiserver.patching.patch import same_json
from seatrial.harness.apiserver.schemas.schema_nodes import SchemaNode
from seatrial.scheduler.api.integers import integer

FieldSet = dict[str, Any]

_MISSING: Final = object()
_MEMBER: Final[FieldSet] = {}
# Structs held by value and lists without omitempty: they exist in an empty Go object, so no write adds them.
# The schema does not contain this.
_ALWAYS_THERE: Final = frozenset(
    {"metadata", "spec", "status", "strategy", "updateStrategy", "template", "jobTemplate", "containers"}
)


def is_field_set(result: Any) -> bool:
    """Whether this is a set in the format of `managedFields`; clients may send anything."""
    return isinstance(result, dict) and all(
        _is_element(element) and is_field_set(below) for element, below in result.items()
    )


def _is_element(text: str) -> bool:
    kind, _, rest = text.partition(":")
    if kind in {"k", "v"}:
        try:
            value = orjson.loads(rest)
        except orjson.JSONDecodeError:
            return False
        return kind == "v" or isinstance(value, dict)
    return text == "." or kind == "f" or (kind == "i" and integer(rest) is not None)


def _is_member(node: FieldSet) -> bool:
    return not node or "." in node


def _node(kids: FieldSet, *, member: bool) -> FieldSet | None:
    """The node of a path with `kids` below it; None if neither the path nor a path below is a member."""
    if not kids:
        return _MEMBER if member else None
    return {".": {}, **kids} if member else kids


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """The paths in either set."""
    if not left or not right:
        return left or right
    out = dict(left)
    for element, node in right.items():
        mine = out.get(element)
        if mine is None or mine is node:
            out[element] = node
        elif not mine or not node:
            out[element] = {".": {}, **mine, **node} if mine or node else _MEMBER
        else:
            out[element] = union(mine, node)
    return out


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """The paths of `left` that are not in `right`. Removing a path keeps the paths below it."""
    if not right:
        return left
    out: FieldSet = {}
    for element, node in left.items():
        if element == ".":
            continue
        other = right.get(element)
        if other is None:
            out[element] = node
            continue
        kept = _node(difference(_kids(node), _kids(other)), member=_is_member(node) and not _is_member(other))
        if kept is not None:
            out[element] = kept
    return out


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    """The paths in both sets."""
    out: FieldSet = {}
    for element, node in left.items():
        other = right.get(element) if element != "." else None
        if other is None:
            continue
        kept = _node(intersection(_kids(node), _kids(other)), member=_is_member(node) and _is_member(other))
        if kept is not None:
            out[element] = kept
    return out


def _kids(node: FieldSet) -> FieldSet:
    return {element: below for element, below in node.items() if element != "."} if "." in node else node


def paths(fields: FieldSet, prefix: str = "") -> Iterator[str]:
    """The paths of the set as upstream prints them: `.spec.containers[name="web"].image`."""
    for element, node in sorted(fields.items()):
        if element == ".":
            continue
        path = prefix + _printed(element)
        if _is_member(node):
            yield path
        yield from paths(node, path)


def _printed(element: str) -> str:
    kind, _, rest = element.partition(":")
    if kind == "f":
        return "." + rest
    if kind == "k":
        keys = orjson.loads(rest)
        return "[" + ",".join(f"{key}={orjson.dumps(value).decode()}" for key, value in sorted(keys.items())) + "]"
    return f"[={rest}]" if kind == "v" else f"[{rest}]"


def in_order(fields: FieldSet) -> FieldSet:
    """The same set with its elements in upstream's order."""
    return {element: in_order(fields[element]) if fields[element] else fields[element] for element in sorted(fields)}


def item_elements(items: list[Any], schema: SchemaNode) -> list[str]:
    """The path elements of the items of a keyed list or a set; an item without keys is `i:INDEX`."""
    return [_element(item, schema) or f"i:{place}" for place, item in enumerate(items)]


def _element(item: Any, schema: SchemaNode) -> str:
    if schema.list_type == "set":
        return "v:" + orjson.dumps(item, option=orjson.OPT_SORT_KEYS).decode()
    if not isinstance(item, dict):
        return ""
    keys = {}
    for key in schema.list_map_keys:
        value = item.get(key)
        if value is None:
            value = schema.key_default(key)
        if value is not None:
            keys[key] = value
    return "k:" + orjson.dumps(keys, option=orjson.OPT_SORT_KEYS).decode() if keys else ""


def is_granular(value: Any, schema: SchemaNode | None) -> bool:
    """Whether parts of the value have owners of their own: maps unless atomic, lists of type map or set."""
    if isinstance(value, dict):
        return schema is None or schema.map_type != "atomic"
    return isinstance(value, list) and schema is not None and schema.list_type in {"map", "set"}


def named_children(value: Any, schema: SchemaNode | None) -> Iterator[tuple[str, Any, SchemaNode | None, bool]]:
    """The children of a granular value: path element, value, schema, whether the schema names the field."""
    if isinstance(value, dict):
        for name, field in value.items():
            child = schema.child(name) if schema is not None else None
            yield "f:" + name, field, child, schema is not None and schema.names(name)
    elif schema is not None:
        for element, item in zip(item_elements(value, schema), value, strict=True):
            yield element, item, schema.items, False


def fields_of(value: Any, schema: SchemaNode | None) -> FieldSet:
    """The fields that `value` sets: leaves, map keys, list items, empty objects."""
    out: FieldSet = {}
    for element, field, child, named in named_children(value, schema):
        if not is_granular(field, child):
            out[element] = _MEMBER
            continue
        below = fields_of(field, child)
        member = not named or (not field and isinstance(field, dict))
        node = _node(below, member=member)
        if node is not None:
            out[element] = node
    return out


def compare(before: Any, after: Any, schema: SchemaNode | None, *, creating: bool = False) -> tuple[FieldSet, FieldSet]:
    """The fields that were added or changed, and the fields that were removed.

    Both values are granular or empty. `creating`: the object did not exist before.
    """
    if before is after:
        return {}, {}
    old = {element: (field, child) for element, field, child, _ in named_children(before, schema)}
    changed: FieldSet = {}
    removed: FieldSet = {}
    for element, new, child, named in named_children(after, schema):
        was = old.pop(element, (_MISSING, None))[0]
        if was is new:
            continue
        there = named and child is not None and not child.custom and element[2:] in _ALWAYS_THERE
        if was is _MISSING and creating and there and isinstance(new, (dict, list)):
            was = type(new)()
        granular = is_granular(new, child)
        if was is _MISSING:
            changed[element] = {".": {}, **_everything(new, child)} if granular and new else _MEMBER
        elif granular and type(was) is type(new):
            more, less = compare(was, new, child, creating=creating)
            if more:
                changed[element] = more
            if less:
                removed[element] = less
        elif not same_json(was, new):
            changed[element] = {".": {}, **_everything(new, child)} if granular and new else _MEMBER
            gone = _everything(was, child)
            if gone:
                removed[element] = difference(gone, changed[element])
    for element, (field, child) in old.items():
        removed[element] = {".": {}, **_everything(field, child)}
    return changed, {element: node for element, node in removed.items() if node}


def _everything(value: Any, schema: SchemaNode | None) -> FieldSet:
    """All paths below a value, including containers."""
    if not is_granular(value, schema):
        return {}
    out: FieldSet = {}
    for element, field, child, _ in named_children(value, schema):
        below = _everything(field, child)
        out[element] = {".": {}, **below} if below else _MEMBER
    return out


def with_named_parents(fields: FieldSet, schema: SchemaNode | None) -> FieldSet:
    """The set with the named parents of its members: the owner of `.spec.a` also gets `.spec`."""
    out: FieldSet = {}
    for element, node in fields.items():
        if element == "." or not node:
            out[element] = node
            continue
        if element[0] == "f":
            name = element[2:]
            child = schema.child(name) if schema is not None else None
            named = schema is not None and schema.names(name)
        else:
            child, named = schema.items if schema is not None else None, False
        below = with_named_parents(node, child)
        out[element] = {".": {}, **below} if named and "." not in below else below
    return out


def without(value: Any, gone: FieldSet, schema: SchemaNode | None) -> Any:
    """A granular value without the given fields. A container that becomes empty stays unless it is given too."""
    kept: list[tuple[str, Any]] = []
    touched = False
    for element, field, child, _ in named_children(value, schema):
        node = gone.get(element)
        if node is None:
            kept.append((element, field))
        elif _is_member(node):
            touched = True
        else:
            left = without(field, node, child) if is_granular(field, child) else field
            touched = touched or left is not field
            kept.append((element, left))
    if not touched:
        return value
    return {element[2:]: field for element, field in kept} if isinstance(value, dict) else [field for _, field in kept]
