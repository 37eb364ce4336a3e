"""A watch on its way into a socket: lines become chunks, and a reader that does not read is cut off."""

import asyncio
import logging
import math
from typing import Protocol

from harness.apiserver.storage.watch import fell_behind
from harness.apiserver.streams.responses import Closable

log = logging.getLogger(__name__)

SLOW_READER = 8 * 1024 * 1024  # bytes that a watch may wait in our memory before its reader is cut off
GATHER = 0.002  # seconds in which the lines of a busy watch gather: encryption and a system call for all at once


class Ended(Protocol):
    def __call__(self, *, orderly: bool) -> None: ...


class Watcher:
    """Writes lines as chunks; a Reader. A line after a pause goes out at once, a stream of lines every few ms."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, on_end: Ended) -> None:
        self._loop, self._transport, self._on_end = loop, transport, on_end
        self._source: Closable | None = None
        self._open = True
        self._orderly = True
        self._allowed = SLOW_READER
        self._gathered: list[bytes] = []
        self._written = -math.inf  # when, on the loop's clock
        self._planned: asyncio.TimerHandle | None = None

    def follow(self, source: Closable) -> None:
        self._source = source
        # What there was at the beginning may be large, and needs its time to be read without that being slowness.
        self._allowed = SLOW_READER + self._transport.get_write_buffer_size()
        if not self._open:
            source.close()

    def feed(self, data: bytes) -> bool:
        transport = self._transport
        if not self._open or transport.is_closing():
            return False
        if self._source is None:  # what there was at the beginning
            self._chunk(data)
            return True
        self._gathered.append(data)
        if self._planned is not None:
            return True
        now = self._loop.time()
        if now - self._written < GATHER:
            self._planned = self._loop.call_at(self._written + GATHER, self._flush)
            return True
        self._written = now
        return self._write_out()

    def _flush(self) -> None:
        self._planned = None
        self._written = self._loop.time()
        if self._open and not self._transport.is_closing() and not self._write_out():
            self.end()
            if self._source is not None:
                self._source.close()

    def _write_out(self) -> bool:
        """Write what has gathered; False: the reader is too slow, and has been told so."""
        waiting = self._transport.get_write_buffer_size()
        gathered, self._gathered = self._gathered, []
        if waiting > self._allowed:
            log.warning("watch cut-off why=reader-too-slow bytes=%d", waiting)
            self._chunk(fell_behind())
            self._orderly = False
            return False
        if waiting < SLOW_READER:
            self._allowed = SLOW_READER
        if gathered:
            self._chunk(gathered[0] if len(gathered) == 1 else b"".join(gathered))
        return True

    def _chunk(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def end(self) -> None:
        if not self._open:
            return
        if self._gathered and not self._transport.is_closing():
            self._write_out()
        self._stop()
        if not self._transport.is_closing():
            self._transport.write(b"0\r\n\r\n")
            self._on_end(orderly=self._orderly)

    def gone(self) -> None:
        self._stop()
        if self._source is not None:
            self._source.close()

    def _stop(self) -> None:
        self._open = False
        if self._planned is not None:
            self._planned.cancel()
            self._planned = None
