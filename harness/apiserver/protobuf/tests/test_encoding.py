"""Objects are encoded as client-go 1.35 encodes them, and decoding gives the same objects back."""

import base64
from random import Random
from typing import Any

import pytest

from seatrial.harness.apiserver.discovery.resources import BUILT_IN
from seatrial.harness.apiserver.protobuf.decoding import decode, message_of, table
from seatrial.harness.apiserver.protobuf.encoding import encode, frame
from seatrial.harness.apiserver.protobuf.special import CHOICES, SCHEMA
from seatrial.scheduler.api.protobuf_wire import Malformed

RECORDED = [  # objects, and what the serializer of apimachinery 0.35 makes of them
    pytest.param(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "d", "labels": {"b": "1", "a": "2"}, "creationTimestamp": "2024-01-02T03:04:05Z"},
            "spec": {
                "replicas": 0,
                "selector": {},
                "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
                "template": {"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}},
            },
        },
        "azhzAAoVCgdhcHBzL3YxEgpEZXBsb3ltZW50EsEBCikKAWQSABoAIgAqADIAOABCCAil+s2sBhAAWgYKAWESATJaBgoBYhIBMRKF"
        "AQgAEgAaYgoQCgASABoAIgAqADIAOABCABJOEjAKAWMSACoAQhcKFQoObnZpZGlhLmNvbS9ncHUSAwoBMWoAcgCAAQCIAQCQAQCi"
        "AQAaADIAQgBKAFIAWABgAGgAggEAigEAmgEAwgEAIhcKABITCgYIABABGgASCQgBEAAaAzI1JSgAOAAaDAgAEAAYACAAKAA4ABoA"
        "IgA=",
        id="zero-values-and-sorted-maps",
    ),
    pytest.param(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "l"},
            "spec": {"holderIdentity": "", "renewTime": "2024-01-02T03:04:05.000006Z"},
        },
        "azhzAAofChZjb29yZGluYXRpb24uazhzLmlvL3YxEgVMZWFzZRIiChEKAWwSABoAIgAqADIAOABCABINCgAiCQil+s2sBhDwLhoAIgA=",
        id="a-time-with-microseconds",
    ),
    pytest.param(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "/wA=", "e": ""}},
        "azhzAAoMCgJ2MRIGU2VjcmV0EiUKEQoBcxIAGgAiACoAMgA4AEIAEgUKAWUSABIHCgFrEgL/ABoAGgAiAA==",
        id="bytes",
    ),
    pytest.param(
        {
            "apiVersion": "v1",
            "kind": "Status",
            "metadata": {},
            "status": "Failure",
            "message": "m",
            "reason": "NotFound",
            "details": {"name": "p", "kind": "pods"},
            "code": 404,
        },
        "azhzAAoMCgJ2MRIGU3RhdHVzEjIKBgoAEgAaABIHRmFpbHVyZRoBbSIITm90Rm91bmQqDwoBcBIAGgRwb2RzKAAyADCUAxoAIgA=",
        id="a-status",
    ),
]
LIST = (
    "azhzAAoTCgJ2MRINQ29uZmlnTWFwTGlzdBI9CgkKABIBNxoAIAISEwoRCgFhEgAaACIAKgAyADgAQgASGwoRCgFiEgAaACIAKgAy"
    "ADgAQgASBgoBaxIBdhoAIgA="
)
FRAME = (
    "AAAAWAoFQURERUQSTwpNazhzAAofChZjb29yZGluYXRpb24uazhzLmlvL3YxEgVMZWFzZRIiChEKAWwSABoAIgAqADIAOABCABIN"
    "CgAiCQil+s2sBhDwLhoAIgA="
)


@pytest.mark.parametrize(("obj", "expected"), RECORDED)
def test_bytes_are_those_of_client_go(obj: dict[str, Any], expected: str) -> None:
    assert encode(obj) == base64.b64decode(expected)


