"""Content negotiation: which response format the Accept header of a request asks for."""

from dataclasses import dataclass

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.discovery.openapi_protobuf import MEDIA_TYPES
from seatrial.harness.apiserver.text_cache import cached

JSON, YAML = "application/json", "application/yaml"
DISCOVERY = "APIGroupDiscoveryList"
_META_KINDS = frozenset({"Table", "PartialObjectMetadata", "PartialObjectMetadataList"})
_META_GROUP = "meta.k8s.io"
_META_VERSIONS = ("v1", "v1beta1")
_KINDS = _META_KINDS | {"", DISCOVERY}
_SHAPES = {"PartialObjectMetadataList": "PartialObjectMetadata"}


@dataclass(frozen=True, slots=True)
class Format:
    """A response format.

    `shape` is empty for the object itself, otherwise Table, PartialObjectMetadata or APIGroupDiscoveryList. `version`
    is the version of that kind. `many`: PartialObjectMetadataList was asked for.
    """

    shape: str = ""
    version: str = ""
    yaml: bool = False
    many: bool = False

    @property
    def content_type(self) -> str:
        return YAML if self.yaml else JSON


PLAIN = Format()
OPENAPI_PROTOBUF = "openapi-v2"  # a shape that only /openapi/v2 has


@cached()
def negotiate(accept: str) -> Format:
    """The first supported format in the header. Responses in protocol buffers are not supported and are skipped.

    Raises:
        ApiStatusError: 406, no format in the header is supported.
    """
    if not accept.strip():
        return PLAIN
    for entry in accept.split(","):
        media, *parameters = (part.strip() for part in entry.split(";"))
        options = dict(part.split("=", 1) for part in parameters if "=" in part)
        shape = options.get("as", "")
        if media in MEDIA_TYPES:
            return Format(OPENAPI_PROTOBUF)
        if shape not in _KINDS or (shape == DISCOVERY and options.get("v", "v2") != "v2"):
            continue  # clients before Kubernetes 1.30 ask for discovery v2beta1 first; they read plain lists as well
        group, version = options.get("g", ""), options.get("v", "")
        if shape in _META_KINDS and (group != _META_GROUP or version not in _META_VERSIONS):
            continue
        if not shape and (group or version):
            continue
        if media in {JSON, "*/*", "application/*", "text/*", "text/plain"}:
            return Format(_SHAPES.get(shape, shape), version, many=shape == "PartialObjectMetadataList")
        if media == YAML and not shape:
            return Format(yaml=True)
    raise errors.not_acceptable()
