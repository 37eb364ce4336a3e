"""Messages that are not objects in JSON: times, quantities, IntOrString, embedded JSON."""

import base64
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import orjson

from seatrial.harness.apiserver.times import printed, seconds_of
from seatrial.scheduler.api.durations import go_text, required_duration
from seatrial.scheduler.api.protobuf_wire import Malformed, bytes_field, fields, number_field, signed

_META: Final = "k8s.io.apimachinery.pkg.apis.meta.v1"
_CUSTOM: Final = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1"
_TEXT: Final = 1  # IntOrString's type: 0 an integer, 1 a string


def _members(data: bytes) -> dict[int, Any]:
    return {number: value for number, _, value in fields(data)}


def _number(members: dict[int, Any], field: int) -> int:
    member = members.get(field, 0)
    if not isinstance(member, int):
        raise Malformed(f"field {field}: expected a number, found bytes")
    return member


def _bytes(members: dict[int, Any], field: int) -> bytes:
    member = members.get(field, b"")
    if not isinstance(member, bytes):
        raise Malformed(f"field {field}: expected bytes, found a number")
    return member


def _time(data: bytes, *, micro: bool = False) -> str | None:
    """The time as JSON has it; None for the zero time, whose message is empty."""
    members = _members(data)
    seconds, nanoseconds = signed(_number(members, 1)), signed(_number(members, 2))
    return printed(seconds, nanoseconds // 1000 if micro else None) if data else None


def _quantity(data: bytes) -> str:
    return str(_bytes(_members(data), 1).decode()) or "0"


def _int_or_string(data: bytes) -> int | str:
    members = _members(data)
    if _number(members, 1) == _TEXT:
        return str(_bytes(members, 3).decode())
    return signed(_number(members, 2))


def _json(data: bytes) -> Any:
    """The JSON that a message carries as bytes; None if empty."""
    raw = _bytes(_members(data), 1)
    try:
        return orjson.loads(raw) if raw else None
    except orjson.JSONDecodeError as error:
        raise Malformed(f"the JSON within the message cannot be read: {error}") from error


def _items(data: bytes) -> list[str]:
    return [value.decode() for number, _, value in fields(data) if number == 1 and isinstance(value, bytes)]


def _duration(data: bytes) -> str:
    """The duration in the format of Go's time.ParseDuration."""
    return go_text(signed(_number(_members(data), 1)) / 10**9)


SPECIAL: Final[Mapping[str, Callable[[bytes], Any]]] = {
    f"{_META}.Time": _time,
    f"{_META}.MicroTime": partial(_time, micro=True),
    f"{_META}.Duration": _duration,
    f"{_META}.FieldsV1": _json,
    f"{_META}.Verbs": _items,
    "k8s.io.apimachinery.pkg.api.resource.Quantity": _quantity,
    "k8s.io.apimachinery.pkg.runtime.RawExtension": _json,
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": _int_or_string,
    "k8s.io.api.authentication.v1.AttestationValue": _items,
    "k8s.io.api.authentication.v1.ExtraValue": _items,
    "k8s.io.api.authorization.v1.ExtraValue": _items,
    "k8s.io.api.certificates.v1.ExtraValue": _items,
    f"{_CUSTOM}.JSON": _json,
}


# -- written, as the `protobuf.go` files upstream; None: the zero value -----------------------------------------------


def _time_bytes(text: str | None, *, micro: bool = False) -> bytes:
    if text is None:
        return b""
    seconds, microseconds = divmod(round(seconds_of(text) * 10**6), 10**6)
    return number_field(1, seconds) + number_field(2, microseconds * 1000 if micro else 0)


def _int_or_string_bytes(value: int | str | None) -> bytes:
    if isinstance(value, str):
        return number_field(1, _TEXT) + number_field(2, 0) + bytes_field(3, value.encode())
    return number_field(1, 0) + number_field(2, value or 0) + bytes_field(3, b"")


def _json_bytes(value: Any) -> bytes:
    return b"" if value is None else bytes_field(1, orjson.dumps(value))


def _items_bytes(values: Iterable[str] | None) -> bytes:
    return b"".join([bytes_field(1, value.encode()) for value in values or ()])


def _duration_bytes(text: str | None) -> bytes:
    return number_field(1, round(required_duration(text or "0") * 10**9))


WRITTEN: Final[Mapping[str, Callable[[Any], bytes]]] = {
    f"{_META}.Time": _time_bytes,
    f"{_META}.MicroTime": partial(_time_bytes, micro=True),
    f"{_META}.Duration": _duration_bytes,
    f"{_META}.FieldsV1": _json_bytes,
    f"{_META}.Verbs": _items_bytes,
    "k8s.io.apimachinery.pkg.api.resource.Quantity": lambda value: bytes_field(1, str(value or "0").encode()),
    "k8s.io.apimachinery.pkg.runtime.RawExtension": _json_bytes,
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": _int_or_string_bytes,
    "k8s.io.api.authentication.v1.AttestationValue": _items_bytes,
    "k8s.io.api.authentication.v1.ExtraValue": _items_bytes,
    "k8s.io.api.authorization.v1.ExtraValue": _items_bytes,
    "k8s.io.api.certificates.v1.ExtraValue": _items_bytes,
    f"{_CUSTOM}.JSON": _json_bytes,
}

# Unions: message → number of the schema's field, number of the alternative's field
CHOICES: Final[Mapping[str, tuple[int, int]]] = {
    f"{_CUSTOM}.JSONSchemaPropsOrBool": (2, 1),
    f"{_CUSTOM}.JSONSchemaPropsOrArray": (1, 2),
    f"{_CUSTOM}.JSONSchemaPropsOrStringArray": (1, 2),
}
SCHEMA: Final = f"{_CUSTOM}.JSONSchemaProps"


def as_base64(data: bytes) -> str:
    """Bytes as JSON encodes them: base64."""
    return base64.b64encode(data).decode()
