"""Responses in protocol buffers: who gets them, and that they say what JSON says."""

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from seatrial.harness.apiserver.protobuf.decoding import CONTENT_TYPE, META_PACKAGE, _message, decode, message_of
from seatrial.harness.apiserver.protobuf.encoding import message
from seatrial.harness.apiserver.schemas.shipped import shipped
from seatrial.harness.apiserver.storage import store
from seatrial.harness.apiserver.streams.responses import Streaming
from seatrial.harness.apiserver.tests.asking import CONFIGS, Api, config
from seatrial.scheduler.api.protobuf_wire import fields
from seatrial.scheduler.api.transport import JSON, MERGE_PATCH, Request, Response

KOORDINATOR = "scheduling.koordinator.sh/v1alpha1"
DEVICES = f"/apis/{KOORDINATOR}/devices"
METADATA = "as=PartialObjectMetadata;g=meta.k8s.io;v=v1"


@pytest.fixture
def api() -> Api:
    """A server without controllers, with one custom resource."""
    api = Api(bare=True)
    (definition,) = (each for each in shipped() if each["metadata"]["name"].startswith("devices."))
    api.do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    return api


def members(data: bytes) -> dict[int, Any]:
    return {number: value for number, _, value in fields(data)}


def respond(
    api: Api, method: str, path: str, body: bytes = b"", *, accept: str = CONTENT_TYPE, kind: str = JSON
) -> Response:
    response = api.server.handle(Request(method, path, body, kind, {"accept": accept}))
    assert isinstance(response, Response)
    api.clock.settle()
    return response


def read(response: Response) -> dict[str, Any]:
    """The object in a response, which may be a list."""
    assert response.headers["content-type"] == CONTENT_TYPE
    envelope = members(response.body[4:])
    kind = members(envelope[1])[2].decode()
    if not kind.endswith("List"):
        return decode(response.body)
    version = members(envelope[1])[1].decode()
    items = [value for number, _, value in fields(envelope[2]) if number == 2]
    of = message_of(version, kind.removesuffix("List"))
    return {
        "kind": kind,
        "apiVersion": version,
        "metadata": _message(members(envelope[2])[1], f"{META_PACKAGE}.ListMeta", 0),
        "items": [_message(item, of, 0) for item in items if isinstance(item, bytes)],
    }


class Frames:
    """A reader of a watch in protocol buffers."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> bool:
        self._data += data
        return True

    def end(self) -> None: ...

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any]]]:
        at = 0
        while at < len(self._data):
            (size,) = struct.unpack_from(">I", self._data, at)
            event = members(self._data[at + 4 : at + 4 + size])
            yield event[1].decode(), decode(members(event[2])[1])
            at += 4 + size


def watch(api: Api, path: str, accept: str = CONTENT_TYPE) -> tuple[str, Frames]:
    response = api.server.handle(Request("GET", path, headers={"accept": accept}))
    assert isinstance(response, Streaming)
    frames = Frames()
    response.start(frames)
    api.clock.settle()
    return response.content_type, frames


def test_every_verb_answers_what_it_answers_in_json(api: Api) -> None:
    created = read(respond(api, "POST", f"{CONFIGS}?fieldManager=m", b'{"metadata":{"name":"a"},"data":{"k":"v"}}'))
    assert created == api.do("GET", f"{CONFIGS}/a")
    assert created["metadata"]["managedFields"]
    response = respond(api, "PATCH", f"{CONFIGS}/a?fieldManager=m", b'{"data":{"k":"w"}}', kind=MERGE_PATCH)
    assert read(response) == api.do("GET", f"{CONFIGS}/a")
    replaced = read(respond(api, "PUT", f"{CONFIGS}/a", b'{"metadata":{"name":"a"},"data":{"l":"x"}}'))
    assert replaced["data"] == {"l": "x"}
    assert read(respond(api, "GET", f"{CONFIGS}/a")) == api.do("GET", f"{CONFIGS}/a")
    listed = api.do("GET", CONFIGS)
    seen = [{key: row[key] for key in row if key not in {"kind", "apiVersion"}} for row in listed["items"]]
    assert read(respond(api, "GET", CONFIGS)) == {**listed, "items": seen}
    gone = read(respond(api, "DELETE", f"{CONFIGS}/a"))
    assert (gone["kind"], gone["status"], gone["details"]["name"]) == ("Status", "Success", "a")


def test_refusals_and_scales_and_bindings(api: Api) -> None:
    missing = respond(api, "GET", f"{CONFIGS}/none")
    assert (missing.code, read(missing)["reason"]) == (404, "NotFound")
    path = "/apis/apps/v1/namespaces/default/deployments"
    labels = {"a": "b"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    api.do("POST", path, {"metadata": {"name": "d"}, "spec": spec})
    scale = read(respond(api, "GET", f"{path}/d/scale"))
    assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 2})
    api.do("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": "p"}, "spec": template["spec"]})
    body = b'{"metadata":{"name":"p"},"target":{"name":"n"}}'
    assert read(respond(api, "POST", "/api/v1/namespaces/default/pods/p/binding", body))["status"] == "Success"
    review = b'{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}}'
    results = read(respond(api, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review))
    assert results["status"]["allowed"] is True


def test_a_watch_sends_frames(api: Api) -> None:
    """Objects, a change, a removal and the bookmark after the initial ones."""
    api.do("POST", CONFIGS, config("a"))
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1"
    kind, frames = watch(api, f"{CONFIGS}?{query}")
    api.do("PATCH", f"{CONFIGS}/a", {"data": {"k": "w"}}, MERGE_PATCH)
    api.do("DELETE", f"{CONFIGS}/a")
    assert kind == f"{CONTENT_TYPE};stream=watch"
    assert [(event, obj["kind"]) for event, obj in frames] == [
        (event, "ConfigMap") for event in ("ADDED", "BOOKMARK", "MODIFIED", "DELETED")
    ]
    (_, _), (_, bookmark), (_, changed), (_, _) = frames
    assert bookmark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert changed["data"] == {"k": "w"}


def test_metadata_alone(api: Api) -> None:
    """PartialObjectMetadata of one object, of a list and of a watch; custom resources have it too."""
    api.do("POST", CONFIGS, config("a"))
    api.do("POST", DEVICES, {"apiVersion": KOORDINATOR, "kind": "Device", "metadata": {"name": "n"}})
    accept = f"{CONTENT_TYPE};{METADATA}"
    for path in (f"{CONFIGS}/a", f"{DEVICES}/n"):
        results = read(respond(api, "GET", path, accept=accept))
        assert (results["kind"], set(results)) == ("PartialObjectMetadata", {"kind", "apiVersion", "metadata"})
    listed = read(respond(api, "GET", CONFIGS, accept=accept.replace("Metadata;", "MetadataList;")))
    assert (listed["kind"], [row["metadata"]["name"] for row in listed["items"]]) == (
        "PartialObjectMetadataList",
        ["a"],
    )
    _, frames = watch(api, f"{DEVICES}?watch=1", accept)
    assert [(event, obj["metadata"]["name"]) for event, obj in frames] == [("ADDED", "n")]


def test_an_event_is_encoded_once_for_all_watches(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two watches with different selectors see the same change of one object."""
    encoded: list[str] = []

    def count(obj: Any, name: str) -> bytes:
        encoded.append(name)
        return message(obj, name)

    monkeypatch.setattr(store, "encode_message", count)
    since = f"{CONFIGS}?watch=1&resourceVersion={api.version}"
    both = [watch(api, path)[1] for path in (since, f"{since}&fieldSelector=metadata.name%3Da")]
    api.do("POST", CONFIGS, config("a"))
    api.clock.settle()
    assert [len(list(frames)) for frames in both] == [1, 1]
    assert encoded == ["k8s.io.api.core.v1.ConfigMap"]


