"""JSON Patch, JSON merge patch and strategic merge patch, on decoded JSON.

Functions do not change their arguments. Results share unchanged parts with the arguments, so treat all of them as
immutable. Errors are a `PatchError`; defaults, validation and version conflicts are up to the caller. Follows
apimachinery's `strategicpatch`, except that `$patch: merge` in a map, which upstream refuses, is accepted.
"""

from collections.abc import Iterable
from typing import Any, Final, Literal

import orjson

from seatrial.harness.apiserver.schemas.schema_nodes import JsonObject, SchemaNode

Reason = Literal["Invalid", "BadRequest", "TooLarge"]

_SET_ORDER: Final = "$setElementOrder/"
_DELETE_PRIMITIVES: Final = "$deleteFromPrimitiveList/"
_MISSING: Final = object()
_OPERATIONS_LIMIT: Final = 10_000  # as upstream
_COPIED_LIMIT: Final = 3 * 1024 * 1024  # bytes, upstream's limit for a body


class PatchError(Exception):
    """The patch cannot be applied.

    `reason` is BadRequest (400) for a malformed patch, TooLarge (413) for one with too many operations, Invalid (422)
    for one that does not apply to the object.
    """

    def __init__(self, message: str, reason: Reason) -> None:
        super().__init__(message)
        self.message, self.reason = message, reason


def same_json(left: Any, right: Any) -> bool:
    """Equality of JSON values: as in Python, except that true does not equal 1."""
    if left is right:
        return True
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and len(left) == len(right)
            and all(key in right and same_json(value, right[key]) for key, value in left.items())
        )
    if isinstance(left, list):
        return (
            isinstance(right, list)
            and len(left) == len(right)
            and all(same_json(a, b) for a, b in zip(left, right, strict=True))
        )
    return bool(left == right) and isinstance(left, bool) is isinstance(right, bool)


# --- JSON Patch, RFC 6902 ---------------------------------------------------------------------------------------------


def json_patch(obj: Any, ops: Any) -> Any:
    """The object after the operations, all of them or none.

    A `test` for null passes where there is nothing, as it does in kube-apiserver.
    Raises PatchError: BadRequest for what is no list of operations, TooLarge for too many, Invalid for an operation
    that does not apply.
    """
    if ops is None:
        return obj
    if not isinstance(ops, list) or not all(isinstance(op, dict) for op in ops):
        raise PatchError("a JSON patch is a list of operations, each an object", "BadRequest")
    if len(ops) > _OPERATIONS_LIMIT:
        raise PatchError(
            f"The allowed maximum operations in a JSON patch is {_OPERATIONS_LIMIT}, got {len(ops)}", "TooLarge"
        )
    copied = 0
    for op in ops:
        if op.get("op") == "copy":  # copies of copies grow exponentially
            copied += _size(_get(obj, _pointer(op, "from"), op, where="from"))
            if copied > _COPIED_LIMIT:
                raise PatchError(f"the copy operations exceed the limit of {_COPIED_LIMIT} bytes", "BadRequest")
        obj = _apply_operation(obj, op)
    return obj


def check_encodable(obj: Any) -> None:
    """
    Raises:
        PatchError: operations of a JSON patch nested the object deeper than it can be stored.
    """
    try:
        orjson.dumps(obj)
    except orjson.JSONEncodeError as error:
        raise PatchError(f"the patched object cannot be stored: {error}", "BadRequest") from error


def _size(value: Any) -> int:
    try:
        return len(orjson.dumps(value))
    except orjson.JSONEncodeError as error:
        raise PatchError(f"copy operation does not apply: {error}", "Invalid") from error


def _apply_operation(obj: Any, op: JsonObject) -> Any:
    kind = op.get("op")
    if not isinstance(kind, str):
        raise PatchError(f"Unexpected kind: {kind}", "Invalid")
    path = _pointer(op, "path")
    if kind in {"add", "replace", "test"}:
        value = op.get("value")  # as upstream, no value is null
        if kind == "add":
            return _put(obj, path, value, op, insert=True)
        if kind == "replace":
            return _put(obj, path, value, op, insert=False)
        result = _get(obj, path, op, missing_ok=value is None)
        if not same_json(None if result is _MISSING else result, value):
            raise PatchError(f"testing value {op['path']} failed: test failed", "Invalid")
        return obj
    if kind == "remove":
        return _cut(obj, path, op)
    if kind in {"move", "copy"}:
        source = _pointer(op, "from")
        value = _get(obj, source, op, where="from")
        if kind == "move":
            if path[: len(source)] == source and len(path) > len(source):
                raise PatchError(f"move operation would put {op['from']} into itself", "Invalid")
            if path == source:
                return obj
            obj = _cut(obj, source, op)
        return _put(obj, path, value, op, insert=True)
    raise PatchError(f"Unexpected kind: {kind}", "Invalid")


