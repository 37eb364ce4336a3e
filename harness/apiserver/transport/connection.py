"""One HTTP/1.1 connection of a client.

Uses one event loop and httptools' parser instead of a framework: a request takes a few dozen microseconds, and a
framework adds more than that (figures in docs/performance.md). No client can hold up another one: a watch whose client
does not read is ended when its buffer is full, malformed input is answered with a Status and ends the connection, and
requests are not read while the client does not take the responses to earlier ones.
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

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.access.identity import ANONYMOUS, Identity
from seatrial.harness.apiserver.access.impersonation import VALUE_SEPARATOR
from seatrial.harness.apiserver.attempts import FIRST, Attempt, Pending
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.long_computations import executor
from seatrial.harness.apiserver.protobuf.decoding import CONTENT_TYPE as PROTOBUF
from seatrial.harness.apiserver.request.bodies import BODY_LIMIT, as_json, is_slow
from seatrial.harness.apiserver.server import GRANTED, ApiServer
from seatrial.harness.apiserver.streams.line import Line, Session
from seatrial.harness.apiserver.streams.responses import Streaming, Upgraded
from seatrial.harness.apiserver.transport import pretty
from seatrial.harness.apiserver.transport.header_cache import HeaderCache, ParsedRequest
from seatrial.harness.apiserver.transport.large_requests import LARGE_FROM, LargeRequests
from seatrial.harness.apiserver.transport.response_head import encoded
from seatrial.harness.apiserver.transport.watch_stream import WatchWriter
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.transport import Request, Response

log = logging.getLogger(__name__)

GZIP_FROM = 128 * 1024  # bytes from which responses are compressed, as upstream
GZIP_ASIDE = 1024 * 1024  # bytes from which responses are compressed in a thread, so that other clients do not wait
IDENTITY_KEPT = 10.0  # seconds for which a connection's identity is kept, as upstream's cache of tokens
IDLE = 300.0  # seconds without a request after which a connection is closed
REQUEST_WITHIN = 60.0  # seconds within which a request must have parsed
STALLED = 60.0  # seconds without progress after which a client that does not take its responses is cut off
LINGER = 2.0  # seconds for a refused client to read the response, while its input is discarded
CLOSE_WITHIN = 10.0  # seconds for the last bytes of a connection and the TLS shutdown
HEADERS_LIMIT = 64 * 1024
ANONYMOUS_LIMIT = 64 * 1024  # bytes of the body of a client without valid credentials
MESSAGE_LIMIT = 8 * BODY_LIMIT  # bytes of one request on the wire, including chunk headers and trailers
PIPELINE = 64  # requests of one connection that may be queued
AT_ONCE = 16  # requests of one connection that are carried out before other connections run
GATHER = 64 * 1024  # bytes of responses that are written at once

Identify = Callable[[str, dict[str, object] | None], Identity | None]


class Connection(asyncio.Protocol):
    """One client. Responses are sent in the order of the requests; requests behind a watch wait until it ends."""

    def __init__(
        self, server: ApiServer, identify: Identify, connections: "set[Connection]", large_requests: LargeRequests
    ) -> None:
        self._server, self._identify, self._connections = server, identify, connections
        self._large_requests = large_requests
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser: Any = httptools.HttpRequestParser(self)
        self._certificate: dict[str, object] | None = None
        self._identified: tuple[str, float, Identity | None] | None = None  # Authorization, until when, its identity
        self._path = b""
        self._headers: dict[str, str] = {}
        self._in_headers = True
        self._completed = False  # whether the data being parsed ends a message
        self._message_bytes = self._header_bytes = self._body_bytes = 0
        self._body_limit = BODY_LIMIT
        self._body: list[bytes] = []
        self._header_cache = HeaderCache()
        self._unparsed = b""  # data that begins with a request that is not in the header cache
        self._queue: deque[ParsedRequest | ApiStatusError] = deque()
        self._batch: list[bytes] | None = None  # responses to be written together; None: write at once
        self._batch_bytes = 0
        self._input_closed = False  # further input is discarded: the connection ends after the last response
        self._close_when_drained = False  # close once the write buffer is empty
        self._write_paused = False  # the write buffer is full
        self._busy = False  # a response is being compressed, or a webhook is being called
        self._reading = True
        self._serve_scheduled = False
        self._watch: WatchWriter | None = None
        self._upgraded_line: Line | None = None  # after an upgrade to another protocol
        self._session: Session | None = None
        self._upgrade_data = b""  # data received for the session before it exists
        self._arriving = self._timed = False  # a request is arriving; REQUEST_WITHIN is running for it
        self._deadline, self._deadline_aborts = (
            math.inf,
            False,
        )  # loop time at which the connection ends; whether by abort
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._stall: asyncio.TimerHandle | None = None

    # -- asyncio ------------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's TLS transport does not inherit from it
        self._connections.add(self)
        certificate: Any = transport.get_extra_info("peercert")
        self._certificate = certificate or None
        plug = transport.get_extra_info("socket")
        if plug is not None and plug.family != socket.AF_UNIX:
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # finds peers that vanished
        self._set_deadline(IDLE)

    def data_received(self, data: bytes) -> None:
        if self._session is not None:
            self._session.received(data)
            return
        if self._input_closed:
            return
        if not self._arriving:
            data = self._take_cached(data)
            if not data or self._input_closed:
                return
            self._unparsed = data
        self._completed = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._keep_upgrade_data(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(errors.bad_request(f"not an HTTP request: {error}"))
        self._unparsed = b""
        if self._arriving and not self._timed and not self._input_closed:
            self._timed = True
            self._set_deadline(REQUEST_WITHIN, abort=True)
        self._message_bytes = 0 if self._completed else self._message_bytes + len(data)
        if self._in_headers and self._message_bytes > HEADERS_LIMIT:
            self._refuse_headers()
        elif self._message_bytes > MESSAGE_LIMIT:
            self._refuse(errors.too_large(BODY_LIMIT))

    def _take_cached(self, data: bytes) -> bytes:
        """Queue the requests at the start of `data` whose headers are cached. Returns the rest of the data."""
        start, end = 0, len(data)
        while start < end and (results := self._header_cache.take(data, start)) is not None:
            parsed, start = results
            self._queue.append(parsed)
        if not start:
            return data
        self._clear_deadline()
        if len(self._queue) > PIPELINE:
            self._set_reading(on=False)
        if not self._serve_scheduled:
            self._serve()
        return data[start:]

    def _keep_upgrade_data(self, data: bytes) -> None:
        """Handle data behind an upgrade request."""
        if self._session is not None:
            self._session.received(data)
        elif self._queue or self._busy:
            self._upgrade_data = data
            self._set_reading(on=False)  # until the session exists

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002 asyncio's signature
        self._connections.discard(self)
        self._transport = None
        self._parser = None  # breaks a reference cycle
        self._input_closed = True
        self._queue.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._stall is not None:
            self._stall.cancel()
        if self._watch is not None:
            self._watch.gone()
            self._watch = None
        if self._upgraded_line is not None:
            self._upgraded_line.lost()
        if self._session is not None:
            self._session.lost()
            self._session = None

    def pause_writing(self) -> None:
        self._write_paused = True
        if self._upgraded_line is not None:
            self._upgraded_line.paused()  # streams of exec and portforward may pause without limit
        else:
            self._watch_stall()

    def _watch_stall(self) -> None:
        if self._transport is not None:
            self._stall = self._loop.call_later(STALLED, self._check_stall, self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._write_paused = False
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        if self._upgraded_line is not None:
            self._upgraded_line.resumed()
        if self._close_when_drained:
            self.close()
        else:
            self._serve()

    def _check_stall(self, before: int) -> None:
        transport = self._transport
        if transport is None:
            return
        now = transport.get_write_buffer_size()
        if now >= before:
            log.warning("connection cut-off why=responses-not-read bytes=%d", now)
            transport.abort()
            return
        self._stall = self._loop.call_later(STALLED, self._check_stall, now)

    def close(self) -> None:
        """Close the connection once its data is written; cut off a client that does not read or shut down in time."""
        self._flush_batch()
        transport = self._transport
        if transport is not None:
            self._input_closed = True
            if self._write_paused:
                self._close_when_drained = True  # keep writing as long as the client makes progress
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
        if self._in_headers:  # trailers are ignored
            self._count_header(len(name) + len(value))
            key, text = name.decode("latin-1").lower(), value.decode("latin-1")
            if key in self._headers:  # names of impersonated groups may have commas
                text = f"{self._headers[key]}{VALUE_SEPARATOR if key.startswith('impersonate-') else ', '}{text}"
            self._headers[key] = text

    def on_headers_complete(self) -> None:
        self._in_headers = False
        if self._input_closed:
            return
        identity = self._identity_of(self._headers.get("authorization", ""))
        self._body_limit = ANONYMOUS_LIMIT if identity in {None, ANONYMOUS} else BODY_LIMIT
        length = self._headers.get("content-length", "0")
        if (integer(length) or 0) > self._body_limit:
            self._refuse(errors.too_large(self._body_limit))
        elif self._headers.get("expect", "").lower() == "100-continue" and self._transport is not None:
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        if self._body_bytes <= self._body_limit:
            self._body.append(body)
        else:
            self._body.clear()
            self._refuse(errors.too_large(self._body_limit))

    def on_message_complete(self) -> None:
        if self._input_closed:
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        upgrade = self._parser.should_upgrade()
        close = upgrade or not self._parser.should_keep_alive()
        method, path = self._parser.get_method().decode(), self._path.decode("latin-1")
        parsed = ParsedRequest(method, path, self._headers, body, close)
        if self._unparsed:
            self._header_cache.learn(self._unparsed, parsed)
            self._unparsed = b""
        self._queue.append(parsed)
        if close:
            self._input_closed = True
        self._clear_deadline()
        self._completed = self._in_headers = True
        self._arriving = self._timed = False
        if len(self._queue) > PIPELINE or len(body) > LARGE_FROM:
            self._set_reading(on=False)
        if not self._serve_scheduled:
            self._serve()

    # -- requests -----------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Carry out queued requests, as long as the client reads the responses."""
        self._serve_scheduled = False
        if self._batch is not None:
            return  # called from within itself
        self._batch = []
        try:
            self._answer_queue()
        finally:
            self._flush_batch()
            self._batch = None
        if not self._reading and len(self._queue) <= PIPELINE // 2 and not any(map(_is_large, self._queue)):
            self._set_reading(on=True)

    def _answer_queue(self) -> None:
        for _ in range(AT_ONCE):
            if (
                not self._queue
                or self._write_paused
                or self._busy
                or self._watch is not None
                or self._transport is None
            ):
                return
            queued = self._queue.popleft()
            if isinstance(queued, ApiStatusError):
                self._answer(queued, close=True, linger=True)
            else:
                self._carry_out(queued)
        if self._queue:
            self._serve_scheduled = True
            self._loop.call_soon(self._serve)

    def _retry(self, parsed: ParsedRequest, attempt: Attempt) -> None:
        """Carry out the request again after its webhooks have responded, unless the client is gone."""
        if self._transport is not None:
            self._busy = False
            self._carry_out(parsed, attempt)
            self._serve()

    def _carry_out(self, parsed: ParsedRequest, attempt: Attempt = FIRST, *, admitted: bool = False) -> None:
        method, path, headers, close = parsed.method, parsed.path, parsed.headers, parsed.close
        identity = self._identity_of(headers.get("authorization", ""))
        if identity is None:
            self._answer(errors.unauthorized(), close=close)
            return
        content_type = headers.get("content-type", "")
        request = Request(method, path, parsed.body, content_type, headers)
        slow = not admitted and is_slow(parsed.body, content_type)
        large = not admitted and len(parsed.body) > LARGE_FROM
        try:
            response = self._server.handle(request, identity, attempt, only_access=slow or large)
        except Pending as pending:
            self._busy = True  # other connections go on
            self._clear_deadline()
            answers = pending.attempt
            self._server.admission.webhooks.fetch(pending, lambda: self._retry(parsed, answers))
            return
        if response is GRANTED:
            (self._decode_aside if slow else self._wait_for_turn)(parsed, attempt)
            return
        if isinstance(response, Upgraded):
            self._upgrade(response)
            return
        if isinstance(response, Streaming):
            self._stream(response, close=close)
            return
        if pretty.is_wanted(path, headers):
            response = pretty.indented(response)
        if len(response.body) >= GZIP_FROM and "gzip" in headers.get("accept-encoding", "") and method != "HEAD":
            self._respond_compressed(response, close=close)
        else:
            self._respond(response, head=method == "HEAD", close=close)

    def _wait_for_turn(self, parsed: ParsedRequest, attempt: Attempt) -> None:
        """Carry out a request with a large body after those that came before; small requests go on meanwhile."""
        self._busy = True
        self._clear_deadline()

        def turn() -> None:
            self._busy = False
            if self._transport is not None:
                self._carry_out(parsed, attempt, admitted=True)
                self._serve()

        self._large_requests.add(turn)

    def _decode_aside(self, parsed: ParsedRequest, attempt: Attempt) -> None:
        """Convert a large YAML body to JSON in a thread, then carry out the request; other connections go on."""
        self._busy = True
        self._clear_deadline()

        def done(decoded: "asyncio.Future[bytes]") -> None:
            self._busy = False
            if self._transport is None:
                return
            error = decoded.exception()
            if error is None:
                parts = (parsed.method, parsed.path, parsed.headers, decoded.result(), parsed.close)
                self._wait_for_turn(ParsedRequest(*parts), attempt)
                return
            if isinstance(error, ApiStatusError):
                self._answer(error, close=parsed.close)
            else:
                self._answer(self._server.fault(error, parsed.method, parsed.path), close=parsed.close)
            self._serve()

        self._loop.run_in_executor(executor(), as_json, parsed.body).add_done_callback(done)

    def _refuse(self, error: ApiStatusError) -> None:
        """Queue the error as the last response and discard further input."""
        if not self._input_closed:
            self._input_closed = True
            self._queue.append(error)
            self._serve()

    def _refuse_headers(self) -> None:
        self._refuse(ApiStatusError(431, "RequestHeaderFieldsTooLarge", "the headers of the request are too large"))

    def _count_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > HEADERS_LIMIT:
            self._refuse_headers()

    def _identity_of(self, authorization: str) -> Identity | None:
        """The identity of a request. It is found out again after a while: tokens expire and are revoked."""
        now = self._server.clock.monotonic()
        if self._identified is None or self._identified[0] != authorization or now >= self._identified[1]:
            identity = self._identify(authorization, self._certificate)
            self._identified = (authorization, now + IDENTITY_KEPT, identity)
        return self._identified[2]

    def _set_deadline(self, seconds: float, *, abort: bool = False) -> None:
        """End the connection after `seconds` unless the deadline is moved. A later deadline reuses the timer."""
        self._deadline, self._deadline_aborts = self._loop.time() + seconds, abort
        if self._timer is None or self._timer_at > self._deadline:
            self._set_timer()

    def _clear_deadline(self) -> None:
        self._deadline = math.inf

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._loop.call_at(self._deadline, self._timer_fired), self._deadline

    def _timer_fired(self) -> None:
        self._timer = None
        if self._deadline == math.inf:
            return
        if self._loop.time() < self._deadline:
            self._set_timer()
        elif self._deadline_aborts:
            self._abort()
        else:
            self.close()

    def _set_reading(self, *, on: bool) -> None:
        if self._transport is not None and self._reading is not on:
            self._reading = on
            if on:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    # -- responses ----------------------------------------------------------------------------------------------------

    def _answer(self, error: ApiStatusError, *, close: bool, linger: bool = False) -> None:
        headers = {"content-type": "application/json", **error.headers}
        self._respond(Response(error.code, error.encoded(), headers), close=close, linger=linger)

    def _respond_compressed(self, response: Response, *, close: bool) -> None:
        headers = {**response.headers, "content-encoding": "gzip"}
        if len(response.body) < GZIP_ASIDE:
            self._respond(Response(response.code, gzip.compress(response.body, 1), headers), close=close)
            return
        self._busy = True  # zlib releases the GIL: other connections go on

        def done(packed: "asyncio.Future[bytes]") -> None:
            self._busy = False
            self._respond(Response(response.code, packed.result(), headers), close=close)
            self._serve()

        self._loop.run_in_executor(None, gzip.compress, response.body, 1).add_done_callback(done)

    def _respond(self, response: Response, *, head: bool = False, close: bool = False, linger: bool = False) -> None:
        if self._transport is None:
            return
        self._write(encoded(response, head=head, close=close, now=self._server.clock.now()))
        if not close:
            if not self._arriving:
                self._set_deadline(IDLE)
        elif linger:  # closing at once would reset the connection, and the client would lose the response
            self._input_closed = True
            self._set_reading(on=True)
            self._set_deadline(LINGER, abort=not self._write_paused)
        else:
            self._set_reading(on=True)  # needed to notice that the peer closes
            self.close()

    def _write(self, data: bytes) -> None:
        """Write, or add to the batch: one TLS record and one system call serve several responses."""
        if self._batch is None:
            if self._transport is not None:
                self._transport.write(data)
            return
        self._batch.append(data)
        self._batch_bytes += len(data)
        if self._batch_bytes >= GATHER:
            self._flush_batch()

    def _flush_batch(self) -> None:
        batch = self._batch
        if batch:
            self._batch, self._batch_bytes = [], 0
            if self._transport is not None:
                self._transport.write(batch[0] if len(batch) == 1 else b"".join(batch))

    def _upgrade(self, result: Upgraded) -> None:
        """Send 101 and hand the connection to the session of the new protocol."""
        self._flush_batch()
        transport = self._transport
        assert transport is not None
        assert result.begin is not None
        lines = "".join(f"{name}: {value}\r\n" for name, value in result.headers.items())
        transport.write(f"HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n".encode())
        self._input_closed = self._busy = True
        self._upgraded_line = Line(self._loop, transport, self.close)
        self._session = result.begin(self._upgraded_line)
        if self._upgrade_data:
            self._session.received(self._upgrade_data)
        self._set_reading(on=True)

    def _stream(self, streaming: Streaming, *, close: bool) -> None:
        self._flush_batch()
        transport = self._transport
        assert transport is not None
        transport.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: {streaming.content_type}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        )

        def ended(*, orderly: bool) -> None:
            self._watch = None
            if close or not orderly:
                self.close()
                return
            self._set_deadline(IDLE)
            self._loop.call_soon(self._serve)

        watcher = self._watch = WatchWriter(
            self._loop, transport, ended, protobuf=streaming.content_type.startswith(PROTOBUF)
        )
        watcher.follow(streaming.start(watcher))


def _is_large(queued: ParsedRequest | ApiStatusError) -> bool:
    return isinstance(queued, ParsedRequest) and len(queued.body) > LARGE_FROM
