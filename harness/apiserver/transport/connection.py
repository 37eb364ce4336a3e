"""The API over HTTP/1.1 and TLS: one connection of a client, with its socket.

One event loop, httptools' parser, no framework: requests are a few dozen microseconds of work, and a framework costs
more than they do (figures in docs/performance.md). A reader of a watch that does not read is cut off when its buffer
is full; a client that sends nonsense gets a Status and loses its connection; one that does not take its answers is
not asked for more requests. Nobody else notices.
"""

import asyncio
import gzip
import logging
import math
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, cast

import httptools

from harness.apiserver import errors
from harness.apiserver.access.identity import Identity
from harness.apiserver.errors import ApiStatusError
from harness.apiserver.request.bodies import BODY_LIMIT
from harness.apiserver.server import ApiServer
from harness.apiserver.streams.line import Line, Session
from harness.apiserver.streams.responses import Streaming, Upgraded
from harness.apiserver.transport.header_cache import Arrived, Familiar
from harness.apiserver.transport.response_head import encoded
from harness.apiserver.transport.watch_stream import Watcher
from harness.apiserver.webhooks.attempts import FIRST, Attempt, Pending
from scheduler.api.transport import Request, Response

log = logging.getLogger(__name__)

GZIP_FROM = 128 * 1024
GZIP_ASIDE = 1024 * 1024  # bytes from which compressing would keep other clients waiting
IDLE = 300.0  # seconds that a connection may be silent between requests
REQUEST_WITHIN = 60.0  # seconds that a request may take to arrive
STALLED = 60.0  # seconds without a byte taken after which a client that owes us reading is cut off
LINGER = 2.0  # seconds that a refused client has to take the refusal while we throw away what it still sends
CLOSE_WITHIN = 10.0  # seconds for the end of a connection: its last bytes, and TLS's farewell
HEADERS_LIMIT = 64 * 1024
MESSAGE_LIMIT = 8 * BODY_LIMIT  # bytes of one request on the wire, with what chunks and trailers add
PIPELINE = 64  # requests of one connection that may wait for their turn
AT_ONCE = 16  # of which so many are carried out before others get their turn
GATHER = 64 * 1024  # bytes of answers that are written as one

_OPEN_PATHS = ("/healthz", "/livez", "/readyz", "/version")

Identify = Callable[[str, dict[str, object] | None], Identity | None]