def _pointer(op: JsonObject, name: str) -> list[str]:
    pointer = op.get(name)
    if not isinstance(pointer, str):
        raise PatchError(f"{op.get('op')} operation has no {name}: expected a JSON pointer", "Invalid")
    if not pointer:
        return []
    if "/" not in pointer:
        raise PatchError(f"{op.get('op')} operation: {name} {pointer!r} must start with '/'", "Invalid")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _missing(op: JsonObject, where: str = "path") -> PatchError:
    return PatchError(
        f'{op["op"]} operation does not apply: doc is missing path: "{op[where]}": missing value', "Invalid"
    )


def _index(part: str, length: int, op: JsonObject, where: str = "path") -> int:
    """A list index below `length`; leading zeros and signs are invalid."""
    if not (part.isascii() and part.isdecimal() and (part == "0" or part[0] != "0")):
        raise _missing(op, where)
    if len(part) > 9 or int(part) >= length:
        raise PatchError(
            f"{op['op']} operation does not apply: unable to access invalid index: {part}: invalid index referenced",
            "Invalid",
        )
    return int(part)


def _get(obj: Any, path: list[str], op: JsonObject, *, where: str = "path", missing_ok: bool = False) -> Any:
    for at, part in enumerate(path):
        if isinstance(obj, list):
            obj = obj[_index(part, len(obj), op, where)]
        elif isinstance(obj, dict) and part in obj:
            obj = obj[part]
        elif missing_ok and at == len(path) - 1:
            return _MISSING
        else:
            raise _missing(op, where)
    return obj


def _put(obj: Any, path: list[str], value: Any, op: JsonObject, *, insert: bool) -> Any:
    """The object with `value` at `path`. Copies along the path only."""
    if not path:
        if insert:
            raise _missing(op)  # as upstream, whose `replace` can put a whole object in place of another
        return value
    part, rest = path[0], path[1:]
    if isinstance(obj, dict):
        if part not in obj and rest:  # the last one need not exist even for `replace`, as upstream
            raise _missing(op)
        return {**obj, part: _put(obj[part], rest, value, op, insert=insert) if rest else value}
    if isinstance(obj, list):
        if not rest and insert:
            at = len(obj) if part == "-" else _index(part, len(obj) + 1, op)
            return [*obj[:at], value, *obj[at:]]
        at = _index(part, len(obj), op)
        return [*obj[:at], _put(obj[at], rest, value, op, insert=insert), *obj[at + 1 :]]
    raise _missing(op)


def _cut(obj: Any, path: list[str], op: JsonObject) -> Any:
    where = "path" if op["op"] == "remove" else "from"
    if not path:
        raise PatchError(f"{op['op']} operation cannot take the whole object away", "Invalid")
    part, rest = path[0], path[1:]
    if isinstance(obj, dict):
        if part not in obj:
            raise _missing(op, where)
        if rest:
            return {**obj, part: _cut(obj[part], rest, op)}
        return {key: value for key, value in obj.items() if key != part}
    if isinstance(obj, list):
        at = _index(part, len(obj), op, where)
        return [*obj[:at], _cut(obj[at], rest, op), *obj[at + 1 :]] if rest else [*obj[:at], *obj[at + 1 :]]
    raise _missing(op, where)


# --- JSON merge patch, RFC 7396 ---------------------------------------------------------------------------------------


def merge_patch(obj: JsonObject, patch: Any) -> JsonObject:
    """The object merged with `patch`; null removes a field.

    Raises PatchError (BadRequest) for a patch that is no object.
    """
    if not isinstance(patch, dict):
        raise PatchError("a merge patch is an object", "BadRequest")
    return _merge(obj, patch)


def _merge(obj: Any, patch: JsonObject) -> JsonObject:
    if isinstance(obj, dict) and all(type(value) is str and obj.get(key) == value for key, value in patch.items()):
        return obj  # as with a uid and a resourceVersion that name the object: it is not checked again
    out: JsonObject = dict(obj) if isinstance(obj, dict) else {}
    for key, value in patch.items():
        if isinstance(value, dict):
            out[key] = _merge(out.get(key), value)
        elif value is None:
            out.pop(key, None)
        else:
            out[key] = value
    return out


# --- Strategic merge patch --------------------------------------------------------------------------------------------


def strategic_merge(obj: JsonObject, patch: Any, schema: SchemaNode) -> JsonObject:
    """The object merged with `patch`; lists merge by the merge keys in the schema of the kind.

    Raises PatchError: BadRequest for a malformed patch or directive, or for a list item without its merge key.
    """
    if not isinstance(patch, dict):
        raise PatchError("a strategic merge patch is an object", "BadRequest")
    return _merge_map(obj, patch, schema)


