"""HTTP/1.1 client for one API server, on an asyncio loop: a few pooled connections, and one for each stream.

Built on httptools' parser because the shell sends thousands of small requests a second; aiohttp costs four times as
much for each (measured in docs/performance.md). Requests of one turn of the loop go out together. Where there are more
of them than connections, a connection gets several at once (HTTP pipelining): one write, one record of TLS, one wake-up
of the server for all of them. Answers on a connection come one after the other, so the number of requests that it gets
depends on how fast the last answers came.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import httptools

from seatrial.scheduler.api.faults import Faults, name_of
from seatrial.scheduler.api.transport import Done, OnLine, Request, Response, Stream
from seatrial.scheduler.client.kubeconfig import Server

log = logging.getLogger(__name__)

CONNECTIONS = 16
ANSWER_WITHIN = 30.0  # seconds; after that the connection is closed
MAX_PIPELINED = 16  # maximum of requests in flight on one connection
QUICK = 0.0005  # seconds between two responses below which pipelining costs nothing
USER_AGENT = "seatrial"
TOKEN_AGE = 60.0  # seconds between two reads of a service account's token
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
T = TypeVar("T")


class _Sent(NamedTuple):
    data: bytes
    done: Done


def _call(faults: Faults, action: Callable[[T], None], argument: T) -> None:
    try:
        action(argument)
    except Exception as error:  # noqa: BLE001
        faults.not_repeated(error, name_of(action))


class _Connection(asyncio.Protocol):
    """One connection with pipelined requests. Calls its owner when all are answered or it is closed."""

    def __init__(self, owner: "HttpTransport") -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._awaited: deque[_Sent] = deque()
        self._parts: list[bytes] = []
        self._headers: dict[str, str] = {}
        self._deadline: asyncio.TimerHandle | None = None
        self._carried = 0
        self._first_answer = 0.0  # when, of those carried at once, on the loop's clock

    # callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's TLS transport does not inherit from it

    def data_received(self, data: bytes) -> None:
        if not self._awaited:
            self.close()  # bytes without a request
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._give_up(f"the answer is not HTTP: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._owner.lost(self)
        self._give_up(f"connection lost: {error or 'closed by the other side'}")

    # calls of the owner

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def carry(self, requests: list[_Sent]) -> None:
        """Send requests; none may be in flight. Each gets its response."""
        assert self._transport is not None
        self._awaited.extend(requests)
        self._carried = len(requests)
        self._deadline = self._loop.call_later(ANSWER_WITHIN, self._too_late)
        self._transport.write(
            requests[0].data if len(requests) == 1 else b"".join([request.data for request in requests])
        )

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """Close without calling back."""
        self._awaited.clear()
        self._stop_waiting()
        self.close()

    def _too_late(self) -> None:
        self._deadline = None
        self._give_up(f"no answer within {ANSWER_WITHIN:.0f} s")

    def _give_up(self, why: str) -> None:
        """Fail all requests in flight."""
        self._stop_waiting()
        self.close()
        while self._awaited:
            self._owner.answer(self._awaited.popleft().done, Response(0, why.encode()))

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # callbacks of httptools

    def on_message_begin(self) -> None:
        self._parts, self._headers = [], {}

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        awaited = self._awaited
        if not awaited:
            self.close()  # a response without a request
            return
        parts = self._parts
        response = Response(
            self._parser.get_status_code(), parts[0] if len(parts) == 1 else b"".join(parts), self._headers
        )
        keep = self._parser.should_keep_alive()
        if self._carried > 1 and len(awaited) == self._carried:
            self._first_answer = self._loop.time()
        done = awaited.popleft().done
        if not keep:
            # Requests behind it were not processed (RFC 9112, 9.6) and can be sent again.
            unseen = list(awaited)
            awaited.clear()
            self._stop_waiting()
            self.close()
            self._owner.send_again(unseen)
        self._owner.answer(done, response)
        if keep and not awaited and self._deadline is not None:
            self._stop_waiting()
            if self._carried > 1:
                self._owner.answered_after((self._loop.time() - self._first_answer) / (self._carried - 1))
            if self.open:
                self._owner.idle(self)


class _StreamConnection(asyncio.Protocol):
    """The connection of one stream."""

    def __init__(self, on_gone: Callable[["_StreamConnection"], None], faults: Faults) -> None:
        self._on_gone, self._faults = on_gone, faults
        self._on_line: OnLine = lambda _: None
        self._on_end: Done | None = None
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._headers: dict[str, str] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._on_end is None:
            self.abandon()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(Response(0, f"the answer is not HTTP: {error}".encode()))

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._on_gone(self)
        self._end(Response(0, f"connection lost: {error or 'closed by the other side'}".encode()))

    def begin(self, data: bytes, on_line: OnLine, on_end: Done) -> None:
        """Send the request of the stream."""
        self._on_line, self._on_end = on_line, on_end
        if self._transport is None:
            self._end(Response(0, b"connection lost: closed by the other side"))
        else:
            self._transport.write(data)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def abandon(self) -> None:
        """Close without calling back."""
        self._on_end = None
        if self._transport is not None:
            self._transport.close()

    def _end(self, response: Response) -> None:
        on_end = self._on_end
        self.abandon()
        if on_end is not None:
            _call(self._faults, on_end, response)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        if self._parser.get_status_code() != 200 or b"\n" not in body:
            self._parts.append(body)
            return
        *lines, rest = (b"".join(self._parts) + body).split(b"\n")
        self._parts = [rest] if rest else []
        for line in lines:
            if line and self._on_end is not None:
                _call(self._faults, self._on_line, line)

    def on_message_complete(self) -> None:
        code = self._parser.get_status_code()
        self._end(Response(code, b"" if code == 200 else b"".join(self._parts), self._headers))


class _HttpStream(Stream):
    def __init__(self) -> None:
        self.connection: _StreamConnection | None = None
        self.closed = False

    def close(self) -> None:
        self.closed = True
        if self.connection is not None:
            self.connection.abandon()


class HttpTransport:
    """A `Transport` over sockets. Use it only on the running loop.

    What the code that gets an answer or a line raises is its own fault: the connection has answers for others.
    """

    def __init__(self, server: Server, faults: Faults | None = None, *, connections: int = CONNECTIONS) -> None:
        """`faults`: those of the program's clock; without it, they are logged."""
        self._server, self._faults = server, faults or Faults()
        self._limit = connections
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._streams: set[_StreamConnection] = set()
        self._connecting = 0
        self._queue: deque[_Sent] = deque()
        self._planned = False
        self._at_once = 1  # requests that one connection gets while another is idle
        self._tasks: set[asyncio.Task[None]] = set()
        host = f"[{server.host}]" if ":" in server.host else server.host
        head = f"Host: {host}:{server.port}\r\nUser-Agent: {USER_AGENT}\r\nAccept: application/json\r\n"
        self._named = head
        self._token_at = float("-inf")  # the loop's time when the token was read
        self._authorize(server.authorization)

    def send(self, request: Request, done: Done) -> None:
        self._queue.append(_Sent(self._encode(request), done))
        self._plan()

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> Stream:
        stream = _HttpStream()
        self._spawn(self._open_stream(stream, self._encode(request), on_line, on_end))
        return stream

    def close(self) -> None:
        """Close all connections. Requests in flight get no response."""
        self._queue.clear()
        for connection in list(self._open):
            connection.abandon()
        for stream in list(self._streams):
            stream.abandon()

    # callbacks of connections

    def answer(self, done: Done, response: Response) -> None:
        """Hand over a response."""
        _call(self._faults, done, response)

    def idle(self, connection: _Connection) -> None:
        """All requests of the connection have been answered."""
        self._idle.append(connection)
        if self._queue:
            self._plan()

    def lost(self, connection: _Connection) -> None:
        """The connection is closed."""
        self._open.discard(connection)
        if self._queue:
            self._plan()

    def send_again(self, unseen: list[_Sent]) -> None:
        """Send unprocessed requests again, before all others."""
        if unseen:
            self._queue.extendleft(reversed(unseen))
            self._plan()

    def answered_after(self, gap: float) -> None:
        """Seconds between two responses on one connection."""
        self._at_once = min(MAX_PIPELINED, self._at_once * 2) if gap <= QUICK else max(1, self._at_once // 2)

    # requests

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._send_out)

    def _send_out(self) -> None:
        """Send the collected requests on idle connections."""
        self._planned = False
        queue, idle = self._queue, self._idle
        while queue and idle:
            connection = idle.pop()
            if connection.open:
                missing = self._limit - len(self._open) - self._connecting
                fair = -(-len(queue) // (len(idle) + 1 + missing))
                count = min(MAX_PIPELINED, max(fair, self._at_once), len(queue))
                connection.carry([queue.popleft() for _ in range(count)])
        for _ in range(min(len(queue), self._limit - len(self._open) - self._connecting)):
            self._connecting += 1
            self._spawn(self._connect())

    def _authorize(self, value: str) -> None:
        self._head = self._named + (f"Authorization: {value}\r\n" if value else "")

    def _read_token(self, path: Path) -> None:
        """Read the service account's token again if the one in use is a minute old."""
        now = asyncio.get_running_loop().time()
        if now - self._token_at < TOKEN_AGE:
            return
        self._token_at = now
        try:
            self._authorize(f"Bearer {path.read_text(encoding='ascii').strip()}")
        except OSError as error:
            log.warning("token unread file=%s why=%s", path, error.strerror)

    def _encode(self, request: Request) -> bytes:
        body, more = request.body, ""
        if self._server.token_file is not None:
            self._read_token(self._server.token_file)
        if request.headers:
            more = "".join([f"{name}: {value}\r\n" for name, value in request.headers.items()])
        if body or request.method in _WITH_BODY:
            more += f"Content-Type: {request.content_type}\r\nContent-Length: {len(body)}\r\n"
        head = f"{request.method} {self._server.base}{request.path} HTTP/1.1\r\n{self._head}{more}\r\n"
        return head.encode() + body

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self) -> None:
        connection = _Connection(self)
        try:
            await self._reach(connection)
        except OSError as error:
            self._connecting -= 1
            failed, self._queue = self._queue, deque()
            for request in failed:
                self.answer(request.done, self._unreachable(error))
            return
        self._connecting -= 1
        self._open.add(connection)
        self.idle(connection)

    async def _open_stream(self, stream: _HttpStream, data: bytes, on_line: OnLine, on_end: Done) -> None:
        connection = _StreamConnection(self._streams.discard, self._faults)
        try:
            await self._reach(connection)
        except OSError as error:
            if not stream.closed:
                self.answer(on_end, self._unreachable(error))
            return
        if stream.closed:
            connection.abandon()
            return
        stream.connection = connection
        self._streams.add(connection)
        connection.begin(data, on_line, on_end)

    async def _reach(self, connection: "_Connection | _StreamConnection") -> None:
        """Connect; a cancellation leaves no TLS shutdown behind, which can outlast the event loop."""
        server = self._server
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection, server.host, server.port, ssl=server.tls
            )
        except asyncio.CancelledError:
            connection.abort()
            raise

    def _unreachable(self, error: OSError) -> Response:
        return Response(0, f"{self._server.host}:{self._server.port}: {error}".encode())
