"""Base of all wire types: camelCase on the wire, frozen structs in Python, unknown fields ignored.

msgspec decodes only the declared fields, so a client that needs five fields of a pod pays for five. A writer patches
the fields that it changes; no object is decoded and written back through these types.
"""

from typing import Any

import msgspec
from msgspec import field

from seatrial.scheduler.api.quantity import Quantity

ResourceList = dict[str, Quantity]


class Wire(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Base of every API type."""


class OwnerReference(Wire, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`namespace/name`, or the bare name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Condition(Wire, frozen=True):
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
    match_labels: dict[str, str] = {}
    match_expressions: tuple[Requirement, ...] = ()


class StatusCause(Wire, frozen=True):
    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(Wire, frozen=True):
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


def to_json(value: Any) -> bytes:
    """Encode wire types, dataclasses and plain containers."""
    return _encoder.encode(value)


def to_plain(value: Any) -> Any:
    """Wire types as plain dicts and lists."""
    return msgspec.to_builtins(value)


_encoder = msgspec.json.Encoder()