def _merge_map(original: JsonObject, patch: JsonObject, schema: SchemaNode | None) -> JsonObject:
    out = dict(original)
    ordered: set[str] | None = None
    for key in patch:
        if key[:1] == "$":
            directive = patch.get("$patch")
            if directive is not None:
                return _replaced(directive, patch)
            if "$retainKeys" in patch:
                out = _retained(out, patch)
            ordered = _merge_ordered_lists(out, patch, schema)
            break
    for key, value in patch.items():
        if key[:1] == "$":
            if key.startswith(_DELETE_PRIMITIVES):
                _delete_primitives(out, key.removeprefix(_DELETE_PRIMITIVES), value)
            elif not _is_directive(key):
                out[key] = value
            continue
        if ordered is not None and key in ordered:
            continue
        if value is None:
            out.pop(key, None)
            continue
        if isinstance(value, dict):
            old = out.get(key)
            if not isinstance(old, dict):
                out[key] = _fresh(value)
                continue
            child = schema.child(key) if schema is not None else None
            if child is not None and "replace" in child.patch_strategy:
                out[key] = _fresh(value)
            else:
                out[key] = _merge_map(old, value, child)
        elif isinstance(value, list):
            old = out.get(key)
            out[key] = _merge_list(old, value, _list_schema(schema, key)) if isinstance(old, list) else _fresh(value)
        else:
            out[key] = value
    return out


def _list_schema(schema: SchemaNode | None, key: str) -> SchemaNode | None:
    """The schema of list `key`; None if the list is replaced as a whole."""
    child = schema.child(key) if schema is not None else None
    return child if child is not None and "merge" in child.patch_strategy else None


def _replaced(directive: Any, patch: JsonObject) -> JsonObject:
    if directive == "replace":
        replaced = _fresh(patch)
        return replaced if isinstance(replaced, dict) else {}
    if directive == "delete":
        return {}
    raise PatchError(f"unknown patch type: {directive} in map: {patch}", "BadRequest")


def _retained(out: JsonObject, patch: JsonObject) -> JsonObject:
    keep = patch["$retainKeys"]
    if not isinstance(keep, list) or not all(
        key in keep for key, value in patch.items() if value is not None and key[:1] != "$"
    ):
        raise PatchError("invalid patch format of retainKeys", "BadRequest")
    return {key: value for key, value in out.items() if key in keep}


def _delete_primitives(out: JsonObject, key: str, gone: Any) -> None:
    old = out.get(key)
    if isinstance(old, list) and isinstance(gone, list):  # upstream ignores the directive otherwise
        out[key] = [item for item in old if not any(same_json(item, each) for each in gone)]


def _merge_ordered_lists(out: JsonObject, patch: JsonObject, schema: SchemaNode | None) -> set[str]:
    """Merge the lists with a `$setElementOrder` into `out`. Returns the names of these lists."""
    done = set()
    for directive, order in patch.items():
        if not directive.startswith(_SET_ORDER):
            continue
        key = directive.removeprefix(_SET_ORDER)
        if not isinstance(order, list):
            raise PatchError("invalid patch format of setElementOrder list", "BadRequest")
        value = key in patch
        old, new = out.get(key), patch.get(key)
        if value and not isinstance(new, list):
            continue  # null, or not a list
        child = schema.child(key) if schema is not None else None
        merge_key = child.merge_key if child is not None else ""
        keys = _keys(order, merge_key)
        before = old if isinstance(old, list) else []
        if isinstance(new, list):
            _check_order(new, keys, merge_key)
            done.add(key)
            if isinstance(old, list):
                merged = _merge_list(old, new, _list_schema(schema, key), sort=False)
            else:
                merged = _fresh(new)
        elif isinstance(old, list):
            merged = old
        else:
            continue
        out[key] = _in_order(merged, keys, before, merge_key)
    return done


def _check_order(items: list[Any], kind: list[Any], merge_key: str) -> None:
    """Check that the items of the patch are in the order of its `$setElementOrder`."""
    staying = [item for item in items if not (isinstance(item, dict) and "$patch" in item)]
    rest = iter(kind)
    if not all(key in rest for key in _keys(staying, merge_key)):
        raise PatchError("invalid patch format of setElementOrder list", "BadRequest")


