"""A way to an API server that can be made to fail, for schedulers that are processes: `FaultyTransport` as a process.

It stands on the loopback interface with TLS and a token of its own, passes every request on with the credentials of
the kubeconfig it was given, and every answer back byte for byte, until commands arrive as lines of JSON on its
standard input. Each of these is answered with what has passed so far. The process ends when that input is
closed.
"""

import asyncio
import contextlib
import json
import signal
import ssl
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import httptools

from seatrial.harness.apiserver import identify, kubeconfig, make_credentials, server_context
from seatrial.harness.clusters.fault_injection.transport import (
    Expiry,
    Picks,
    decode_picks,
    expired_watch,
    in_pages,
    refusal,
)
from seatrial.harness.clusters.kubeconfig import Access, load_access
from seatrial.harness.errors import HarnessError
from seatrial.scheduler.api.clock import WallClock
from seatrial.scheduler.api.private_files import private_folder, write_private
from seatrial.scheduler.api.transport import Request, Response

LOOPBACK = "127.0.0.1"
CHUNK = 65536
_OWN = {"authorization", "host", "content-length", "transfer-encoding", "connection"}  # headers that end here


class _Parsed:
    """What httptools' parsers call; collects one message after the other."""

    def __init__(self) -> None:
        self.path, self.body = b"", b""
        self.headers: dict[str, str] = {}
        self.complete = False

    def on_message_begin(self) -> None:
        self.path, self.body, self.headers, self.complete = b"", b"", {}, False

    def on_url(self, url: bytes) -> None:
        self.path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


class _Arrived(NamedTuple):
    request: Request
    authorization: str


class _Requests(_Parsed):
    """Requests of one client, whole ones going to `arrived`."""

    def __init__(self, arrived: Callable[[_Arrived], None]) -> None:
        super().__init__()
        self._arrived = arrived
        self.parser = httptools.HttpRequestParser(self)

    def on_message_complete(self) -> None:
        method, path = self.parser.get_method().decode(), self.path.decode("latin-1")
        kept = {name: value for name, value in self.headers.items() if name not in _OWN}
        request = Request(method, path, self.body, self.headers.get("content-type", ""), kept)
        self._arrived(_Arrived(request, self.headers.get("authorization", "")))


class Proxy:
    """What is wrong at the moment, and whom it concerns."""

    def __init__(self, access: Access, *, allowed: Callable[[str, dict[str, object] | None], bool]) -> None:
        self.access, self.allowed = access, allowed
        url = urlsplit(access.url)
        assert url.hostname is not None
        self.host, self.port, self.base = url.hostname, url.port or (443 if access.tls else 80), url.path
        self.tls: ssl.SSLContext | None = access.tls
        self.refusing: tuple[int, Picks] | None = None
        self.losing: Picks | None = None
        self.expiry = Expiry()
        self.is_cut = self.holding = False
        self.page = 0  # objects of a list in one answer; 0: as many as are asked for
        self.delay = 0.0
        self.answers: Counter[int] = Counter()
        self.refused = self.lost = 0
        self.clients: set[_Client] = set()

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Do what one line asks for."""
        match order["do"]:
            case "refuse":
                self.refusing = int(order["code"]), decode_picks(order["picks"])
            case "lose":
                self.losing = decode_picks(order["picks"])
            case "cut":
                self.is_cut = True
                self._break()
            case "break":
                self._break()
            case "expire":
                self.expiry.begin()
                self._break()
            case "hold":
                self.holding = True
            case "pages":
                self.page = int(order["size"])
            case "delay":
                self.delay = float(order["seconds"])
            case "heal":
                self.refusing = self.losing = None
                self.is_cut = self.holding = False
                self.page = 0
                for client in list(self.clients):
                    client.catch_up()
        answers = {str(code): count for code, count in self.answers.items()}
        return {"answers": answers, "refused": self.refused, "lost": self.lost}

    def _break(self) -> None:
        for client in list(self.clients):
            if client.streams:
                client.drop()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client, until it goes."""
        client = _Client(self, reader, writer)
        self.clients.add(client)
        try:
            await client.serve()
        except (OSError, asyncio.IncompleteReadError, httptools.HttpParserError):
            client.drop()
        finally:
            self.clients.discard(client)
            client.drop()


class _Answer(_Parsed):
    """One answer."""

    def __init__(self) -> None:
        super().__init__()
        self.code, self.keep = 0, False
        self.parser = httptools.HttpResponseParser(self)

    def on_body(self, body: bytes) -> None:
        """It is passed on as it came."""

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.code, self.keep = self.parser.get_status_code(), self.parser.should_keep_alive()


