"""File descriptors on the event loop: read and written one piece at a time, when they are ready."""

import asyncio
import contextlib
import fcntl
import os
import struct
import termios
from collections.abc import Callable

from seatrial.scheduler.api.clock import Clock

PIECE = 1 << 16


def settle(wait: "asyncio.Future[None]") -> None:
    """Complete `wait`; no effect if it is done or cancelled."""
    if not wait.done():
        wait.set_result(None)


async def pause(clock: Clock, seconds: float) -> None:
    """Wait for that many seconds of the clock."""
    wait: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, lambda: settle(wait))
    try:
        await wait
    finally:
        timer.cancel()


class Descriptor:
    """A pipe, a FIFO or a terminal. One reader and one writer at a time."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._loop = asyncio.get_running_loop()
        self._waits: set[asyncio.Future[None]] = set()
        os.set_blocking(number, False)

    async def read(self) -> bytes:
        """The next data; empty at the end of file."""
        while self._number >= 0:
            try:
                return os.read(self._number, PIECE)
            except BlockingIOError:
                await self._ready(self._loop.add_reader, self._loop.remove_reader)
            except OSError:
                break  # EIO: no process has the terminal open any more
        return b""

    async def write(self, data: bytes) -> bool:
        """Write all of it. False if the reading end is closed."""
        while data and self._number >= 0:
            try:
                data = data[os.write(self._number, data) :]
            except BlockingIOError:
                await self._ready(self._loop.add_writer, self._loop.remove_writer)
            except OSError:
                return False
        return not data

    def type(self, data: bytes) -> None:
        """Write without waiting; data beyond the free space is lost."""
        if self._number >= 0:
            with contextlib.suppress(OSError):
                os.write(self._number, data)

    def resize(self, columns: int, rows: int) -> None:
        """Set the terminal's size."""
        if self._number >= 0:
            fcntl.ioctl(self._number, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> None:
        """Close it; pending reads and writes end. A second call has no effect."""
        number, self._number = self._number, -1
        if number >= 0:
            for wait in tuple(self._waits):
                settle(wait)
            with contextlib.suppress(OSError):
                self._loop.remove_reader(number)
                self._loop.remove_writer(number)
            os.close(number)

    async def _ready(self, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        number, wait = self._number, self._loop.create_future()
        self._waits.add(wait)
        add(number, settle, wait)
        try:
            await wait
        finally:
            self._waits.discard(wait)
            if self._number == number:
                remove(number)