def test_the_bytes_of_a_list() -> None:
    items = [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}, "data": {"k": "v"}}]
    metadata = {"resourceVersion": "7", "remainingItemCount": 2}
    encoding = encode({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": items})
    assert encoding == base64.b64decode(LIST)


def test_the_bytes_of_an_event() -> None:
    assert frame("ADDED", base64.b64decode(RECORDED[1].values[1])) == base64.b64decode(FRAME)  # type: ignore[arg-type]


def test_fields_that_upstream_does_not_know_are_left_out() -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}}
    assert encode({**obj, "colour": "red", "metadata": {"colour": "red"}}) == encode(obj)


def test_a_kind_without_a_message() -> None:
    with pytest.raises(Malformed, match='no kind "Dog"'):
        encode({"apiVersion": "v1", "kind": "Dog"})


_META = "k8s.io.apimachinery.pkg.apis.meta.v1."
_SAMPLES: dict[str, tuple[Any, ...]] = {
    "s": ("x", "ü€"),
    "b": ("/wA=",),
    "i": (1, -1, 2**31 - 1, 300),
    "t": (True,),
    "d": (0.5, -1e300),
    f".{_META}Time": ("2024-01-02T03:04:05Z", "1969-12-31T23:59:59Z"),
    f".{_META}MicroTime": ("2024-01-02T03:04:05.000006Z",),
    f".{_META}Duration": ("1m30s", "250ms"),
    f".{_META}FieldsV1": ({"f:a": {}},),
    f".{_META}Verbs": (["get", "list"],),
    ".k8s.io.apimachinery.pkg.api.resource.Quantity": ("100m", "1Gi"),
    ".k8s.io.apimachinery.pkg.runtime.RawExtension": ({"a": [1]},),
    ".k8s.io.apimachinery.pkg.util.intstr.IntOrString": (3, -3, "50%"),
    ".k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSON": (1, "a", [{}]),
    **{
        f".k8s.io.api.{name}": (["a", "b"],)
        for name in (
            "authentication.v1.AttestationValue",
            "authentication.v1.ExtraValue",
            "authorization.v1.ExtraValue",
            "certificates.v1.ExtraValue",
        )
    },
}


def _value(word: str, random: Random, depth: int) -> Any:
    if word in _SAMPLES:
        return random.choice(_SAMPLES[word])
    name = word[1:]
    if name not in CHOICES:
        return _object(name, random, depth)
    schemas = {"type": "string"}, {"type": "object", "required": ["a"]}
    other = {"OrBool": (True, False), "OrArray": ([*schemas],), "OrStringArray": (["a", "b"],)}
    return random.choice([*schemas, *other[name.removeprefix(SCHEMA)]])


def _object(name: str, random: Random, depth: int = 0) -> dict[str, Any]:
    """Some fields of a message, and values that JSON does not leave out."""
    by_field: dict[str, Any] = {}
    for field, word in table()["messages"][name].values():
        kind = word.lstrip("*%?^&")
        flags = word[: -len(kind)]
        of_struct = kind not in _SAMPLES and kind[1:] not in CHOICES
        if "^" in flags:
            by_field |= _object(kind[1:], random, depth)
        elif (
            flags == ""  # a Go object has a value here
            or (flags == "?" and of_struct)
            or (random.random() < 2 / (2 + 2 * depth) and (depth < 4 or not of_struct))
        ):
            value = _value(kind, random, depth + 1)
            if value != {}:
                by_field[field] = (
                    [value, value] if "*" in flags else {"k": value, "j": value} if "%" in flags else value
                )
    return by_field


@pytest.mark.parametrize("row", BUILT_IN, ids=lambda row: f"{row.api_version}/{row.kind}")
def test_decoding_gives_the_object_back(row: Any) -> None:
    """Objects with random fields of every kind that the server has of its own."""
    for seed in range(20):
        obj = {"apiVersion": row.api_version, "kind": row.kind}
        obj |= _object(message_of(row.api_version, row.kind), Random(seed))  # noqa: S311
        assert decode(encode(obj)) == obj
