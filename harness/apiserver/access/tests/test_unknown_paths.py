"""Access is checked by the path alone: a user who may not use a path does not learn whether it exists."""

import orjson
import pytest

from seatrial.harness.apiserver.access.identity import ANONYMOUS
from seatrial.harness.apiserver.streams.responses import Streaming
from seatrial.harness.apiserver.tests.asking import Api
from seatrial.scheduler.api.transport import Request


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        pytest.param("GET", "/none", 'cannot get path "/none"', id="path"),
        pytest.param("POST", "/apis", 'cannot post path "/apis"', id="a-method-that-it-does-not-take"),
        pytest.param("GET", "/metrics/", 'cannot get path "/metrics/"', id="slash-at-the-end"),
        pytest.param("GET", "/apis/x.io/v1/things", 'cannot list resource "things" in API group "x.io"', id="group"),
        pytest.param("GET", "/api/v1/namespaces/a/none/b", 'cannot get resource "none"', id="resource"),
        pytest.param("GET", "/api/v1/pods/x/y/z", 'cannot get resource "pods/y"', id="subresource"),
        pytest.param("DELETE", "/api/v9/pods", 'cannot deletecollection resource "pods"', id="version"),
        pytest.param("GET", "/api/v1/pods?watch=1", 'cannot watch resource "pods"', id="watch"),
        pytest.param("GET", "/api/v1/watch/pods", 'cannot watch resource "pods"', id="old-form-of-a-watch"),
        pytest.param("PUT", "/api/v1/namespaces/a/status", 'cannot update resource "namespaces/status"', id="status"),
        pytest.param("GET", "/api/v1/pods?fieldSelector=%3D", 'cannot list resource "pods"', id="malformed-query"),
    ],
)
def test_anonymous_users_get_403(method: str, path: str, words: str) -> None:
    response = Api().server.handle(Request(method, path, b"", ""), ANONYMOUS)
    assert not isinstance(response, Streaming)
    assert response.code == 403
    assert words in orjson.loads(response.body)["message"]


@pytest.mark.parametrize("path", ["/healthz/", "/metrics/", "/openapi/v3/", "/healthz/none"])
def test_a_path_with_more_behind_it_is_another_one(path: str) -> None:
    assert Api().ask("GET", path)[0] == 404


@pytest.mark.parametrize("path", ["/api/", "/apis/apps/v1/", "/version/", "/api/v1/pods/"])
def test_discovery_and_resources_may_end_in_a_slash(path: str) -> None:
    assert Api().ask("GET", path)[0] == 200
