"""Content negotiation: which response format the Accept header of a request asks for.

Source: k8s.io/apiserver/pkg/endpoints/handlers/negotiation/negotiate.go, and AllowsMediaTypeTransform of ../rest.go.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.discovery.openapi_protobuf import MEDIA_TYPES
from seatrial.harness.apiserver.protobuf.decoding import CONTENT_TYPE as PROTOBUF
from seatrial.harness.apiserver.protobuf.encoding import encode
from seatrial.harness.apiserver.text_cache import cached

JSON, YAML = "application/json", "application/yaml"
DISCOVERY = "APIGroupDiscoveryList"
_META_KINDS = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})
_META_GROUP = "meta.k8s.io"
_META_VERSIONS = ("v1", "v1beta1")
_KINDS = _META_KINDS | {"", DISCOVERY}
_OF_RESOURCES = ("", "Table", "PartialObjectMetadata")
_MEDIA = {  # in the order in which a wildcard finds them; clients and probes that want text get JSON
    JSON: {JSON, "*/*", "application/*", "text/*", "text/plain"},
    YAML: {YAML},
    PROTOBUF: {PROTOBUF},
}
HEADERS = {media: {"content-type": media} for media in _MEDIA}
_SHAPES = {"PartialObjectMetadataList": "PartialObjectMetadata"}


@dataclass(frozen=True, slots=True)
class Format:
    """A response format.

    `shape` is empty for the object itself, otherwise Table, PartialObjectMetadata or APIGroupDiscoveryList. `version`
    is the version of that kind. `many`: PartialObjectMetadataList was asked for.
    """

    shape: str = ""
    version: str = ""
    media: str = JSON
    many: bool = False

    @property
    def yaml(self) -> bool:
        return self.media == YAML

    @property
    def protobuf(self) -> bool:
        return self.media == PROTOBUF


PLAIN = Format()
ONLY_PLAIN: tuple[Format, ...] = (PLAIN,)
OPENAPI_PROTOBUF = "openapi-v2"  # a shape that only /openapi/v2 has


@cached()
def negotiate(accept: str) -> tuple[Format, ...]:
    """The supported formats in the header, best first: by `q`, then types without a wildcard, then as written.

    Raises:
        ApiStatusError: 406, no format in the header is supported.
    """
    if not accept.strip():
        return ONLY_PLAIN
    clauses = [_clause(entry) for entry in accept.split(",")]
    clauses.sort(key=lambda clause: (-clause[1], clause[0].startswith("*"), clause[0].endswith("*")))
    shapes = tuple(shape for media, _, options in clauses for shape in _formats(media, options))
    if not shapes:
        raise errors.not_acceptable()
    return ONLY_PLAIN if shapes == ONLY_PLAIN else shapes


def _clause(entry: str) -> tuple[str, float, Mapping[str, str]]:
    """Media type, `q` from 0 to 1 and other parameters; a `q` that is no number counts as 0."""
    media, *parameters = (part.strip() for part in entry.split(";"))
    options = dict(part.split("=", 1) for part in parameters if "=" in part)
    try:
        amount = float(options.pop("q", "1"))
    except ValueError:
        amount = 0.0
    return media, amount if 0 <= amount <= 1 else 0.0, options


def _formats(media: str, options: Mapping[str, str]) -> list[Format]:
    shape, group, version = options.get("as", ""), options.get("g", ""), options.get("v", "")
    if media in MEDIA_TYPES:
        return [Format(OPENAPI_PROTOBUF)]
    if shape not in _KINDS or (shape == DISCOVERY and options.get("v", "v2") != "v2"):
        return []  # clients before Kubernetes 1.30 ask for discovery v2beta1 first; they read plain lists as well
    if shape in _META_KINDS and (group != _META_GROUP or version not in _META_VERSIONS):
        return []
    if (not shape and (group or version)) or options.get("stream", "watch") != "watch":
        return []
    targets = (own for own, names in _MEDIA.items() if media in names)
    return [
        Format(_SHAPES.get(shape, shape), version, own, shape == "PartialObjectMetadataList")
        for own in targets
        if own == JSON or (own == YAML and not shape) or (own == PROTOBUF and shape != "Table")
    ]


def for_resource(formats: Sequence[Format], *, custom: bool) -> Format:
    """The best format that a resource has; custom resources have no protocol buffers, only their metadata has.

    Raises:
        ApiStatusError: 406, there is none.
    """
    for shape in formats:
        if shape.shape in _OF_RESOURCES and not (custom and shape.protobuf and not shape.shape):
            return shape
    raise errors.not_acceptable()


def first_of(formats: Sequence[Format], shapes: Collection[str]) -> Format | None:
    """The best format with one of these shapes."""
    return next((shape for shape in formats if shape.shape in shapes), None)


def encoded(obj: Mapping[str, Any], formats: Sequence[Format]) -> tuple[bytes, dict[str, str]]:
    """An object that is not stored, such as a Status, with the header of its type: protocol buffers if preferred."""
    shape = first_of(formats, ("",))
    if shape is not None and shape.protobuf:
        return encode(obj), HEADERS[PROTOBUF]
    return orjson.dumps(obj), HEADERS[JSON]