class _Client:
    """One connection of the scheduler, and the one that stands for it on the other side."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy, self._reader, self._writer = proxy, reader, writer
        self._known = writer.get_extra_info("peercert")
        self._requests: asyncio.Queue[_Arrived | None] = asyncio.Queue()
        self._onward: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._held: list[bytes] = []
        self.streams = False  # a watch or a log is running

    async def serve(self) -> None:
        listening = asyncio.create_task(self._listen())
        try:
            while (arrived := await self._requests.get()) is not None:
                await self._carry_out(arrived.request, arrived.authorization)
        finally:
            listening.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError, httptools.HttpParserError):
                await listening

    async def _listen(self) -> None:
        requests = _Requests(self._requests.put_nowait)
        try:
            while data := await self._reader.read(CHUNK):
                requests.parser.feed_data(data)
        finally:
            self._requests.put_nowait(None)
            if self.streams:
                self.drop()  # the client no longer reads this watch

    async def _carry_out(self, request: Request, authorization: str) -> None:
        proxy = self._proxy
        if proxy.is_cut:
            raise ConnectionResetError
        if not proxy.allowed(authorization, self._known):
            self._answer(Response(401, b"this proxy does not know you"))
            return
        if proxy.refusing is not None and proxy.refusing[1](request):
            proxy.refused += 1
            await asyncio.sleep(proxy.delay)
            self._answer(refusal(proxy.refusing[0]))
            return
        if proxy.expiry.concerns(request):
            proxy.answers[410] += 1
            await asyncio.sleep(proxy.delay)
            self._answer(expired_watch(request))
            return
        lose = proxy.losing is not None and proxy.losing(request)
        query = parse_qs(urlsplit(request.path).query)
        self.streams = any(query.get(word, [""])[0] in {"1", "true"} for word in ("watch", "follow"))
        reader, onward = await self._connect()
        onward.write(self._encoded(in_pages(request, proxy.page)))
        await self._pass_on(reader, lose=lose)
        self.streams = False
        if lose:
            proxy.lost += 1
            raise ConnectionResetError

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._onward is None or self._onward[0].at_eof():
            proxy = self._proxy
            self._onward = await asyncio.open_connection(proxy.host, proxy.port, ssl=proxy.tls)
        return self._onward

    def _close_onward(self) -> None:
        if self._onward is not None:
            self._onward[1].close()
            self._onward = None

    def _encoded(self, request: Request) -> bytes:
        proxy = self._proxy
        headers = {**request.headers, **proxy.access.headers, "host": f"{proxy.host}:{proxy.port}"}
        if request.body or request.method in {"POST", "PUT", "PATCH"}:
            headers["content-length"] = str(len(request.body))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{request.method} {proxy.base}{request.path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + request.body

    async def _pass_on(self, reader: asyncio.StreamReader, *, lose: bool) -> None:
        """One answer; that of a stream as it comes, any other whole."""
        answer = _Answer()
        whole: list[bytes] = []
        while not answer.complete:
            data = await reader.read(CHUNK)
            if not data:
                raise ConnectionResetError
            answer.parser.feed_data(data)
            if self.streams:
                self._show(data)
            else:
                whole.append(data)
        if whole:
            await asyncio.sleep(self._proxy.delay)
        self._proxy.answers[0 if lose else answer.code] += 1
        if not lose:
            self._writer.write(b"".join(whole))
        if not answer.keep:
            self._close_onward()

    def _show(self, data: bytes) -> None:
        if self._proxy.holding:
            self._held.append(data)
        else:
            self._writer.write(data)

    def catch_up(self) -> None:
        """Send the data that was held back."""
        held, self._held = self._held, []
        for data in held:
            self._writer.write(data)

    def _answer(self, response: Response) -> None:
        self._proxy.answers[response.code] += 1
        headers = {"content-type": "application/json", **response.headers, "content-length": str(len(response.body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._writer.write(f"HTTP/1.1 {response.code} Status\r\n{lines}\r\n".encode() + response.body)

    def drop(self) -> None:
        """Break both connections, as a cable that is pulled out does."""
        for writer in (self._writer, self._onward[1] if self._onward is not None else None):
            if writer is not None:
                writer.transport.abort()
        self._requests.put_nowait(None)


async def _serve(upstream: Path, offered: Path) -> None:
    loop = asyncio.get_running_loop()
    credentials = make_credentials([LOOPBACK], WallClock(loop).now())

    def allowed(authorization: str, certificate: dict[str, object] | None) -> bool:
        return identify(credentials, authorization, certificate) is not None

    proxy = Proxy(load_access(upstream), allowed=allowed)
    with private_folder() as folder:
        tls = server_context(credentials, folder)
    listener = await asyncio.start_server(proxy.serve, LOOPBACK, 0, ssl=tls)
    port = listener.sockets[0].getsockname()[1]
    write_private(offered, kubeconfig(credentials, f"https://{LOOPBACK}:{port}"))
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    print(json.dumps({"kubeconfig": str(offered)}), flush=True)  # noqa: T201 the answer to the parent
    loop.add_signal_handler(signal.SIGTERM, orders.feed_eof)  # the end of the parent process is the end of the orders
    while line := await orders.readline():
        try:
            answer = proxy.obey(json.loads(line))
        except ValueError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)  # noqa: T201
    listener.close()
    for client in list(proxy.clients):
        client.drop()


def main() -> int:
    """`python -m seatrial.harness.clusters.fault_injection.proxy KUBECONFIG OFFERED`: for `proxy_process`, not for
    people.
    """
    try:
        asyncio.run(_serve(Path(sys.argv[1]), Path(sys.argv[2])))
    except HarnessError as error:
        print(json.dumps({"error": str(error)}), flush=True)  # noqa: T201
        return 2
    finally:
        with contextlib.suppress(OSError):
            Path(sys.argv[2]).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
