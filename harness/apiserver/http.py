"""The API over HTTP/1.1 and TLS: the only file that knows a socket.

One event loop, httptools' parser, no framework: requests are a few dozen microseconds of work, and a framework costs
more than they do (figures in docs/performance.md). A reader of a watch that does not read is cut off when its buffer
is full; a client that sends nonsense gets a Status and loses its connection; nobody else notices.
"""

import asyncio
import gzip
import logging
import ssl
from collections.abc import Callable
from typing import Any, cast

import httptools

from harness.apiserver import errors
from harness.apiserver.asked import BODY_LIMIT
from harness.apiserver.errors import Refused
from harness.apiserver.identity import Identity
from harness.apiserver.server import ApiServer
from harness.apiserver.streaming import Closable, Streaming
from harness.apiserver.watch import fell_behind
from scheduler.api.transport import Request, Response

log = logging.getLogger(__name__)

SLOW_READER = 8 * 1024 * 1024  # bytes that a watch may wait in our memory before its reader is cut off
GZIP_FROM = 128 * 1024
IDLE = 300.0  # seconds that a connection may be silent between requests
REQUEST_WITHIN = 60.0  # seconds that a request may take to arrive
HEADERS_LIMIT = 64 * 1024

_REASONS = {
    200: "OK", 201: "Created", 202: "Accepted", 304: "Not Modified", 400: "Bad Request", 401: "Unauthorized",
    403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 406: "Not Acceptable", 409: "Conflict",
    410: "Gone", 413: "Request Entity Too Large", 415: "Unsupported Media Type", 422: "Unprocessable Entity",
    429: "Too Many Requests", 500: "Internal Server Error", 503: "Service Unavailable", 504: "Gateway Timeout",
}  # fmt: skip
_OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")

Identify = Callable[[str, dict[str, object] | None], Identity | None]


