"""What shape of answer a client asks for in its Accept header."""

from dataclasses import dataclass
from functools import lru_cache

from harness.apiserver import errors

JSON, YAML = "application/json", "application/yaml"
_KINDS = frozenset({"", "Table", "PartialObjectMetadata", "PartialObjectMetadataList", "APIGroupDiscoveryList"})


@dataclass(frozen=True, slots=True)
class Format:
    """`shape` is empty for the object itself, else Table, PartialObjectMetadata or APIGroupDiscoveryList."""

    shape: str = ""
    version: str = ""
    yaml: bool = False

    @property
    def content_type(self) -> str:
        return YAML if self.yaml else JSON


PLAIN = Format()


@lru_cache(maxsize=512)
def negotiate(accept: str) -> Format:
    """The first of the client's wishes that can be met; protobuf is passed over.

    Raises:
        ApiStatusError: 406, none can.
    """
    if not accept.strip():
        return PLAIN
    for wish in accept.split(","):
        media, *parameters = (part.strip() for part in wish.split(";"))
        asked = dict(part.split("=", 1) for part in parameters if "=" in part)
        shape = asked.get("as", "")
        if shape not in _KINDS:
            continue
        if media in {JSON, "*/*", "application/*", "text/*", "text/plain"}:
            return Format(shape.removesuffix("List") if shape.startswith("Partial") else shape, asked.get("v", ""))
        if media == YAML and not shape:
            return Format(yaml=True)
    raise errors.not_acceptable()
