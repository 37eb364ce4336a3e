"""The HTTP server of the live page: loopback only, behind a token in the path.

`/TOKEN/` is the page, `/TOKEN/stream` are its rows as server-sent events: first all, then what changes. A request whose
Host is another name is refused (DNS rebinding), and so is one without the token. Nothing can be changed through it.
"""

import hmac
import secrets
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any
from urllib.parse import unquote

import jinja2
import msgspec

from seatrial.reports.signoff import TEMPLATES
from seatrial.reports.texts import own_text

MAX_STREAMS = 8
MAX_WAITING = 30  # messages that a slow browser may lag behind
LOOK = 1.0  # seconds between two looks whether a browser that gets no message is still there
HERE = Path(__file__).parent
NAMES = ("127.0.0.1", "localhost")

Answer = Callable[[list[str]], tuple[str, bytes] | None]
"""Content type and body for the parts of a path below the token; None: there is nothing."""


class Streams:
    """The browsers that look at the page. Threads of requests open and close, the page's own loop publishes."""

    def __init__(self) -> None:
        self._open: dict[Queue[bytes], bool] = {}  # whether it has got all rows
        self._change = threading.Condition()

    def open(self) -> "Queue[bytes] | None":
        """A queue of messages; None if there are too many."""
        with self._change:
            if len(self._open) >= MAX_STREAMS:
                return None
            queue = Queue[bytes](MAX_WAITING)
            self._open[queue] = False
            self._change.notify_all()
            return queue

    def close(self, queue: "Queue[bytes]") -> None:
        with self._change:
            self._open.pop(queue, None)

    def is_open(self, queue: "Queue[bytes]") -> bool:
        return queue in self._open

    def wait(self) -> None:
        """Return once somebody looks."""
        with self._change:
            self._change.wait_for(lambda: bool(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def publish(self, changes: bytes | None, everything: Callable[[], bytes]) -> None:
        """Hand out what has changed, and all rows to who has none yet. Who lags behind is dropped, and asks again."""
        with self._change:
            for queue, informed in [*self._open.items()]:
                message = changes if informed else everything()
                self._open[queue] = True
                try:
                    if message is not None:
                        queue.put_nowait(message)
                except Full:
                    del self._open[queue]


class LiveServer(ThreadingHTTPServer):
    """Serves one page on a socket that listens already."""

    daemon_threads = True

    def __init__(self, listening: socket.socket, token: str, title: str, streams: Streams, answer: Answer) -> None:
        """`answer` is called in threads of requests."""
        super().__init__(listening.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.token, self.title, self.streams, self.answer = token, title, streams, answer
        self.hosts = frozenset(f"{name}:{listening.getsockname()[1]}" for name in NAMES)


def page(title: str, nonce: str, rows: str = "") -> bytes:
    """The page; only its own style and script, which have the nonce, are run.

    `rows`: all tables as JSON, which stay as they are; without them the page asks for a stream.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([HERE, TEMPLATES]), autoescape=True, undefined=jinja2.StrictUndefined
    )
    parts = {"style": own_text(TEMPLATES / "colors.css", HERE / "page.css"), "script": own_text(HERE / "page.js")}
    return environment.get_template("page.html").render(title=title, nonce=nonce, rows=rows, **parts).encode()


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    timeout = 30.0  # seconds for a request to arrive, and for a browser to take a message
    server_version, sys_version = "seatrial", ""

    def do_GET(self) -> None:
        if self.headers.get("host") not in self.server.hosts:
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "this page is served for this machine's own browser")
            return
        token, _, rest = self.path.partition("?")[0].removeprefix("/").partition("/")
        parts = [unquote(part) for part in rest.split("/")]
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._refuse(HTTPStatus.FORBIDDEN, "expected the token in the address; `seatrial up --web` printed it")
        elif parts == [""]:
            nonce = secrets.token_urlsafe(16)
            self._send("text/html; charset=utf-8", page(self.server.title, nonce), nonce)
        elif parts == ["stream"]:
            self._stream()
        elif (answer := self.server.answer(parts)) is not None:
            self._send(*answer)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def _stream(self) -> None:
        streams = self.server.streams
        queue = streams.open()
        if queue is None:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{MAX_STREAMS} pages are open already; close one")
            return
        try:
            self._head(HTTPStatus.OK, "text/event-stream")
            while streams.is_open(queue) and not self._has_gone():
                with suppress(Empty):
                    self.wfile.write(b"data: " + queue.get(timeout=LOOK) + b"\n\n")
        except OSError:  # the browser has gone in the middle of a message
            pass
        finally:
            streams.close(queue)

    def _has_gone(self) -> bool:
        """Whether the browser has closed its end."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def _send(self, content_type: str, body: bytes, nonce: str = "") -> None:
        self._head(HTTPStatus.OK, content_type, nonce)
        self.wfile.write(body)

    def _refuse(self, status: HTTPStatus, words: str) -> None:
        self._head(status, "text/plain; charset=utf-8")
        self.wfile.write(f"{words}\n".encode())

    def _head(self, status: HTTPStatus, content_type: str, nonce: str = "") -> None:
        own = (
            f"style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; "
            if nonce
            else "sandbox; "
        )
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header(
            "content-security-policy",
            f"default-src 'none'; {own}base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        )
        for name, value in (
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cache-control", "no-store"),
        ):
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the base's name
        """Paths have the token: they are not logged."""


def json_answer(value: Any) -> tuple[str, bytes]:
    """An answer in JSON."""
    return "application/json; charset=utf-8", msgspec.json.encode(value)
