"""Decodes request bodies (JSON, YAML, protocol buffers) into plain objects, within limits of size, depth and expansion.

A decoded body can always be encoded again: orjson refuses objects nested deeper than 254 levels and integers beyond
64 bits, so the limits here keep both out of the store.
"""

import codecs
import functools
import json
import re
from collections.abc import Hashable
from typing import Any

import orjson
import yaml

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.protobuf import decoding as protobuf
from seatrial.harness.apiserver.protobuf.decoding import CONTENT_TYPE as PROTOBUF
from seatrial.scheduler.api import protobuf_wire
from seatrial.scheduler.api.yaml_files import MAX_DIGITS, LimitError, Limits, check_limits

BODY_LIMIT = 3 * 1024 * 1024  # bytes, as upstream
DEPTH_LIMIT = 200  # levels of objects and lists
EXPANSION_LIMIT = 10_000  # values that expanding aliases may add to a YAML document
VALUES_LIMIT = 16_000  # values of a body; checking, defaulting and merging take up to 5 µs each
DEFINITION_VALUES_LIMIT = 60_000  # of the body of a CustomResourceDefinition, which is mostly copied
_DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")
YAML_LIMIT = 100_000  # values of a YAML document; decoding takes about 10 µs each
YAML_SLOW_FROM = 16 * 1024  # bytes of YAML that are decoded beside the event loop
DUPLICATES_LIMIT = 64 * 1024  # bytes of a body that is searched for fields named twice
_YAML_LIMITS = Limits(depth=DEPTH_LIMIT, expansion=EXPANSION_LIMIT, values=YAML_LIMIT)
_EXCEEDED = {
    "depth": f"is nested too deep: the limit is {DEPTH_LIMIT} levels",
    "values": f"has too many values for YAML: the limit is {YAML_LIMIT}; send JSON",
    "expansion": "expands too far: expected fewer or smaller YAML aliases",
    "digits": f"has a number that is too long: the limit is {MAX_DIGITS} characters",
}
_SHOWN = 30  # bytes of a malformed body in the message
_JSON_MIN, _JSON_MAX = -(2**63), 2**64  # range of integers that orjson encodes


def values_limit(key: tuple[str, str] | None) -> int:
    """The number of values that an object of a collection may have."""
    return DEFINITION_VALUES_LIMIT if key == _DEFINITIONS else VALUES_LIMIT


def decode(
    body: bytes,
    content_type: str,
    *,
    yaml_too: bool = False,
    any_type: bool = False,
    max_values: int = VALUES_LIMIT,
    expected: str = "",
) -> Any:
    """Decode the body of a request. `yaml_too` accepts media types that end in +yaml.

    `expected` is the kind of the object that is expected, for messages.

    Raises:
        ApiStatusError: 413 too large or too many values, 415 unknown media type, 400
            malformed, nested too deep, or (unless `any_type`)
            not an object.
    """
    if len(body) > BODY_LIMIT:
        raise errors.too_large(BODY_LIMIT)
    kind = content_type.partition(";")[0].strip().lower() or "application/json"
    if kind.endswith(("/json", "+json")):
        document = _json(body, expected)
    elif kind == "application/yaml" or (yaml_too and kind.endswith("+yaml")):
        document = orjson.loads(as_json(body))  # refuses text that is not Unicode
    elif kind == PROTOBUF:
        document = _protobuf(body)
    else:
        raise errors.unsupported_media(["application/json", "application/yaml", PROTOBUF])
    if len(body) > max_values:  # each value takes two bytes or more
        check_values(document, max_values)
    if not any_type and type(document) is not dict:
        raise errors.bad_request(f"expected an object in the body of the request, found {_type_name(document)}")
    return document


def _json(body: bytes, expected: str) -> Any:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        try:
            document = orjson.loads(_as_unicode(body))
        except orjson.JSONDecodeError:
            raise errors.bad_request(_malformed(body, expected, error)) from error
    if body.count(b"{") + body.count(b"[") > DEPTH_LIMIT:  # fewer brackets cannot nest too deep
        _check_depth(document, 0)
    return document


