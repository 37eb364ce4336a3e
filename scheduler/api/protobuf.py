"""Protocol buffers (proto3) for dataclasses: the part of the format that interfaces of kubelet and containerd need.

A field's number is in its type: `name: Annotated[str, 1]`. Types: str, bytes, bool, int, nested messages, tuples of
strings and messages, maps from strings to strings or messages. As proto3 demands, zero values are not written and
unknown fields are skipped.
"""

from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from seatrial.scheduler.api.protobuf_wire import BYTES, VARINT, Malformed, bytes_field, fields, number_field, signed

Message = TypeVar("Message")
_KEY, _VALUE = 1, 2  # fields of a map's entry
_KNOWN: dict[type, tuple[tuple[int, str, Any], ...]] = {}


def encode(message: Any) -> bytes:
    """The bytes of a message; maps are sorted by key."""
    result = bytearray()
    for number, name, _ in _fields(type(message)):
        value = getattr(message, name)
        if isinstance(value, Mapping):
            for key, item in sorted(value.items()):
                result += bytes_field(number, _one(_KEY, key) + _one(_VALUE, item))
        elif isinstance(value, tuple):
            for item in value:
                result += bytes_field(number, item.encode() if isinstance(item, str) else encode(item))
        else:
            result += _one(number, value)
    return bytes(result)


def decode(data: bytes, kind: type[Message]) -> Message:
    """A message of class `kind`.

    Raises:
        Malformed: the bytes are no such message.
    """
    known = {number: (name, hint) for number, name, hint in _fields(kind)}
    by_name: dict[str, Any] = {}
    for number, wire, value in fields(data):
        if number not in known:
            continue
        name, hint = known[number]
        origin, inner = get_origin(hint), get_args(hint)
        expected = VARINT if hint in {int, bool} else BYTES
        if wire != expected:
            raise Malformed(f"{kind.__name__}.{name}: expected wire type {expected}, found {wire}")
        if origin is tuple:
            by_name.setdefault(name, []).append(_read(value, inner[0]))
        elif origin is not None and issubclass(origin, Mapping):
            pair = {entry: part for entry, _, part in fields(bytes(value))}
            by_name.setdefault(name, {})[_text(pair.get(_KEY, b""))] = _read(pair.get(_VALUE, b""), inner[1])
        else:
            by_name[name] = _read(value, _bare(hint))
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in by_name.items()})


def _read(value: int | bytes, hint: Any) -> Any:
    if isinstance(value, int):
        return bool(value) if hint is bool else signed(value)
    if hint is bytes:
        return bytes(value)
    return _text(value) if hint is str else decode(value, hint)


def _text(value: int | bytes) -> str:
    if isinstance(value, int):
        raise Malformed(f"expected a string, found the number {value}")
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise Malformed(f"expected UTF-8, found {value!r}") from error


def _one(number: int, value: Any) -> bytes:
    if value is None or value in ("", b"") or value is False or (value == 0 and isinstance(value, int)):
        return b""
    if isinstance(value, int):
        return number_field(number, int(value))
    if isinstance(value, bytes):
        return bytes_field(number, value)
    return bytes_field(number, value.encode() if isinstance(value, str) else encode(value))


def _bare(hint: Any) -> Any:
    """The class of an optional field."""
    inner = [part for part in get_args(hint) if part is not type(None)]
    return inner[0] if inner else hint


def _fields(kind: type) -> tuple[tuple[int, str, Any], ...]:
    """Number, name and type of each field."""
    if kind not in _KNOWN:
        hints = get_type_hints(kind, include_extras=True)
        _KNOWN[kind] = tuple((hint.__metadata__[0], name, hint.__origin__) for name, hint in hints.items())
    return _KNOWN[kind]