@pytest.mark.parametrize(
    ("path", "accept", "expected"),
    [
        pytest.param(CONFIGS, f"{CONTENT_TYPE},application/json", CONTENT_TYPE, id="the-first"),
        pytest.param(CONFIGS, f"{CONTENT_TYPE};q=0.5,application/json", "application/json", id="the-preferred"),
        pytest.param(CONFIGS, f"*/*,{CONTENT_TYPE}", CONTENT_TYPE, id="a-wildcard-is-last"),
        pytest.param(CONFIGS, "application/*", "application/json", id="json-for-a-wildcard"),
        pytest.param(CONFIGS, f"{CONTENT_TYPE};stream=watch", CONTENT_TYPE, id="the-form-for-watches"),
        pytest.param(CONFIGS, f"{CONTENT_TYPE};stream=x,application/yaml", "application/yaml", id="an-unknown-stream"),
        pytest.param(CONFIGS, f"text/xml,{CONTENT_TYPE};q=x", CONTENT_TYPE, id="a-preference-that-is-no-number"),
        pytest.param(
            CONFIGS,
            f"{CONTENT_TYPE};as=Table;g=meta.k8s.io;v=v1,application/json;as=Table;g=meta.k8s.io;v=v1",
            "application/json",
            id="tables-are-json",
        ),
        pytest.param(DEVICES, f"{CONTENT_TYPE},application/json", "application/json", id="custom-resources-are-json"),
        pytest.param("/api", CONTENT_TYPE, CONTENT_TYPE, id="versions"),
        pytest.param("/apis", CONTENT_TYPE, CONTENT_TYPE, id="groups"),
        pytest.param("/api/v1", CONTENT_TYPE, CONTENT_TYPE, id="resources"),
        pytest.param("/version", CONTENT_TYPE, "application/json", id="the-version-is-json"),
        pytest.param("/openapi/v3", CONTENT_TYPE, "application/json", id="openapi-is-json"),
        pytest.param(
            "/apis",
            f"{CONTENT_TYPE};as=APIGroupDiscoveryList;g=apidiscovery.k8s.io;v=v2",
            f"{CONTENT_TYPE};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            id="aggregated-discovery",
        ),
    ],
)
def test_the_media_type_of_a_response(api: Api, path: str, accept: str, expected: str) -> None:
    response = respond(api, "GET", path, accept=accept)
    assert (response.code, response.headers["content-type"]) == (200, expected)


_ALL = "application/json, application/yaml, application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize(
    ("path", "accept", "types", "kind"),
    [
        pytest.param(DEVICES, CONTENT_TYPE, _ALL, CONTENT_TYPE, id="custom-resources"),
        pytest.param(CONFIGS, "text/xml", _ALL, "application/json", id="no-type"),
        pytest.param(CONFIGS, f"{CONTENT_TYPE};as=Table;g=meta.k8s.io;v=v1", _ALL, "application/json", id="table"),
        pytest.param(
            f"{CONFIGS}?watch=1",
            "application/yaml",
            "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch",
            "application/json",
            id="a-watch-in-yaml",
        ),
    ],
)
def test_406(api: Api, path: str, accept: str, types: str, kind: str) -> None:
    """The Status itself is in the type that the client wants, where the server has that type."""
    response = respond(api, "GET", path, accept=accept)
    assert (response.code, response.headers["content-type"]) == (406, kind)
    assert f"only the following media types are accepted: {types}".encode() in response.body
