"""Encodes the OpenAPI v2 document in protocol buffers, the only format in which kubectl asks for it.

kubectl reads it for objects that the v3 documents do not have, `kind: List` among them. The messages are those of
`gnostic-models/openapiv2/OpenAPIv2.proto`; paths are left out, as in the JSON document.
"""

from typing import Any

import orjson

from seatrial.scheduler.api.protobuf_wire import bytes_field, number_field

CONTENT_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
MEDIA_TYPES = (CONTENT_TYPE, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
_TEXTS = {"$ref": 1, "format": 2, "title": 3, "description": 4, "pattern": 13}
_NUMBERS = {"maxLength": 11, "minLength": 12, "maxItems": 14, "minItems": 15, "maxProperties": 17, "minProperties": 18}
Object = dict[str, Any]


def encoded(document: Object) -> bytes:
    """The document as the message `Document`."""
    info = document["info"]
    schemas = b"".join(_named(name, _schema(schema)) for name, schema in document["definitions"].items())
    return (
        _text(1, document["swagger"])
        + bytes_field(2, _text(1, info["title"]) + _text(2, info["version"]))
        + bytes_field(8, b"")
        + bytes_field(9, schemas)
    )


def _schema(schema: Object) -> bytes:
    parts = [_text(number, str(schema[name])) for name, number in _TEXTS.items() if schema.get(name)]
    parts += [number_field(number, int(schema[name])) for name, number in _NUMBERS.items() if schema.get(name)]
    parts += [_text(19, name) for name in schema.get("required") or ()]
    parts += [bytes_field(20, _text(2, orjson.dumps(choice).decode())) for choice in schema.get("enum") or ()]
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        parts.append(bytes_field(21, bytes_field(1, _schema(additional))))
    elif additional is True:
        parts.append(bytes_field(21, number_field(2, 1)))
    if schema.get("type"):
        parts.append(bytes_field(22, _text(1, str(schema["type"]))))
    if isinstance(schema.get("items"), dict):
        parts.append(bytes_field(23, bytes_field(1, _schema(schema["items"]))))
    parts += [bytes_field(24, _schema(part)) for part in schema.get("allOf") or ()]
    if schema.get("properties"):
        parts.append(
            bytes_field(25, b"".join(_named(name, _schema(sub)) for name, sub in schema["properties"].items()))
        )
    for name, value in schema.items():
        if name.startswith("x-"):  # JSON is YAML
            parts.append(bytes_field(31, _text(1, name) + bytes_field(2, _text(2, orjson.dumps(value).decode()))))
    return b"".join(parts)


def _named(name: str, schema: bytes) -> bytes:
    return bytes_field(1, _text(1, name) + bytes_field(2, schema))


def _text(number: int, text: str) -> bytes:
    return bytes_field(number, text.encode())
