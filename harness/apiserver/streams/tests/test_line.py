"""Flow control of upgraded connections, with real sockets."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from seatrial.harness.apiserver.streams.line import HELD, UNREAD, Inlet, Line

WITHIN = 60.0
QUIET = 100  # turns of the loop without any input after which none is on its way


class Taking(asyncio.Protocol):
    """The server's end of a line: counts what comes in."""

    def __init__(self) -> None:
        self.line: Line
        self.inlet: Inlet
        self.received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.line = Line(asyncio.get_running_loop(), transport, transport.close)
        self.inlet = Inlet(self.line)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self.inlet.put(data)

    def pause_writing(self) -> None:
        self.line.paused()

    def resume_writing(self) -> None:
        self.line.resumed()

    def connection_lost(self, error: Exception | None) -> None:
        self.line.lost()


def over_sockets(body: Callable[[Taking, socket.socket], Awaitable[None]]) -> None:
    async def run() -> None:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        with theirs:
            transport, taking = await asyncio.get_running_loop().create_connection(Taking, sock=ours)
            async with asyncio.timeout(WITHIN):
                await body(taking, theirs)
            transport.abort()
            await asyncio.sleep(0)

    asyncio.run(run())


async def quiet(taking: Taking) -> None:
    """Wait until nothing is read any more, counted in turns of the loop: a busy machine takes longer for them."""
    turns, before = 0, -1
    while turns < QUIET:
        turns = turns + 1 if taking.received == before else 0
        before = taking.received
        await asyncio.sleep(0)


def test_reading_stops_while_input_is_not_consumed() -> None:
    async def body(taking: Taking, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        sending = loop.create_task(loop.sock_sendall(client, bytes(8 * HELD)))
        await quiet(taking)
        held = taking.received
        assert HELD < held < 3 * HELD
        assert not sending.done()
        taken = 0
        while taken < 8 * HELD:
            taken += len(await taking.inlet.take())
        await sending
        assert taking.received == 8 * HELD

    over_sockets(body)


def test_a_shut_inlet_does_not_block_the_client() -> None:
    async def body(taking: Taking, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        sending = loop.create_task(loop.sock_sendall(client, bytes(8 * HELD)))
        await quiet(taking)
        taking.inlet.shut()
        await sending
        assert await taking.inlet.take() == b""

    over_sockets(body)


def test_a_client_that_reads_nothing_is_not_read() -> None:
    async def body(taking: Taking, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        taking.inlet.shut()
        for _ in range(40):  # responses written without waiting for room
            taking.line.write(bytes(UNREAD // 16))
        assert taking.line.stuck
        sending = loop.create_task(loop.sock_sendall(client, bytes(4 << 20)))
        await quiet(taking)
        assert not sending.done()
        read = 0
        while read < 40 * (UNREAD // 16):
            read += len(await loop.sock_recv(client, 1 << 16))
        await taking.line.room()
        await sending

    over_sockets(body)


def test_waiting_for_room_ends_when_the_line_is_lost() -> None:
    async def body(taking: Taking, client: socket.socket) -> None:
        taking.line.write(bytes(8 << 20))
        client.close()
        with pytest.raises(ConnectionResetError):
            await taking.line.room()

    over_sockets(body)
