"""Decodes the envelope and messages of a Go client into the object that it would send as JSON."""

import struct
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from seatrial.harness.apiserver.protobuf.special import CHOICES, SCHEMA, SPECIAL, as_base64
from seatrial.scheduler.api.protobuf_wire import BYTES, FIXED64, VARINT, Malformed, fields, signed

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
_MAX_DEPTH = 64  # levels of nested messages; schemas of CRDs nest without limit
META_PACKAGE = "k8s.io.apimachinery.pkg.apis.meta.v1"

Object = dict[str, Any]


class _Field(NamedTuple):
    """A field of a message. `read` converts a wire value to JSON; None: a nested message."""

    name: str
    wire: int
    read: Callable[[Any], Any] | None
    message: str
    repeated: bool
    mapped: bool
    inline: bool
    omit_zero: bool

    def value(self, value: Any, depth: int) -> Any:
        if self.read is not None:
            return self.read(value)
        return (_choice if self.message in CHOICES else _message)(value, self.message, depth + 1)


def decode(body: bytes) -> Object:
    """Decode Kubernetes' envelope (`k8s`, a zero byte, then runtime.Unknown) and its object.

    Raises:
        Malformed: the bytes are no such envelope, or no such object.
        UnicodeDecodeError: a string in it is not UTF-8.
    """
    if not body.startswith(MAGIC):
        raise Malformed("expected the four bytes 'k8s' and zero at the beginning of the body, found other bytes")
    api_version = kind = ""
    raw = b""
    for number, wire, value in fields(body[len(MAGIC) :]):
        if wire != BYTES or not isinstance(value, bytes):
            raise Malformed(f"field {number} of the envelope: expected bytes")
        if number == 1:
            for inner, _, text in fields(value):
                if inner == 1 and isinstance(text, bytes):
                    api_version = text.decode()
                elif inner == 2 and isinstance(text, bytes):
                    kind = text.decode()
        elif number == 2:
            raw = value
    return {"apiVersion": api_version, "kind": kind, **_message(raw, message_of(api_version, kind), 0)}


def message_of(api_version: str, kind: str) -> str:
    """The name of the message for a kind; kinds of meta.k8s.io, such as options, exist in every group.

    Raises:
        Malformed: there is none.
    """
    known = table()
    for package in (known["packages"].get(api_version), META_PACKAGE):
        if package is not None and f"{package}.{kind}" in known["messages"]:
            return f"{package}.{kind}"
    raise Malformed(f'no kind "{kind}" is registered for version "{api_version}" in protocol buffers')


@cache
def table() -> Mapping[str, Any]:
    """The content of messages.json; its format is described in generation.py."""
    document: Mapping[str, Any] = orjson.loads(Path(__file__).with_name("messages.json").read_bytes())
    return document


@cache
def _plan(message: str) -> Mapping[int, _Field]:
    return {int(number): _field(name, word) for number, (name, word) in table()["messages"][message].items()}


def _field(name: str, word: str) -> _Field:
    kind = word.lstrip("*%?^&")
    flags = word[: len(word) - len(kind)]
    message = kind.removeprefix(".")
    wire, read = _SCALARS[kind] if kind in _SCALARS else (BYTES, SPECIAL.get(message))
    return _Field(name, wire, read, message, "*" in flags, "%" in flags, "^" in flags, "?" in flags)


def _message(data: bytes, message: str, depth: int) -> Object:
    if depth > _MAX_DEPTH:
        raise Malformed(f"expected at most {_MAX_DEPTH} messages within one another, found more")
    plan = _plan(message)
    by_field: Object = {}
    for number, wire, value in fields(data):
        field = plan.get(number)
        if field is None:
            continue  # a field of a newer release
        if field.mapped:
            key, inner = _entry(value, field, depth)
            by_field.setdefault(field.name, {})[key] = inner
        elif field.repeated and wire == BYTES and field.wire == VARINT and isinstance(value, bytes):
            raise Malformed(f"{message}.{field.name}: expected numbers one by one, found them packed")
        else:
            if wire != field.wire:
                raise Malformed(f"{message}.{field.name}: expected wire type {field.wire}, found {wire}")
            inner = field.value(value, depth)
            if field.inline:
                by_field.update(inner)
            elif field.repeated:
                by_field.setdefault(field.name, []).append(inner)
            elif inner is not None and (inner or not field.omit_zero):
                by_field[field.name] = inner
    return by_field


def _entry(data: Any, field: _Field, depth: int) -> tuple[str, Any]:
    """Decode an entry of a map: a message with the key in field 1 and the value in field 2."""
    if not isinstance(data, bytes):
        raise Malformed(f"{field.name}: expected entries of a map, found a number")
    key, value = "", None
    for number, wire, inner in fields(data):
        if number == 1 and isinstance(inner, bytes):
            key = inner.decode()
        elif number == 2:
            if wire != field.wire:
                raise Malformed(f"{field.name}: expected wire type {field.wire}, found {wire}")
            value = field.value(inner, depth)
    if value is None:  # Go omits the value of an empty message
        value = field.value(b"" if field.wire == BYTES else 0, depth)
    return key, value


def _choice(data: bytes, message: str, depth: int) -> Any:
    """Decode a union: a schema, or instead of it a boolean, strings or several schemas."""
    schema_at, other_at = CHOICES[message]
    strings: list[Any] = []
    allowed: bool | None = None
    for number, wire, value in fields(data):
        if number == schema_at and isinstance(value, bytes):
            return _message(value, SCHEMA, depth)
        if number == other_at and wire == VARINT:
            allowed = bool(value)
        elif number == other_at and isinstance(value, bytes):
            strings.append(_message(value, SCHEMA, depth) if message.endswith("OrArray") else value.decode())
    return allowed if allowed is not None else strings


def _double(value: bytes) -> float:
    double: float = struct.unpack("<d", value)[0]
    return double


_SCALARS: Mapping[str, tuple[int, Callable[[Any], Any]]] = {
    "s": (BYTES, bytes.decode),
    "b": (BYTES, as_base64),
    "i": (VARINT, signed),
    "t": (VARINT, bool),
    "d": (FIXED64, _double),
}
