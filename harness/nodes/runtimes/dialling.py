"""Connections to ports of pods that share this machine's network."""

import asyncio
import contextlib
import errno
import os
from collections.abc import Iterable

from seatrial.harness.apiserver.conversation import Pipe
from seatrial.harness.nodes.container_error import ContainerError
from seatrial.harness.nodes.runtimes.descriptors import PIECE

LOOPBACKS = ("127.0.0.1", "::1")
WITHIN = 10.0  # seconds for a connection


class SocketPipe(Pipe):
    """A TCP connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        return await self._reader.read(PIECE)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def end_input(self) -> None:
        if not self._writer.is_closing():
            with contextlib.suppress(OSError):  # the peer has closed the connection
                self._writer.write_eof()

    def close(self) -> None:
        self._writer.transport.abort()


async def dial(hosts: Iterable[str], port: int) -> Pipe:
    """A connection to the first of `hosts` that accepts one.

    Raises:
        ContainerError: none of them accepts one.
    """
    refusals = []
    for host in hosts:
        try:
            async with asyncio.timeout(WITHIN):
                return SocketPipe(*await asyncio.open_connection(host, port, limit=PIECE))
        except TimeoutError:
            refusals.append(f"{host}: no answer within {WITHIN:.0f} s")
        except OSError as error:
            why = os.strerror(error.errno) if error.errno and error.errno in errno.errorcode else str(error)
            refusals.append(f"{host}: {why}")
    raise ContainerError(f"nothing listens on port {port}: {', '.join(refusals)}")
