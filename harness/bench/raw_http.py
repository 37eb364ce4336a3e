"""A minimal HTTP/1.1 client for benchmarks: rendered requests, a few connections, one watch.

In benchmarks the client shares two cores with the programs that it measures, so it reads only what is measured: status
codes of answers, lines of a watch. It needs a running asyncio event loop.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import cast
from urllib.parse import urlsplit

import httptools

from seatrial.harness.clusters.kubeconfig import Access
from seatrial.harness.errors import ClusterError

Answered = Callable[[int], None]  # gets the status code


class _Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self, owner: "RawClient") -> None:
        self._owner = owner
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answered: Answered | None = None
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 asyncio's signature
        self._transport = None
        self.gone.set_result(None)
        answered, self._answered = self._answered, None
        self._owner.lost(self)
        if answered is not None:
            answered(0)

    def send(self, data: bytes, answered: Answered) -> None:
        assert self._transport is not None
        self._answered = answered
        self._transport.write(data)

    def on_message_complete(self) -> None:
        code = self._parser.get_status_code()
        answered, self._answered = self._answered, None
        if answered is not None:
            answered(code)
        self._owner.idle(self)

    def close(self) -> None:
        self._answered = None
        if self._transport is not None:
            self._transport.abort()


class _Watch(asyncio.Protocol):
    """One watch stream; calls `on_line` for each complete line."""

    def __init__(self, on_line: Callable[[bytes], None], began: "asyncio.Future[None]") -> None:
        self._on_line, self._began = on_line, began
        self._parser = httptools.HttpResponseParser(self)
        self._rest = b""
        self.transport: asyncio.Transport | None = None
        self.lost = False
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self.gone.set_result(None)
        if not self._began.done():
            self._began.set_exception(ClusterError(f"the watch was closed before it began: {error or 'no reason'}"))

    def on_headers_complete(self) -> None:
        code = self._parser.get_status_code()
        if code != 200:
            self._began.set_exception(ClusterError(f"the watch was refused with {code}"))
        else:
            self._began.set_result(None)

    def on_body(self, body: bytes) -> None:
        *lines, self._rest = (self._rest + body).split(b"\n")
        for line in lines:
            if line:
                self._on_line(line)

    def on_message_complete(self) -> None:
        self.lost = True


class RawClient:
    """Sends requests to one API server over `connections` connections; further requests wait in order.

    The connection that has been idle longest is used next: servers close connections that send nothing for minutes. The
    requests on a connection that is lost have status code 0, so have those that wait when the last one is lost.
    """

    def __init__(self, access: Access, *, connections: int = 16) -> None:
        self._access, self.connections = access, connections
        where = urlsplit(access.url)
        assert where.hostname is not None
        self._where = (where.hostname, where.port or (443 if access.tls else 80))
        head = [f"Host: {where.netloc}", "Accept: application/json"]
        self._head = "\r\n".join(head + [f"{name}: {value}" for name, value in access.headers.items()])
        self._base = where.path
        self._idle: deque[_Connection] = deque()
        self._connections: list[_Connection] = []  # the open ones
        self._waiting: deque[tuple[bytes, Answered]] = deque()
        self.watch: _Watch | None = None

    @property
    def open(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    async def connect(self) -> None:
        """Open all connections.

        Raises:
            OSError: the server cannot be reached.
        """
        loop = asyncio.get_running_loop()
        for _ in range(self.connections):
            _, connection = await loop.create_connection(lambda: _Connection(self), *self._where, ssl=self._access.tls)
            self._connections.append(connection)
        self._idle.extend(self._connections)

    def render(self, path: str, body: bytes, *, method: str = "POST", content_type: str = "application/json") -> bytes:
        """The bytes of a request, to be sent any number of times."""
        head = f"{method} {self._base}{path} HTTP/1.1\r\n{self._head}\r\nContent-Type: {content_type}\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def send(self, data: bytes, answered: Answered) -> None:
        if self._idle:
            self._idle.popleft().send(data, answered)
        elif self._connections:
            self._waiting.append((data, answered))
        else:
            asyncio.get_running_loop().call_soon(answered, 0)

    def idle(self, connection: _Connection) -> None:
        if self._waiting:
            connection.send(*self._waiting.popleft())
        else:
            self._idle.append(connection)

    def lost(self, connection: _Connection) -> None:
        """The connection is closed and gets no more requests."""
        self._connections.remove(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        while not self._connections and self._waiting:
            _, answered = self._waiting.popleft()
            asyncio.get_running_loop().call_soon(answered, 0)

    async def send_all(self, requests: Iterable[bytes]) -> list[int]:
        """Send all requests as fast as they are answered; returns the status codes in order of arrival."""
        pending = list(requests)
        codes: list[int] = []
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def answered(code: int) -> None:
            codes.append(code)
            if len(codes) == len(pending):
                done.set_result(None)

        for data in pending:
            self.send(data, answered)
        if pending:
            await done
        return codes

    async def follow(self, path: str, on_line: Callable[[bytes], None]) -> None:
        """Open a watch and return once the server has accepted it.

        Raises:
            ClusterError: the server refused it or closed the connection.
        """
        loop = asyncio.get_running_loop()
        began: asyncio.Future[None] = loop.create_future()
        _, self.watch = await loop.create_connection(lambda: _Watch(on_line, began), *self._where, ssl=self._access.tls)
        assert self.watch.transport is not None
        self.watch.transport.write(f"GET {self._base}{path} HTTP/1.1\r\n{self._head}\r\n\r\n".encode())
        await began

    async def close(self) -> None:
        """Close all connections and wait for that: asyncio warns if the loop closes before TLS has shut down."""
        connections = list(self._connections)
        for connection in connections:
            connection.close()
        ends = [connection.gone for connection in connections]
        if self.watch is not None and self.watch.transport is not None:
            self.watch.transport.abort()
            ends.append(self.watch.gone)
        await asyncio.gather(*ends)
