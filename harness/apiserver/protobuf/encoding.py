"""Encodes objects in protocol buffers, byte for byte as kube-apiserver.

Fields stand in the order of their numbers and entries of maps in that of their keys; a field that Go does not keep
behind a pointer is written with its zero value.

Fields that the table of messages does not have are left out, as upstream's types leave them out.
"""

import base64
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from seatrial.harness.apiserver.protobuf.decoding import MAGIC, META_PACKAGE, message_of, table
from seatrial.harness.apiserver.protobuf.special import CHOICES, SCHEMA, WRITTEN
from seatrial.scheduler.api.protobuf_wire import bytes_field, fixed64_field, number_field

Object = Mapping[str, Any]
_UNSET: Final = object()  # the value that writes a field's zero value
_SCALARS: Mapping[str, Any] = {"s": "", "b": "", "i": 0, "t": False, "d": 0.0}
_NULLABLE = "Verbs"  # the only list with a type of its own that is no pointer: nothing is written for a missing one


class _Field(NamedTuple):
    """A field of a message. `write` encodes its value in JSON, tag included; `absent` is written if it has none."""

    name: str  # empty: the fields stand in the object around it
    write: Callable[[Any], bytes]
    absent: bytes


def encode(obj: Object) -> bytes:
    """An object with `apiVersion` and `kind`, or a list, in Kubernetes' envelope.

    Raises:
        Malformed: there is no message for its kind.
    """
    api_version, kind = obj.get("apiVersion", ""), obj["kind"]  # APIVersions, the document of /api, states none
    if "items" in obj:
        of = message_of(api_version, kind.removesuffix("List"))
        return encode_list(api_version, kind, obj["metadata"], [message(item, of) for item in obj["items"]])
    return envelope(api_version, kind, message(obj, message_of(api_version, kind)))


def encode_list(api_version: str, kind: str, metadata: Object, items: Iterable[bytes]) -> bytes:
    """A list of kind `kind` of items that are encoded as messages, in the envelope."""
    head = bytes_field(1, message(metadata, f"{META_PACKAGE}.ListMeta"))
    return envelope(api_version, kind, head + b"".join([bytes_field(2, item) for item in items]))


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """The four bytes and the runtime.Unknown that hold the message of an object."""
    types = bytes_field(1, api_version.encode()) + bytes_field(2, kind.encode())
    return MAGIC + bytes_field(1, types) + bytes_field(2, raw) + bytes_field(3, b"") + bytes_field(4, b"")


def frame(event: str, obj: bytes) -> bytes:
    """An event of a watch: its length in four bytes, then a WatchEvent without an envelope around the encoded object.

    Source: LengthDelimitedFramer and RawSerializer, k8s.io/apimachinery/pkg/runtime/serializer/protobuf.
    """
    body = bytes_field(1, event.encode()) + bytes_field(2, bytes_field(1, obj))
    return struct.pack(">I", len(body)) + body


def message(obj: Object, name: str) -> bytes:
    """The object as the message of that name, without an envelope."""
    parts = []
    for field, write, absent in _plan(name):
        value = obj.get(field) if field else obj
        parts.append(absent if value is None else write(value))
    return b"".join(parts)


@cache
def _plan(name: str) -> tuple[_Field, ...]:
    rows = sorted((int(number), row) for number, row in table()["messages"][name].items())
    return tuple(_field(number, *row) for number, row in rows)


def _field(number: int, name: str, word: str) -> _Field:
    kind = word.lstrip("*%?^&")
    flags = word[: len(word) - len(kind)]
    one = _single(number if "%" not in flags else 2, kind)
    if "*" in flags:
        return _Field(name, lambda values: b"".join([one(value) for value in values]), b"")
    if "%" in flags:
        return _Field(name, lambda values: _map(number, values, one), b"")
    nothing = "&" in flags or kind.endswith(_NULLABLE)
    return _Field("" if "^" in flags else name, one, b"" if nothing else one(_SCALARS.get(kind, _UNSET)))


def _map(number: int, values: Mapping[str, Any], one: Callable[[Any], bytes]) -> bytes:
    return b"".join(
        [
            bytes_field(number, bytes_field(1, key.encode()) + one(_UNSET if value is None else value))
            for key, value in sorted(values.items())
        ]
    )


def _single(number: int, kind: str) -> Callable[[Any], bytes]:
    """What encodes one value of that type as the field `number`."""
    match kind:
        case "s":
            return lambda value: bytes_field(number, value.encode())
        case "b":
            return lambda value: bytes_field(number, base64.b64decode(value))
        case "i" | "t":
            return lambda value: number_field(number, int(value))
        case "d":
            return lambda value: fixed64_field(number, struct.pack("<d", value))
    name = kind[1:]
    if name in WRITTEN:
        written = WRITTEN[name]
        return lambda value: bytes_field(number, written(None if value is _UNSET else value))
    if name in CHOICES:
        return lambda value: bytes_field(number, _choice(value, name))
    return lambda value: bytes_field(number, message({} if value is _UNSET else value, name))


def _choice(value: Any, name: str) -> bytes:
    """A union: a schema, or instead of it a boolean, strings or several schemas."""
    schema_at, other_at = CHOICES[name]
    if name.endswith("OrBool"):
        allowed = number_field(other_at, value is not False)
        return allowed if isinstance(value, bool) else allowed + bytes_field(schema_at, message(value, SCHEMA))
    if isinstance(value, Mapping):
        return bytes_field(schema_at, message(value, SCHEMA))
    one = _single(other_at, f".{SCHEMA}" if name.endswith(".JSONSchemaPropsOrArray") else "s")
    return b"".join([one(inner) for inner in value])
