"""The header cache: cached headers give the same request as httptools; unusual requests are left to httptools."""

from collections.abc import Iterator
from random import Random

import httptools
import pytest

from seatrial.harness.apiserver.tests.asking import PODS
from seatrial.harness.apiserver.tests.serving import Served, served
from seatrial.harness.apiserver.transport.header_cache import LIMIT, HeaderCache, ParsedRequest

HEAD = b"\r\nHost: here\r\nAuthorization: Bearer abc\r\nContent-Type: application/json"


class Reading:
    """What httptools makes of bytes."""

    def __init__(self, data: bytes) -> None:
        self.arrived: list[ParsedRequest] = []
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._url, self._body, self._headers = b"", b"", dict[str, str]()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode().lower(), value.decode()
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        method, close = self._parser.get_method().decode(), not self._parser.should_keep_alive()
        self.arrived.append(ParsedRequest(method, self._url.decode(), self._headers, self._body, close))


def post(body: bytes, path: bytes = b"/a", more: bytes = b"", length: bytes = b"") -> bytes:
    return b"POST %b HTTP/1.1%b%b\r\nContent-Length: %b\r\n\r\n%b" % (
        path,
        HEAD,
        more,
        length or b"%d" % len(body),
        body,
    )


def knowing(data: bytes) -> HeaderCache:
    familiar = HeaderCache()
    familiar.learn(data, Reading(data).arrived[0])
    return familiar


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(post(b"[2, 3]"), id="another-body"),
        pytest.param(post(b""), id="no-body"),
        pytest.param(post(b"[]", b"/b/c?d=%20e&f=[]"), id="another-path"),
        pytest.param(post(b"[]").replace(b"POST", b"PATCH"), id="another-method"),
        pytest.param(post(b"[]").replace(b"Content-L", b"content-l"), id="a-length-in-small-letters"),
        pytest.param(post(b"GET / HTTP/1.1\r\n\r\n"), id="a-body-that-looks-like-a-request"),
        pytest.param(b"POST /a HTTP/1.1\r\nContent-Length: 1" + HEAD + b"\r\n\r\nx", id="the-length-in-another-place"),
    ],
)
def test_cached_headers_give_the_same_request_as_httptools(data: bytes) -> None:
    results = knowing(post(b"[1]")).take(b"..." + data + b"GET", 3)
    assert results is not None
    arrived, end = results
    assert end == 3 + len(data)
    parsed_request = Reading(data).arrived[0]
    del parsed_request.headers["content-length"]
    assert arrived == parsed_request


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(post(b"[]", more=b"\r\nX-More: 1"), id="another-header"),
        pytest.param(post(b"[]", more=b"\r\nContent-Length: 2"), id="two-lengths"),
        pytest.param(post(b"[]", more=b"\r\ncontent-length: 7"), id="two-lengths-in-two-spellings"),
        pytest.param(post(b"[]", more=b"\r\nTransfer-Encoding: chunked"), id="chunks"),
        pytest.param(post(b"[]", length=b"+2"), id="a-length-with-a-sign"),
        pytest.param(post(b"[]", length=b"2 "), id="a-length-with-a-space"),
        pytest.param(post(b"[]", length=b"0x2"), id="a-length-in-hex"),
        pytest.param(post(b"[]", length=b"9999999"), id="a-length-of-ten-megabytes"),
        pytest.param(post(b"[]", length=b"3"), id="a-body-that-is-not-all-there"),
        pytest.param(post(b"[]", b"/a b"), id="a-space-in-the-path"),
        pytest.param(post(b"[]", b"/a\x01"), id="a-control-character-in-the-path"),
        pytest.param(post(b"[]", b"http://here/a"), id="a-whole-url"),
        pytest.param(post(b"[]").replace(b"HTTP/1.1", b"HTTP/1.0"), id="an-older-protocol"),
        pytest.param(post(b"[]").replace(b"POST", b"HEAD"), id="an-unusual-method"),
        pytest.param(b"\r\n" + post(b"[]"), id="an-empty-line-first"),
        pytest.param(post(b"[]").replace(b"\r\n", b"\n"), id="bare-line-feeds"),
        pytest.param(post(b"[]")[:60], id="half-of-the-headers"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_different_headers_are_left_to_httptools(data: bytes) -> None:
    assert knowing(post(b"[1]")).take(data, 0) is None


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(post(b"[]", more=b"\r\nConnection: close"), id="the-last-request"),
        pytest.param(post(b"[]", more=b"\r\nConnection: keep-alive"), id="a-word-about-the-connection"),
        pytest.param(post(b"[]", more=b"\r\nExpect: 100-continue"), id="an-answer-expected-before-the-body"),
        pytest.param(
            b"POST /a HTTP/1.1" + HEAD + b"\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n", id="chunks"
        ),
        pytest.param(b"POST /a HTTP/1.1" + HEAD + b"\r\nCONTENT-LENGTH: 2\r\n\r\n[]", id="a-length-in-capitals"),
        pytest.param(b"\r\n" + post(b"[]"), id="an-empty-line-first"),
        pytest.param(post(b"[]", more=b"\r\nX-Long: " + b"x" * 5000), id="very-long-headers"),
    ],
)
def test_unusual_headers_are_not_cached(data: bytes) -> None:
    assert knowing(data).take(data, 0) is None


def test_the_cache_is_bounded() -> None:
    familiar = HeaderCache()
    requests = [post(b"", more=b"\r\nX-Number: %03000d" % number) for number in range(LIMIT // 3000 + 1)]
    for data in requests:
        familiar.learn(data, Reading(data).arrived[0])
    assert familiar.take(requests[0], 0) is None
    assert familiar.take(requests[-1], 0) is not None


@pytest.fixture(scope="module")
def place() -> Iterator[Served]:
    with served() as api:
        yield api


def test_responses_do_not_depend_on_how_requests_are_split(place: Served) -> None:
    with place.connect() as wire:
        requests = [wire.request("GET", f"{PODS}/p-{number}") for number in range(40)]
        requests[7:7] = [wire.request("POST", PODS, b'{"metadata": 1}'), wire.request("POST", PODS, b"")]
        targets = [_asked_alone(place, data) for data in requests]
        data, random = b"".join(requests), Random(3)  # noqa: S311
        while data:
            size = random.randrange(1, 900)
            wire.send(data[:size])
            data = data[size:]
        assert [wire.answer() for _ in requests] == targets


def _asked_alone(place: Served, data: bytes) -> tuple[int, object]:
    with place.connect() as wire:
        wire.send(data)
        return wire.answer()