def _merge_list(old: list[Any], new: list[Any], schema: SchemaNode | None, *, sort: bool = True) -> list[Any]:
    if schema is None:
        return list(new)  # as sent, with directives: upstream drops these where there was no list before
    merge_key = schema.merge_key
    merged: list[Any]
    if not merge_key:
        merged = list(old)
        merged.extend(item for item in new if item not in merged)
        return _in_order(merged, new, old, "") if sort else merged
    merged, additions = list(old), list[Any]()
    if any(isinstance(item, dict) and "$patch" in item for item in new):
        replace, merged, new = _special_items(old, new, merge_key)
        if replace:
            return merged
        old = list(merged)
    at = _places([item[merge_key] if isinstance(item, dict) and merge_key in item else None for item in old])
    keys = _keys(new, merge_key)
    items, last, in_place = schema.items, -1, len(at) == len(old)
    for item, key in zip(new, keys, strict=True):
        place = at.get(key)
        if place is None:
            at[key] = len(merged) + len(additions)
            additions.append(_fresh(item))
        elif place < len(merged):
            merged[place] = _merge_map(merged[place], item, items)
            in_place, last = in_place and place > last, place
        else:  # the patch names the same new item twice
            additions[place - len(merged)] = _merge_map(additions[place - len(merged)], item, items)
    if not sort or (in_place and not additions):  # no item was added or moved
        return merged + additions
    return _in_order(merged + additions, keys, old, merge_key)


def _places(keys: list[Any]) -> dict[Any, int]:
    """Key → its index; the first index of a duplicate key."""
    at = {key: place for place, key in enumerate(keys)}
    if len(at) < len(keys):
        for place in reversed(range(len(keys))):
            at[keys[place]] = place
    return at


def _special_items(old: list[Any], new: list[Any], merge_key: str) -> tuple[bool, list[Any], list[Any]]:
    """Handles `$patch` items. Returns whether the list is replaced; its new or remaining items; the items to merge."""
    plain, gone, replace = [], [], False
    for item in new:
        directive = item.get("$patch") if isinstance(item, dict) else None
        if directive is None:
            plain.append(item)
        elif directive == "delete":
            if merge_key not in item:
                raise PatchError("delete patch type with no merge key defined", "BadRequest")
            gone.append(item[merge_key])
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise PatchError("merging lists cannot yet be specified in the patch", "BadRequest")
        else:
            raise PatchError(f"unknown patch type: {directive} in map: {item}", "BadRequest")
    if replace:
        return True, _fresh(plain), []
    return False, [item for item in old if item.get(merge_key) not in gone], plain


def _keys(items: Iterable[Any], merge_key: str) -> list[Any]:
    """The merge keys of the items; in a list of scalars the items themselves."""
    if not merge_key:
        return list(items)
    keys = []
    for item in items:
        key = item.get(merge_key, _MISSING) if isinstance(item, dict) else _MISSING
        if key is _MISSING or isinstance(key, (dict, list)):
            raise PatchError(f"map: {item} does not contain declared merge key: {merge_key}", "BadRequest")
        keys.append(key)
    return keys


def _in_order(merged: list[Any], keys: list[Any], before: list[Any], merge_key: str) -> list[Any]:
    """Orders a merged list: items of the patch in its order, others in their old order, interleaved as before.

    An item that the server did not have yet comes as early as it can, which is upstream's choice.
    """
    if len(merged) < 2:
        return merged
    try:
        rank = _places(keys)
        stood = _places([item.get(merge_key) for item in before] if merge_key else before)
        keyed = [(item.get(merge_key) if merge_key else item, item) for item in merged]
        patched = sorted((pair for pair in keyed if pair[0] in rank), key=lambda pair: rank[pair[0]])
        others = [pair for pair in keyed if pair[0] not in rank]
    except (TypeError, AttributeError):
        raise PatchError("invalid patch format of setElementOrder list", "BadRequest") from None
    if not others:
        return [item for _, item in patched]
    others.sort(key=lambda pair: stood.get(pair[0], len(before)))
    woven, i, j = [], 0, 0
    while i < len(others) and j < len(patched):
        left, right = stood.get(others[i][0]), stood.get(patched[j][0])
        if left is not None and right is not None and left < right:
            woven.append(others[i][1])
            i += 1
        else:
            woven.append(patched[j][1])
            j += 1
    woven.extend(item for _, item in others[i:])
    woven.extend(item for _, item in patched[j:])
    return woven


def _fresh(value: Any) -> Any:
    """The value of a patch for a new field: without nulls, directives and deletion items."""
    if isinstance(value, dict):
        return {
            key: _fresh(field) if isinstance(field, (dict, list)) else field
            for key, field in value.items()
            if field is not None and not (key[:1] == "$" and _is_directive(key))
        }
    if isinstance(value, list):
        return [
            _fresh(item) if isinstance(item, (dict, list)) else item
            for item in value
            if not (isinstance(item, dict) and item.get("$patch") in {"delete", "replace"})
        ]
    return value


def _is_directive(key: str) -> bool:
    return key in {"$patch", "$retainKeys"} or key.startswith((_SET_ORDER, _DELETE_PRIMITIVES))