def _each_byte(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("each-byte", _each_byte)
_HALF = r"(?<!\\)((?:\\\\)*)\\u[dD]"  # of an escaped pair of surrogates; the backslash is not escaped itself
_FIRST_ALONE = re.compile(_HALF + r"[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})")
_SECOND_ALONE = re.compile(r"(?<!\\u[dD][89abAB][0-9a-fA-F]{2})" + _HALF + r"[c-fC-F][0-9a-fA-F]{2}")


def _as_unicode(body: bytes) -> str:
    """The text of a body; what is not Unicode, as bytes or as escapes, is replaced as Go's decoder does."""
    text = body.decode(errors="each-byte")
    return _SECOND_ALONE.sub(r"\1\\ufffd", _FIRST_ALONE.sub(r"\1\\ufffd", text))


def _malformed(body: bytes, expected: str, error: orjson.JSONDecodeError) -> str:
    """The message for malformed JSON, as in `apiserver/pkg/endpoints/handlers`: scripts look for it."""
    text = body.decode(errors="replace")
    value = text[error.pos : error.pos + 1]
    why = f"invalid character {value!r} looking for beginning of value" if value else "unexpected end of JSON input"
    if not expected:
        return f"the body of the request cannot be read: {why}: {error}"
    if not body:
        shown = "<empty>"
    elif body.startswith(b"{"):
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."
    else:
        shown = body[:_SHOWN].hex()
    why = f"couldn't get version/kind; json parse error: {why} ({shown})"
    return f"the object provided is unrecognized (must be of type {expected}): {why}"


def _protobuf(body: bytes) -> Any:
    try:
        document = protobuf.decode(body)
    except (protobuf_wire.Malformed, UnicodeDecodeError, RecursionError) as error:
        raise errors.bad_request(f"the body of the request cannot be read: {error}") from error
    _check_depth(document, 0)
    return document


def _check_depth(value: Any, depth: int) -> None:
    level = [value]
    while level:
        if depth > DEPTH_LIMIT:
            raise errors.bad_request(f"the body of the request is nested too deep: the limit is {DEPTH_LIMIT} levels")
        depth += 1
        level = _collections_in(level)


def _collections_in(level: list[Any]) -> list[Any]:
    """The objects and lists that are directly in those of `level`."""
    return [
        below
        for collection in level
        for below in (collection.values() if type(collection) is dict else collection)
        if type(below) is dict or type(below) is list
    ]


def check_values(value: Any, limit: int) -> None:
    """Check the number of values in an object.

    Raises:
        ApiStatusError: 413, there are more than `limit`.
    """
    level = [value] if type(value) is dict or type(value) is list else []
    count = 1
    while level:
        count += sum(map(len, level))
        if count > limit:
            raise errors.too_large(limit, "values")
        level = _collections_in(level)


# -- YAML -------------------------------------------------------------------------------------------------------------


@functools.cache
def _loader() -> Any:
    """A safe loader that leaves dates as text, as sigs.k8s.io/yaml does; libyaml's if it is installed."""
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers = {
        first: [(tag, pattern) for tag, pattern in rows if tag != "tag:yaml.org,2002:timestamp"]
        for first, rows in base.yaml_implicit_resolvers.items()
    }
    return type("Loader", (base,), {"yaml_implicit_resolvers": resolvers})


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object, with duplicates."""


def duplicate_fields(body: bytes, content_type: str, decoded: Any) -> list[str]:
    """Paths of fields that the body names twice, such as `spec.containers[0].name`. `decoded` is the decoded body.

    Bodies above `DUPLICATES_LIMIT`, or of slow YAML, are not searched: other clients would wait for 30 ms and more.
    """
    if len(body) > DUPLICATES_LIMIT or is_slow(body, content_type):
        return []
    if is_yaml(content_type) and not body.lstrip().startswith(b"{"):
        names: list[str] = []
        _duplicates_in_node(yaml.compose(body, Loader=_loader()), "", names)
        return names
    if len(orjson.dumps(decoded)) >= len(body):  # as long as without any white space: nothing was left out
        return []
    names = []
    _duplicates_in(json.loads(_as_unicode(body), object_pairs_hook=_Pairs), "", names)
    return names


def _duplicates_in(value: Any, path: str, names: list[str]) -> None:
    if isinstance(value, _Pairs):
        seen = set()
        for name, below in value:
            where = f"{path}.{name}" if path else name
            if name in seen:
                names.append(where)
            seen.add(name)
            _duplicates_in(below, where, names)
    elif isinstance(value, list):
        for index, below in enumerate(value):
            _duplicates_in(below, f"{path}[{index}]", names)


def _duplicates_in_node(node: Any, path: str, names: list[str]) -> None:
    if isinstance(node, yaml.MappingNode):
        _duplicates_in_pairs(node, path, names)
    elif isinstance(node, yaml.SequenceNode):
        for index, below in enumerate(node.value):
            _duplicates_in_node(below, f"{path}[{index}]", names)


def _duplicates_in_pairs(node: yaml.MappingNode, path: str, names: list[str]) -> None:
    seen = set()
    for key, below in node.value:
        name = str(key.value)
        where = f"{path}.{name}" if path else name
        if name in seen:
            names.append(where)
        seen.add(name)
        _duplicates_in_node(below, where, names)


def is_yaml(content_type: str) -> bool:
    """Whether the media type is YAML; JSON with such a media type is decoded as JSON."""
    return content_type.partition(";")[0].strip().lower().endswith(("/yaml", "+yaml"))


def is_slow(body: bytes, content_type: str) -> bool:
    """Whether decoding may take so long that other clients must not wait for it: much YAML."""
    return YAML_SLOW_FROM < len(body) <= BODY_LIMIT and is_yaml(content_type)


def as_json(body: bytes) -> bytes:
    """A YAML body as JSON. Safe in another thread.

    Raises:
        ApiStatusError: 400 malformed, nested too deep, or too many values.
    """
    try:
        return orjson.dumps(_yaml(body))
    except orjson.JSONEncodeError as error:
        raise errors.bad_request(f"the body of the request cannot be read: {error}") from error


def _yaml(body: bytes) -> Any:
    if body.lstrip().startswith(b"{"):  # kubectl sends JSON as application/apply-patch+yaml; YAML includes it
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError:
            pass
        else:
            _check_depth(document, 0)
            return document
    _check_yaml_events(body)
    try:
        document = yaml.load(body, Loader=_loader())  # noqa: S506 a safe loader
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise errors.bad_request(f"the body of the request cannot be read: {error}") from error
    return _as_json(document, [len(body) + EXPANSION_LIMIT], 0)


def _check_yaml_events(body: bytes) -> None:
    """Check depth, numbers of values before and after the expansion of aliases, and digits, before objects are built.

    The C parser recurses, and a stack overflow ends the process.
    """
    try:
        check_limits(body, _YAML_LIMITS)
    except LimitError as error:
        raise errors.bad_request(f"the body of the request {_EXCEEDED[error.limit]}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise errors.bad_request(f"the body of the request cannot be read: {error}") from error


def _as_json(value: Any, left: list[int], depth: int) -> Any:
    """The value with JSON types only: aliases become copies, keys become strings. `left[0]` counts down values."""
    left[0] -= 1
    if left[0] < 0:
        raise errors.bad_request("the body of the request expands too far: expected fewer or smaller YAML aliases")
    if depth > DEPTH_LIMIT:
        raise errors.bad_request(f"the body of the request is nested too deep: the limit is {DEPTH_LIMIT} levels")
    if isinstance(value, dict):
        return {_key(name): _as_json(below, left, depth + 1) for name, below in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [_as_json(below, left, depth + 1) for below in value]
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, int):
        try:
            return value if _JSON_MIN <= value < _JSON_MAX else float(value)
        except OverflowError as error:
            raise errors.bad_request("the body of the request cannot be read: a number is too large") from error
    if isinstance(value, float) and value - value == 0.0:
        return value
    raise errors.bad_request(f"the body of the request cannot be read: {value!r:.40} cannot be represented in JSON")


def _key(name: Hashable) -> str:
    if isinstance(name, str):
        return name
    if isinstance(name, bool):
        return "true" if name else "false"
    if name is None:
        return "null"
    return str(name)


def _type_name(value: Any) -> str:
    names = {list: "a list", str: "a string", int: "a number", float: "a number", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "something else")
