"""The benchmarks' HTTP client, with a server that closes connections."""

import asyncio
from itertools import count

from seatrial.harness.bench.raw_http import RawClient
from seatrial.harness.clusters.kubeconfig import Access


async def codes_of(closes: set[int], requests: int) -> list[int]:
    """The status codes of requests of a client with two connections, one request after the other.

    The connections with the numbers `closes` are closed after their first answer, as idle ones are after some minutes.
    The next request is sent when the client has noticed.
    """
    numbers = count()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = next(numbers)
        while not reader.at_eof():
            await reader.readuntil(b"{}")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            if number in closes:
                break
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        client = RawClient(Access(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"), connections=2)
        await client.connect()
        codes = []
        for number in range(requests):
            codes += await client.send_all([client.render("/version", b"{}")])
            while client.open > 2 - len([each for each in closes if each <= number]):  # noqa: ASYNC110 no event says so
                await asyncio.sleep(0)
        await client.close()
    return codes


def test_a_connection_that_the_server_has_closed_is_not_used_again() -> None:
    assert asyncio.run(codes_of({0}, 4)) == [200] * 4


def test_without_a_connection_there_is_no_answer() -> None:
    assert asyncio.run(codes_of({0, 1}, 4)) == [200, 200, 0, 0]


def test_requests_that_wait_for_a_lost_connection_end() -> None:
    async def lost() -> list[int]:
        async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
            client = RawClient(Access(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"), connections=1)
            await client.connect()
            return await client.send_all([client.render("/version", b"{}")] * 3)

    assert asyncio.run(lost()) == [0, 0, 0]
