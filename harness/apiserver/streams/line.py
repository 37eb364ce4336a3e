"""A connection that has left HTTP behind: bytes both ways, each way with a brake."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

HELD: Final = 256 * 1024  # bytes from a client that may wait for whoever takes them before no more is read
UNREAD: Final = 1 << 20  # bytes of ours that may wait for a client before no more is read from it
_LOOK_EVERY = 1.0  # seconds between looks at whether a client that we do not read is still there
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 6))  # seconds, seconds, times
_GONE = frozenset({7, 8, 9, 11})  # Linux' numbers for CLOSE, CLOSE_WAIT, LAST_ACK, CLOSING


class Session(Protocol):
    """What speaks on a line."""

    def received(self, data: bytes) -> None:
        """The client has sent something."""

    def lost(self) -> None:
        """The line is gone."""


class Line:
    """What a session sees of its connection."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, close: Callable[[], None]
    ) -> None:
        """`close` ends the connection once what was written has been taken."""
        self._loop, self._transport, self._close = loop, transport, close
        self._room = asyncio.Event()
        self._room.set()
        self._holds = 0
        self._timer: asyncio.TimerHandle | None = None
        self._open = True
        self._flooded = False  # by answers to what the client sends without reading them
        self._plug = transport.get_extra_info("socket")
        if self._plug is not None and self._plug.family != socket.AF_UNIX:
            for option, value in _KEEPALIVE:  # a peer that vanished without a word is found within two minutes
                self._plug.setsockopt(socket.IPPROTO_TCP, option, value)

    def write(self, data: bytes) -> None:
        """Send; whoever sends much waits for `room` in between."""
        if self._open and not self._transport.is_closing():
            self._transport.write(data)
            if not self._flooded and self._transport.get_write_buffer_size() > UNREAD:
                self._flooded = True
                self.hold()

    @property
    def stuck(self) -> bool:
        """Whether the client takes nothing just now."""
        return not self._room.is_set()

    async def room(self) -> None:
        """Wait until the client has taken most of what was written.

        Raises:
            ConnectionResetError: it is gone.
        """
        await self._room.wait()
        if not self._open:
            raise ConnectionResetError("the client is gone")

    def close(self) -> None:
        """End the connection in order."""
        if self._open:
            self._close()

    def abort(self) -> None:
        """End it at once."""
        if self._open:
            self._transport.abort()

    # -- reading -------------------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Read no more until as many releases as holds have come."""
        self._holds += 1
        if self._holds == 1 and self._open:
            self._transport.pause_reading()
            self._look_later()

    def release(self) -> None:
        """Take back one hold."""
        self._holds -= 1
        if self._holds == 0 and self._open:
            if self._timer is not None:
                self._timer.cancel()
            self._transport.resume_reading()

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(_LOOK_EVERY, self._look)

    def _look(self) -> None:
        """The loop does not tell of the end of a connection that it does not read."""
        if not self._open:
            return
        if self._plug is not None and self._plug.family != socket.AF_UNIX:
            state = self._plug.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
            if state in _GONE:
                self._transport.abort()
                return
        self._look_later()

    # -- the connection's news -----------------------------------------------------------------------------------------

    def paused(self) -> None:
        """The client does not take what we write."""
        self._room.clear()

    def resumed(self) -> None:
        """It does again."""
        self._room.set()
        if self._flooded:
            self._flooded = False
            self.release()

    def lost(self) -> None:
        """It is over."""
        self._open = False
        self._room.set()
        if self._timer is not None:
            self._timer.cancel()


class Inlet:
    """What a client sends for one receiver, in order; holds the line while too much of it waits."""

    def __init__(self, line: Line, most: int = HELD) -> None:
        self._line, self._most = line, most
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._ended = self._holding = self._shut = False
        self._news = asyncio.Event()

    def put(self, data: bytes) -> None:
        """More has come; nothing where nobody wants more."""
        if not data or self._ended or self._shut:
            return
        self._waiting.append(data)
        self._size += len(data)
        self._news.set()
        if self._size > self._most and not self._holding:
            self._holding = True
            self._line.hold()

    def end(self) -> None:
        """Nothing more comes."""
        self._ended = True
        self._news.set()

    def shut(self) -> None:
        """Nobody takes any more: what waits and what comes is thrown away."""
        self._shut = True
        self._waiting.clear()
        self._size = 0
        self._let_go()
        self._news.set()

    async def take(self) -> bytes:
        """What has come next; empty at the end."""
        while not self._waiting:
            if self._ended or self._shut:
                return b""
            self._news.clear()
            await self._news.wait()
        data = self._waiting.popleft()
        self._size -= len(data)
        if self._size <= self._most // 2:
            self._let_go()
        return data

    def _let_go(self) -> None:
        if self._holding:
            self._holding = False
            self._line.release()
