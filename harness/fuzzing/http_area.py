"""Area of HTTP connections: bytes that are nearly requests, in pieces of any size.

Requests are read by httptools' parser or by the cache of header blocks (transport/header_cache.py). Which of them reads
one depends on how the bytes arrive, so the same bytes must have the same answers however they are cut.
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Final

from hypothesis import strategies as st

from seatrial.harness.apiserver.access.identity import ADMIN
from seatrial.harness.apiserver.transport.connection import Connection
from seatrial.harness.apiserver.transport.large_requests import LargeRequests
from seatrial.harness.fuzzing.api_areas import fresh_server
from seatrial.harness.fuzzing.running import Area, FaultError

_ROUNDS: Final = 40  # turns of the event loop after which the answers to a few small requests are written
_CONFIGS: Final = "/api/v1/namespaces/default/configmaps"
_METHODS: Final = ("GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "get", "G ET", "")
_TARGETS: Final = (
    "/version",
    "/version",
    "/api",
    f"{_CONFIGS}/x",
    _CONFIGS,
    f"{_CONFIGS}?watch=1&timeoutSeconds=1",
    "/",
    "*",
    "",
    "http://a/version",
    "/a b",
    "/%00",
    "/\x7f",
    "/é",
    "//",
    "/version?a=%zz",
    "/version#a",
)
_VERSIONS: Final = ("HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "http/1.1", "HTTP/1.1 ", "")
_BODIES: Final = (
    b"",
    b"{}",
    b'{"metadata":{"name":"x"}}',
    b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}',
    b"GET /version HTTP/1.1\r\nHost: a\r\n\r\n",
    b"0\r\n\r\n",
    b"\x00\xff",
)
_HEADERS: Final = (
    "Host: a",
    "Host: a",
    "Accept: application/json",
    "Content-Type: application/json",
    "User-Agent: fuzz",
    "Connection: close",
    "Connection: keep-alive",
    "Connection: upgrade",
    "Upgrade: websocket",
    "Upgrade: SPDY/3.1",
    "Expect: 100-continue",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding: xchunked",
    "Accept-Encoding: gzip",
    "Content-Length: 0",
    "Content-Length: -1",
    "Content-Length: +2",
    "Content-Length: 2, 2",
    "Content-Length: 0x2",
    "Content-Length: 2 ",
    "Content-Length: 99999999999999999999",
    "Content-Length:",
    "Content-Length: 1_0",
    "content-length: 2",
    "a",
    ":",
    ": a",
    " a: b",
    "a : b",
    "a: b\x00",
    "a: b\rc",
    "Impersonate-User: a",
    "Authorization: Bearer x",
    "a: é",
)
_CHUNK_SIZES: Final = ("2", "02", "2;a=b", "2 ", " 2", "0x2", "-2", "+2", "", "g", "ffffffffffffffffff", "2\n")
_STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3}) ")


class _Wire(asyncio.Transport):
    """Keeps what the connection writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.open = True
        self.connection: Connection | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data if self.open else b""

    def close(self) -> None:
        if self.open and self.connection is not None:
            self.open = False
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return not self.open

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """The bytes are few, so they are delivered all the same."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""


async def _answers(pieces: Sequence[bytes]) -> bytes:
    """What a fresh server answers to the pieces.

    Raises:
        Exception: a fault of the server, also one in a callback of the event loop.
    """
    faults: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: faults.append(context.get("exception") or FaultError(str(context))))
    _, server = fresh_server()
    wire = _Wire()
    connection = wire.connection = Connection(server, lambda *_: ADMIN, set(), LargeRequests(loop))
    connection.connection_made(wire)
    for piece in pieces:
        if wire.open:
            connection.data_received(piece)
            await asyncio.sleep(0)
    for _ in range(_ROUNDS):
        await asyncio.sleep(0)
    if wire.open:
        wire.open = False
        connection.connection_lost(None)
    if faults:
        raise faults[0]
    return wire.written


def _run(values: tuple[list[bytes], list[int]]) -> None:
    """The answers to requests that arrive one by one, all at once and cut anywhere are the same, and none is a 5xx.

    Raises:
        FaultError: they are not.
    """
    requests, cuts = values
    data = b"".join(requests)
    at = sorted({cut % (len(data) + 1) for cut in cuts})
    cut = [data[begin:end] for begin, end in zip([0, *at], [*at, len(data)], strict=True) if begin < end]
    results = [asyncio.run(_answers(pieces)) for pieces in ([data], requests, cut)]
    codes = [_STATUS.findall(each) for each in results]
    if any(code >= b"500" for code in codes[0]):
        raise FaultError(f"{data!r}: {results[0]!r}")
    for each, pieces in zip(results[1:], (requests, cut), strict=True):
        if each != results[0]:
            raise FaultError(f"all at once: {results[0]!r}; in pieces {pieces!r}: {each!r}")


@st.composite
def _chunked(draw: st.DrawFn) -> bytes:
    sizes = draw(st.lists(st.one_of(st.just("2"), st.sampled_from(_CHUNK_SIZES)), max_size=3))
    end = draw(
        st.sampled_from(("0\r\n\r\n", "0\r\n\r\n", "0\r\na: b\r\n\r\n", "0\n\n", "", "0\r\nContent-Length: 2\r\n\r\n"))
    )
    return ("".join(f"{size}\r\n{{}}\r\n" for size in sizes) + end).encode()


@st.composite
def _request(draw: st.DrawFn) -> bytes:
    """One request, sensible or not."""
    body = draw(st.sampled_from(_BODIES))
    headers = draw(st.lists(st.sampled_from(_HEADERS), max_size=4))
    frame = draw(st.sampled_from(("length", "length", "length", "chunked", "both", "none")))
    if frame in {"length", "both"} and (body or draw(st.booleans())):
        headers.append(f"Content-Length: {len(body)}")
    if frame in {"chunked", "both"}:
        body = draw(_chunked())
        headers.insert(draw(st.integers(0, len(headers))), "Transfer-Encoding: chunked")
    first = " ".join(draw(st.sampled_from(part)) for part in (_METHODS, _TARGETS, _VERSIONS))
    line_end = draw(st.sampled_from(("\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", "\r\n\r\n")))
    head = line_end.join((first, *headers, "", "")).encode("latin-1")
    return head + body


@st.composite
def _plain(draw: st.DrawFn) -> bytes:
    """A request as most clients send it, whose header block is cached."""
    body = draw(st.sampled_from(_BODIES))
    target = draw(st.sampled_from(_TARGETS[:5]))
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{'POST' if body else 'GET'} {target} HTTP/1.1\r\nHost: a\r\n{length}\r\n".encode() + body


@st.composite
def _changed(draw: st.DrawFn) -> bytes:
    """A request with one byte of another value."""
    data = bytearray(draw(_plain()))
    data[draw(st.integers(0, len(data) - 1))] = draw(st.sampled_from(b"\x00\r\n :;\t\x7f\xff0aZ"))
    return bytes(data)


HTTP_AREA: Final = Area(
    "http",
    "bytes of HTTP connections in pieces of any size",
    st.tuples(
        st.lists(st.one_of(_plain(), _plain(), _request(), _changed()), min_size=2, max_size=6),
        st.lists(st.integers(0, 2000), max_size=6),
    ),
    _run,
)
