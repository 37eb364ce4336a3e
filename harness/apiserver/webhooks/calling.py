"""Calls webhooks over HTTPS from an event loop, where nobody waits for anybody else's answer.

One question, one POST. Connections are kept for the next question to the same place, since TLS costs more than all the
rest; whatever breaks on a kept connection before an answer has begun is tried once more on a fresh one.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httptools

from harness.apiserver.webhooks.attempts import Answer, Call

_ANSWER_LIMIT = 3 * 1024 * 1024  # bytes, upstream's
_LINES = 16  # connections to one place at a time; more questions wait for one, and their time begins then
_CONTEXTS = 64
_TIMED_OUT = "context deadline exceeded"
Place = tuple[str, int, str, str]  # host, port, name in the certificate, authorities


class HttpsCaller:
    """Puts questions; use it on a running loop and close it there."""

    def __init__(self) -> None:
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._idle: dict[Place, list[_Line]] = {}
        self._gates: dict[tuple[str, int], asyncio.Semaphore] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def call(self, call: Call, done: Callable[[Answer], None]) -> None:
        async def run() -> None:
            done(await self.ask(call))

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def ask(self, call: Call) -> Answer:
        """The answer, whatever happens, within the call's time."""
        try:
            place = _where(call)
        except ValueError as error:
            return Answer(0, why=str(error))
        async with self._gates.setdefault(place, asyncio.Semaphore(_LINES)):
            return await self._ask_in_time(call)

    async def _ask_in_time(self, call: Call) -> Answer:
        try:
            async with asyncio.timeout(call.seconds):
                return await self._ask(call)
        except TimeoutError:
            return Answer(0, why=_TIMED_OUT)
        except ssl.SSLCertVerificationError as error:
            return Answer(0, why=f"tls: failed to verify certificate: {error.verify_message}")
        except ssl.SSLError as error:
            return Answer(0, why=f"tls: {error.reason or error}")
        except ConnectionRefusedError:
            host, port = _where(call)
            return Answer(0, why=f"dial tcp {host}:{port}: connect: connection refused")
        except (OSError, ValueError, EOFError) as error:
            return Answer(0, why=str(error) or type(error).__name__)

    async def _ask(self, call: Call) -> Answer:
        parts = urlsplit(call.url)
        if parts.scheme != "https" or not parts.hostname:
            return Answer(0, why=f"expected an https URL with a host, found {call.url!r}")
        place = (*_where(call), parts.hostname, call.ca_bundle)
        path = f"{parts.path or '/'}?{parts.query}"
        lines = (
            f"POST {path} HTTP/1.1\r\nhost: {parts.netloc}\r\nuser-agent: seatrial-webhooks\r\n"
            f"content-type: application/json\r\naccept: application/json\r\ncontent-length: {len(call.body)}\r\n\r\n"
        )
        data = lines.encode() + call.body
        kept = self._idle.get(place)
        while kept:
            line = kept.pop()
            try:
                return self._keep(place, line, await line.ask(data))
            except (OSError, EOFError):
                line.close()  # it had been closed at the other end; the next one may live
            except BaseException:
                line.close()
                raise
        line = await self._connect(place)
        try:
            return self._keep(place, line, await line.ask(data))
        except BaseException:
            line.close()
            raise

    def _keep(self, place: Place, line: "_Line", answer: Answer) -> Answer:
        kept = self._idle.setdefault(place, [])
        if line.reusable and len(kept) < _LINES:
            kept.append(line)
        else:
            line.close()
        return answer

    async def _connect(self, place: Place) -> "_Line":
        host, port, name, bundle = place
        context = self._contexts.get(bundle)
        if context is None:
            if len(self._contexts) >= _CONTEXTS:
                self._contexts.clear()
            context = self._contexts[bundle] = ssl.create_default_context(cadata=bundle or None)
        reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
        return _Line(reader, writer)

    async def close(self) -> None:
        """Give up what is under way and close what is kept."""
        for task in list(self._tasks):
            task.cancel()
        for lines in self._idle.values():
            for line in lines:
                line.close()
        self._idle.clear()
        await asyncio.sleep(0)


def _where(call: Call) -> tuple[str, int]:
    parts = urlsplit(call.url)
    return (call.host or parts.hostname or "", call.port or parts.port or 443)


class _Line:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._parser: Any = None
        self._body: list[bytes] = []
        self._complete = False
        self.reusable = False

    async def ask(self, data: bytes) -> Answer:
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
        """httptools calls it."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """httptools calls it."""
        self._complete = True
        self.reusable = bool(self._parser.should_keep_alive())

    def close(self) -> None:
        """At once: nothing is under way, and a farewell would outlast a loop that ends."""
        self._writer.transport.abort()


def ask_and_wait(call: Call) -> Answer:
    """The answer, for a cluster in virtual time: nothing else happens meanwhile, as its time stands still."""

    async def ask() -> Answer:
        caller = HttpsCaller()
        try:
            return await caller.ask(call)
        finally:
            await caller.close()

    return asyncio.run(ask())
