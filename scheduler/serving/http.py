"""A small HTTP/1.1 server on an asyncio loop, for a few requests a minute."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

import httptools

from seatrial.scheduler.serving.routes import Answer, Routes, text

MAX_BODY = 4 << 20  # bytes
IDLE_SECONDS = 60.0


class _Connection(asyncio.Protocol):
    """Answers requests of one connection until it is closed or idle for too long."""

    def __init__(self, routes: Routes, draining: Callable[[], bool]) -> None:
        self._routes = routes
        self._draining = draining
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._target = b""
        self._body: list[bytes] = []
        self._accept = ""
        self._idle: asyncio.TimerHandle | None = None

    # callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit from it
        self._wait()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        self._transport = None
        if self._idle is not None:
            self._idle.cancel()

    def data_received(self, data: bytes) -> None:
        self._wait()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._send(text("400 upgrades are not served here", 400), keep=False)
        except httptools.HttpParserError as error:
            self._send(text(f"400 not HTTP: {error}", 400), keep=False)

    def _wait(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._hang_up)

    def _hang_up(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # callbacks of the parser

    def on_message_begin(self) -> None:
        self._target, self._body, self._accept = b"", [], ""

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"accept":
            self._accept = value.decode("latin-1")

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_body(self, part: bytes) -> None:
        self._body.append(part)
        if sum(map(len, self._body)) > MAX_BODY:
            self._send(text("413 request entity too large", 413), keep=False)

    def on_message_complete(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        method, target = self._parser.get_method().decode(), self._target.decode("latin-1")
        answer = self._routes.answer(method, target, b"".join(self._body), self._accept)
        keep = self._parser.should_keep_alive() and not self._draining()
        self._send(answer, keep=keep, head=method == "HEAD")

    def _send(self, answer: Answer, *, keep: bool, head: bool = False) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        lines = [
            f"HTTP/1.1 {answer.code} {HTTPStatus(answer.code).phrase}",
            f"Content-Type: {answer.content_type}",
            f"Content-Length: {len(answer.body)}",
            *(f"{name}: {value}" for name, value in answer.headers.items()),
            *([] if keep else ["Connection: close"]),
        ]
        self._transport.write("\r\n".join([*lines, "", ""]).encode() + (b"" if head else answer.body))
        if not keep:
            self._transport.close()


def _never() -> bool:
    return False


async def serve(
    routes: Routes, address: str, port: int, tls: ssl.SSLContext | None = None, draining: Callable[[], bool] = _never
) -> asyncio.Server:
    """Start to listen. Port 0: any free port. With `tls`: HTTPS. While `draining`, an answer ends its connection.

    Raises:
        OSError: the address cannot be had, because something else has it or it is not this machine's.
    """
    return await asyncio.get_running_loop().create_server(lambda: _Connection(routes, draining), address, port, ssl=tls)


async def serve_on(
    routes: Routes, listening: socket.socket, tls: ssl.SSLContext | None = None, draining: Callable[[], bool] = _never
) -> asyncio.Server:
    """As `serve`, on a socket that listens already."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: _Connection(routes, draining), sock=listening, ssl=tls)
