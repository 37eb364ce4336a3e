"""Bodies in protocol buffers decode to the same objects as JSON."""

import re
import struct
from typing import Any

import orjson
import pytest

from seatrial.harness.apiserver.protobuf.decoding import _plan, decode, message_of, table
from seatrial.harness.apiserver.protobuf.special import CHOICES, SPECIAL
from seatrial.harness.apiserver.schemas.schema_nodes import _newest_release
from seatrial.scheduler.api.protobuf_wire import Malformed

Value = int | float | str | bytes


def message(*members: tuple[int, Value]) -> bytes:
    """A message of these fields, as Go writes it."""
    out = b""
    for number, value in members:
        if isinstance(value, float):
            out += number_of(number << 3 | 1) + struct.pack("<d", value)
        elif isinstance(value, int):
            out += number_of(number << 3) + number_of(value & (1 << 64) - 1)
        else:
            data = value.encode() if isinstance(value, str) else value
            out += number_of(number << 3 | 2) + number_of(len(data)) + data
    return out


def number_of(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    return b"k8s\x00" + message((1, message((1, api_version), (2, kind))), (2, raw), (3, ""), (4, ""))


def meta(name: str) -> bytes:
    """Metadata with all the empty strings that Go writes."""
    return message((1, name), (2, ""), (3, ""), (4, ""), (5, ""), (6, ""), (7, 0), (8, message()))


def quantity(text: str) -> bytes:
    return message((1, text))


def schema(of_type: str) -> bytes:
    return message((5, of_type))


def definition(root: bytes) -> bytes:
    """A CustomResourceDefinition with this schema."""
    return message((2, message((7, message((1, "v1"), (2, 1), (3, 0), (4, message((1, root))))))))


_SCHEMA = definition(
    message(
        (5, "object"),
        (8, message((1, b'{"a":[1]}'))),
        (9, 1.5),
        (20, message((1, b'"x"'))),
        (20, message((1, b"2"))),
        (24, message((1, schema("integer")))),
        (29, message((1, "p"), (2, schema("string")))),
        (30, message((1, 0))),
        (32, message((1, "b"), (2, message((2, "c"), (2, "d"))))),
        (33, message((1, 1), (2, schema("string")))),
    )
)


@pytest.mark.parametrize(
    ("api_version", "kind", "raw", "expected"),
    [
        pytest.param(
            "v1",
            "Namespace",
            message((1, meta("a"))),
            {"metadata": {"name": "a"}},
            id="zero-values-that-json-omits-are-left-out",
        ),
        pytest.param(
            "apps/v1",
            "Deployment",
            message((1, meta("a")), (2, message((1, 0), (5, 0), (7, 0)))),
            {"metadata": {"name": "a"}, "spec": {"replicas": 0}},
            id="a-zero-behind-a-pointer-stays-and-another-goes",
        ),
        pytest.param(
            "v1",
            "Pod",
            message((2, message((2, message((1, ""), (2, "nginx")))))),
            {"spec": {"containers": [{"name": "", "image": "nginx"}]}},
            id="an-empty-string-that-json-must-have-stays",
        ),
        pytest.param(
            "v1",
            "Pod",
            message((2, message((1, message((1, "v"), (2, message((2, message((1, "")))))))))),
            {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
            id="an-inlined-struct-and-an-empty-object-behind-a-pointer",
        ),
        pytest.param(
            "v1",
            "ConfigMap",
            message((2, message((1, "k"), (2, "w"))), (2, message((1, "empty")))),
            {"data": {"k": "w", "empty": ""}},
            id="a-map-of-strings",
        ),
        pytest.param(
            "v1",
            "Secret",
            message((2, message((1, "k"), (2, b"\xff\x00")))),
            {"data": {"k": "/wA="}},
            id="bytes-become-base64",
        ),
        pytest.param(
            "v1",
            "Node",
            message((3, message((1, message((1, "cpu"), (2, quantity("64"))))))),
            {"status": {"capacity": {"cpu": "64"}}},
            id="a-map-of-quantities",
        ),
        pytest.param(
            "policy/v1",
            "PodDisruptionBudget",
            message((2, message((1, message((1, 1), (2, 0), (3, "50%"))), (3, message((1, 0), (2, 3), (3, "")))))),
            {"spec": {"minAvailable": "50%", "maxUnavailable": 3}},
            id="numbers-that-may-be-words",
        ),
        pytest.param(
            "coordination.k8s.io/v1",
            "Lease",
            message((2, message((1, "me"), (2, 15), (4, message((1, 1_700_000_000), (2, 123_456_000)))))),
            {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2023-11-14T22:13:20.123456Z"}},
            id="a-time-with-microseconds",
        ),
        pytest.param(
            "v1",
            "Event",
            message((1, meta("e")), (3, "Scheduled"), (6, message((1, 1_700_000_000), (2, 0))), (7, message()), (8, 1)),
            {"metadata": {"name": "e"}, "reason": "Scheduled", "firstTimestamp": "2023-11-14T22:13:20Z", "count": 1},
            id="a-time-and-a-zero-time",
        ),
        pytest.param(
            "v1",
            "DeleteOptions",
            message((1, 0), (2, message((1, "u"))), (4, "Background")),
            {"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}, "propagationPolicy": "Background"},
            id="options-belong-to-every-group",
        ),
        pytest.param(
            "v1",
            "Pod",
            message((2, message((25, -5 & (1 << 64) - 1)))),
            {"spec": {"priority": -5}},
            id="a-negative-number",
        ),
        pytest.param(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            _SCHEMA,
            {
                "spec": {
                    "versions": [
                        {
                            "name": "v1",
                            "served": True,
                            "storage": False,
                            "schema": {
                                "openAPIV3Schema": {
                                    "type": "object",
                                    "maximum": 1.5,
                                    "default": {"a": [1]},
                                    "enum": ["x", 2],
                                    "additionalProperties": False,
                                    "additionalItems": {"type": "string"},
                                    "items": {"type": "integer"},
                                    "dependencies": {"b": ["c", "d"]},
                                    "properties": {"p": {"type": "string"}},
                                }
                            },
                        }
                    ]
                }
            },
            id="a-schema-with-all-its-choices",
        ),
        pytest.param(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            definition(message((5, "object"), (44, message((1, "self.a > 0"))))),
            {
                "spec": {
                    "versions": [
                        {
                            "name": "v1",
                            "served": True,
                            "storage": False,
                            "schema": {
                                "openAPIV3Schema": {
                                    "type": "object",
                                    "x-kubernetes-validations": [{"rule": "self.a > 0"}],
                                }
                            },
                        }
                    ]
                }
            },
            id="a-name-that-is-spelt-differently-in-json",
        ),
        pytest.param(
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            message((1, meta("a")), (2, message((1, "w")))),
            {"metadata": {"name": "a"}, "webhooks": [{"name": "w"}]},
            id="a-name-with-a-capital-on-the-wire",
        ),
        pytest.param(
            "policy/v1beta1",
            "Eviction",
            message((1, meta("a")), (2, message((1, 5)))),
            {"metadata": {"name": "a"}, "deleteOptions": {"gracePeriodSeconds": 5}},
            id="the-older-version-that-evictions-may-have",
        ),
    ],
)
def test_decodes(api_version: str, kind: str, raw: bytes, expected: dict[str, Any]) -> None:
    assert decode(envelope(api_version, kind, raw)) == {"apiVersion": api_version, "kind": kind, **expected}


_POD = envelope("v1", "Pod", message((1, meta("a"))))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(b"{}", "expected the four bytes", id="json-in-protobuf's-place"),
        pytest.param(_POD[:-3], "expected", id="cut-off"),
        pytest.param(envelope("v1", "Dog", b""), 'no kind "Dog"', id="a-kind-that-is-not"),
        pytest.param(envelope("v1", "Pod", b"\x0b"), "wire type 3", id="a-group"),
        pytest.param(envelope("v1", "Pod", b"\xff" * 11), "within ten bytes", id="a-number-without-an-end"),
        pytest.param(
            envelope("v1", "Pod", message((1, 7))), "expected wire type 2, found 0", id="a-number-for-an-object"
        ),
    ],
)
def test_refuses(body: bytes, words: str) -> None:
    with pytest.raises(Malformed, match=words):
        decode(body)


def test_refuses_messages_nested_without_end() -> None:
    inner = schema("object")
    for _ in range(200):
        inner = message((28, inner))  # not within not within not
    with pytest.raises(Malformed, match="at most"):
        decode(envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", definition(inner)))


def test_every_message_that_a_field_names_is_in_the_table() -> None:
    messages = table()["messages"]
    assert len(messages) > 500
    known = set(SPECIAL) | set(CHOICES) | set(messages)
    missing = {
        (name, field.name)
        for name in messages
        for field in _plan(name).values()
        if not field.read and field.message not in known
    }
    assert not missing


def test_names_are_those_of_openapi() -> None:
    """Where OpenAPI has an object's fields, the table has no other names than those: not the wire's own."""
    messages = table()["messages"]
    minor = re.match(r"Kubernetes (v\d+\.\d+)\.", table()["source"])
    assert minor is not None
    (folder,) = _newest_release().parent.glob(f"{minor[1]}.*-local")
    definitions = orjson.loads((folder / "_definitions.json").read_bytes())["$defs"]

    def names(message: str) -> set[str]:
        lines: set[str] = set()
        for name, word in messages[message].values():
            lines |= names(word.partition(".")[2]) if "^" in word else {name}
        return lines

    compared = 0
    for message in messages:
        defined = definitions.get(message.removeprefix("k8s.").replace("io.", "io.k8s.", 1).replace("_", "-"))
        if defined is not None and "properties" in defined:
            compared += 1
            assert names(message) <= set(defined["properties"]) | {"apiVersion", "kind"}, message
    assert compared > 450


@pytest.mark.parametrize("kind", ["Pod", "Binding", "Event", "Node", "Namespace", "Secret", "Service"])
def test_core_kinds_have_a_message(kind: str) -> None:
    assert message_of("v1", kind) == f"k8s.io.api.core.v1.{kind}"


def test_a_number_in_place_of_a_time_is_malformed() -> None:
    """`metadata.creationTimestamp` of an Event whose seconds are bytes; `seatrial fuzz` found it."""
    body = b"k8s\x00\n\x0b\n\x02v1\x12\x05Event\x12\x042\x02\n\x00"
    with pytest.raises(Malformed, match="field 1: expected a number, found bytes"):
        decode(body)
