"""The HTTP transport against a real socket."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from seatrial.scheduler.api.faults import Faults
from seatrial.scheduler.api.transport import Request, Response
from seatrial.scheduler.client import http
from seatrial.scheduler.client.http import HttpTransport
from seatrial.scheduler.client.kubeconfig import Server

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return first, headers, await reader.readexactly(int(headers.get("content-length", 0)))


def answer(body: bytes, code: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {code}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


def run(
    handler: Handler,
    test: Callable[[HttpTransport], Awaitable[None]],
    *,
    token_file: Path | None = None,
    **options: int,
) -> None:
    async def main() -> None:
        served: list[asyncio.Task[None]] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served.append(cast("asyncio.Task[None]", asyncio.current_task()))
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await handler(reader, writer)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        transport = HttpTransport(Server("127.0.0.1", port, "", None, "Bearer abc", token_file), Faults(), **options)
        async with asyncio.timeout(60):
            await test(transport)
            transport.close()
            server.close()
            await asyncio.gather(*served)
            await server.wait_closed()

    asyncio.run(main())


async def send(transport: HttpTransport, request: Request) -> Response:
    future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    transport.send(request, future.set_result)
    return await future


def test_requests_and_answers() -> None:
    seen = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            seen.append(await read_request(reader))
            writer.write(answer(b'{"a":1}', "201 Created", "X-Thing: yes\r\n"))

    async def test(transport: HttpTransport) -> None:
        response = await send(transport, Request("POST", "/x?y=1", b'{"b":2}', headers={"X-More": "1"}))
        assert (response.code, response.body, response.headers["x-thing"]) == (201, b'{"a":1}', "yes")
        await send(transport, Request("GET", "/z"))

    run(handler, test)
    (line, headers, body), (second, *_) = seen
    assert line == "POST /x?y=1 HTTP/1.1"
    assert body == b'{"b":2}'
    assert headers["authorization"] == "bearer abc"
    assert headers["x-more"] == "1"
    assert second == "GET /z HTTP/1.1"


def test_the_token_of_a_service_account_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """kubelet replaces the token while the process runs."""
    monkeypatch.setattr(http, "TOKEN_AGE", 0.0)
    seen = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            seen.append((await read_request(reader))[1]["authorization"])
            writer.write(answer(b"{}"))

    async def test(transport: HttpTransport) -> None:
        for token in ("one", "two"):
            (tmp_path / "token").write_text(f"{token}\n")
            await send(transport, Request("GET", "/"))

    run(handler, test, token_file=tmp_path / "token")
    assert seen == ["bearer one", "bearer two"]


def test_many_requests_share_few_connections() -> None:
    connections = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            line, _, _ = await read_request(reader)
            writer.write(answer(line.split()[1].encode()))

    async def test(transport: HttpTransport) -> None:
        answers = await asyncio.gather(*(send(transport, Request("GET", f"/{n}")) for n in range(200)))
        assert [item.body for item in answers] == [f"/{n}".encode() for n in range(200)]

    run(handler, test, connections=4)
    assert connections == 4


def test_an_answer_that_raises_does_not_cost_the_other_requests_of_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every third request of many on two connections is answered to code that raises an exception."""
    connections = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            line, _, _ = await read_request(reader)
            writer.write(answer(line.split()[1].encode()))

    def broken(_: Response) -> None:
        raise TypeError("a fault")

    async def test(transport: HttpTransport) -> None:
        waiting = []
        for number in range(60):
            if number % 3:
                waiting.append(asyncio.ensure_future(send(transport, Request("GET", f"/{number}"))))
                await asyncio.sleep(0)
            else:
                transport.send(Request("GET", f"/{number}"), broken)
        answers = await asyncio.gather(*waiting)
        assert [item.code for item in answers] == [200] * 40
        assert transport._faults.counts.total() == 20

    run(handler, test, connections=2)
    assert connections == 2
    assert "fault id=1" in caplog.text


def test_a_line_that_raises_does_not_end_its_stream() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n" + b"one\ntwo\nsix\n")

    async def test(transport: HttpTransport) -> None:
        lines: list[bytes] = []
        ended: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def on_line(line: bytes) -> None:
            if line == b"two":
                raise TypeError("a fault")
            lines.append(line)

        transport.stream(Request("GET", "/watch"), on_line, ended.set_result)
        assert (await ended).code == 200
        assert lines == [b"one", b"six"]

    run(handler, test)


def test_a_stream_comes_line_by_line_however_it_is_cut() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (b'{"n":1}\n{"n"', b":2", b'}\n{"n":3}\n'):
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")

    async def test(transport: HttpTransport) -> None:
        lines: list[bytes] = []
        ended: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        transport.stream(Request("GET", "/watch"), lines.append, ended.set_result)
        assert (await ended).ok
        assert lines == [b'{"n":1}', b'{"n":2}', b'{"n":3}']

    run(handler, test)