class Connection(asyncio.Protocol):
    """One client. Requests are answered in their order; a watch ends the connection's use for others."""

    def __init__(self, server: ApiServer, identify: Identify, connections: "set[Connection]") -> None:
        self._server, self._identify, self._connections = server, identify, connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._certificate: dict[str, object] | None = None
        self._known: tuple[str, Identity | None] | None = None  # the last Authorization header and whose it was
        self._path = b""
        self._headers: dict[str, str] = {}
        self._header_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._refused: Refused | None = None
        self._watch: _Watcher | None = None
        self._deadline: asyncio.TimerHandle | None = None

    # -- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's TLS transport does not inherit from it
        self._connections.add(self)
        certificate: Any = transport.get_extra_info("peercert")
        self._certificate = certificate or None
        self._wait(IDLE)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._answer(errors.bad_request("this server does not upgrade connections"), close=True)
        except httptools.HttpParserError as error:
            self._answer(errors.bad_request(f"not an HTTP request: {error}"), close=True)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        self._connections.discard(self)
        self._transport = None
        self._stop_waiting()
        if self._watch is not None:
            self._watch.gone()
            self._watch = None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # -- httptools ----------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._path, self._headers, self._body = b"", {}, []
        self._header_bytes = self._body_bytes = 0
        self._refused = None
        self._wait(REQUEST_WITHIN)

    def on_url(self, url: bytes) -> None:
        self._path += url
        self._count_header(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_header(len(name) + len(value))
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue" and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes <= BODY_LIMIT:
            self._body.append(body)
        elif self._refused is None:
            self._refused = errors.too_large(BODY_LIMIT)
            self._answer(self._refused, close=True)

    def on_message_complete(self) -> None:
        if self._refused is not None or self._transport is None or self._watch is not None:
            return
        self._stop_waiting()
        keep = self._parser.should_keep_alive()
        headers = self._headers
        path = self._path.decode("latin-1")
        identity = self._who(headers.get("authorization", ""))
        if identity is None and not path.startswith(_OPEN_PATHS):
            self._answer(errors.unauthorized(), close=not keep)
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        method = self._parser.get_method().decode()
        request = Request(method, path, body, headers.get("content-type", ""), headers)
        try:
            found = self._server.handle(request, identity or Identity("system:anonymous"))
        except Exception as error:
            log.exception("request broke method=%s path=%s", method, path)
            self._answer(errors.internal(f"{type(error).__name__}: {error}"), close=not keep)
            return
        if isinstance(found, Streaming):
            self._stream(found)
        else:
            self._respond(found, head=method == "HEAD", close=not keep)

    # -- ours ---------------------------------------------------------------------------------------------------------

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > HEADERS_LIMIT and self._refused is None:
            self._refused = Refused(431, "RequestHeaderFieldsTooLarge", "the headers of the request are too large")
            self._answer(self._refused, close=True)

    def _who(self, authorization: str) -> Identity | None:
        if self._known is None or self._known[0] != authorization:
            self._known = (authorization, self._identify(authorization, self._certificate))
        return self._known[1]

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._deadline = self._loop.call_later(seconds, self.close)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _answer(self, refused: Refused, *, close: bool) -> None:
        headers = {"content-type": "application/json", **refused.headers}
        self._respond(Response(refused.code, refused.encoded(), headers), close=close)

    def _respond(self, response: Response, *, head: bool = False, close: bool = False) -> None:
        transport = self._transport
        if transport is None:
            return
        body = response.body
        lines = [f"HTTP/1.1 {response.code} {_REASONS.get(response.code, 'Status')}\r\n"]
        lines += [f"{name}: {value}\r\n" for name, value in response.headers.items()]
        if len(body) >= GZIP_FROM and "gzip" in self._headers.get("accept-encoding", ""):
            body = gzip.compress(body, 1)
            lines.append("content-encoding: gzip\r\n")
        lines.append(f"content-length: {len(body)}\r\n")
        if close:
            lines.append("connection: close\r\n")
        lines.append("\r\n")
        transport.write("".join(lines).encode("latin-1", "replace") + (b"" if head else body))
        if close:
            transport.close()
        else:
            self._wait(IDLE)

    def _stream(self, streaming: Streaming) -> None:
        transport = self._transport
        assert transport is not None  # noqa: S101
        transport.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: {streaming.content_type}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        )
        watcher = self._watch = _Watcher(transport, self._ended)
        watcher.follow(streaming.start(watcher))

    def _ended(self) -> None:
        self._watch = None
        self._wait(IDLE)


class _Watcher:
    """Writes lines as chunks; a Reader."""

    def __init__(self, transport: asyncio.Transport, on_end: Callable[[], None]) -> None:
        self._transport, self._on_end = transport, on_end
        self._source: Closable | None = None
        self._open = True

    def follow(self, source: Closable) -> None:
        self._source = source
        if not self._open:
            source.close()

    def feed(self, data: bytes) -> bool:
        transport = self._transport
        if not self._open or transport.is_closing():
            return False
        if transport.get_write_buffer_size() > SLOW_READER:
            log.warning("watch cut-off why=reader-too-slow bytes=%d", transport.get_write_buffer_size())
            self._chunk(fell_behind())
            return False
        self._chunk(data)
        return True

    def _chunk(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        if self._open:
            self._open = False
            if not self._transport.is_closing():
                self._transport.write(b"0\r\n\r\n")
                self._on_end()

    def gone(self) -> None:
        self._open = False
        if self._source is not None:
            self._source.close()


class HttpServer:
    """Listens; use it on a running loop."""

    def __init__(self, server: ApiServer, identify: Identify) -> None:
        self._server, self._identify = server, identify
        self._connections: set[Connection] = set()
        self._listener: asyncio.Server | None = None

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None) -> int:
        """Begin to listen; the port, which the system chose if `port` is 0.

        Raises:
            OSError: the address cannot be had.
        """
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: Connection(self._server, self._identify, self._connections), host, port, ssl=tls, backlog=1024
        )
        return int(self._listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.close()
        await asyncio.sleep(0)
