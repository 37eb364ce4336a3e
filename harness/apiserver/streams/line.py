"""An upgraded connection: reads and writes bytes, with flow control in both directions."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

HELD: Final = 256 * 1024  # bytes of unconsumed input at which reading stops
UNREAD: Final = 1 << 20  # bytes of unsent output at which reading stops
_POLL_INTERVAL = 1.0  # seconds between checks of a connection that is not read
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6))  # seconds, seconds, times
_GONE = frozenset({7, 8, 9, 11})  # TCP states on Linux: CLOSE, CLOSE_WAIT, LAST_ACK, CLOSING


class Session(Protocol):
    """The protocol that a connection was upgraded to."""

    def received(self, data: bytes) -> None:
        """Handle data from the client."""

    def lost(self) -> None:
        """Handle the loss of the connection."""


class Line:
    """The connection as a session sees it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, close: Callable[[], None]
    ) -> None:
        """`close` ends the connection after all output is sent."""
        self._loop, self._transport, self._close = loop, transport, close
        self._room = asyncio.Event()
        self._room.set()
        self._holds = 0
        self._timer: asyncio.TimerHandle | None = None
        self._open = True
        self._flooded = False  # reading stopped: the client does not read its responses
        self._plug = transport.get_extra_info("socket")
        if self._plug is not None and self._plug.family != socket.AF_UNIX:
            for option, value in _KEEPALIVE:  # detects a vanished peer within two minutes
                self._plug.setsockopt(socket.IPPROTO_TCP, option, value)

    def write(self, data: bytes) -> None:
        """Send data. Senders of much data await `room` in between."""
        if self._open and not self._transport.is_closing():
            self._transport.write(data)
            if not self._flooded and self._transport.get_write_buffer_size() > UNREAD:
                self._flooded = True
                self.hold()

    @property
    def stuck(self) -> bool:
        """Whether the write buffer is full."""
        return not self._room.is_set()

    async def room(self) -> None:
        """Wait until the write buffer has drained.

        Raises:
            ConnectionResetError: the client is gone.
        """
        await self._room.wait()
        if not self._open:
            raise ConnectionResetError("the client is gone")

    def close(self) -> None:
        """Close the connection after all output is sent."""
        if self._open:
            self._close()

    def abort(self) -> None:
        """Abort the connection."""
        if self._open:
            self._transport.abort()

    # -- reading ------------------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Stop reading until each hold is released."""
        self._holds += 1
        if self._holds == 1 and self._open:
            self._transport.pause_reading()
            self._poll_later()

    def release(self) -> None:
        """Release one hold."""
        self._holds -= 1
        if self._holds == 0 and self._open:
            if self._timer is not None:
                self._timer.cancel()
            self._transport.resume_reading()

    def _poll_later(self) -> None:
        self._timer = self._loop.call_later(_POLL_INTERVAL, self._poll)

    def _poll(self) -> None:
        """Check for the end of the connection, which the event loop does not report while reading is paused."""
        if not self._open:
            return
        if self._plug is not None and self._plug.family != socket.AF_UNIX:
            state = self._plug.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
            if state in _GONE:
                self._transport.abort()
                return
        self._poll_later()

    # -- events of the connection -------------------------------------------------------------------------------------

    def paused(self) -> None:
        """The write buffer is full."""
        self._room.clear()

    def resumed(self) -> None:
        """The write buffer has drained."""
        self._room.set()
        if self._flooded:
            self._flooded = False
            self.release()

    def lost(self) -> None:
        """The connection is lost."""
        self._open = False
        self._room.set()
        if self._timer is not None:
            self._timer.cancel()


class Inlet:
    """A queue of input for one receiver; stops reading while it is too long."""

    def __init__(self, line: Line, limit: int = HELD) -> None:
        self._line, self._limit = line, limit
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._ended = self._holding = self._shut = False
        self._news = asyncio.Event()

    def put(self, data: bytes) -> None:
        """Add data; ignored after `end` or `shut`."""
        if not data or self._ended or self._shut:
            return
        self._waiting.append(data)
        self._size += len(data)
        self._news.set()
        if self._size > self._limit and not self._holding:
            self._holding = True
            self._line.hold()

    def end(self) -> None:
        """Mark the end of the input."""
        self._ended = True
        self._news.set()

    def shut(self) -> None:
        """Discard the queue and all further input: there is no receiver any more."""
        self._shut = True
        self._waiting.clear()
        self._size = 0
        self._release()
        self._news.set()

    async def take(self) -> bytes:
        """The next data; empty at the end of the input."""
        while not self._waiting:
            if self._ended or self._shut:
                return b""
            self._news.clear()
            await self._news.wait()
        data = self._waiting.popleft()
        self._size -= len(data)
        if self._size <= self._limit // 2:
            self._release()
        return data

    def _release(self) -> None:
        if self._holding:
            self._holding = False
            self._line.release()
