"""Calls webhooks over HTTPS, concurrently on an event loop.

Each call is one POST. Connections are kept alive for further calls to the same endpoint, since the TLS handshake costs
more than the rest of a call. A call that fails on a kept connection before a response begins is retried on a new one.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import urlsplit

import httptools

from seatrial.harness.apiserver.attempts import Answer, Call

_ANSWER_LIMIT = 3 * 1024 * 1024  # bytes; upstream's limit
_MAX_CONNECTIONS = 16  # per endpoint; further calls wait for one, and their timeout runs meanwhile
_MAX_CONTEXTS = _MAX_ENDPOINTS = 64
_TIMED_OUT = "context deadline exceeded"
Endpoint = tuple[str, int, str, str]  # host, port, name in the certificate, authorities


class HttpsCaller:
    """Sends AdmissionReviews. To be used and closed on one running event loop."""

    def __init__(self) -> None:
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._idle: dict[Endpoint, list[_Connection]] = {}
        self._gates: dict[tuple[str, int], asyncio.Semaphore] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def call(self, call: Call, done: Callable[[Answer], None]) -> None:
        async def run() -> None:
            done(await self.send(call))

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def send(self, call: Call) -> Answer:
        """The response, or an Answer with code 0 on any failure or after the call's timeout."""
        try:
            endpoint = _host_and_port(call)
        except ValueError as error:
            return Answer(0, why=str(error))
        if len(self._gates) >= _MAX_ENDPOINTS:
            self._forget_idle()
        try:
            async with (
                asyncio.timeout(call.seconds),
                self._gates.setdefault(endpoint, asyncio.Semaphore(_MAX_CONNECTIONS)),
            ):
                return await self._send(call)
        except TimeoutError:
            return Answer(0, why=_TIMED_OUT)
        except ssl.SSLCertVerificationError as error:
            return Answer(0, why=f"tls: failed to verify certificate: {error.verify_message}")
        except ssl.SSLError as error:
            return Answer(0, why=f"tls: {error.reason or error}")
        except ConnectionRefusedError:
            host, port = _host_and_port(call)
            return Answer(0, why=f"dial tcp {host}:{port}: connect: connection refused")
        except (OSError, ValueError, EOFError) as error:
            return Answer(0, why=str(error) or type(error).__name__)

    async def _send(self, call: Call) -> Answer:
        parts = urlsplit(call.url)
        if parts.scheme != "https" or not parts.hostname:
            return Answer(0, why=f"expected an https URL with a host, found {call.url!r}")
        endpoint = (*_host_and_port(call), parts.hostname, call.ca_bundle)
        path = f"{parts.path or '/'}?{parts.query}"
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {parts.netloc}\r\nuser-agent: seatrial-webhooks\r\n"
            f"content-type: application/json\r\naccept: application/json\r\ncontent-length: {len(call.body)}\r\n\r\n"
        )
        data = head.encode() + call.body
        idle = self._idle.get(endpoint)
        while idle:
            connection = idle.pop()
            try:
                return self._keep(endpoint, connection, await connection.post(data))
            except (OSError, EOFError):
                connection.close()  # closed by the other side; try the next one
            except BaseException:
                connection.close()
                raise
        connection = await self._connect(endpoint)
        try:
            return self._keep(endpoint, connection, await connection.post(data))
        except BaseException:
            connection.close()
            raise

    def _keep(self, endpoint: Endpoint, connection: "_Connection", answer: Answer) -> Answer:
        idle = self._idle.setdefault(endpoint, [])
        if connection.reusable and len(idle) < _MAX_CONNECTIONS:
            idle.append(connection)
        else:
            connection.close()
        return answer

    async def _connect(self, endpoint: Endpoint) -> "_Connection":
        host, port, name, bundle = endpoint
        context = self._contexts.get(bundle)
        if context is None:
            if len(self._contexts) >= _MAX_CONTEXTS:
                self._contexts.clear()
            context = self._contexts[bundle] = ssl.create_default_context(cadata=bundle or None)
        protocol = _Protocol(reader := asyncio.StreamReader())
        loop = asyncio.get_running_loop()
        try:
            transport, _ = await loop.create_connection(lambda: protocol, host, port, ssl=context, server_hostname=name)
        except BaseException:
            protocol.abort()
            raise
        return _Connection(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    async def close(self) -> None:
        """Cancel running calls and close all connections."""
        for task in list(self._tasks):
            task.cancel()
        self._forget_idle()
        await asyncio.sleep(0)

    def _forget_idle(self) -> None:
        """Close the idle connections, and forget endpoints of which all places are free."""
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()
        self._gates = {endpoint: gate for endpoint, gate in self._gates.items() if gate._value < _MAX_CONNECTIONS}  # noqa: SLF001


def _host_and_port(call: Call) -> tuple[str, int]:
    parts = urlsplit(call.url)
    return (call.host or parts.hostname or "", call.port or parts.port or 443)


class _Protocol(asyncio.StreamReaderProtocol):
    """Knows its transport also when the call is cancelled in the moment in which the handshake ends.

    asyncio begins a TLS shutdown then, which can outlast the event loop.
    """

    _made: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._made = cast("asyncio.WriteTransport", transport)

    def abort(self) -> None:
        if self._made is not None:
            self._made.abort()


class _Connection:
    """One HTTP/1.1 connection over TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._parser: Any = None
        self._body: list[bytes] = []
        self._complete = False
        self.reusable = False

    async def post(self, data: bytes) -> Answer:
        self._parser, self._body, self._complete = httptools.HttpResponseParser(self), [], False
        self._writer.write(data)
        size = 0
        while not self._complete:
            read = await self._reader.read(1 << 16)
            if not read:
                raise EOFError("EOF")
            size += len(read)
            if size > _ANSWER_LIMIT:
                raise ValueError(f"the answer is longer than {_ANSWER_LIMIT} bytes")
            try:
                self._parser.feed_data(read)
            except httptools.HttpParserError as error:
                raise ValueError(f"net/http: HTTP/1.x transport connection broken: {error}") from error
        code, self._parser = int(self._parser.get_status_code()), None
        return Answer(code, b"".join(self._body))

    def on_body(self, body: bytes) -> None:
        """Callback of httptools."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Callback of httptools."""
        self._complete = True
        self.reusable = bool(self._parser.should_keep_alive())

    def close(self) -> None:
        """Abort the connection: nothing is in flight, and a TLS shutdown could outlast the event loop."""
        self._writer.transport.abort()


def call_blocking(call: Call) -> Answer:
    """Call a webhook synchronously, for a cluster in virtual time, whose clock stands still meanwhile."""

    async def ask() -> Answer:
        caller = HttpsCaller()
        try:
            return await caller.send(call)
        finally:
            await caller.close()

    return asyncio.run(ask())
