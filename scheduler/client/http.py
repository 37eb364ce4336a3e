"""HTTP/1.1 to one API server, on an asyncio loop: a few connections kept open for requests, one more for each stream.

Built on httptools' parser because the shell sends thousands of small requests a second; aiohttp costs four times as
much for each (measured in docs/performance.md).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import cast

import httptools

from scheduler.api.transport import Done, OnLine, Request, Response, Stream
from scheduler.client.kubeconfig import Server

log = logging.getLogger(__name__)

CONNECTIONS = 16
ANSWER_WITHIN = 30.0  # seconds; after that the connection is given up
USER_AGENT = "seatrial"


class _Connection(asyncio.Protocol):
    """One connection; carries one request at a time, and tells its owner when it is idle or gone."""

    def __init__(self, on_idle: Callable[["_Connection"], None], on_lost: Callable[["_Connection"], None]) -> None:
        self._on_idle, self._on_lost = on_idle, on_lost
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._done: Done | None = None
        self._on_line: OnLine | None = None
        self._parts: list[bytes] = []
        self._headers: dict[str, str] = {}
        self._deadline: asyncio.TimerHandle | None = None
        self._keep = True

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's TLS transport does not inherit from it

    def data_received(self, data: bytes) -> None:
        if self._parser is None:
            self.close()  # bytes that nobody asked for
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._finish(Response(0, f"the answer is not HTTP: {error}".encode()))
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._on_lost(self)
        self._finish(Response(0, f"connection lost: {error or 'closed by the other side'}".encode()))

    # our side

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def carry(self, data: bytes, done: Done, on_line: OnLine | None = None) -> None:
        """Send one request; its answer goes to `done`, or line by line to `on_line` if it is a success."""
        assert self._transport is not None  # noqa: S101
        self._done, self._on_line = done, on_line
        self._parts, self._headers = [], {}
        self._parser = httptools.HttpResponseParser(self)
        if on_line is None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(ANSWER_WITHIN, self._too_late)
        self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abandon(self) -> None:
        """Close without telling anybody."""
        self._done = self._on_line = None
        self.close()

    def _too_late(self) -> None:
        self._finish(Response(0, f"no answer within {ANSWER_WITHIN:.0f} s".encode()))
        self.close()

    def _finish(self, response: Response) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        done, self._done, self._on_line = self._done, None, None
        if done is not None:
            done(response)

    # httptools' side

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        on_line = self._on_line
        assert self._parser is not None  # noqa: S101
        if on_line is None or self._parser.get_status_code() != 200:
            self._parts.append(body)
            return
        if b"\n" not in body:
            self._parts.append(body)
            return
        *lines, rest = (b"".join(self._parts) + body).split(b"\n")
        self._parts = [rest] if rest else []
        for line in lines:
            if line and self._on_line is not None:
                on_line(line)

    def on_message_complete(self) -> None:
        assert self._parser is not None  # noqa: S101
        code = self._parser.get_status_code()
        body = b"".join(self._parts)
        self._keep = self._parser.should_keep_alive()
        self._parser = None
        response = Response(code, b"" if self._on_line is not None and code == 200 else body, self._headers)
        self._finish(response)
        if self._keep and self.open:
            self._on_idle(self)
        else:
            self.close()


class _HttpStream(Stream):
    def __init__(self) -> None:
        self.connection: _Connection | None = None
        self.closed = False

    def close(self) -> None:
        self.closed = True
        if self.connection is not None:
            self.connection.abandon()


class HttpTransport:
    """A `Transport` over sockets; use it on the running loop only."""

    def __init__(self, server: Server, *, connections: int = CONNECTIONS) -> None:
        self._server = server
        self._limit = connections
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._connecting = 0
        self._queue: deque[tuple[bytes, Done]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        host = f"[{server.host}]" if ":" in server.host else server.host
        head = f"Host: {host}:{server.port}\r\nUser-Agent: {USER_AGENT}\r\nAccept: application/json\r\n"
        self._head = head + (f"Authorization: {server.authorization}\r\n" if server.authorization else "")

    def send(self, request: Request, done: Done) -> None:
        data = self._encode(request)
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                connection.carry(data, done)
                return
        self._queue.append((data, done))
        if len(self._open) + self._connecting < self._limit:
            self._connecting += 1
            self._spawn(self._connect_for_requests())

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> Stream:
        stream = _HttpStream()
        self._spawn(self._open_stream(stream, self._encode(request), on_line, on_end))
        return stream

    def close(self) -> None:
        """Close every connection; answers still on their way are lost without a word."""
        self._queue.clear()
        for connection in list(self._open):
            connection.abandon()

    def _encode(self, request: Request) -> bytes:
        lines = [f"{request.method} {self._server.base}{request.path} HTTP/1.1\r\n", self._head]
        lines += [f"{name}: {value}\r\n" for name, value in request.headers.items()]
        if request.body or request.method in {"POST", "PUT", "PATCH"}:
            lines.append(f"Content-Type: {request.content_type}\r\nContent-Length: {len(request.body)}\r\n")
        return "".join(lines).encode() + b"\r\n" + request.body

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, on_idle: Callable[[_Connection], None]) -> _Connection:
        loop = asyncio.get_running_loop()
        server = self._server
        _, connection = await loop.create_connection(
            lambda: _Connection(on_idle, self._open.discard), server.host, server.port, ssl=server.tls
        )
        self._open.add(connection)
        return connection

    async def _connect_for_requests(self) -> None:
        try:
            connection = await self._connect(self._on_idle)
        except OSError as error:
            self._connecting -= 1
            failed, self._queue = self._queue, deque()
            for _, done in failed:
                done(Response(0, f"{self._server.host}:{self._server.port}: {error}".encode()))
            return
        self._connecting -= 1
        self._on_idle(connection)

    def _on_idle(self, connection: _Connection) -> None:
        if self._queue:
            data, done = self._queue.popleft()
            connection.carry(data, done)
        else:
            self._idle.append(connection)

    async def _open_stream(self, stream: _HttpStream, data: bytes, on_line: OnLine, on_end: Done) -> None:
        try:
            connection = await self._connect(lambda connection: connection.close())
        except OSError as error:
            if not stream.closed:
                on_end(Response(0, f"{self._server.host}:{self._server.port}: {error}".encode()))
            return
        if stream.closed:
            connection.abandon()
            return
        stream.connection = connection
        connection.carry(data, on_end, on_line)
