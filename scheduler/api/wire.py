"""Base of all wire types: camelCase on the wire, frozen structs in Python, unknown fields ignored.

msgspec decodes only the declared fields, so a client that needs five fields of a pod pays for five. A writer patches
the fields that it changes; no object is decoded and written back through these types.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import field

from seatrial.scheduler.api.quantity import Quantity

ResourceList = dict[str, Quantity]
T = TypeVar("T")

MAX_DEPTH = 100  # levels of a document that the decoder cannot follow; Kubernetes' types have about 20
_NESTING = re.compile(rb""""[^"\\]*+(?:\\.[^"\\]*+)*+"|(?P<opening>[\[{]++)|(?P<closing>[\]}]++)""", re.DOTALL)


class Wire(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", gc=False):
    """Base of every API type. Not tracked by the garbage collector: there are many, in no reference cycle."""


class OwnerReference(Wire, frozen=True):
    """An owner of an object, as in Kubernetes' API."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Wire, frozen=True):
    """An object's metadata; fields that seatrial does not read are left out."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`, or the bare name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Condition(Wire, frozen=True):
    """A condition of a status, as in Kubernetes' API."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Requirement(Wire, frozen=True):
    """One expression of a label or node selector."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Wire, frozen=True):
    """A label selector; labels and expressions must all match."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class StatusCause(Wire, frozen=True):
    """One reason of a refusal, about one field of the object."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Wire, frozen=True):
    """The object that was refused, and the causes."""

    name: str = ""
    group: str = ""
    kind: str = ""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: int = 0


class ApiStatus(Wire, frozen=True):
    """The `Status` object of an API server's refusal."""

    status: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails = StatusDetails()


class ListMeta(Wire, frozen=True):
    """Metadata of a list: its resource version, and the token of the next page."""

    resource_version: str = ""
    continue_: str = field(default="", name="continue")


class RawList(Wire, frozen=True):
    """A list whose items are decoded when they are used."""

    metadata: ListMeta = ListMeta()
    items: tuple[msgspec.Raw, ...] | None = ()


class WatchEvent(Wire, frozen=True):
    """One line of a watch stream."""

    type: str
    object: msgspec.Raw


Encoded = bytes | str | msgspec.Raw


def decoder(kind: type[T]) -> Callable[[Encoded], T]:
    """A decoder of one type for what Go programs write.

    Go writes null for an empty list, map or pointer where a field has no `omitempty`, as in a CSINode without drivers.
    Objects that decode at once cost nothing more; only after an error are nulls removed and the rest decoded again.
    What is nested too deeply for the decoder is left out: an API server accepts it in fields of free form.

    Raises:
        msgspec.MsgspecError: by the decoder: the data is no JSON, or a field has a wrong type.
    """
    decode = msgspec.json.Decoder(kind).decode

    def tolerant(data: Encoded) -> T:
        try:
            return decode(data)
        except (msgspec.ValidationError, RecursionError):
            return decode(without_nulls(data))

    return tolerant


def decode_as(data: Encoded, kind: type[T]) -> T:
    """Decode once as `decoder` does, for text in annotations.

    Raises:
        msgspec.MsgspecError: the data is no JSON, or a field has a wrong type.
    """
    try:
        try:
            return msgspec.json.decode(data, type=kind)
        except msgspec.ValidationError:
            return msgspec.json.decode(_encoder.encode(_pruned(_decode_any(data))), type=kind)
    except RecursionError:
        raise msgspec.DecodeError("JSON is nested too deeply") from None


def from_plain(value: Any, kind: type[T]) -> T:
    """The value of a type from decoded JSON, with nulls removed.

    Raises:
        msgspec.ValidationError: a field has a wrong type.
    """
    try:
        return msgspec.convert(_pruned(value), kind)
    except RecursionError:
        raise msgspec.ValidationError("the value is nested too deeply") from None


def without_null_fields(value: Any) -> Any:
    """Plain data without the fields whose value is null, as Go reads what people write: such a field is not set.

    A null in a list stays, unlike in `without_nulls`: there it is no empty field but a wrong item, and is refused.
    """
    if isinstance(value, dict):
        return {key: without_null_fields(item) for key, item in value.items() if item is not None}
    return [without_null_fields(item) for item in value] if isinstance(value, list) else value


def without_nulls(data: Encoded) -> bytes:
    """The JSON document without the fields and list items that are null, for objects that an API server has stored.
    What is nested deeper than MAX_DEPTH counts as null, if the whole is too deep for the decoder.

    List items too, unlike in `without_null_fields`: the API server has accepted the object, so it has to be read.

    Raises:
        msgspec.DecodeError: it is no JSON.
    """
    try:
        return _encoder.encode(_pruned(_decode_any(data)))
    except RecursionError:
        return _encoder.encode(_pruned(_decode_any(_cut(data.encode() if isinstance(data, str) else bytes(data)))))


def _cut(data: bytes) -> bytes:
    """The document with null in place of each value that is nested deeper than MAX_DEPTH."""
    kept, depth, start = bytearray(), 0, 0
    for match in _NESTING.finditer(data):
        count = match.end() - match.start()
        if match.lastgroup == "opening":
            if depth <= MAX_DEPTH < depth + count:
                kept += data[start : match.start() + MAX_DEPTH - depth] + b"null"
            depth += count
        elif match.lastgroup == "closing":
            if depth - count <= MAX_DEPTH < depth:
                start = match.start() + depth - MAX_DEPTH
            depth -= count
    return bytes(kept + data[start:]) if depth <= MAX_DEPTH else b""


def _pruned(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _pruned(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_pruned(item) for item in value if item is not None]
    return value


def to_json(value: Any) -> bytes:
    """Encode wire types, dataclasses and plain containers."""
    return _encoder.encode(value)


def to_plain(value: Any) -> Any:
    """Wire types as plain dicts and lists."""
    return msgspec.to_builtins(value)


_encoder = msgspec.json.Encoder()
_decode_any = msgspec.json.Decoder().decode
