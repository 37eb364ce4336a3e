"""A server behind a TLS socket, for tests of the wire protocol."""

import asyncio
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import orjson
import uvloop

from seatrial.harness.apiserver.access.authentication import authenticate
from seatrial.harness.apiserver.access.credentials import Credentials, make_credentials, server_context
from seatrial.harness.apiserver.assembly import build_server
from seatrial.harness.apiserver.server import ApiServer
from seatrial.harness.apiserver.transport.listener import HttpServer
from seatrial.scheduler.api.clock import Clock, WallClock

PATIENCE = 60.0  # seconds that a test waits for bytes before it fails


class Served:
    """A running server."""

    def __init__(self, port: int, credentials: Credentials, api: ApiServer, http: HttpServer) -> None:
        self.port, self.credentials, self.api, self.http = port, credentials, api, http
        self.context = ssl.create_default_context(cadata=credentials.authority.decode())
        self.loop: asyncio.AbstractEventLoop

    def connect(self) -> "Wire":
        plain = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        return Wire(self.context.wrap_socket(plain, server_hostname="127.0.0.1"), self.credentials.token)


class Wire:
    """One connection."""

    def __init__(self, plug: ssl.SSLSocket, token: str) -> None:
        self.plug, self.token = plug, token
        self._left = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.plug.close()

    def send(self, data: bytes) -> None:
        self.plug.sendall(data)

    def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
        """The bytes of a request. Header names have underscores for dashes."""
        fields = {"host": "x", "authorization": f"Bearer {self.token}", "content-length": str(len(body))}
        fields.update({name.replace("_", "-"): value for name, value in headers.items()})
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
        return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        data = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        self.send(self.request(method, path, data, **headers))
        return self.answer()

    def answer(self) -> tuple[int, Any]:
        """Code and decoded body of the next response; (0, None) if the server closes the connection."""
        head = self._until(b"\r\n\r\n")
        if not head:
            return 0, None
        lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        code = int(lines[0].split()[1])
        self.fields = fields
        if "chunked" in fields.get("transfer-encoding", ""):
            return code, None
        size = int(fields["content-length"])
        while len(self._left) < size:
            more = self._receive()
            assert more, "the connection ended within an answer"
            self._left += more
        body, self._left = self._left[:size], self._left[size:]
        return code, orjson.loads(body) if fields["content-type"].startswith("application/json") and body else body

    def chunk(self) -> bytes:
        """The next chunk of a stream; empty at its end or at the end of the connection."""
        size = self._until(b"\r\n")
        if not size:
            return b""
        amount = int(size, 16) + 2
        while len(self._left) < amount:
            more = self._receive()
            if not more:
                return b""
            self._left += more
        data, self._left = self._left[: amount - 2], self._left[amount:]
        return data

    def events(self, count: int) -> list[Any]:
        """The next events of a watch."""
        lines: list[bytes] = []
        while len(lines) < count:
            data = self.chunk()
            if not data:
                break
            lines += data.splitlines()
        return [orjson.loads(line) for line in lines]

    def closed(self) -> bool:
        """Whether the server closes the connection; further output is ignored."""
        while self._receive():
            pass
        return True

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._left:
            more = self._receive()
            if not more:
                return b""
            self._left += more
        head, _, self._left = self._left.partition(mark)
        return head

    def _receive(self) -> bytes:
        try:
            return self.plug.recv(1 << 16)
        except (ConnectionError, ssl.SSLError):
            return b""


@contextmanager
def served(make: Callable[[Clock], ApiServer] | None = None) -> Iterator[Served]:
    """A server that runs in its own thread."""
    ready = threading.Event()
    box: list[Served] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        clock = WallClock(loop)
        credentials = make_credentials(["127.0.0.1"], clock.now())
        api = make(clock) if make is not None else build_server(clock, authority=credentials.signer)
        http = HttpServer(api, partial(authenticate, credentials, api.tokens))
        with tempfile.TemporaryDirectory() as folder:
            port = await http.listen("127.0.0.1", 0, server_context(credentials, Path(folder)))
        place = Served(port, credentials, api, http)
        place.loop = loop
        box.append(place)
        ready.set()
        await stopped.wait()
        await http.close()

    stopped = asyncio.Event()
    thread = threading.Thread(target=lambda: uvloop.run(run()), daemon=True)
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield box[0]
    finally:
        box[0].loop.call_soon_threadsafe(stopped.set)
        thread.join(PATIENCE)