class Connection(asyncio.Protocol):
    """One client. Requests are answered in their order; while a watch runs, later ones wait."""

    def __init__(self, server: ApiServer, identify: Identify, connections: "set[Connection]") -> None:
        self._server, self._identify, self._connections = server, identify, connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpRequestParser(self)
        self._certificate: dict[str, object] | None = None
        self._known: tuple[str, Identity | None] | None = None  # the last Authorization header and whose it was
        self._path = b""
        self._headers: dict[str, str] = {}
        self._in_headers = True
        self._completed = False  # a message, within the data that is being parsed
        self._message_bytes = self._header_bytes = self._body_bytes = 0
        self._body: list[bytes] = []
        self._familiar = Familiar()
        self._fresh = b""  # data at whose beginning a request begins that httptools has to read
        self._waiting: deque[Arrived | ApiStatusError] = deque()
        self._gathered: list[bytes] | None = None  # answers to be written together; None: write at once
        self._gathered_bytes = 0
        self._deaf = False  # what still comes in is thrown away: the connection ends after the last answer
        self._ending = False  # to be closed when the client has taken what it still gets
        self._stuck = False  # the client does not take what we write
        self._busy = False  # an answer is being compressed
        self._reading = True
        self._planned = False
        self._watch: Watcher | None = None
        self._line: Line | None = None  # once the connection speaks another protocol
        self._session: Session | None = None
        self._after = b""  # what has come for the session before there was one
        self._arriving = self._timed = False  # a request has begun to come in; its time is being taken
        self._due, self._abrupt = math.inf, False  # when the connection is to end, and how
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self._stall: asyncio.TimerHandle | None = None

    # -- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's TLS transport does not inherit from it
        self._connections.add(self)
        certificate: Any = transport.get_extra_info("peercert")
        self._certificate = certificate or None
        plug = transport.get_extra_info("socket")
        if plug is not None and plug.family != socket.AF_UNIX:
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a peer that is gone without a word
        self._wait(IDLE)

    def data_received(self, data: bytes) -> None:
        if self._session is not None:
            self._session.received(data)
            return
        if self._deaf:
            return
        if not self._arriving:
            data = self._take_familiar(data)
            if not data or self._deaf:
                return
            self._fresh = data
        self._completed = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._left_over(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(errors.bad_request(f"not an HTTP request: {error}"))
        self._fresh = b""
        if self._arriving and not self._timed and not self._deaf:
            self._timed = True
            self._wait(REQUEST_WITHIN, abort=True)
        self._message_bytes = 0 if self._completed else self._message_bytes + len(data)
        if self._in_headers and self._message_bytes > HEADERS_LIMIT:
            self._refuse_headers()
        elif self._message_bytes > MESSAGE_LIMIT:
            self._refuse(errors.too_large(BODY_LIMIT))

    def _take_familiar(self, data: bytes) -> bytes:
        """Take the requests from the beginning of `data` whose headers are known; what is left."""
        start = 0
        while (found := self._familiar.take(data, start)) is not None:
            arrived, start = found
            self._waiting.append(arrived)
        if not start:
            return data
        self._stop_waiting()
        if len(self._waiting) > PIPELINE:
            self._read(on=False)
        if not self._planned:
            self._serve()
        return data[start:]

    def _left_over(self, data: bytes) -> None:
        """What has come behind a request for another protocol."""
        if self._session is not None:
            self._session.received(data)
        elif self._waiting or self._busy:
            self._after = data
            self._read(on=False)  # until it is known who listens

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 asyncio's signature
        self._connections.discard(self)
        self._transport = None
        self._parser = None  # it holds us as we hold it, and nobody needs to find that out later
        self._deaf = True
        self._waiting.clear()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._stall is not None:
            self._stall.cancel()
        if self._watch is not None:
            self._watch.gone()
            self._watch = None
        if self._line is not None:
            self._line.lost()
        if self._session is not None:
            self._session.lost()
            self._session = None

    def pause_writing(self) -> None:
        self._stuck = True
        if self._line is not None:
            self._line.paused()  # a program's reader may pause as long as it likes
        else:
            self._watch_stall()

    def _watch_stall(self) -> None:
        if self._transport is not None:
            self._stall = self._loop.call_later(STALLED, self._look_at_stall, self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._stuck = False
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        if self._line is not None:
            self._line.resumed()
        if self._ending:
            self.close()
        else:
            self._serve()

    def _look_at_stall(self, before: int) -> None:
        transport = self._transport
        if transport is None:
            return
        now = transport.get_write_buffer_size()
        if now >= before:
            log.warning("connection cut-off why=answers-not-taken bytes=%d", now)
            transport.abort()
            return
        self._stall = self._loop.call_later(STALLED, self._look_at_stall, now)

    def close(self) -> None:
        """End it in order; a client that does not take part in that is cut off."""
        self._write_gathered()
        transport = self._transport
        if transport is not None:
            self._deaf = True
            if self._stuck:
                self._ending = True  # it may take what it asked for, as long as it goes on taking
                if self._stall is None:
                    self._watch_stall()
                return
            transport.close()
            self._loop.call_later(CLOSE_WITHIN + 1.0, self._abort)

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- httptools ----------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._path, self._headers, self._body = b"", {}, []
        self._header_bytes = self._body_bytes = 0
        self._in_headers = True
        self._arriving = True

    def on_url(self, url: bytes) -> None:
        self._path += url
        self._count_header(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_headers:  # else it is a trailer, of which nothing is expected
            self._count_header(len(name) + len(value))
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        self._in_headers = False
        if self._deaf:
            return
        length = self._headers.get("content-length", "")
        if length.isdigit() and (len(length) > 12 or int(length) > BODY_LIMIT):
            self._refuse(errors.too_large(BODY_LIMIT))
        elif self._headers.get("expect", "").lower() == "100-continue" and self._transport is not None:
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes <= BODY_LIMIT:
            self._body.append(body)
        else:
            self._body.clear()
            self._refuse(errors.too_large(BODY_LIMIT))

    def on_message_complete(self) -> None:
        if self._deaf:
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        upgrade = self._parser.should_upgrade()
        close = upgrade or not self._parser.should_keep_alive()
        method, path = self._parser.get_method().decode(), self._path.decode("latin-1")
        arrived = Arrived(method, path, self._headers, body, close)
        if self._fresh:
            self._familiar.learn(self._fresh, arrived)
            self._fresh = b""
        self._waiting.append(arrived)
        if close:
            self._deaf = True
        self._stop_waiting()
        self._completed = self._in_headers = True
        self._arriving = self._timed = False
        if len(self._waiting) > PIPELINE:
            self._read(on=False)
        if not self._planned:
            self._serve()

    # -- requests -----------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Answer what waits, as far as the client takes the answers."""
        self._planned = False
        if self._gathered is not None:
            return  # we are within it
        self._gathered = []
        try:
            self._answer_waiting()
        finally:
            self._write_gathered()
            self._gathered = None
        if not self._reading and len(self._waiting) <= PIPELINE // 2:
            self._read(on=True)

    def _answer_waiting(self) -> None:
        for _ in range(AT_ONCE):
            if not self._waiting or self._stuck or self._busy or self._watch is not None or self._transport is None:
                return
            arrived = self._waiting.popleft()
            if isinstance(arrived, ApiStatusError):
                self._answer(arrived, close=True, linger=True)
            else:
                self._carry_out(arrived)
        if self._waiting:
            self._planned = True
            self._loop.call_soon(self._serve)

    def _again(self, asked: Arrived, attempt: Attempt) -> None:
        """Webhooks have answered; nobody asks any more where the client has gone."""
        if self._transport is not None:
            self._busy = False
            self._carry_out(asked, attempt)
            self._serve()

    def _carry_out(self, asked: Arrived, attempt: Attempt = FIRST) -> None:
        method, path, headers, close = asked.method, asked.path, asked.headers, asked.close
        identity = self._who(headers.get("authorization", ""))
        if identity is None and not path.startswith(_OPEN_PATHS):
            self._answer(errors.unauthorized(), close=close)
            return
        request = Request(method, path, asked.body, headers.get("content-type", ""), headers)
        try:
            found = self._server.handle(request, identity or Identity("system:anonymous"), attempt)
        except Pending as pending:
            self._busy = True  # only this client waits for its webhooks
            self._stop_waiting()
            learnt = pending.attempt
            self._server.admission.webhooks.fetch(pending, lambda: self._again(asked, learnt))
            return
        except Exception as error:  # a fault of ours must not take the other clients down
            log.exception("request broke method=%s path=%s", method, path)
            self._answer(errors.internal(f"{type(error).__name__}: {error}"), close=close)
            return
        if isinstance(found, Upgraded):
            self._upgrade(found)
        elif isinstance(found, Streaming):
            self._stream(found, close=close)
        elif len(found.body) >= GZIP_FROM and "gzip" in headers.get("accept-encoding", "") and method != "HEAD":
            self._respond_compressed(found, close=close)
        else:
            self._respond(found, head=method == "HEAD", close=close)

    def _refuse(self, refused: ApiStatusError) -> None:
        """Answer so after what came before, and listen no more."""
        if not self._deaf:
            self._deaf = True
            self._waiting.append(refused)
            self._serve()

    def _refuse_headers(self) -> None:
        self._refuse(ApiStatusError(431, "RequestHeaderFieldsTooLarge", "the headers of the request are too large"))

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > HEADERS_LIMIT:
            self._refuse_headers()

    def _who(self, authorization: str) -> Identity | None:
        if self._known is None or self._known[0] != authorization:
            self._known = (authorization, self._identify(authorization, self._certificate))
        return self._known[1]

    def _wait(self, seconds: float, *, abort: bool = False) -> None:
        """End the connection after `seconds`, unless asked again before. One timer serves many such waits."""
        self._due, self._abrupt = self._loop.time() + seconds, abort
        if self._alarm is None or self._alarm_at > self._due:
            self._set_alarm()

    def _stop_waiting(self) -> None:
        self._due = math.inf

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = self._loop.call_at(self._due, self._ring), self._due

    def _ring(self) -> None:
        self._alarm = None
        if self._due == math.inf:
            return
        if self._loop.time() < self._due:
            self._set_alarm()
        elif self._abrupt:
            self._abort()
        else:
            self.close()

    def _read(self, *, on: bool) -> None:
        if self._transport is not None and self._reading is not on:
            self._reading = on
            if on:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    # -- answers ------------------------------------------------------------------------------------------------------

    def _answer(self, refused: ApiStatusError, *, close: bool, linger: bool = False) -> None:
        headers = {"content-type": "application/json", **refused.headers}
        self._respond(Response(refused.code, refused.encoded(), headers), close=close, linger=linger)

    def _respond_compressed(self, response: Response, *, close: bool) -> None:
        headers = {**response.headers, "content-encoding": "gzip"}
        if len(response.body) < GZIP_ASIDE:
            self._respond(Response(response.code, gzip.compress(response.body, 1), headers), close=close)
            return
        self._busy = True  # zlib works without the interpreter's lock: the others go on meanwhile

        def done(packed: "asyncio.Future[bytes]") -> None:
            self._busy = False
            self._respond(Response(response.code, packed.result(), headers), close=close)
            self._serve()

        self._loop.run_in_executor(None, gzip.compress, response.body, 1).add_done_callback(done)

    def _respond(self, response: Response, *, head: bool = False, close: bool = False, linger: bool = False) -> None:
        if self._transport is None:
            return
        self._write(encoded(response, head=head, close=close))
        if not close:
            if not self._arriving:
                self._wait(IDLE)
        elif linger:  # closing at once would reset the connection of a client that still sends, answer and all
            self._deaf = True
            self._read(on=True)
            self._wait(LINGER, abort=not self._stuck)
        else:
            self._read(on=True)  # else nobody sees the other side close
            self.close()

    def _write(self, data: bytes) -> None:
        """Write, with what else is answered in the same go: encryption and a system call for all at once."""
        if self._gathered is None:
            if self._transport is not None:
                self._transport.write(data)
            return
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        if self._gathered_bytes >= GATHER:
            self._write_gathered()

    def _write_gathered(self) -> None:
        gathered = self._gathered
        if gathered:
            self._gathered, self._gathered_bytes = [], 0
            if self._transport is not None:
                self._transport.write(gathered[0] if len(gathered) == 1 else b"".join(gathered))

    def _upgrade(self, found: Upgraded) -> None:
        """From here on the connection speaks another protocol."""
        self._write_gathered()
        transport = self._transport
        assert transport is not None  # noqa: S101
        assert found.begin is not None  # noqa: S101
        lines = "".join(f"{name}: {value}\r\n" for name, value in found.headers.items())
        transport.write(f"HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n".encode())
        self._deaf = self._busy = True
        self._line = Line(self._loop, transport, self.close)
        self._session = found.begin(self._line)
        if self._after:
            self._session.received(self._after)
        self._read(on=True)

    def _stream(self, streaming: Streaming, *, close: bool) -> None:
        self._write_gathered()
        transport = self._transport
        assert transport is not None  # noqa: S101
        transport.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: {streaming.content_type}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        )

        def ended(*, orderly: bool) -> None:
            self._watch = None
            if close or not orderly:
                self.close()
                return
            self._wait(IDLE)
            self._loop.call_soon(self._serve)

        watcher = self._watch = Watcher(self._loop, transport, ended)
        watcher.follow(streaming.start(watcher))