def test_a_refused_stream_ends_with_the_refusal() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer(b'{"code":410}', "410 Gone"))

    async def test(transport: HttpTransport) -> None:
        ended: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        transport.stream(Request("GET", "/watch"), lambda _: None, ended.set_result)
        response = await ended
        assert (response.code, response.body) == (410, b'{"code":410}')

    run(handler, test)


def test_a_closed_stream_says_nothing_more() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await reader.read()  # until the client goes

    async def test(transport: HttpTransport) -> None:
        ended: list[Response] = []
        stream = transport.stream(Request("GET", "/watch"), lambda _: None, ended.append)
        await asyncio.sleep(0.05)
        stream.close()
        stream.close()
        await asyncio.sleep(0.05)
        assert ended == []

    run(handler, test)


def test_a_server_that_is_not_there_is_an_answer_too() -> None:
    async def main() -> None:
        transport = HttpTransport(Server("127.0.0.1", 1, "", None, ""))
        response = await send(transport, Request("GET", "/"))
        assert response.code == 0
        assert b"127.0.0.1:1:" in response.body

    asyncio.run(main())


def test_a_connection_cut_in_the_middle_is_an_answer_too() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")

    async def test(transport: HttpTransport) -> None:
        response = await send(transport, Request("GET", "/"))
        assert response.code == 0
        assert b"connection lost" in response.body

    run(handler, test)


def test_silence_is_given_up_after_a_while() -> None:
    async def handler(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async def test(transport: HttpTransport) -> None:
        response = await send(transport, Request("GET", "/"))
        assert response.code == 0
        assert b"no answer within" in response.body

    before = http.ANSWER_WITHIN
    try:
        http.ANSWER_WITHIN = 0.05
        run(handler, test)
    finally:
        http.ANSWER_WITHIN = before


async def send_together(transport: HttpTransport, count: int) -> list[Response]:
    return await asyncio.gather(*(send(transport, Request("POST", f"/{n}")) for n in range(count)))


async def read_waiting(reader: asyncio.StreamReader) -> list[str]:
    """The paths of a request and of all that came with it."""
    data = await reader.read(1 << 16)
    if not data:
        raise ConnectionResetError
    return [line.split()[1].decode() for line in data.split(b"\r\n") if line.startswith(b"POST ")]


def test_requests_of_one_turn_share_a_write_where_connections_are_few() -> None:
    came: list[list[str]] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            came.append(await read_waiting(reader))
            writer.write(b"".join(answer(path.encode()) for path in came[-1]))

    async def test(transport: HttpTransport) -> None:
        for _ in range(2):
            answers = await send_together(transport, 10)
            assert [item.body for item in answers] == [f"/{n}".encode() for n in range(10)]

    run(handler, test, connections=2)
    assert [len(paths) for paths in came] == [5, 5, 5, 5]


def test_what_a_closing_server_has_not_looked_at_is_sent_again_once() -> None:
    done: list[str] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        paths = await read_waiting(reader)
        done.extend(paths[:2])
        for path in paths[:2]:
            writer.write(answer(path.encode(), more="Connection: close\r\n" if path == paths[:2][-1] else ""))
        await writer.drain()

    async def test(transport: HttpTransport) -> None:
        answers = await send_together(transport, 7)
        assert [item.body for item in answers] == [f"/{n}".encode() for n in range(7)]

    run(handler, test, connections=1)
    assert sorted(done) == [f"/{n}" for n in range(7)]


def test_a_connection_lost_is_the_answer_to_all_that_it_carried() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        paths = await read_waiting(reader)
        writer.write(answer(paths[0].encode()))
        await writer.drain()

    async def test(transport: HttpTransport) -> None:
        answers = await send_together(transport, 4)
        assert [item.code for item in answers] == [200, 0, 0, 0]
        assert all(b"connection lost" in item.body for item in answers[1:])

    run(handler, test, connections=1)


@pytest.mark.parametrize(
    ("pause", "together"),
    [
        pytest.param(0.0, 4, id="quick-answers-may-wait-for-each-other"),
        pytest.param(0.01, 1, id="slow-answers-come-over-connections-of-their-own"),
    ],
)
def test_how_many_a_connection_gets_follows_from_how_fast_answers_come(pause: float, together: int) -> None:
    came: list[list[str]] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            came.append(await read_waiting(reader))
            if pause:
                for path in came[-1]:
                    writer.write(answer(path.encode()))
                    await writer.drain()
                    await asyncio.sleep(pause)
            else:
                writer.write(b"".join(answer(path.encode()) for path in came[-1]))

    async def test(transport: HttpTransport) -> None:
        for _ in range(2):  # more than connections: each gets some, and it is seen how that goes
            await send_together(transport, 16)
        came.clear()
        await send_together(transport, 4)

    run(handler, test, connections=4)
    assert max(len(paths) for paths in came) == together
